"""How folders and people call defenses and attacks: without the parameters that are at their defaults.

A kind's first parameter is named always, the others where they differ from the default, those that are None never. So
what was asked for with and without its defaults has one name, and a parameter that gets a default later changes none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from typing import Any

from labelward.job.components import ComponentSpec, Variant


def without_defaults(kind: ComponentSpec) -> ComponentSpec:
    """Return a defense or an attack with the parameters that its name holds; all of them for an unknown kind."""
    known = _parameters(kind.kind) if kind.params else {}
    first = next(iter(known), None)
    shown = {
        name: value
        for name, value in kind.params.items()
        if value is not None and (name not in known or name == first or value != _default(known[name]))
    }
    return ComponentSpec(kind.kind, shown)


def variant_without_defaults(variant: Variant) -> Variant:
    """Return a variant of :func:`without_defaults` defenses: its ``slug`` and ``label`` are the names of its runs."""
    return replace(variant, chain=tuple(map(without_defaults, variant.chain)))


def _parameters(kind: str) -> Mapping[str, Field[Any]]:
    from labelward.attacks import ATTACKS
    from labelward.defenses import DEFENSES

    for classes in (DEFENSES.classes(), ATTACKS.classes()):
        if kind in classes:
            return {field.name: field for field in fields(classes[kind]) if field.init}  # type: ignore[arg-type]
    return {}


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
