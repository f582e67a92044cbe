"""Registry: the components of one family by the name that a job file uses; modules are imported only when needed.

An entry is ``"module:Class"``, relative to the package that holds the list; other packages add theirs as
:mod:`~labelward.extensions`, and a program by :meth:`Registry.add`. A class is a dataclass of parameters; unknown names
and parameters are refused with the known ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, Generic, TypeVar

from labelward.errors import DependencyError, InputError, JobError, suggestion, unknown_name
from labelward.extensions import Group, loaded

T = TypeVar("T")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Registry(Generic[T]):
    """The components of one family: attacks, defenses or models.

    Args:
        family: singular name of the family, for errors.
        package: package to which entries are relative; empty: they are not.
        entries: ``"module:Class"`` strings; each class has a ``kind``.
        group: of the extensions that belong to it; None: it has none of its own.
    """

    def __init__(self, family: str, package: str, entries: Sequence[str], group: Group | None = None) -> None:
        self.family, self._package, self._entries, self._group = family, package, tuple(entries), group
        self._added: list[type[T]] = []

    def classes(self) -> dict[str, type[T]]:
        """Return all classes by kind: in the order of the list, then those of extensions, then those added here.

        Raises:
            DependencyError: an extension has the kind of another component.
        """
        classes: dict[str, type[T]] = dict(_imported(self.family, self._package, tuple(self._entries)))
        for name, cls in (loaded(self._group) if self._group else {}).items():
            if name in classes or name != cls.kind:
                reason = f"is the entry point of a class of kind {cls.kind!r}; each {self.family} has a kind of its own"
                raise DependencyError(reason, code="duplicate", field=f"labelward.{self._group} {name!r}", value=name)
            classes[name] = cls
        return classes | {cls.kind: cls for cls in self._added}  # type: ignore[attr-defined]

    def add(self, cls: type[T]) -> None:
        """Add a class in this process, so that jobs may name its kind; a class that is there already stays.

        Raises:
            InputError: another class has this kind, the kind is no name, or the class is no dataclass.
        """
        kind = getattr(cls, "kind", None)
        place = f"{self.family} {kind!r}"
        if not is_dataclass(cls):
            reason = "must be a dataclass; write @dataclass(frozen=True, kw_only=True) above the class"
            raise InputError(reason, code="type", field=place, value=cls.__name__)
        if not isinstance(kind, str) or not _NAME.fullmatch(kind) or kind == "none":
            reason = "kind must be lower-case words with hyphens, such as 'last-tree'"
            raise InputError(reason, code="type", field=place, value=kind)
        known = self.classes().get(kind)
        if known is None:
            self._added.append(cls)
        elif known is not cls:
            reason = f"another {self.family} has this kind; give the class one of its own"
            raise InputError(reason, code="duplicate", field=place, value=kind)

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


@cache
def _imported(family: str, package: str, entries: tuple[str, ...]) -> dict[str, Any]:
    """Return the classes of a list by kind."""
    classes: dict[str, Any] = {}
    for entry in entries:
        module, _, name = entry.partition(":")
        cls = getattr(import_module(f"{package}.{module}" if package else module), name)
        if cls.kind in classes:
            raise ValueError(f"two {family}s are called {cls.kind!r}")
        classes[cls.kind] = cls
    return classes
