"""A mapping that cannot change, so that what holds it can be compared, hashed and used as a key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from labelward.errors import JobError

__all__ = ["Frozen", "freeze", "thaw"]

_Value = TypeVar("_Value")


class Frozen(Mapping[str, _Value]):
    """Values by name."""

    def __init__(self, items: Mapping[str, _Value]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> _Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def freeze(place: str, value: Any) -> Any:
    """Return a value of a job file with lists as tuples; refuse what is no number, text, boolean or list."""
    if isinstance(value, list | tuple):
        return tuple(freeze(place, one) for one in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise JobError(f"must be finite but got {value}", code="range", field=place, value=value)
    if value is not None and not isinstance(value, bool | int | float | str):
        raise JobError(
            f"must be a number, a text, true, false or a list of these but got {value!r}",
            code="type",
            field=place,
            value=value,
        )
    return value


def thaw(value: Any) -> Any:
    """Return a frozen value as JSON has it."""
    return [thaw(one) for one in value] if isinstance(value, tuple) else value
