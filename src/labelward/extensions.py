"""Extensions: components of other installed packages, found by their entry points.

::

    [project.entry-points."labelward.attacks"]
    one-tree = "their_package.one_tree:OneTree"

| group | name | object |
|---|---|---|
| ``labelward.attacks`` | the ``kind`` | subclass of :class:`labelward.attacks.base.Attack` |
| ``labelward.defenses`` | the ``kind`` | subclass of :class:`labelward.policy.base.Policy` |
| ``labelward.engines`` | name in ``[encryption] engine`` | subclass of :class:`labelward.he.base.Engine` |
| ``labelward.families`` | any | :class:`labelward.families.FamilyEntry`, with its ``package`` |
| ``labelward.tables`` | suffix of a file, without the dot | :data:`labelward.job.table_formats.Reader` |

A name that labelward has itself, or that two packages have, is refused. A package is imported when one of its
components is asked for or listed; one that cannot be imported is left out with a warning.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Literal

from labelward.errors import DependencyError, LabelwardWarning

Group = Literal["attacks", "defenses", "engines", "families", "tables"]


_NEEDED: dict[Group, tuple[str, ...]] = {
    "attacks": ("kind", "__dataclass_fields__"),
    "defenses": ("kind", "__dataclass_fields__"),
    "engines": ("name", "secure", "Parameters"),
    "families": ("family", "models", "messages", "package"),
    "tables": ("__call__",),
}
"""What the object of an entry point of a group has."""


class ExtensionWarning(LabelwardWarning):
    """An installed extension that cannot be used."""


@cache
def extensions(group: Group) -> MappingProxyType[str, EntryPoint]:
    """Return the entry points of a group by name.

    Raises:
        DependencyError: two packages have the same name.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"labelward.{group}"):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            reason = f"is in {_package(other)} and in {_package(point)}; uninstall one of them"
            raise DependencyError(reason, code="duplicate", field=f"labelward.{group} {point.name!r}", value=point.name)
    return MappingProxyType(found)


def load(group: Group, name: str) -> Any:
    """Return the object of an extension.

    Raises:
        DependencyError: there is no such extension, or it cannot be imported, or is none of this group.
    """
    point = extensions(group)[name]
    try:
        found = point.load()
        lacking = [needed for needed in _NEEDED[group] if not hasattr(found, needed)]
        if lacking:
            raise TypeError(f"{point.value!r} has no {', '.join(lacking)}")
        return found
    except Exception as error:
        reason = f"{_package(point)} cannot be loaded ({type(error).__name__}: {error}); update or uninstall it"
        raise DependencyError(reason, code="dependency", field=f"labelward.{group} {name!r}", value=name) from error


def loaded(group: Group) -> dict[str, Any]:
    """Return the objects of all extensions of a group that can be imported; warn of the others."""
    found: dict[str, Any] = {}
    for name in extensions(group):
        try:
            found[name] = load(group, name)
        except DependencyError as error:
            warnings.warn(f"{error}", ExtensionWarning, stacklevel=2)
    return found


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name!r}" if point.dist is not None else f"{point.value!r}"
