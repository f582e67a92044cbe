"""Registry: the components of one family by the name that a job file uses; modules are imported only when needed.

An entry is ``"module:Class"``, relative to the package that holds the list. A class is a dataclass of parameters;
unknown names and parameters are refused with the known ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any, Generic, TypeVar

from labelward.errors import InputError, JobError, suggestion, unknown_name

T = TypeVar("T")


class Registry(Generic[T]):
    """The components of one family: attacks, defenses or models.

    Args:
        family: singular name of the family, for errors.
        package: package to which entries are relative.
        entries: ``"module:Class"`` strings; each class has a ``kind``.
    """

    def __init__(self, family: str, package: str, entries: Sequence[str]) -> None:
        self.family, self._package, self._entries = family, package, tuple(entries)

    def classes(self) -> dict[str, type[T]]:
        """Return all classes by kind, in the order of the list."""
        classes: dict[str, type[T]] = {}
        for entry in self._entries:
            module, _, name = entry.partition(":")
            cls = getattr(import_module(f".{module}", self._package), name)
            if cls.kind in classes:
                raise ValueError(f"two {self.family}s are called {cls.kind!r}")
            classes[cls.kind] = cls
        return classes

    def make(self, kind: str, params: Mapping[str, Any]) -> T:
        """Return a component with these parameters.

        Raises:
            JobError: an unknown component, or an unknown, missing or invalid parameter.
        """
        known = self.classes()
        if kind not in known:
            raise JobError(unknown_name(self.family, kind, known), code="unknown", value=kind)
        cls: Any = known[kind]
        place = f"{self.family} {kind!r}"
        parameters = {field.name: field for field in fields(cls) if field.init}
        for name in params:
            if name not in parameters:
                hint = f"{suggestion(name, parameters)}; known: {', '.join(sorted(parameters)) or 'none'}"
                raise JobError(f"unknown parameter {name!r} of {place}{hint}", code="unknown", value=name)
        for name, field in parameters.items():
            if name not in params and field.default is MISSING and field.default_factory is MISSING:
                raise JobError("required; there is no default", code="missing", field=name).within(place)
        try:
            component: T = cls(**params)
        except InputError as error:
            placed = error if error.field.startswith("[") else error.within(place)
            raise placed.translated(JobError) from error
        return component
