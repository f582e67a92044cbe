"""Audit report: one self-contained HTML page of the stored results. Nothing is run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from labelward.report import run_tables
from labelward.report.column_leakage import about_columns, about_labels, column_sentences, column_table
from labelward.report.embedding_figures import embedding_figures, evidence_table, neighbor_table
from labelward.report.estimate_tables import estimate_tables
from labelward.report.formatting import count, data_size, duration
from labelward.report.leakage_curves import meter_images
from labelward.report.load import StoredAudit, read_audit
from labelward.report.message_purposes import EXPLAINED
from labelward.report.metrics import format_metric, metric_name, spread_text
from labelward.report.narrative import (
    UNDEFENDED,
    budget_notice,
    constant_notice,
    constraint_notice,
    diverged_notice,
    headline,
    headline_row,
    insecure_warning,
    missing_details_warning,
    published_split_notice,
    ranking_metric,
    reading_hint,
    reads_view,
    scope_notice,
    split_notice,
    strongest,
    unfinished_warning,
)
from labelward.report.plots import Image
from labelward.report.privacy_table import privacy_images, privacy_table
from labelward.report.provenance_table import provenance_table
from labelward.report.summary import SummaryRow
from labelward.report.tables import ReportTable, baseline_table, cost_table, leakage_tables, utility_table
from labelward.report.templates import render, write_page
from labelward.report.trade_off_plot import TradeOffImage, trade_off_image
from labelward.runs.schema import ResultRow

REPORT_FILE = "report.html"


def write_report(folder: Path, *, warn: Callable[[str], None] | None = None) -> Path:
    """Write ``report.html`` into the folder of an audit and return its path; an existing file is replaced atomically.

    The page loads nothing from elsewhere, all content of the results is escaped, and its policy admits one script only,
    which sorts and filters tables.

    Args:
        folder: of the audit.
        warn: receives a warning about missing details, which the page shows as well.

    Raises:
        FileFormatError: a stored file is missing, damaged or of another format version, or no run is finished.
        DependencyError: Jinja or matplotlib is not installed.
        OutputError: the page cannot be written.
    """
    audit = read_audit(folder)
    page = _render(audit, provenance_table(folder, audit))
    missing = missing_details_warning(audit.missing, audit.finished)
    if missing and warn is not None:
        warn(missing)
    return write_page(folder / REPORT_FILE, page)


@dataclass(frozen=True, kw_only=True)
class KeyFigure:
    """A key figure with values to compare it with."""

    title: str
    value: str
    comparison: str


@dataclass(frozen=True, kw_only=True)
class TitledPlot:
    """A plot with its title."""

    title: str
    image: TradeOffImage


@dataclass(frozen=True, kw_only=True)
class ReportSection:
    """Section of the report on one dataset, model and engine."""

    title: str
    sentences: tuple[str, ...]
    hint: str
    cards: tuple[KeyFigure, ...]
    plots: tuple[TitledPlot, ...]
    privacy: ReportTable
    privacy_plots: tuple[Image, ...]
    tables: tuple[ReportTable, ...]


def _render(audit: StoredAudit, provenance: ReportTable) -> str:
    sections = [_section(rows, audit, number) for number, rows in enumerate(_by_subject(audit.rows), start=1)]
    first = next(iter(audit.runs), None)
    runs = audit.runs
    return render(
        "page.html.j2",
        title=", ".join(dict.fromkeys(row.dataset for row in audit.rows)),
        insecure=insecure_warning(audit.insecure),
        unfinished=unfinished_warning(audit.finished, audit.expected, audit.cut_off),
        missing=missing_details_warning(audit.missing, audit.finished),
        sections=sections,
        regression=_is_regression(audit.rows),
        classes=any("auc" in row.utility for row in audit.rows),
        provenance=provenance,
        explanation=EXPLAINED,
        wires=[run_tables.wire_table(label, found) for label, found in runs.items()],
        seen=[run_tables.visibility_table(label, found) for label, found in runs.items()],
        information=run_tables.information_table(runs),
        meter=meter_images(runs),
        explained=embedding_figures(audit.explained),
        neighbors=neighbor_table(audit.explained),
        shares=evidence_table(audit.explained),
        explaining=duration(sum(found.seconds for found in audit.explained.values())),
        keys=run_tables.key_table(runs),
        phases=run_tables.phase_table(runs[first]) if first else (),
        phase_label=first or "",
        expected=estimate_tables(runs, audit.rows),
        applied=run_tables.defense_table(runs),
        auxiliary=run_tables.auxiliary_table({**runs, "": audit.deviating}),
        **_circumstances(audit.rows),
        deviating=bool(audit.deviating),
        versions=_versions(audit.rows),
        job=audit.job,
    )


def _circumstances(rows: Sequence[ResultRow]) -> dict[str, bool]:
    """Return what fixed paragraphs depend on.

    ``encrypted``: any engine encrypts. ``networks``, ``trees``: all models are split networks, or trees of one label
    holder; other models hide other things. ``coalitions``: parties that join their views were attackers.
    """
    kinds = {row.model["kind"] for row in rows}
    return {
        "encrypted": any(row.engine.name not in ("none", "plain") for row in rows),
        "networks": kinds == {"splitnn"},
        "trees": kinds <= {"secureboost", "forest"},
        "coalitions": any(row.coalition for row in rows),
    }


def _by_subject(rows: Sequence[ResultRow]) -> list[list[ResultRow]]:
    groups: dict[bytes, list[ResultRow]] = {}
    for row in rows:
        key = msgspec.json.encode([row.dataset, row.model, row.engine], order="deterministic")
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _section(rows: Sequence[ResultRow], audit: StoredAudit, number: int) -> ReportSection:
    everything = audit.summary(rows)
    table = about_labels(everything)
    best = strongest(table)
    primary = ranking_metric(table)
    leaks = any(reads_view(row) for row in table if row.attack is not None)
    parties = list(dict.fromkeys(party for _, party in best)) if leaks else []
    plots = []
    for position, party in enumerate(parties):
        marks = [row for (_, attacker), row in best.items() if attacker == party]
        plots.append(
            TitledPlot(title=f"Attacker: {party}", image=trade_off_image(party, marks, f"plot-{number}-{position}"))
        )
    first = rows[0]
    engine = f"{first.engine.name} {first.engine.bits} bits" if first.engine.bits else first.engine.name
    baselines = baseline_table(table)
    return ReportSection(
        title=f"{first.dataset} · {first.model['kind']}{'' if engine == 'none' else f' · {engine}'}",
        sentences=(
            *headline(table, audit.training_rows, audit.partners),
            *constant_notice(table),
            *diverged_notice(audit.diverged),
            *scope_notice(table),
            *budget_notice(audit.budget),
            *split_notice(table, audit.training_rows),
            *column_sentences(everything),
            *published_split_notice(audit.split),
            *constraint_notice(audit.constrained, table),
        ),
        hint=reading_hint(primary, regression=_is_regression(rows)) if primary else "",
        cards=tuple(_key_figures(table)),
        plots=tuple(plots),
        privacy=privacy_table(table),
        privacy_plots=tuple(privacy_images(table)),
        tables=(
            *(leakage_tables(table) if best else ()),
            *((column_table(everything),) if about_columns(everything) else ()),
            *((baselines,) if baselines.rows else ()),
            utility_table(table),
            cost_table(table),
        ),
    )


def _is_regression(rows: Sequence[ResultRow]) -> bool:
    """Return whether the labels are regression targets; only these have an R²."""
    return any("r2" in row.utility for row in rows)


def _key_figures(table: Sequence[SummaryRow]) -> list[KeyFigure]:
    figures = []
    undefended = [row for row in table if row.defense == UNDEFENDED] or list(table)
    best = list(strongest(undefended).values())
    if best:
        worst = headline_row(best)
        primary = worst.primary or ""
        own, chance = worst.without_view[primary].mean, worst.chance[primary].mean
        figures.append(
            KeyFigure(
                title=f"Leakage to {worst.party} ({worst.defense})"
                if any(reads_view(row) for row in undefended if row.attack is not None)
                else f"Known to {worst.party} without training",
                value=spread_text(primary, worst.leakage[primary], 2),
                comparison=f"{metric_name(primary)}, strongest attack {worst.attack}; at best without the view "
                f"{format_metric(primary, own, digits=2)}, chance {format_metric(primary, chance, digits=2)}",
            )
        )
    row = next((each for each in undefended if each.behavior is None), undefended[0])
    baselines = (("active party alone", row.alone), ("centralized", row.joined))
    against = [
        f"{name} {format_metric(row.worth, values[row.worth].mean)}"
        for name, values in baselines
        if row.worth in values
    ]
    figures.append(
        KeyFigure(
            title=f"Utility ({row.defense})",
            value=spread_text(row.worth, row.utility[row.worth]),
            comparison="; ".join([f"{metric_name(row.worth)} on the test rows", *against]),
        )
    )
    cost = {name: each.mean for name, each in row.cost.items()}
    figures.append(
        KeyFigure(
            title=f"Cost of one training ({row.defense})",
            value=duration(cost["seconds"]),
            comparison=f"{data_size(cost['bytes'])} in {count(cost['messages'])} messages, on average",
        )
    )
    return figures


def _versions(rows: Sequence[ResultRow]) -> dict[str, str]:
    """Return the versions of all rows by library; if rows differ, all of them."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, version in row.versions.items():
            if version not in found.setdefault(name, []):
                found[name].append(version)
    return {name: ", ".join(versions) for name, versions in found.items()}
