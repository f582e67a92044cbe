"""What trainings were expected to take beside what they took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from labelward.evaluate.costs.expected import Estimate
from labelward.report.formatting import NOTHING, count, data_size, decimals, duration
from labelward.report.tables import ReportTable
from labelward.runs.schema import Cost, ResultRow, RunDetails, defense_label

__all__ = ["estimate_tables"]

_IDLE = ("wait", "checkpoint")
"""Phases in which a party does nothing for the training."""
_COUNTS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("messages", "messages", count),
    ("encryptions", "encryptions", count),
    ("additions", "additions", count),
    ("decryptions", "decryptions", count),
    ("ciphertexts", "ciphertexts", count),
)


def estimate_tables(runs: Mapping[str, Sequence[RunDetails]], rows: Sequence[ResultRow]) -> list[ReportTable]:
    """Return a table for each kind of run that was estimated, means over the seeds.

    Args:
        runs: by defense in words.
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
            *_compared([told.seconds for _, told in pairs], [run.duration for run, _ in pairs], duration),
        )
    ]
    for party in pairs[0][1].phases:
        names = [told.phases.get(party, {}) for _, told in pairs] + [run.phases.get(party, {}) for run, _ in pairs]
        for phase in dict.fromkeys(name for each in names for name in each if name not in _IDLE):
            expected = [told.phases[party][phase] for _, told in pairs if phase in told.phases.get(party, {})]
            measured = [run.phases[party][phase] for run, _ in pairs if phase in run.phases.get(party, {})]
            lines.append((f"{party}: {phase}", *_compared(expected, measured, duration)))
    sizes = [float(sum(told.bytes.values())) for _, told in pairs]
    lines.append(("bytes on the wire", *_compared(sizes, [float(cost.bytes) for cost in costs], data_size)))
    for name, words, form in _COUNTS:
        expected = [float(getattr(told, name)) for _, told in pairs]
        measured = [float(getattr(cost, name)) for cost in costs]
        if any(expected) or any(measured):
            lines.append((words, *_compared(expected, measured, form)))
    return ReportTable(
        caption=f"{label}: what one training was expected to take, and what it took",
        header=("what", "expected", "measured", "measured / expected"),
        rows=tuple(lines),
        note="Expected before the training, from operations measured on the same machine and from the first trees "
        "grown in the open. An expected phase is that of a party that has the machine for itself; where parties work "
        "at the same time on the same cores, measured phases are longer, and the whole is not. What defenses refuse "
        "while trees grow is not expected.",
    )


def _compared(expected: Sequence[float], measured: Sequence[float], form: Callable[[float], str]) -> tuple[str, ...]:
    one, other = (fmean(each) if each else None for each in (expected, measured))
    ratio = NOTHING if one is None or other is None or one < 1e-9 else decimals(other / one, 2)
    return *(NOTHING if each is None else form(each) for each in (one, other)), ratio
