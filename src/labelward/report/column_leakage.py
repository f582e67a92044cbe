"""Leakage of columns to other parties: its own table and sentence, apart from the leakage of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from labelward.report.metrics import format_metric, metric_name
from labelward.report.narrative import NOTICEABLE
from labelward.report.summary import SummaryRow
from labelward.report.tables import ReportTable, leakage_table
from labelward.runs.schema import hides_labels


def about_labels(table: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Return the rows without attacks on columns; all rows, as rows without attacks, where there are no others."""
    return [row for row in table if row.target == "labels"] or [_unattacked(row) for row in table]


def about_columns(table: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Return the rows of attacks on columns."""
    return [row for row in table if row.target == "columns"]


def column_table(table: Sequence[SummaryRow]) -> ReportTable:
    """Return the leakage of columns by defense, attacker and attack."""
    rows = about_columns(table)
    found = leakage_table(only_measured(rows), list(dict.fromkeys(name for row in rows for name in row.leakage)))
    note = found.note.replace("shuffled labels", "shuffled rows")
    return replace(found, caption="Leakage of columns: inference of other parties' columns", note=note)


def column_sentences(table: Sequence[SummaryRow]) -> list[str]:
    """Return for each defense the attack that infers most of the other parties' columns, as a sentence."""
    best: dict[tuple[str, str], SummaryRow] = {}
    for row in about_columns(table):
        key = row.defense, row.primary or ""
        if key not in best or _reached(row) > _reached(best[key]):
            best[key] = row
    sentences = []
    for (defense, name), row in best.items():
        if name != "recovered":
            sentences.append(_sentence_on_a_column(row, name))
            continue
        if not _is_measured(row):
            sentences.append(
                f"What {row.party} could infer of the other parties' columns is not measured: "
                f"it knows the noisy labels, the attack does not ({row.attack}; {row.defense})."
            )
            continue
        sentences.append(f"{row.party} could infer {_share_of_cells(row)} ({row.attack}; {defense}).")
    return sentences


def _share_of_cells(row: SummaryRow) -> str:
    """Return which share of cells was inferred, how much of it wrongly, and what no defense of the sums can hide."""
    found, wrong, splits = (
        row.leakage["recovered"].mean,
        row.leakage["wrong"].mean,
        row.leakage.get("recovered_by_splits"),
    )
    cells = "of the other parties' columns"
    if not found and not wrong:
        return f"no cell {cells}"
    text = f"{found:.1%} of the cells {cells}, {f'and got a further {wrong:.1%} wrong' if wrong else 'all correctly'}"
    if splits is None:
        return text
    if not splits.mean:
        return f"{text}; no cell follows from the splits alone, so a defense of the sums can hide all of these"
    return f"{text}; {splits.mean:.1%} follow from the splits alone, which no defense of the sums can hide"


def _is_measured(row: SummaryRow) -> bool:
    """Return whether the figures are the attack's: it takes labels for true, which the attacker knows to be noisy."""
    found = row.leakage.get("recovered")
    return found is None or bool(found.mean) or not hides_labels(row.chain)


def only_measured(table: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Return the rows, those whose leakage is not measured without figures of it."""
    return [
        row if _is_measured(row) else msgspec.structs.replace(row, leakage={}, without_view={}, chance={})
        for row in table
    ]


def _sentence_on_a_column(row: SummaryRow, name: str) -> str:
    """Return what an attack reaches of single columns, compared with what the attacker reaches otherwise."""
    compared = (
        ("from own columns alone", row.baselines.get("own columns", {})),
        ("without the view", row.without_view),
        ("by chance", row.chance),
    )
    others = [(words, values[name].mean) for words, values in compared if name in values]
    figures = [f"{metric_name(name)} {format_metric(name, _reached(row), digits=2)}"]
    figures += [f"{words} {format_metric(name, value, digits=2)}" for words, value in others]
    words, floor = max(others, key=lambda each: each[1], default=("", -math.inf))
    learned = "could infer a column that it lacks"
    if _reached(row) <= floor + NOTICEABLE:
        learned = f"inferred no column that it lacks better than {words}"
    return f"{row.party} {learned} ({', '.join(figures)}; {row.attack}; {row.defense})."


def _reached(row: SummaryRow) -> float:
    return row.leakage[row.primary or ""].mean


def _unattacked(row: SummaryRow) -> SummaryRow:
    return msgspec.structs.replace(
        row, party=None, attack=None, primary=None, leakage={}, without_view={}, baselines={}
    )
