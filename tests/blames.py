"""What a refusal must say where code, field and value leave it open: a peer's message, or a word of the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from labelward.errors import Code, LabelwardError, PeerError
from refusals import refused

_MOST_WORDS = 4


@contextmanager
def blamed(
    peer: str,
    code: Code,
    *,
    message: str | None = None,
    step: tuple[int, ...] | None = None,
    kind: type[PeerError] = PeerError,
    about: str = "",
    **data: Any,
) -> Iterator[pytest.ExceptionInfo[LabelwardError]]:
    """Expect an error that blames this peer for this message and step (None: for none), with this code."""
    with refused_about(about, kind, code, **data) as caught:
        yield caught
    error = caught.value
    assert isinstance(error, PeerError)
    said = (type(error), error.peer, error.message, error.step)
    assert said == (kind, peer, message, step), f"{said} of {error!r}"


@contextmanager
def refused_about(
    about: str, kind: type[LabelwardError], code: Code, **data: Any
) -> Iterator[pytest.ExceptionInfo[LabelwardError]]:
    """Expect what :func:`refused` does, and a name or a few words in the reason that say which of several it is."""
    assert len(about.split()) <= _MOST_WORDS, f"{about!r} is a sentence"
    with refused(kind, code, **data) as caught:
        yield caught
    assert about in caught.value.reason, f"{about!r} is not in {caught.value.reason!r}"
