"""Summary over seeds: means and standard deviations for the command line and the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from labelward.metrics.epsilon_bound import EpsilonEvidence
from labelward.metrics.reconstruction import ReconstructionAdvantage
from labelward.metrics.registry import BESIDE_METRICS
from labelward.runs.schema import Cost, EngineInfo, ResultRow, defense_label, kind_label

_ROUNDING = 1e-9  # of an entropy that is 0


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and sample standard deviation (divisor n - 1) over seeds; None for a single seed."""

    mean: float
    std: float | None
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        mean = math.fsum(values) / len(values)
        if len(values) == 1:
            return cls(mean=mean, std=None, seeds=1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
        return cls(mean=mean, std=math.sqrt(variance), seeds=len(values))

    @property
    def error(self) -> float:
        """Standard error of the mean; 0 for a single seed."""
        return 0.0 if self.std is None else self.std / math.sqrt(self.seeds)

    @classmethod
    def between(cls, one: Spread, other: Spread) -> Spread:
        """Return the difference of two means, whose values are not paired by seed."""
        deviations = [each.std for each in (one, other) if each.std is not None]
        return cls(mean=one.mean - other.mean, std=math.hypot(*deviations) if deviations else None, seeds=one.seeds)


class SummaryRow(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one (defense, attack, attacker) over its seeds, by metric name.

    Attributes:
        defense, attack: labels; attack and party are None if no attack ran.
        gain: leakage minus leakage of the same attack without the view, per seed.
        edge: utility minus utility of the active party alone, per seed.
        behavior: label of the attacker's behavior in training, if malicious; utility and cost are of that run.
        primary: metric that ranks attacks.
        worth: metric that ranks utility.
        baselines: leakage of baselines, by name.
        constant: number of seeds in which an attack that names classes guesses one class for all rows.
        target: what the attack infers: ``"labels"`` or ``"columns"``.
        evidence: about epsilon, of each seed; none of rows that do not have it.
        advantages: reconstruction advantage of each seed; none of rows that do not have it.
        scored: training rows on which the attack is scored, of each seed whose details are stored; none: all rows.
        bins: number of bins of regression targets, likewise; none of classes.
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
    baselines: dict[str, dict[str, Spread]]
    constant: int = 0
    target: str = "labels"
    evidence: tuple[EpsilonEvidence, ...] = ()
    advantages: tuple[ReconstructionAdvantage, ...] = ()
    scored: tuple[int, ...] = ()
    bins: tuple[int, ...] = ()


def summary_table(rows: Iterable[ResultRow]) -> list[SummaryRow]:
    """Return one row for each (dataset, model, engine, defense, party, attack).

    (Dataset, model, engine) and the defenses within keep their order of appearance, with the undefended run first.
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
        without_view=_spreads([_nested(each, "without_view") for each in leakages]),
        chance=_spreads([_nested(each, "chance") for each in leakages]),
        gain=_spreads([_difference(each, "without_view") for each in leakages]),
        utility=_spreads(utilities),
        alone=_spreads([_nested(each, "alone") for each in utilities]),
        joined=_spreads([_nested(each, "joined") for each in utilities]),
        edge=_spreads([_difference(each, "alone") for each in utilities]),
        cost=_spreads([{name: getattr(row.cost, name) for name in Cost.__struct_fields__} for row in rows]),
        baselines=_baselines([each.get("beside", {}) for each in leakages]),
        constant=sum(map(_is_constant, leakages)),
        target=str(leakages[0].get("target", "labels")),
        evidence=tuple(_evidence(each["epsilon"]) for each in leakages if "epsilon" in each),
        advantages=tuple(
            msgspec.convert(each["advantage"], ReconstructionAdvantage) for each in leakages if "advantage" in each
        ),
    )


def _is_constant(leakage: dict[str, Any]) -> bool:
    """Return whether guessed classes do not depend on the row: they tell nothing, though the scores behind them may."""
    return "f1" in leakage and "auc" in leakage and abs(leakage.get("v_measure", 1.0)) < _ROUNDING


def _evidence(figures: Any) -> EpsilonEvidence:
    return msgspec.convert({name: value for name, value in figures.items() if name != "bound"}, EpsilonEvidence)


def _spreads(figures: Sequence[dict[str, Any]]) -> dict[str, Spread]:
    """Return the spread of each metric that every seed has."""
    return {
        name: Spread.of([each[name] for each in figures])
        for name in figures[0]
        if name not in BESIDE_METRICS and all(name in each for each in figures)
    }


def _baselines(found: Sequence[Any]) -> dict[str, dict[str, Spread]]:
    """Return the spreads of the baselines that every seed has."""
    return {name: _spreads([each[name] for each in found]) for name in found[0] if all(name in each for each in found)}


def _nested(figures: dict[str, Any], name: str) -> dict[str, float]:
    return dict(figures.get(name, {}))


def _difference(figures: dict[str, Any], name: str) -> dict[str, float]:
    return {metric: figures[metric] - value for metric, value in _nested(figures, name).items()}
