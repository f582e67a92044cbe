"""Tables of results: leakage, baselines, utility and cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labelward.report.formatting import NOTHING, count, data_size, duration
from labelward.report.metrics import format_metric, metric_name, metric_of, spread_text
from labelward.report.narrative import reads_view
from labelward.report.scored_rows import scored_note
from labelward.report.summary import SummaryRow


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table of text cells.

    Attributes:
        words: number of leading columns that are text (left-aligned); the others are numbers.
        note: text below the table.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    note: str = ""


def leakage_tables(table: Sequence[SummaryRow]) -> list[ReportTable]:
    """Return leakage by defense, attacker and attack: each metric with its value without the view and by chance.

    Metrics that less than half of the attacks have stand in a second table, a line for each.
    """
    attacked = [row for row in table if row.attack is not None]
    metrics = list(dict.fromkeys(name for row in attacked for name in row.leakage))
    common = [name for name in metrics if 2 * sum(name in row.leakage for row in attacked) >= len(attacked)]
    rare = [name for name in metrics if name not in common]
    return [leakage_table(attacked, common), *([_further_metrics(attacked, rare)] if rare else [])]


def _further_metrics(attacked: Sequence[SummaryRow], metrics: Sequence[str]) -> ReportTable:
    rows = [
        (
            *(row.defense, row.party or NOTHING, row.attack or NOTHING, metric_name(name), str(row.seeds)),
            *(spread_text(name, row.leakage[name]), spread_text(name, row.without_view.get(name))),
            format_metric(name, row.chance[name].mean) if name in row.chance else NOTHING,
        )
        for row in attacked
        for name in metrics
        if name in row.leakage
    ]
    return ReportTable(
        caption="Leakage: further metrics of some attacks",
        header=("defense", "attacker", "attack", "metric", "seeds", "value", "without the view", "chance"),
        rows=tuple(rows),
        words=4,
        note=" ".join(_notes(metrics)),
    )


def _notes(metrics: Sequence[str]) -> list[str]:
    """Return what explains metrics, each sentence once: inside and outside the training rows it is the same."""
    return list(dict.fromkeys(note for name in metrics if (note := metric_of(name).note)))


def leakage_table(
    table: Sequence[SummaryRow],
    metrics: Sequence[str] | None = None,
) -> ReportTable:
    """Return leakage of some metrics, of all where none are named."""
    attacked = [row for row in table if row.attack is not None]
    metrics = list(dict.fromkeys(name for row in attacked for name in row.leakage)) if metrics is None else metrics
    header = ["defense", "attacker", "attack", "seeds"]
    for name in metrics:
        header += [metric_name(name), "without the view", "chance"]
    rows = []
    for row in attacked:
        cells = [row.defense, row.party or NOTHING, row.attack or NOTHING, str(row.seeds)]
        for name in metrics:
            cells += [spread_text(name, row.leakage.get(name)), spread_text(name, row.without_view.get(name))]
            cells.append(format_metric(name, row.chance[name].mean) if name in row.chance else NOTHING)
        rows.append(tuple(cells))
    blind = list(dict.fromkeys(row.attack for row in attacked if row.attack and not reads_view(row)))
    return ReportTable(
        caption="Leakage: results of each attack on a party's view",
        header=tuple(header),
        rows=tuple(rows),
        words=3,
        note=" ".join(
            [
                "Mean ± standard deviation over the seeds. Without the view: the same attack on the party's own "
                "columns alone; the sentences compare with the best of all attacks and baselines without the view. "
                "Chance: the same guess against shuffled labels.",
                *_notes(metrics),
                *scored_note(attacked),
                *([f"Does not read the view: {', '.join(blind)}."] if blind else []),
            ]
        ),
    )


def baseline_table(table: Sequence[SummaryRow]) -> ReportTable:
    """Return the leakage of baselines that need no view; they do not depend on the defense."""
    shown: dict[tuple[str, str, str], tuple[SummaryRow, str]] = {}
    for row in table:
        for name in row.baselines:
            shown.setdefault((row.party or NOTHING, row.attack or NOTHING, name), (row, name))
    metrics = list(dict.fromkeys(metric for row, name in shown.values() for metric in row.baselines[name]))
    rows = [
        (*key, str(row.seeds), *(spread_text(metric, row.baselines[name].get(metric)) for metric in metrics))
        for key, (row, name) in shown.items()
    ]
    return ReportTable(
        caption="Baselines: inference without training, from the attacker's knowledge",
        header=("attacker", "attack", "baseline", "seeds", *map(metric_name, metrics)),
        rows=tuple(rows),
        words=3,
        note="Mean ± standard deviation over the seeds. No baseline uses the training. “logistic” and “boosted” are "
        "supervised models of the known labels; “all labels” is an upper bound: inference from the attacker's columns "
        "and the labels of all other rows.",
    )


def utility_table(table: Sequence[SummaryRow]) -> ReportTable:
    """Return utility by defense, and of the active party alone and of centralized training."""
    by_defense = _longest_by_defense(table)
    metrics = list(dict.fromkeys(name for row in by_defense for name in row.utility))
    first = next((row for row in by_defense if row.behavior is None), by_defense[0])
    lines = [(_run(row), str(row.seeds), row.utility) for row in by_defense]
    lines += [("active party alone (no federation)", str(first.seeds), first.alone)] if first.alone else []
    lines += [("centralized training (no privacy)", str(first.seeds), first.joined)] if first.joined else []
    return ReportTable(
        caption="Utility of the model on the test rows",
        header=("defense", "seeds", *map(metric_name, metrics)),
        rows=tuple((name, seeds, *(spread_text(m, values.get(m)) for m in metrics)) for name, seeds, values in lines),
        note=f"Mean ± standard deviation over the seeds. {_utility_note(metrics)}",
    )


def _utility_note(metrics: Sequence[str]) -> str:
    notes = []
    if "auc" in metrics:
        notes.append(
            "With two classes, AUC and F1 are those of the class that sorts last; with more, they are means over the "
            "classes, each against the rest."
        )
    small = [metric_name(name) for name in metrics if not metric_of(name).higher_is_better]
    if small:
        notes.append(f"Lower is better for {' and '.join([', '.join(small[:-1])] * bool(small[:-1]) + small[-1:])}.")
    return " ".join(notes)


_COSTS: dict[str, tuple[str, Callable[[float, float | None], str]]] = {
    "seconds": ("time", duration),
    "bytes": ("traffic", data_size),
    "messages": ("messages", count),
    "encryptions": ("encryptions", count),
    "additions": ("additions", count),
    "decryptions": ("decryptions", count),
    "ciphertexts": ("ciphertexts", count),
    "logical_sums": ("sums before packing", count),
}


def cost_table(table: Sequence[SummaryRow]) -> ReportTable:
    """Return the cost of one training run by defense."""
    rows = [
        (_run(row), str(row.seeds), *(form(row.cost[n].mean, row.cost[n].std) for n, (_, form) in _COSTS.items()))
        for row in _longest_by_defense(table)
    ]
    return ReportTable(
        caption="Cost of one training run, over all parties: mean over the seeds",
        header=("defense", "seeds", *(title for title, _ in _COSTS.values())),
        rows=tuple(rows),
        note="± is the standard deviation over the seeds. Additions, decryptions and ciphertexts are numbers of packed "
        "ciphertexts; “sums before packing” is the number of ciphertexts of a protocol without packing.",
    )


def _longest_by_defense(table: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Return the row with most seeds for each run; utility and cost depend on behavior, but not on the attack."""
    best: dict[str, SummaryRow] = {}
    for row in table:
        run = _run(row)
        if run not in best or row.seeds > best[run].seeds:
            best[run] = row
    return list(best.values())


def _run(row: SummaryRow) -> str:
    """Return the label of a run: its defense and, if malicious, the behavior of a party."""
    return row.defense if row.behavior is None else f"{row.defense}, {row.party}: {row.behavior}"
