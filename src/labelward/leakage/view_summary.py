"""Summary of a party's view, for its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labelward.federation.leakage_monitor import readings_of
from labelward.federation.simulation import VIEW
from labelward.party.transcript import FILE_NAME
from labelward.party.view import View
from labelward.runs.query_record import QuerySummary, summarize_queries
from labelward.runs.schema import MeterReading


@dataclass(frozen=True, kw_only=True)
class ViewSummary:
    """Content of a view.

    Attributes:
        counts: number and bytes of records by kind and type, over all attempts.
        readings: of the leakage meter by passive party; in the active party's view only.
        queries: what each peer asked for in predictions over a network.
    """

    counts: Mapping[tuple[str, str], tuple[int, int]]
    readings: Mapping[str, tuple[MeterReading, ...]]
    queries: tuple[QuerySummary, ...] = ()


def summarize_view(run: Path, party: str) -> ViewSummary | None:
    """Return a summary of a party's view; None: nothing was recorded, or the view was purged.

    Raises:
        FileFormatError: the view is damaged, or the record of predictions.
    """
    if not (run / party / VIEW / FILE_NAME).exists():
        return None
    view = View.load(run / party / VIEW)
    readings: dict[str, tuple[MeterReading, ...]] = {}
    for account in view.applied():
        readings |= readings_of(account)
    return ViewSummary(counts=view.counts(), readings=readings, queries=summarize_queries(run / party))
