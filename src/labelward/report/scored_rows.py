"""What attacks were scored on: the rows whose labels the attacker does not know, and the bins of regression targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from labelward.report.formatting import count
from labelward.report.summary import SummaryRow
from labelward.runs.schema import RunDetails, defense_label, kind_label

_KNOWN, _BINS = "known labels", "bins of the labels"
"""Entries of the auxiliary knowledge in ``run.json``."""
_Key = tuple[str, str | None, str | None, str | None]


def with_scored_rows(table: Sequence[SummaryRow], runs: Iterable[RunDetails]) -> list[SummaryRow]:
    """Return the rows with what stored details tell of their scoring; as they are where no details are stored."""
    scored, bins = dict[_Key, list[int]](), dict[_Key, list[int]]()
    classes = {_key(row) for row in table if "accuracy" in row.leakage}
    for run in runs:
        behavior = None
        if run.deviation is not None:
            behavior = kind_label({name: value for name, value in run.deviation.items() if name != "party"})
        for account in run.attacks:
            key = defense_label(run.defense), account.party, kind_label(account.attack), behavior
            seen, known = run.seen.get(account.party), account.auxiliary.get(_KNOWN)
            if known and seen is not None and (key in classes or seen.role == "holder"):  # groups are scored on all
                scored.setdefault(key, []).append(seen.rows - known)
            if _BINS in account.auxiliary:
                bins.setdefault(key, []).append(account.auxiliary[_BINS])
    return [
        msgspec.structs.replace(row, scored=tuple(scored.get(_key(row), ())), bins=tuple(bins.get(_key(row), ())))
        for row in table
    ]


def number_range(numbers: Sequence[int]) -> str:
    """Return numbers of all seeds as one, or as a range."""
    low, high = min(numbers), max(numbers)
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def scored_note(table: Sequence[SummaryRow]) -> list[str]:
    """Return, below a table of leakage, which figures are of fewer than all training rows."""
    by_party: dict[str, dict[str, list[str]]] = {}
    for row in table:
        if row.scored and row.party and row.attack:
            by_party.setdefault(row.party, {}).setdefault(number_range(row.scored), []).append(row.attack)
    if not by_party:
        return []
    parts = []
    for party, found in by_party.items():
        for number, attacks in found.items():
            which = "" if len(found) == 1 else f" ({', '.join(dict.fromkeys(attacks))})"
            parts.append(f"{party}{which}, {number}")
    return [f"Rows whose labels the attacker knows are not scored; rows scored: {'; '.join(parts)}."]


def _key(row: SummaryRow) -> _Key:
    return row.defense, row.party, row.attack, row.behavior
