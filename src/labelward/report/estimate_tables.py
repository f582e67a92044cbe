"""Tables of estimated and measured training costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from labelward.report.formatting import NOTHING, count, data_size, decimals, duration
from labelward.report.tables import ReportTable
from labelward.runs.estimate import Estimate
from labelward.runs.schema import Cost, ResultRow, RunDetails, defense_label

_IDLE = ("wait", "checkpoint")
"""Phases that are no work on the training."""
_BRIEF = 0.1
"""Seconds; ratios of shorter times measure the clock."""
_COUNTS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("messages", "messages", count),
    ("encryptions", "encryptions", count),
    ("additions", "additions", count),
    ("decryptions", "decryptions", count),
    ("ciphertexts", "ciphertexts", count),
)


def estimate_tables(runs: Mapping[str, Sequence[RunDetails]], rows: Sequence[ResultRow]) -> list[ReportTable]:
    """Return a table for each variant with estimated runs, of means over the seeds.

    Args:
        runs: by the label of the variant.
        rows: of the same audit, for the operations of the runs.
    """
    found = []
    for label, stored in runs.items():
        pairs = [(run, run.estimate) for run in stored if run.estimate is not None]
        costs = {row.seed: row.cost for row in rows if row.behavior is None and defense_label(row.defense) == label}
        if pairs:
            found.append(_table(label, pairs, [costs[run.seed] for run, _ in pairs if run.seed in costs]))
    return found


def _table(label: str, pairs: Sequence[tuple[RunDetails, Estimate]], costs: Sequence[Cost]) -> ReportTable:
    lines = [
        (
            "whole training",
            *_compared([each.seconds for _, each in pairs], [run.duration for run, _ in pairs], duration),
        )
    ]
    for party in pairs[0][1].phases:
        names = [each.phases.get(party, {}) for _, each in pairs] + [run.phases.get(party, {}) for run, _ in pairs]
        for phase in dict.fromkeys(name for each in names for name in each if name not in _IDLE):
            expected = [each.phases[party][phase] for _, each in pairs if phase in each.phases.get(party, {})]
            measured = [run.phases[party][phase] for run, _ in pairs if phase in run.phases.get(party, {})]
            lines.append((f"{party}: {phase}", *_compared(expected, measured, duration)))
    sizes = [float(sum(each.bytes.values())) for _, each in pairs]
    lines.append(("bytes on the wire", *_compared(sizes, [float(cost.bytes) for cost in costs], data_size)))
    for name, words, form in _COUNTS:
        expected = [float(getattr(each, name)) for _, each in pairs]
        measured = [float(getattr(cost, name)) for cost in costs]
        if any(expected) or any(measured):
            lines.append((words, *_compared(expected, measured, form)))
    return ReportTable(
        caption=f"{label}: estimated and measured costs of one training",
        header=("what", "expected", "measured", "measured / expected"),
        rows=tuple(lines),
        note="Estimated before the training, from operations measured on the same machine and from the first trees, "
        "trained without encryption. The estimate of a phase is for a party that has the machine to itself; where "
        "parties share the cores, measured phases are longer, but the whole training is not. The leakage budget and "
        "early stopping are not estimated.",
    )


def _compared(expected: Sequence[float], measured: Sequence[float], form: Callable[[float], str]) -> tuple[str, ...]:
    one, other = (fmean(each) if each else None for each in (expected, measured))
    least = _BRIEF if form is duration else 1e-9
    ratio = NOTHING if one is None or other is None or max(one, other) < least or not one else decimals(other / one, 2)
    return *(NOTHING if each is None else form(each) for each in (one, other)), ratio
