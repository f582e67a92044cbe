"""Which party gets which columns of a common table."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward import rng
from labelward.data.encoding import fit_encoding, transform_splits
from labelward.data.tables import find_column
from labelward.errors import DataError
from labelward.job import Job, PartySection

__all__ = ["assign_columns", "check_disjoint", "column_counts", "party_columns", "rank_by_information"]

_IMPORTANCE_ROWS = 10_000
_NEIGHBORS = 3
_ROUNDING = 1e-9  # shares such as 0.29 of 100 columns must not lose one to rounding


def assign_columns(
    job: Job, seed: int, table: pa.Table, ranked: Callable[[Sequence[str]], Sequence[str]]
) -> tuple[tuple[str, ...], ...]:
    """Return each party's columns, in the order of the job's parties.

    Lists are taken as they stand. Shares are dealt out at random by seed, or by importance: the passive parties, in
    their order, get the most telling columns and the active party those that follow. A party's columns are in the
    order of the table.

    Args:
        job: its parties have shares or lists of columns.
        seed: of the run.
        table: the common table; its label, id and weight columns are nobody's.
        ranked: sorts columns by falling importance; asked only where the job wants it.

    Raises:
        DataError: a listed column does not exist, or a passive party's share comes to no column.
    """
    if job.active.share is None:
        for party in job.parties:
            for column in party.columns or ():
                find_column(table, column, f"party {party.name!r}")
        return tuple(party.columns or () for party in job.parties)
    columns = [name for name in table.column_names if name not in job.data.roles().values()]
    counts = column_counts([party.share or 0.0 for party in job.parties], len(columns))
    for party, count in zip(job.passive, counts[1:], strict=True):
        if count == 0:
            raise DataError(
                f"a share of {party.share} of {len(columns)} columns is not one column, "
                "and a passive party must hold one",
                code="range",
                field=f"[parties] {party.name}",
                value=party.share,
            )
    if job.data.partition == "importance":
        dealt, sizes = list(ranked(columns)), [*counts[1:], counts[0]]
    else:
        dealt, sizes = _shuffled(columns, seed, reference=job.data.split == "reference"), counts
    ends = np.cumsum(sizes).tolist()
    place = {name: position for position, name in enumerate(columns)}
    dealt_out = [
        tuple(sorted(dealt[end - size : end], key=place.__getitem__)) for size, end in zip(sizes, ends, strict=True)
    ]
    return tuple([dealt_out[-1], *dealt_out[:-1]] if job.data.partition == "importance" else dealt_out)


def party_columns(job: Job, party: PartySection, table: pa.Table) -> tuple[str, ...]:
    """Return the columns that a party brings of its own table.

    Raises:
        DataError: one that is called like the label, where that is known here, and may be it.
    """
    others = tuple(name for name in table.column_names if name not in party.roles().values())
    if party.columns is None and job.active.label in others:
        raise DataError(
            f"its table has a column {job.active.label!r}, as the label of "
            f"{job.active.name!r} is called; if it is no label, list it under columns in [parties.{party.name}]",
            code="columns",
            field=f"party {party.name!r}",
            value=job.active.label,
        )
    return others if party.columns is None else party.columns


def check_disjoint(job: Job, held: Sequence[tuple[str, ...]]) -> None:
    """Refuse, without ``overlap``, a column that two parties bring, with a :class:`~labelward.errors.DataError`."""
    holder: dict[str, str] = {}
    for party, columns in zip(job.parties, held, strict=True):
        for column in columns:
            if column in holder and not job.data.overlap:
                raise DataError(
                    f"column {column!r} is held by {holder[column]!r} already "
                    "(set overlap = true in [data] to allow it, or list each party's columns)",
                    code="duplicate",
                    field=f"party {party.name!r}",
                    value=column,
                )
            holder.setdefault(column, party.name)


def column_counts(shares: Sequence[float], columns: int) -> list[int]:
    """Return how many of ``columns`` each share comes to; shares that sum to 1 use every column.

    Each gets the whole part; what is left goes to the largest remainders, among equals to the last. So of 31 columns
    halved between two parties the active one, which comes first, gets 15.
    """
    exact = [share * columns for share in shares]
    counts = [math.floor(value + _ROUNDING) for value in exact]
    left = math.floor(sum(exact) + _ROUNDING) - sum(counts)
    by_remainder = sorted(range(len(shares)), key=lambda one: (round(exact[one] - counts[one], 9), one), reverse=True)
    for one in by_remainder[:left]:
        counts[one] += 1
    return counts


def rank_by_information(
    table: pa.Table, columns: Sequence[str], rows: NDArray[np.int64], labels: NDArray[Any], task: str, seed: int
) -> list[str]:
    """Return the columns by falling mutual information with the labels, among equals in the order given.

    The nearest-neighbor estimate for numbers, counts for categories: "Impact of Feature Partitions" of the ID2Graph
    paper. It uses the training rows, at most 10,000 of them drawn by seed. A missing category counts as one of its own;
    where numbers are missing, what their absence tells and what the known ones tell is added up.

    Args:
        table: the common table.
        columns: names of columns.
        rows: the training rows.
        labels: of all rows: class numbers, or quantities.
        task: which of these, ``"classification"`` or ``"regression"``.
        seed: of the run.
    """
    draw = rng.learning(seed, "", 0, "importance")
    if len(rows) > _IMPORTANCE_ROWS:
        rows = np.sort(draw.choice(rows, _IMPORTANCE_ROWS, replace=False))
    state = int(draw.integers(2**31))
    known = fit_encoding(table, columns, "[data] table", rows=rows)
    (values,) = transform_splits(table, known, "[data] table", [rows])
    discrete = np.array([name in known.categories or pa.types.is_boolean(table[name].type) for name in columns])
    values[:, discrete] = np.where(np.isnan(values[:, discrete]), -1.0, values[:, discrete])
    labels, told = labels[rows], np.zeros(len(columns))
    gaps = np.isnan(values).any(axis=0)
    told[~gaps] = _information(values[:, ~gaps], labels, discrete[~gaps], task, state)
    for column in np.flatnonzero(gaps):
        missing = np.isnan(values[:, [column]])
        known_rows = ~missing[:, 0]
        told[column] = _information(missing.astype(np.float64), labels, np.ones(1, np.bool_), task, state)[0]
        told[column] += (
            known_rows.mean()
            * _information(
                values[known_rows][:, [column]], labels[known_rows], np.zeros(1, np.bool_), task, state
            ).sum()
        )
    return [columns[position] for position in np.argsort(-told, kind="stable")]


def _information(
    values: NDArray[np.float64], labels: NDArray[Any], discrete: NDArray[np.bool_], task: str, state: int
) -> NDArray[np.float64]:
    """Return each column's mutual information with the labels; 0 where too few rows tell anything."""
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

    few = len(labels) <= _NEIGHBORS or (task == "classification" and np.unique(labels, return_counts=True)[1].max() < 2)
    if few or not values.shape[1]:
        return np.zeros(values.shape[1])
    measure = mutual_info_classif if task == "classification" else mutual_info_regression
    told: NDArray[np.float64] = measure(
        values, labels, discrete_features=discrete, random_state=state, n_neighbors=_NEIGHBORS
    )
    return told


def _shuffled(columns: list[str], seed: int, *, reference: bool) -> list[str]:
    if reference:  # the draw of the published figures: Python's generator, not numpy's
        return random.Random(seed).sample(columns, len(columns))
    return [columns[position] for position in rng.learning(seed, "", 0, "columns").permutation(len(columns))]
