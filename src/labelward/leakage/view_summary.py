"""Summary of a party's view, for its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labelward.attacks.instance_spaces import observed_leaves
from labelward.federation.leakage_monitor import readings_of
from labelward.federation.simulation import VIEW
from labelward.kernels.leaf_signatures import merge_identical_rows
from labelward.messages.tree import TreeStart
from labelward.party.transcript import FILE_NAME
from labelward.party.view import View
from labelward.runs.query_record import QuerySummary, summarize_queries
from labelward.runs.schema import MeterReading


@dataclass(frozen=True, kw_only=True)
class KnownRows:
    """What a passive party of trees knows of the training rows, without its own columns.

    Attributes:
        rows: number of training rows.
        trees: in which it took part.
        groups: of rows that no tree separates for it.
        alone: rows that are a group of their own.
        largest: rows of the largest group.
    """

    rows: int
    trees: int
    groups: int
    alone: int
    largest: int


@dataclass(frozen=True, kw_only=True)
class ViewSummary:
    """Content of a view.

    Attributes:
        counts: number and bytes of records by kind and type, over all attempts.
        readings: of the leakage meter by passive party; in the active party's view only.
        queries: what each peer asked for in predictions and explanations over a network.
        known: of a passive party that saw rows of trees; else None.
    """

    counts: Mapping[tuple[str, str], tuple[int, int]]
    readings: Mapping[str, tuple[MeterReading, ...]]
    queries: tuple[QuerySummary, ...] = ()
    known: KnownRows | None = None


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
    return ViewSummary(
        counts=view.counts(), readings=readings, queries=summarize_queries(run / party), known=_known_rows(view)
    )


def _known_rows(view: View) -> KnownRows | None:
    if view.header.role != "passive" or not any(True for _ in view.received(TreeStart)):
        return None
    leaves = observed_leaves(view)
    sizes = merge_identical_rows(leaves).size
    return KnownRows(
        rows=view.rows,
        trees=len(leaves),
        groups=len(sizes),
        alone=int(np.count_nonzero(sizes == 1)),
        largest=int(sizes.max()),
    )
