"""Where the figures of an audit come from: when, how long, on which machine, from which data and columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from labelward.report.formatting import duration
from labelward.report.load import StoredAudit
from labelward.report.tables import ReportTable
from labelward.runs.directory import data_folder, stored_source
from labelward.runs.schema import RESULTS_FILE

_NOT_COLUMNS = ("id", "label")
_SHOWN = 16
"""Digits of a fingerprint, as of certificates."""


def provenance_table(folder: Path, audit: StoredAudit) -> ReportTable:
    """Return date, duration, machine, fingerprint of the data and columns of each party, as far as they are stored."""
    runs = [run for found in audit.runs.values() for run in found]
    written = datetime.fromtimestamp((folder / RESULTS_FILE).stat().st_mtime, UTC)
    rows = [("last result stored", f"{written:%Y-%m-%d %H:%M} UTC")]
    if runs:
        attacks = sum(each.seconds for run in runs for each in run.attacks)
        rows += [
            ("trainings took", f"{duration(sum(run.duration for run in runs))} in all, attacks {duration(attacks)}"),
            ("machine", "; ".join(dict.fromkeys(run.processor for run in runs))),
        ]
    digests = [digest[:_SHOWN] for digest in stored_source(folder)]
    if digests:
        rows.append(("fingerprint of the data (SHA-256)", ", ".join(digests)))
    seeds = sorted({run.seed for run in runs})
    return ReportTable(caption="This audit", header=("item", "value"), rows=(*rows, *_columns(folder, seeds)), words=2)


def _columns(folder: Path, seeds: Sequence[int]) -> list[tuple[str, str]]:
    """Return each party's columns in the first seed; other seeds may have drawn others."""
    import pyarrow.parquet as pq

    found = []
    for path in sorted(data_folder(folder, seeds[0]).glob("*.parquet")) if seeds else ():
        if path.stem == "truth" or path.stem.startswith("known-"):
            continue
        names = {seed: tuple(pq.read_schema(data_folder(folder, seed) / path.name).names) for seed in seeds}
        own = [name for name in names[seeds[0]] if name not in _NOT_COLUMNS]
        drawn = "" if len(set(names.values())) == 1 else f" (seed {seeds[0]}; drawn anew for each)"
        found.append((f"columns of {path.stem}", f"{len(own)}: {', '.join(own)}{drawn}"))
    return found
