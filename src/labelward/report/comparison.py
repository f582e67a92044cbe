"""Comparison of stored audits: their jobs, utility, leakage and cost side by side, as tables and as a page."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelward.errors import InputError
from labelward.report.column_leakage import only_measured
from labelward.report.formatting import NOTHING, data_size, duration
from labelward.report.load import StoredAudit, read_audit
from labelward.report.metrics import metric_name, spread_text
from labelward.report.narrative import ranking_metric
from labelward.report.summary import Spread, SummaryRow, summary_table
from labelward.report.tables import ReportTable
from labelward.report.templates import render, write_page
from labelward.runs.directory import flat_keys, stored_source

_MOST = 8


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Audits side by side.

    Attributes:
        names: of the folders, in the order given.
        title: says so if the audits are of different data.
        tables: differences of the jobs, utility, leakage, cost.
    """

    names: tuple[str, ...]
    title: str
    tables: tuple[ReportTable, ...]


def compare_audits(folders: Sequence[Path]) -> Comparison:
    """Return a comparison of stored audits.

    Raises:
        InputError: fewer than two folders, or more than eight.
        FileFormatError: a folder is not that of an audit, or a file in it is damaged.
    """
    if not 2 <= len(folders) <= _MOST:
        reason = f"two to {_MOST} audits can be compared, not {len(folders)}"
        raise InputError(reason, code="range", field="audits", value=len(folders))
    audits = [read_audit(folder) for folder in folders]
    names = _names(folders)
    tables = [summary_table(audit.rows) for audit in audits]
    shown = (
        _jobs(names, audits),
        _utilities(names, tables),
        _leakages(names, [only_measured(table) for table in tables]),
        _costs(names, tables),
    )
    same = len({stored_source(folder) for folder in folders}) == 1 and len({_data(table) for table in tables}) == 1
    sets = ", ".join(dict.fromkeys(row.dataset for table in tables for row in table))
    title = f"{' and '.join(names)}: {sets}" + ("" if same else ", on different data")
    return Comparison(names=names, title=title, tables=tuple(table for table in shown if table.rows))


def write_comparison(comparison: Comparison, out: Path) -> Path:
    """Write the page of a comparison and return its path.

    Raises:
        DependencyError: Jinja is not installed.
        OutputError: the page cannot be written.
    """
    page = render("comparison.html.j2", title=comparison.title, tables=comparison.tables)
    return write_page(out, page)


def _names(folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of the folders, with those above where they are equal."""
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts))):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return tuple(names)
    return tuple(f"{number}: {folder.resolve().name}" for number, folder in enumerate(folders, 1))


def _data(table: Sequence[SummaryRow]) -> frozenset[str]:
    return frozenset(row.dataset for row in table)


def _jobs(names: Sequence[str], audits: Sequence[StoredAudit]) -> ReportTable:
    flat = [flat_keys(tomllib.loads(audit.job)) for audit in audits]
    keys = sorted({key for each in flat for key in each})
    rows = [
        (key, *(_shown(each.get(key)) for each in flat))
        for key in keys
        if len({repr(each.get(key)) for each in flat}) > 1
    ]
    return ReportTable(
        caption="What differs between the jobs", header=("key", *names), rows=tuple(rows), words=len(names) + 1
    )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_kind(each) for each in value)
    return NOTHING if value is None else str(value)


def _kind(entry: Any) -> str:
    return str(entry.get("kind", "chain")) if isinstance(entry, Mapping) else str(entry)


Key = tuple[str, ...]


def _beside(
    tables: Sequence[Sequence[SummaryRow]],
    key: Callable[[SummaryRow], Key | None],
    value: Callable[[SummaryRow], Spread | None],
) -> dict[Key, list[Spread | None]]:
    """Return for each key its value in each audit, in the order of appearance; None where an audit has none."""
    found: dict[Key, list[Spread | None]] = {}
    for place, table in enumerate(tables):
        for row in table:
            at = key(row)
            if at is not None and value(row) is not None:
                cells = found.setdefault(at, [None] * len(tables))
                cells[place] = cells[place] or value(row)
    return found


def _lines(found: Mapping[Key, Sequence[Spread | None]], metric: str) -> Iterable[tuple[str, ...]]:
    for key, values in found.items():
        cells = [spread_text(metric, each) for each in values]
        if len(values) == 2:
            one, other = values
            between = None if one is None or other is None else Spread.between(other, one)
            cells.append(NOTHING if between is None else spread_text(metric, between))
        yield (*key, *cells)


def _header(first: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    return (*first, *names, *(["difference"] if len(names) == 2 else []))


def _utilities(names: Sequence[str], tables: Sequence[Sequence[SummaryRow]]) -> ReportTable:
    worth = next((row.worth for table in tables for row in table), "")
    found = _beside(
        tables, lambda row: None if row.behavior else (row.defense, f"{row.seeds}"), lambda row: row.utility.get(worth)
    )
    return ReportTable(
        caption=f"Utility on the test rows: {metric_name(worth)}",
        header=_header(("defense", "seeds"), names),
        rows=tuple(_lines(found, worth)),
        words=2,
        note="Mean ± standard deviation over the seeds. The difference is the second less the first, unpaired.",
    )


def _leakages(names: Sequence[str], tables: Sequence[Sequence[SummaryRow]]) -> ReportTable:
    metric = ranking_metric([row for table in tables for row in table]) or ""
    found = _beside(
        tables,
        lambda row: (row.defense, row.party, row.attack, f"{row.seeds}") if row.party and row.attack else None,
        lambda row: row.leakage.get(metric),
    )
    return ReportTable(
        caption=f"Leakage by attack: {metric_name(metric)}" if metric else "Leakage by attack",
        header=_header(("defense", "attacker", "attack", "seeds"), names),
        rows=tuple(_lines(found, metric)),
        words=3,
        note="Mean ± standard deviation over the seeds.",
    )


def _costs(names: Sequence[str], tables: Sequence[Sequence[SummaryRow]]) -> ReportTable:
    rows: list[tuple[str, ...]] = []
    for name, title, form in (("seconds", "time", duration), ("bytes", "traffic", data_size)):
        found = _beside(
            tables,
            lambda row: None if row.behavior else (row.defense,),
            lambda row, name=name: row.cost.get(name),  # type: ignore[misc]
        )
        rows += [
            (defense, title, *(NOTHING if each is None else form(each.mean, each.std) for each in values))
            for (defense,), values in found.items()
        ]
    return ReportTable(
        caption="Cost of one training run, over all parties",
        header=("defense", "cost", *names),
        rows=tuple(rows),
        words=2,
    )
