"""Summary of an audit: a table with sentences, or one JSON object with the names of ``results.jsonl``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelward.cli._output import print_table, say

if TYPE_CHECKING:
    from labelward.report.load import StoredAudit
    from labelward.report.summary import Spread, SummaryRow
    from labelward.runs.schema import ResultRow


def print_summary(rows: Sequence[ResultRow], stored: StoredAudit | None = None) -> None:
    """Print a table and summary sentences for each (dataset, model, engine).

    Args:
        rows: of the audit.
        stored: what else is known of it.
    """
    from labelward.report.column_leakage import about_columns, about_labels, column_sentences, only_measured
    from labelward.report.narrative import (
        budget_notice,
        constant_notice,
        diverged_notice,
        headline,
        scope_notice,
        split_notice,
        without_standing,
    )
    from labelward.report.summary import summary_table

    tables: dict[tuple[str, ...], list[SummaryRow]] = {}
    for row in summary_table(rows) if stored is None else stored.summary(rows):
        tables.setdefault((row.dataset, repr(row.model), repr(row.engine)), []).append(row)
    for everything in tables.values():
        table, columns = about_labels(everything), about_columns(everything)
        first = table[0]
        bits = f" {first.engine.bits} bits" if first.engine.bits else ""
        engine = "" if first.engine.name == "none" else f", {first.engine.name}{bits}"
        title = f"{first.dataset}, {first.model['kind']}{engine}"
        print_table(title, *_cells(without_standing(table)), words=3, spare=("traffic", "training time", "chance"))
        if columns:
            print_table(
                f"{title}: columns of other parties", *_cells(only_measured(columns)), words=3, spare=("chance",)
            )
        notices = (*constant_notice(table), *scope_notice(table), *budget_notice(stored.budget if stored else None))
        notices = (*notices, *split_notice(table, stored.training_rows if stored else None))
        notices = (*notices, *diverged_notice(stored.diverged if stored else ()))
        partners = stored.partners if stored else ()
        for sentence in (*headline(table, None, partners), *notices, *column_sentences(columns)):
            say(sentence)


def _cells(table: Sequence[SummaryRow]) -> tuple[list[str], list[list[str]]]:
    from labelward.report.formatting import data_size, duration
    from labelward.report.metrics import metric_name, spread_text
    from labelward.report.narrative import ranking_metric

    leak = ranking_metric(table)
    worth = table[0].worth
    header = ["defense", "attacker", "attack"]
    header += [metric_name(leak), "without the view", "chance"] if leak else []
    header.append(metric_name(worth))
    lines = []
    for row in table:
        line = [row.defense, row.party or "–", row.attack or "–"]
        if leak:
            line += [spread_text(leak, each.get(leak)) for each in (row.leakage, row.without_view, row.chance)]
        line.append(spread_text(worth, row.utility.get(worth)))
        seconds, size = row.cost.get("seconds"), row.cost.get("bytes")
        lines.append([*line, duration(seconds.mean) if seconds else "–", data_size(size.mean) if size else "–"])
    return [*header, "training time", "traffic"], lines


def as_json(folder: Path, report: Path | None, rows: Sequence[ResultRow]) -> dict[str, Any]:
    """Return means and standard deviations over the seeds, under the names of ``results.jsonl``."""
    import msgspec

    from labelward.party.joined_view import SEPARATOR
    from labelward.report.summary import summary_table
    from labelward.runs.diverged_runs import diverged_runs
    from labelward.runs.schema import FORMAT, budget_texts, kind_label

    attacks = {kind_label(row.attack): row.attack for row in rows if row.attack is not None}
    behaviors = {kind_label(row.behavior): row.behavior for row in rows if row.behavior is not None}
    figures = []
    for row in summary_table(rows):
        leakage = _figures(row.leakage) | {
            "chance": _figures(row.chance),
            "without_view": _figures(row.without_view),
            "primary": row.primary,
        }
        if row.evidence or row.advantages:
            leakage |= _privacy(row)
        utility = _figures(row.utility) | {
            "alone": _figures(row.alone),
            "joined": _figures(row.joined),
            "primary": row.worth,
        }
        figures.append(
            {
                "dataset": row.dataset,
                "model": row.model,
                "engine": msgspec.to_builtins(row.engine),
                "seeds": row.seeds,
                "defense": list(row.chain),
                "party": row.party,
                "attack": None if row.attack is None else attacks[row.attack],
                "behavior": None if row.behavior is None else behaviors[row.behavior],
                "leakage": None if row.attack is None else leakage,
                "utility": utility,
                "cost": _figures(row.cost),
                **({"budgets": budgets} if (budgets := budget_texts(row.chain)) else {}),
                **({"coalition": row.party.split(SEPARATOR)} if row.party and SEPARATOR in row.party else {}),
            }
        )
    versions = rows[0].versions if rows else {}
    where = {"folder": str(folder), "report": None if report is None else str(report)}
    names = ("defense", "party", "behavior", "seed", "reason")
    diverged = [{name: getattr(run, name) for name in names} for run in diverged_runs(folder)]
    return {"format": FORMAT, **where, "summary": figures, "diverged": diverged, "versions": versions}


def _privacy(row: SummaryRow) -> dict[str, Any]:
    """Return the bound of epsilon that all seeds together show, null if no finite one, and the mean advantage."""
    import math

    import msgspec

    from labelward.report.privacy_table import attacker_privacy

    (found,) = attacker_privacy([row])
    bound = found.bound
    epsilon = None if bound is None else {"bound": bound if math.isfinite(bound) else None, "pairs": found.pairs}
    names = ("accuracy", "without_view", "additive", "multiplicative")
    advantage = {name: msgspec.to_builtins(getattr(found, name)) for name in names}
    return {"epsilon": epsilon, "advantage": advantage}


def _figures(spreads: dict[str, Spread]) -> dict[str, Any]:
    return {name: {"mean": spread.mean, "std": spread.std} for name, spread in spreads.items()}
