"""Means and spreads over seeds: the figures that the command line and the report both show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from labelward.runs.schema import Cost, EngineInfo, ResultRow, defense_label, kind_label

__all__ = ["Spread", "SummaryRow", "summary_table"]

_BESIDE = ("chance", "without_view", "primary", "alone", "joined", "beside")


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over seeds; ``std`` is the sample standard deviation (divisor n - 1), None for a single seed."""

    mean: float
    std: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return mean and spread of at least one value."""
        mean = math.fsum(values) / len(values)
        if len(values) == 1:
            return cls(mean=mean, std=None, seeds=1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return cls(mean=mean, std=math.sqrt(variance), seeds=len(values))

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 where one seed tells nothing of it."""
        return 0.0 if self.std is None else self.std / math.sqrt(self.seeds)


class SummaryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One defense × attack × attacker over its seeds, each figure by metric name.

    Attributes:
        defense, attack: in words; attack and party are None where no attack ran.
        gain: leakage less the same attack's value without the view, seed by seed.
        edge: utility less that of the active party alone, seed by seed.
        behavior: in words, how the attacker's party trained where not as agreed; utility and cost are of that run.
        primary: the metric that ranks the attack.
        worth: the metric that ranks the utility.
        beside: other ways to the labels by name.
    """

    dataset: str
    model: dict[str, Any]
    engine: EngineInfo
    defense: str
    chain: tuple[dict[str, Any], ...]
    party: str | None
    attack: str | None
    behavior: str | None
    seeds: int
    primary: str | None
    worth: str
    leakage: dict[str, Spread]
    without_view: dict[str, Spread]
    chance: dict[str, Spread]
    gain: dict[str, Spread]
    utility: dict[str, Spread]
    alone: dict[str, Spread]
    joined: dict[str, Spread]
    edge: dict[str, Spread]
    cost: dict[str, Spread]
    beside: dict[str, dict[str, Spread]]


def summary_table(rows: Iterable[ResultRow]) -> list[SummaryRow]:
    """Return one row for each (data set, model, engine, defense, party, attack).

    Subjects (data set, model, engine) and the defenses within them keep their order of appearance, the undefended
    run first.
    """
    groups: dict[str, list[ResultRow]] = {}
    for row in rows:
        groups.setdefault(msgspec.structs.replace(row, seed=0).key(), []).append(row)
    table = [_summary(group) for group in groups.values()]
    subjects = list(dict.fromkeys(_subject(row) for row in table))
    defenses = list(dict.fromkeys(row.defense for row in table))
    return sorted(table, key=lambda row: (subjects.index(_subject(row)), bool(row.chain), defenses.index(row.defense)))


def _subject(row: SummaryRow) -> str:
    return msgspec.json.encode([row.dataset, row.model, row.engine], order="deterministic").decode()


def _summary(rows: list[ResultRow]) -> SummaryRow:
    first = rows[0]
    leakages = [row.leakage or {} for row in rows]
    utilities = [row.utility for row in rows]
    primary = leakages[0].get("primary")
    return SummaryRow(
        dataset=first.dataset,
        model=first.model,
        engine=first.engine,
        defense=defense_label(first.defense),
        chain=first.defense,
        party=first.party,
        attack=None if first.attack is None else kind_label(first.attack),
        behavior=None if first.behavior is None else kind_label(first.behavior),
        seeds=len(rows),
        primary=primary if isinstance(primary, str) else None,
        worth=str(utilities[0].get("primary", "")),
        leakage=_spreads(leakages),
        without_view=_spreads([_beside(each, "without_view") for each in leakages]),
        chance=_spreads([_beside(each, "chance") for each in leakages]),
        gain=_spreads([_less(each, "without_view") for each in leakages]),
        utility=_spreads(utilities),
        alone=_spreads([_beside(each, "alone") for each in utilities]),
        joined=_spreads([_beside(each, "joined") for each in utilities]),
        edge=_spreads([_less(each, "alone") for each in utilities]),
        cost=_spreads([{name: getattr(row.cost, name) for name in Cost.__struct_fields__} for row in rows]),
        beside=_others([each.get("beside", {}) for each in leakages]),
    )


def _spreads(figures: Sequence[dict[str, Any]]) -> dict[str, Spread]:
    """Return the spread of each metric that every seed has."""
    return {
        name: Spread.of([each[name] for each in figures])
        for name in figures[0]
        if name not in _BESIDE and all(name in each for each in figures)
    }


def _others(found: Sequence[Any]) -> dict[str, dict[str, Spread]]:
    """Return the spreads of other ways to the labels that every seed has."""
    return {name: _spreads([each[name] for each in found]) for name in found[0] if all(name in each for each in found)}


def _beside(figures: dict[str, Any], name: str) -> dict[str, float]:
    return dict(figures.get(name, {}))


def _less(figures: dict[str, Any], name: str) -> dict[str, float]:
    return {metric: figures[metric] - value for metric, value in _beside(figures, name).items()}
