"""A list of names that a file may use: ``kind -> class``, each module imported only when it is asked for.

An entry is ``"module:Class"``, relative to the package that holds the list. A kind's class is a dataclass of
parameters; an unknown kind or parameter is refused with the known ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any, Generic, TypeVar

from labelward.errors import InputError, JobError, unknown_name

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """The kinds of one family (attacks, defenses, models).

    Args:
        what: the family's name in messages.
        package: where relative entries are found.
        entries: ``"module:Class"`` strings; each class has a ``kind``.
    """

    def __init__(self, what: str, package: str, entries: Sequence[str]) -> None:
        self.what, self._package, self._entries = what, package, tuple(entries)

    def classes(self) -> dict[str, type[T]]:
        """Return all classes by kind, in the order of the list."""
        found: dict[str, type[T]] = {}
        for entry in self._entries:
            module, _, name = entry.partition(":")
            cls = getattr(import_module(f".{module}", self._package), name)
            if cls.kind in found:
                raise ValueError(f"two {self.what}s are called {cls.kind!r}")
            found[cls.kind] = cls
        return found

    def make(self, kind: str, params: Mapping[str, Any]) -> T:
        """Return the object of a kind with these parameters.

        Raises:
            JobError: an unknown kind, an unknown, missing or unfit parameter; names it.
        """
        known = self.classes()
        if kind not in known:
            raise JobError(unknown_name(self.what, kind, known), code="unknown", value=kind)
        cls: Any = known[kind]
        names = {field.name: field for field in fields(cls) if field.init}
        for name in params:
            if name not in names:
                raise JobError(
                    unknown_name(f"parameter of {self.what} {kind!r}", name, names), code="unknown", value=name
                )
        for name, field in names.items():
            if name not in params and field.default is MISSING and field.default_factory is MISSING:
                raise JobError(
                    f"{self.what} {kind!r} needs a value for {name!r}; there is no default", code="missing", value=name
                )
        try:
            made: T = cls(**params)
        except InputError as error:
            placed = error if error.field.startswith("[") else error.within(f"{self.what} {kind!r}")
            raise placed.translated(JobError) from error
        return made
