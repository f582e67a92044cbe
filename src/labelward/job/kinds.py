"""Kinds with raw parameters (models, attacks, defenses), and the variants that the defenses of a job make.

Here stands only their form; the evaluation checks which kinds exist and which parameters they take.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from labelward.errors import JobError
from labelward.job import _check as check
from labelward.job._frozen import Frozen

__all__ = ["Kind", "Variant", "sweep"]

_LONGEST_SLUG = 120


@dataclass(frozen=True)
class Kind:
    """The name of a model, attack or defense, with its parameters as given.

    Attributes:
        kind: its name, such as ``"id-lmid"``.
        params: numbers, texts, booleans, lists of these (kept as tuples) or None by name.
    """

    kind: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check.string("kind", self.kind)
        if "kind" in self.params:
            raise JobError(
                "the name is taken",
                code="duplicate",
                field=f"parameter 'kind' of {self.kind!r}",
                value=self.params["kind"],
            )
        frozen = {key: _freeze(f"{key} of {self.kind!r}", value) for key, value in self.params.items()}
        object.__setattr__(self, "params", Frozen(frozen))

    def as_dict(self) -> dict[str, Any]:
        """Return the form that a file holds: ``kind`` and the parameters in one dictionary."""
        return {"kind": self.kind} | {key: _thaw(value) for key, value in self.params.items()}

    def without(self, parameter: str) -> Kind:
        """Return the same without a parameter, if it is there."""
        return Kind(self.kind, {key: value for key, value in self.params.items() if key != parameter})

    @property
    def slug(self) -> str:
        """The name with its parameters in alphabetical order, of characters that every file system takes."""
        parts = [self.kind]
        for key in sorted(self.params):
            parts += [key, _word(self.params[key])]
        return "-".join(quote(part, safe="") for part in parts)

    @property
    def label(self) -> str:
        """The name for people, such as ``id-lmid (xi 0.5)``."""
        params = ", ".join(f"{key} {_word(value)}" for key, value in self.params.items())
        return f"{self.kind} ({params})" if params else self.kind


@dataclass(frozen=True)
class Variant:
    """What defends one run: nothing, one defense, or several that are composed in this order.

    Attributes:
        entry: number of its ``[[defense]]`` in the job file, from 1, for messages; 0 where there is none.
    """

    chain: tuple[Kind, ...] = ()
    entry: int = field(default=0, compare=False)

    def part(self, party: str | None) -> Variant:
        """Return the defenses that are given to a party (its key ``party``); None: those that name no party."""
        return Variant(tuple(kind for kind in self.chain if kind.params.get("party") == party), self.entry)

    @property
    def slug(self) -> str:
        """A folder's name: ``none``, ``id-lmid-xi-0.5``, ``local-trees-count-1+id-lmid-xi-1.0``."""
        slug = "+".join(kind.slug for kind in self.chain) or "none"
        if len(slug) <= _LONGEST_SLUG:
            return slug
        digest = hashlib.sha256(slug.encode()).hexdigest()[:12]
        return f"{slug[: _LONGEST_SLUG - 13]}-{digest}"

    @property
    def label(self) -> str:
        """The name for people, such as ``local-trees (count 1) + id-lmid (xi 0.5)``."""
        return " + ".join(kind.label for kind in self.chain) or "no defense"

    def as_list(self) -> list[dict[str, Any]]:
        """Return the form that results hold: a list of objects, empty for no defense."""
        return [kind.as_dict() for kind in self.chain]


def sweep(entry: Mapping[str, Any], place: int = 0) -> tuple[Variant, ...]:
    """Return the variants of one ``[[defense]]`` entry: every combination of the values of its lists.

    Args:
        entry: ``kind`` and parameters, or ``chain`` alone: a list of such entries, to be composed.
        place: number of the entry in its file, from 1.

    Raises:
        JobError: without kind, with an empty list, or with a chain beside other keys or in a chain.
    """
    if "chain" not in entry:
        return tuple(Variant((kind,), place) for kind in _combinations(entry))
    others = sorted(set(entry) - {"chain"})
    if others:
        raise JobError(
            "no other key may stand beside chain; give it to a member of the chain",
            code="conflict",
            field=others[0],
            value=entry[others[0]],
        )
    members = entry["chain"]
    if not isinstance(members, list | tuple) or not members:
        raise JobError(
            f"must be a list of at least one defense but got {members!r}", code="type", field="chain", value=members
        )
    for number, member in enumerate(members, 1):
        if not isinstance(member, Mapping) or "chain" in member:
            raise JobError(
                f"member {number} must be a defense with a kind but got {member!r}",
                code="type",
                field="chain",
                value=member,
            )
    return tuple(Variant(chain, place) for chain in itertools.product(*map(_combinations, members)))


def _combinations(entry: Mapping[str, Any]) -> list[Kind]:
    if "kind" not in entry:
        raise JobError("required", code="missing", field="kind")
    params = {key: value for key, value in entry.items() if key != "kind"}
    choices = []
    for key, value in params.items():
        values = list(value) if isinstance(value, list | tuple) else [value]
        if not values:
            raise JobError("an empty list leaves nothing to run", code="missing", field=key, value=value)
        if any(isinstance(one, list | tuple) for one in values):
            raise JobError(
                f"a list is swept, so its values cannot be lists, but got {value!r}",
                code="type",
                field=key,
                value=value,
            )
        choices.append(values)
    return [Kind(entry["kind"], dict(zip(params, values, strict=True))) for values in itertools.product(*choices)]


def _freeze(place: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_freeze(place, one) for one in value)
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


def _thaw(value: Any) -> Any:
    return [_thaw(one) for one in value] if isinstance(value, tuple) else value


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "_".join(map(_word, value)) if isinstance(value, tuple) else str(value)
