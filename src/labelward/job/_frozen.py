"""A mapping that cannot change, so that what holds it can be compared, hashed and used as a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

__all__ = ["Frozen"]

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
