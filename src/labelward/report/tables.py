"""The tables of result figures: leakage, utility, cost; a table is plain text, made for the page's one macro."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labelward.report.formatting import count, data_size, duration
from labelward.report.metrics import NOTHING, figure, metric_name, metric_text, spread_text
from labelward.report.narrative import reads_view
from labelward.report.summary import SummaryRow

__all__ = ["ReportTable", "baseline_table", "cost_table", "leakage_table", "utility_table"]


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table as text.

    Attributes:
        words: how many of the first columns are words (left-aligned); the others are numbers.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    note: str = ""


def leakage_table(table: Sequence[SummaryRow]) -> ReportTable:
    """Return leakage by defense, attacker and attack: each metric beside its value without the view and by chance."""
    attacked = [row for row in table if row.attack is not None]
    metrics = list(dict.fromkeys(name for row in attacked for name in row.leakage))
    header = ["defense", "attacker", "attack", "seeds"]
    for name in metrics:
        header += [metric_name(name), "without the view", "chance"]
    rows = []
    for row in attacked:
        cells = [row.defense, row.party or NOTHING, row.attack or NOTHING, str(row.seeds)]
        for name in metrics:
            cells += [spread_text(name, row.leakage.get(name)), spread_text(name, row.without_view.get(name))]
            cells.append(figure(name, row.chance[name].mean) if name in row.chance else NOTHING)
        rows.append(tuple(cells))
    blind = list(dict.fromkeys(row.attack for row in attacked if row.attack and not reads_view(row)))
    return ReportTable(
        caption="Leakage: what each attack got out of one party's view",
        header=tuple(header),
        rows=tuple(rows),
        words=3,
        note="Mean ± standard deviation over the seeds. Without the view: the same attack on the party's own columns "
        "alone. Chance: the same guess against shuffled labels."
        + (" R²: the share of the labels' variance that the groups explain." if "r2" in metrics else "")
        + (f" Never opens the view: {', '.join(blind)}." if blind else ""),
    )


def baseline_table(table: Sequence[SummaryRow]) -> ReportTable:
    """Return what attackers reach by other ways with the labels that they know; none depends on the defense."""
    shown: dict[tuple[str, str, str], tuple[SummaryRow, str]] = {}
    for row in table:
        for name in row.beside:
            shown.setdefault((row.party or NOTHING, row.attack or NOTHING, name), (row, name))
    metrics = list(dict.fromkeys(metric for row, name in shown.values() for metric in row.beside[name]))
    rows = [
        (*key, str(row.seeds), *(spread_text(metric, row.beside[name].get(metric)) for metric in metrics))
        for key, (row, name) in shown.items()
    ]
    return ReportTable(
        caption="Other ways to the labels, with what the attacker knows",
        header=("attacker", "attack", "other way", "seeds", *map(metric_name, metrics)),
        rows=tuple(rows),
        words=3,
        note="Mean ± standard deviation over the seeds. None of them needs the training; “all labels” is what the "
        "attacker's columns could tell if it knew every label but that of the row.",
    )


def utility_table(table: Sequence[SummaryRow]) -> ReportTable:
    """Return utility by defense, with the active party alone and the joined table below."""
    by_defense = _longest_by_defense(table)
    metrics = list(dict.fromkeys(name for row in by_defense for name in row.utility))
    first = next((row for row in by_defense if row.behavior is None), by_defense[0])
    lines = [(_run(row), str(row.seeds), row.utility) for row in by_defense]
    lines += [("active party alone (no federation)", str(first.seeds), first.alone)] if first.alone else []
    lines += [("joined table (no privacy)", str(first.seeds), first.joined)] if first.joined else []
    return ReportTable(
        caption="Utility of the model on the test rows",
        header=("defense", "seeds", *map(metric_name, metrics)),
        rows=tuple((name, seeds, *(spread_text(m, have.get(m)) for m in metrics)) for name, seeds, have in lines),
        note=f"Mean ± standard deviation over the seeds. {_utility_note(metrics)}",
    )


def _utility_note(metrics: Sequence[str]) -> str:
    notes = []
    if "auc" in metrics:
        notes.append(
            "With two classes AUC and F1 are those of the class that sorts last; with more they are the means over the "
            "classes, each against the rest."
        )
    small = [metric_name(name) for name in metrics if not metric_text(name).larger]
    if small:
        notes.append(f"Smaller is better for {' and '.join([', '.join(small[:-1])] * bool(small[:-1]) + small[-1:])}.")
    return " ".join(notes)


_COSTS: dict[str, tuple[str, Callable[[float, float | None], str]]] = {
    "seconds": ("time", duration),
    "bytes": ("on the wire", data_size),
    "messages": ("messages", count),
    "encryptions": ("encryptions", count),
    "additions": ("additions", count),
    "decryptions": ("decryptions", count),
    "ciphertexts": ("ciphertexts", count),
    "logical_sums": ("sums before packing", count),
}


def cost_table(table: Sequence[SummaryRow]) -> ReportTable:
    """Return the cost of one training by defense."""
    rows = [
        (_run(row), str(row.seeds), *(form(row.cost[n].mean, row.cost[n].std) for n, (_, form) in _COSTS.items()))
        for row in _longest_by_defense(table)
    ]
    return ReportTable(
        caption="Cost of one training, over all parties: means over the seeds",
        header=("defense", "seeds", *(title for title, _ in _COSTS.values())),
        rows=tuple(rows),
        note="± is the standard deviation over the seeds; a mean of counts need not be whole. Additions, decryptions "
        "and ciphertexts count packed ciphertexts; “sums before packing” is what a protocol without packing would "
        "have sent.",
    )


def _longest_by_defense(table: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Return for each run the row with most seeds: utility and cost do not depend on the attack, but on behavior."""
    best: dict[str, SummaryRow] = {}
    for row in table:
        run = _run(row)
        if run not in best or row.seeds > best[run].seeds:
            best[run] = row
    return list(best.values())


def _run(row: SummaryRow) -> str:
    """Return what a run is called: its defense, and who did not train as agreed."""
    return row.defense if row.behavior is None else f"{row.defense}, {row.party}: {row.behavior}"
