"""Privacy on one axis: bounds of epsilon and reconstruction advantages, for defenses with and without an epsilon."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from statistics import NormalDist, fmean, stdev

import msgspec

from labelward.metrics.epsilon_bound import CONFIDENCE
from labelward.metrics.reconstruction import ReconstructionAdvantage
from labelward.report.formatting import NOTHING, decimals
from labelward.report.plots import Image, ScaleMark, scale_plot
from labelward.report.summary import SummaryRow
from labelward.report.tables import ReportTable
from labelward.runs.schema import budgets


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over seeds with its limits."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], errors: Sequence[float], *, shared_by: int = 1) -> Interval:
        """Return the interval of a mean over seeds at 95%, by a normal approximation.

        Its variance is that over rows, which seeds share, so that their mean counts, plus that over seeds.

        Args:
            values: of each seed.
            errors: standard error of each seed, over rows.
            shared_by: number of intervals that hold together (Bonferroni).
        """
        spread = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        width = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * shared_by)) * math.hypot(fmean(errors), spread)
        return cls(mean=fmean(values), low=fmean(values) - width, high=fmean(values) + width)


class AttackerPrivacy(msgspec.Struct, frozen=True, kw_only=True):
    """What all attacks of one party together show of one defense.

    Attributes:
        claimed: epsilon that the defenses guarantee over the whole run; None: no guarantee.
        delta: that belongs to it.
        per_gradient: epsilon that a defense guarantees for each gradient alone; None: none does.
        behavior: how the attacker trains, if not as agreed; guarantees for parties that do are then left out.
        bound: the largest lower bound of epsilon of all attacks and seeds, all of which hold together; None: not
            measured.
        attack: the attack with the largest additive advantage; None: not measured.
        additive, multiplicative: of that attack.
        accuracy, without_view: mean over seeds, of that attack and of the best one without the view.
        pairs: of all seeds, the mean number.
        seeds: number of seeds.
    """

    defense: str
    party: str
    claimed: float | None
    bound: float | None
    pairs: float
    delta: float = 0.0
    per_gradient: float | None = None
    behavior: str | None = None
    attack: str | None = None
    additive: Interval | None = None
    multiplicative: Interval | None = None
    accuracy: float = 0.0
    without_view: float = 0.0
    seeds: int = 1

    @property
    def run(self) -> str:
        """The defense and, if malicious, the behavior of the attacker."""
        return self.defense if self.behavior is None else f"{self.defense}, {self.party}: {self.behavior}"


def attacker_privacy(table: Sequence[SummaryRow]) -> list[AttackerPrivacy]:
    """Return a line for each defense, attacker and behavior of the rows that have figures of privacy."""
    groups: dict[tuple[str, str, str | None], list[SummaryRow]] = {}
    for row in table:
        if row.party is not None and (row.evidence or row.advantages):
            groups.setdefault((row.defense, row.party, row.behavior), []).append(row)
    return [_privacy(rows) for rows in groups.values()]


def privacy_table(table: Sequence[SummaryRow]) -> ReportTable:
    """Return the table of the report; no rows if nothing was measured."""
    rows = [
        (
            each.run,
            each.party,
            each.attack or NOTHING,
            _guarantee(each),
            NOTHING if each.bound is None else "no finite ε" if math.isinf(each.bound) else decimals(each.bound, 2),
            f"{each.pairs:.0f}",
            decimals(each.accuracy, 3),
            decimals(each.without_view, 3),
            _limits(each.additive),
            _limits(each.multiplicative),
        )
        for each in attacker_privacy(table)
    ]
    return ReportTable(
        caption="Privacy of the labels, measured from the recorded views",
        header=(
            *("defense", "attacker", "best attack", "ε guaranteed", "ε at least", "pairs"),
            *("balanced accuracy", "best without the view", "additive advantage", "multiplicative advantage"),
        ),
        rows=tuple(rows),
        words=3,
        note="ε guaranteed: over the whole run, with its δ; of malicious runs, where it covers parties that deviate. "
        "All limits at 95% confidence, jointly for all attacks and seeds of a line. ε at least: no label differential "
        "privacy with a smaller ε explains how often the attacks tell a true label from one drawn from a model of all "
        "columns; 0 means that nothing was shown, in particular with few pairs. Multiplicative advantage: "
        "difference of the log odds, in units of ε.",
    )


def privacy_images(table: Sequence[SummaryRow]) -> list[Image]:
    """Return for each attacker a plot of all defenses on the scale of epsilon; none if nothing was measured.

    Raises:
        DependencyError: matplotlib is not installed.
    """
    marks: dict[str, list[ScaleMark]] = {}
    for each in attacker_privacy(table):
        advantage = each.multiplicative
        mark = ScaleMark(
            name=each.run,
            interval=None if advantage is None else (advantage.low, advantage.mean, advantage.high),
            least=each.bound,
            guarantee=each.claimed,
        )
        marks.setdefault(each.party, []).append(mark)
    names = ("multiplicative advantage", "ε at least", "ε guaranteed")
    return [scale_plot(f"Attacker: {party}", lines, axis="ε", names=names) for party, lines in marks.items()]


def _privacy(rows: Sequence[SummaryRow]) -> AttackerPrivacy:
    first = rows[0]
    claimed, delta = _claimed(first)
    evidence = [each for row in rows for each in row.evidence]
    line = AttackerPrivacy(
        defense=first.defense,
        party=first.party or "",
        claimed=claimed,
        delta=delta,
        per_gradient=_per_gradient(first),
        behavior=first.behavior,
        bound=max((each.bound(shared_by=len(evidence)) for each in evidence), default=None),
        pairs=fmean([each.pairs for each in evidence]) if evidence else 0.0,
        seeds=first.seeds,
    )
    measured = [row for row in rows if row.advantages]
    if not measured:
        return line
    best = max(measured, key=lambda row: fmean([each.additive for each in row.advantages]))
    found: Sequence[ReconstructionAdvantage] = best.advantages
    return msgspec.structs.replace(
        line,
        attack=best.attack,
        accuracy=fmean([each.accuracy for each in found]),
        without_view=fmean([each.without_view for each in found]),
        additive=Interval.of(
            [each.additive for each in found], [each.additive_error for each in found], shared_by=len(measured)
        ),
        multiplicative=Interval.of(
            [each.multiplicative for each in found],
            [each.multiplicative_error for each in found],
            shared_by=len(measured),
        ),
    )


def _claimed(row: SummaryRow) -> tuple[float | None, float]:
    """Return the smallest epsilon that the defenses guarantee against an attacker of this behavior, and its delta."""
    covered = ("labels", "run") if row.behavior is None else ("labels",)
    return min(_epsilons(row, covered), default=(None, 0.0))


def _per_gradient(row: SummaryRow) -> float | None:
    if row.behavior is not None:
        return None
    return min((epsilon for epsilon, _ in _epsilons(row, ("gradient",))), default=None)


def _epsilons(row: SummaryRow, private: Collection[str]) -> Iterator[tuple[float, float]]:
    """Yield each epsilon, with its delta, that is one of label differential privacy of what is named.

    A defense of a single party, other than the active one, is none of the labels of all.
    """
    for given in (each for each in row.chain if "party" not in each):
        for _, _, epsilon, scope in budgets([given]):
            if scope.private in private:
                yield epsilon, given.get("delta") or 0.0


def _guarantee(line: AttackerPrivacy) -> str:
    if line.claimed is None:
        return "none" if line.per_gradient is None else f"{line.per_gradient:g} per gradient"
    return f"{line.claimed:g} (δ {line.delta:g})" if line.delta else f"{line.claimed:g}"


def _limits(interval: Interval | None) -> str:
    if interval is None:
        return NOTHING
    return f"{decimals(interval.mean, 2)} ({decimals(interval.low, 2)} to {decimals(interval.high, 2)})"
