"""Labels on several parties: dealt out in a rehearsal, or joined from the holders' own tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.data.tables import describe_row, file_row, find_column, first_row, rows_taken
from labelward.errors import DataError
from labelward.job import DataSection, PartySection
from labelward.rng import PrivateSeed

Positions = NDArray[np.int64]


def deal_labels(
    data: DataSection, seed: int, classes: NDArray[np.int64] | None, rows: int, private: PrivateSeed
) -> Positions:
    """Return for each row the position of its label's holder in ``[data] labels``: int64 [rows].

    Everybody learns who holds which label. With ``label_skew`` this depends on the labels, so that the draw comes from
    the coordinator's private seed, which no other party has.

    Args:
        data: shares of the holders, and their skew.
        seed: of the run.
        classes: int64 [rows]; None for regression, where ``label_skew`` is refused.
        rows: number of rows.
        private: of the first holder.

    Raises:
        DataError: a holder gets no label, or classes are skewed where there are none.
    """
    shares, draw = np.array(list(data.labels.values())), private.learning(seed, 0, "label holders")
    groups = np.zeros(rows, dtype=np.int64)
    if data.label_skew == "classes":
        if classes is None:
            raise DataError("needs classes", code="unsupported", field="[data] label_skew", value=data.label_skew)
        groups = classes
    holders = np.empty(rows, dtype=np.int64)
    for group in range(int(groups.max()) + 1):
        members = draw.permutation(np.flatnonzero(groups == group))
        of_group = shares
        if data.label_skew == "classes":
            of_group = draw.dirichlet(shares * len(shares) * (data.label_concentration or 1.0))
        ends = np.rint(np.cumsum(of_group) * len(members)).astype(np.int64)
        holders[members] = np.searchsorted(ends, np.arange(len(members)), side="right").clip(max=len(shares) - 1)
    for position, name in enumerate(data.labels):
        if not (holders == position).any():
            raise DataError("gets no label; raise its share", code="labels", field=f"[data] labels {name}", value=name)
    return holders


def join_labels(
    parties: Sequence[PartySection], tables: Sequence[pa.Table], file_rows: Sequence[Positions]
) -> tuple[pa.Table, Positions]:
    """Return one column ``label`` of the labels of several holders, and for each row the position of its holder.

    Args:
        parties: those with a label column.
        tables: of these, with the same rows in the same order; a missing label is one of another holder.
        file_rows: for each row of a table its position in the party's file, for messages.

    Raises:
        DataError: two parties label a row, or none does.
    """
    columns = [
        find_column(table, party.label or "", f"party {party.name!r}")
        for party, table in zip(parties, tables, strict=True)
    ]
    known: NDArray[np.bool_] = np.stack(
        [~pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False) for column in columns]
    )
    for wrong, reason in (
        (known.sum(axis=0) > 1, "labels a row that another party labels"),
        (~known.any(axis=0), "nobody labels a row"),
    ):
        if wrong.any():
            labeled = np.flatnonzero(known[:, int(np.argmax(wrong))])
            guilty = int(labeled[-1]) if len(labeled) else 0
            with rows_taken(file_rows[guilty]):
                row = first_row(np.asarray(wrong) & (known[guilty] if len(labeled) else True))
                raise DataError(
                    f"{reason} ({describe_row(row)}; {np.count_nonzero(wrong)} in all)",
                    code="labels",
                    field=f"party {parties[guilty].name!r}",
                    value=file_row(row),
                )
    joined = pc.coalesce(*[column.combine_chunks() for column in columns])
    return pa.table({"label": joined}), known.argmax(axis=0).astype(np.int64)
