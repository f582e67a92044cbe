"""Short names of defenses and attacks, for folders and text: parameters at their defaults are omitted.

The first parameter is always named, the others only if they differ from the default, and never if they are None. A
component therefore has one name with or without explicit defaults, and a later parameter with a default changes none.
Labels, not folders, say of each privacy budget what it covers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from typing import Any

from labelward.job.components import ComponentSpec, Variant
from labelward.policy.base import BudgetScope


def without_defaults(kind: ComponentSpec) -> ComponentSpec:
    """Return a defense or an attack with only the parameters of its short name; all of them for an unknown kind."""
    known = _parameters(kind.kind) if kind.params else {}
    first = next(iter(known), None)
    params = {
        name: value
        for name, value in kind.params.items()
        if value is not None and (name not in known or name == first or value != _default(known[name]))
    }
    covers = {name: scope.covers for name, scope in budget_scopes(kind).items() if scope.labeled}
    return ComponentSpec(kind.kind, params, covers)


def budget_scopes(kind: ComponentSpec) -> Mapping[str, BudgetScope]:
    """Return what each budget among a defense's parameters covers; empty for attacks and unknown kinds."""
    from labelward.defenses import DEFENSES

    classes = DEFENSES.classes()
    return classes[kind.kind].scopes(kind.params) if kind.kind in classes else {}


def variant_without_defaults(variant: Variant) -> Variant:
    """Apply :func:`without_defaults` to each defense of a variant: ``slug`` and ``label`` then name its runs."""
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
