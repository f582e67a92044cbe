"""Monotone constraints, in the forms that XGBoost accepts."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from labelward.estimators._columns import EncodedColumns, position_of
from labelward.estimators._errors import InvalidInputError

_TEXT = re.compile(r"\(\s*([+-]?\d+(?:\s*,\s*[+-]?\d+)*)\s*,?\s*\)")
_NAME = "monotone_constraints"


def parse_monotone(given: Any, columns: EncodedColumns, *, named: bool) -> dict[int, int]:
    """Return the constraint, 1 or -1, by position of a column in X.

    Args:
        given: a dictionary by name or position, a sequence with a direction for each column of X, or its text form such
            as ``"(1,0,-1)"``; None: no constraints.
        named: whether the columns of X have names.

    Raises:
        ValueError: the form or length is wrong, a column does not exist, is listed twice or is categorical, or a
            direction is not 1, -1 or 0.
    """
    if given is None:
        return {}
    directions: dict[int, int] = {}
    for column, direction in _pairs(given, columns.names):
        place = position_of(column, columns.names, _NAME, named=named)
        whole = isinstance(direction, int | np.integer) and not isinstance(direction, bool)
        if not whole or direction not in (-1, 0, 1):
            raise InvalidInputError(
                f"must be 1, -1 or 0, but {column!r} has {direction!r}", code="choice", field=_NAME, value=direction
            )
        if direction and columns.names[place] in columns.categories:
            name = columns.names[place]
            reason = f"{name!r} is categorical and cannot have the constraint {direction!r}"
            raise InvalidInputError(reason, code="unsupported", field=_NAME, value=name)
        if place in directions:
            reason = f"column {columns.names[place]!r} is listed by name and by position"
            raise InvalidInputError(reason, code="duplicate", field=_NAME, value=columns.names[place])
        directions[place] = int(direction)
    return {place: direction for place, direction in directions.items() if direction}


def _pairs(given: Any, names: Sequence[str]) -> list[tuple[Any, Any]]:
    """Return pairs of a column (name or position) and its direction."""
    if isinstance(given, Mapping):
        return list(given.items())
    each = given
    if isinstance(given, str) and (text := _TEXT.fullmatch(given.strip())):
        each = [int(number) for number in text[1].split(",")]
    elif isinstance(given, np.ndarray) and given.ndim == 1:
        each = given.tolist()
    if not isinstance(each, list | tuple):
        wanted = "a dictionary by column, or a list with 1, -1 or 0 for each column of X"
        raise InvalidInputError(f"must be {wanted}, but got {given!r}", code="type", field=_NAME, value=given)
    if len(each) != len(names):
        reason = f"must have one direction for each of the {len(names)} columns of X but has {len(each)}"
        raise InvalidInputError(reason, code="range", field=_NAME, value=len(each))
    return list(enumerate(each))
