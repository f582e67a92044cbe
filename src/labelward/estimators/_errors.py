"""Errors in the form that scikit-learn expects: invalid user input is a :class:`ValueError`."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from labelward.errors import DependencyError, EncryptionError, InputError, PolicyError

_KEY = re.compile(r"\[(?:model|encryption)\] (\w+)")


class InvalidInputError(InputError, ValueError):
    """Invalid input to an estimator; the message names the value and the parameter."""


@contextmanager
def value_errors(names: Mapping[str, str]) -> Iterator[None]:
    """Convert errors about user input to :class:`InvalidInputError`.

    Args:
        names: the estimator's parameter for each key of a job's sections, such as ``"trees"``, in errors.
    """
    try:
        yield
    except DependencyError:
        raise
    except (InputError, PolicyError, EncryptionError) as error:
        if isinstance(error, ValueError):
            raise
        key = _KEY.fullmatch(error.field)
        if not key:
            raise error.translated(InvalidInputError) from error
        name = names.get(key[1], key[1])
        raise InvalidInputError(error.reason, code=error.code, field=name, value=error.value) from error
