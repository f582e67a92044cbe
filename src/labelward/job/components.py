"""Components that a job names (model, attacks, defenses) with raw parameters, and the variants to run.

Only their form is checked here; which components exist, and which parameters they take, is checked on construction.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from labelward.errors import JobError
from labelward.parameters import Text, as_written, check_value

_LONGEST_SLUG = 120

_Value = TypeVar("_Value")


class FrozenDict(Mapping[str, _Value]):
    """An immutable, hashable mapping, so that the sections of a job can be compared and used as keys."""

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


@dataclass(frozen=True)
class ComponentSpec:
    """A model, attack or defense as a job names it.

    Attributes:
        kind: name of the component, such as ``"id-lmid"``.
        params: parameters as given: numbers, texts, booleans, None, or lists or tables of these (stored as tuples and
            immutable mappings).
        covers: of what one each budget among them is, for labels.
    """

    kind: str
    params: Mapping[str, Any] = field(default_factory=dict)
    covers: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_value("kind", self.kind, Text)
        if "kind" in self.params:
            reason = "is the name of the component and cannot be a parameter"
            field = f"parameter 'kind' of {self.kind!r}"
            raise JobError(reason, code="duplicate", field=field, value=self.params["kind"])
        frozen = {key: freeze(f"{key} of {self.kind!r}", value) for key, value in self.params.items()}
        object.__setattr__(self, "params", FrozenDict(frozen))

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ComponentSpec:
        """Return what :meth:`as_dict` gave the form of a file."""
        return cls(stored["kind"], {key: value for key, value in stored.items() if key != "kind"})

    def without(self, parameter: str) -> ComponentSpec:
        """Return the same without a parameter, if it is there."""
        return ComponentSpec(self.kind, {key: value for key, value in self.params.items() if key != parameter})

    def as_dict(self) -> dict[str, Any]:
        """Return the form in a file: ``kind`` and the parameters in one dictionary."""
        return {"kind": self.kind} | {key: thaw(value) for key, value in self.params.items()}

    @property
    def slug(self) -> str:
        """Name and parameters in alphabetical order, in characters that every file system accepts."""
        parts = [self.kind]
        for key in sorted(self.params):
            parts += [key, _word(self.params[key])]
        return "-".join(quote(part, safe="") for part in parts)

    @property
    def label(self) -> str:
        """Display name, such as ``id-lmid (xi 0.5)`` or ``lp-mst (epsilon 1.0 per training label)``."""
        words = [f"{key} {_word(value)} {self.covers.get(key, '')}".strip() for key, value in self.params.items()]
        params = ", ".join(words)
        return f"{self.kind} ({params})" if params else self.kind


@dataclass(frozen=True)
class Variant:
    """The defenses of one run, in the order in which they are composed; none for the undefended run.

    Attributes:
        entry: number of the ``[[defense]]`` entry in the job file, from 1, for errors; 0: none.
    """

    chain: tuple[ComponentSpec, ...] = ()
    entry: int = field(default=0, compare=False)

    def part(self, party: str | None) -> Variant:
        """Return the defenses that are given to a party (its key ``party``); None: those that name no party."""
        return Variant(tuple(spec for spec in self.chain if spec.params.get("party") == party), self.entry)

    @property
    def slug(self) -> str:
        """Name of the run's folder: ``none``, ``id-lmid-xi-0.5``, ``local-trees-count-1+id-lmid-xi-1.0``."""
        slug = "+".join(spec.slug for spec in self.chain) or "none"
        if len(slug) <= _LONGEST_SLUG:
            return slug
        digest = hashlib.sha256(slug.encode()).hexdigest()[:12]
        return f"{slug[: _LONGEST_SLUG - 13]}-{digest}"

    @property
    def label(self) -> str:
        """Display name, such as ``local-trees (count 1) + id-lmid (xi 0.5)``."""
        return " + ".join(spec.label for spec in self.chain) or "no defense"

    def as_list(self) -> list[dict[str, Any]]:
        """Return the form in results: a list of objects, empty without defense."""
        return [spec.as_dict() for spec in self.chain]


def sweep(entry: Mapping[str, Any], place: int = 0) -> tuple[Variant, ...]:
    """Return the variants of one ``[[defense]]`` entry: every combination of the values in its lists.

    Args:
        entry: ``kind`` and parameters, or only ``chain``: a list of such entries, to be composed.
        place: number of the entry in its file, from 1.

    Raises:
        JobError: no kind, an empty list, or a chain with other keys or inside a chain.
    """
    if "chain" not in entry:
        return tuple(Variant((spec,), place) for spec in _combinations(entry))
    others = sorted(set(entry) - {"chain"})
    if others:
        reason = "is not allowed next to chain; give it to a member of the chain"
        raise JobError(reason, code="conflict", field=others[0], value=entry[others[0]])
    members = entry["chain"]
    if not isinstance(members, list | tuple) or not members:
        reason = f"must be a non-empty list of defenses, not {as_written(members)}"
        raise JobError(reason, code="type", field="chain", value=members)
    for number, member in enumerate(members, 1):
        if not isinstance(member, Mapping) or "chain" in member:
            reason = f"member {number} must be a defense with a kind, not {as_written(member)}"
            raise JobError(reason, code="type", field="chain", value=member)
    return tuple(Variant(chain, place) for chain in itertools.product(*map(_combinations, members)))


def _combinations(entry: Mapping[str, Any]) -> list[ComponentSpec]:
    if "kind" not in entry:
        raise JobError("required", code="missing", field="kind")
    params = {key: value for key, value in entry.items() if key != "kind"}
    choices = []
    for key, value in params.items():
        values = list(value) if isinstance(value, list | tuple) else [value]
        if not values:
            raise JobError("an empty list leaves nothing to run", code="missing", field=key, value=value)
        if any(isinstance(each, list | tuple) for each in values):
            reason = f"a list is swept value by value and cannot contain lists, as {value!r} does"
            raise JobError(reason, code="type", field=key, value=value)
        choices.append(values)
    combinations = itertools.product(*choices)
    return [ComponentSpec(entry["kind"], dict(zip(params, values, strict=True))) for values in combinations]


def freeze(field: str, value: Any) -> Any:
    """Return a value of a job file, immutable; refuse what is no number, text, boolean, list or table."""
    if isinstance(value, Mapping):
        return FrozenDict({str(key): freeze(f"{field}.{key}", each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return tuple(freeze(field, each) for each in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise JobError(f"must be finite, not {value}", code="range", field=field, value=value)
    if value is not None and not isinstance(value, bool | int | float | str):
        reason = f"must be a number, a text, true, false, or a list or table of these, not {value!r}"
        raise JobError(reason, code="type", field=field, value=value)
    return value


def thaw(value: Any) -> Any:
    """Return a frozen value as JSON has it."""
    if isinstance(value, Mapping):
        return {key: thaw(each) for key, each in value.items()}
    return [thaw(each) for each in value] if isinstance(value, tuple) else value


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "_".join(f"{key}_{_word(each)}" for key, each in sorted(value.items()))
    return "_".join(map(_word, value)) if isinstance(value, tuple) else str(value)
