"""Column partition: the columns of each party, assigned by list or share, or those of its own table."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward import rng
from labelward.data.encoding import fit_encoding, transform_splits
from labelward.data.tables import find_column
from labelward.errors import DataError
from labelward.job import Job, PartySection

ByColumn = Literal["monotone", "edges"]
BY_COLUMN: tuple[ByColumn, ...] = ("monotone", "edges")
"""Keys of ``[data]`` and of parties that say something by column."""
_IMPORTANCE_ROWS = 10_000
_NEIGHBORS = 3
_ROUNDING = 1e-9  # 0.29 × 100 is 28.999999999999996 in floating point, and means 29 columns


def assign_columns(
    job: Job, seed: int, table: pa.Table, ranked: Callable[[Sequence[str]], Sequence[str]], *, width: int = 0
) -> tuple[tuple[str, ...], ...]:
    """Assign the columns of a common table to parties, in the order of the job's parties.

    Lists are used as given. Shares are assigned at random by seed, or by importance: passive parties, in their order,
    get the most informative columns and the active party the next ones. Parts of images and texts are dealt out as they
    lie, from the first party to the last. A party's columns keep the table's order.

    Args:
        job: a job whose parties have shares or lists of columns.
        table: the common table; its label, id and weight columns are assigned to no party.
        ranked: sorts columns by decreasing importance; called only if the job asks for it.
        width: how many columns make up a row of an image, or a text; 0: columns have no order.

    Raises:
        DataError: a listed column does not exist, or a passive party's share is less than one column.
    """
    columns = [name for name in table.column_names if name not in job.data.roles().values()]
    if job.active.share is None:
        for party in job.parties:
            for column in (*(party.columns or ()), *party.drop):
                find_column(table, column, f"party {party.name!r}")
        return tuple(
            tuple(name for name in columns if name not in party.drop) if party.drop else party.columns or ()
            for party in job.parties
        )
    counts = column_counts([party.share or 0.0 for party in job.parties], width or len(columns))
    for party, count in zip(job.passive, counts[1:], strict=True):
        if count == 0 and party.name != job.dealer:
            raise DataError(
                f"{party.share} of {len(columns)} columns is less than one, and a passive party needs one; increase it",
                code="range",
                field=f"[parties] {party.name}",
                value=party.share,
            )
    if width:
        ends = np.cumsum(counts)
        holder = [int(np.searchsorted(ends, at % width, side="right")) for at in range(len(columns))]
        return tuple(
            tuple(name for name, one in zip(columns, holder, strict=True) if one == at) for at in range(len(counts))
        )
    if job.data.partition == "importance":
        order, sizes = list(ranked(columns)), [*counts[1:], counts[0]]
    else:
        order, sizes = _shuffled(columns, seed, reference=job.data.split == "reference"), counts
    ends = np.cumsum(sizes).tolist()
    place = {name: position for position, name in enumerate(columns)}
    assigned = [
        tuple(sorted(order[end - size : end], key=place.__getitem__)) for size, end in zip(sizes, ends, strict=True)
    ]
    return tuple([assigned[-1], *assigned[:-1]] if job.data.partition == "importance" else assigned)


def party_columns(job: Job, party: PartySection, table: pa.Table) -> tuple[str, ...]:
    """Return the feature columns of a party's own table.

    Raises:
        DataError: a column that is not listed has the name of the label column, and may be the label.
    """
    others = tuple(name for name in table.column_names if name not in party.roles().values())
    if party.columns is None and job.active.label in others:
        reason = (
            f"its table has a column {job.active.label!r}, which is the name of the label column of "
            f"{job.active.name!r}; if it is a feature, list it under columns in [parties.{party.name}]"
        )
        raise DataError(reason, code="columns", field=f"party {party.name!r}", value=job.active.label)
    return others if party.columns is None else party.columns


def check_disjoint(job: Job, assigned: Sequence[tuple[str, ...]]) -> None:
    """Refuse a column of two parties with a :class:`~labelward.errors.DataError`, unless the job allows overlap."""
    holder: dict[str, str] = {}
    for party, columns in zip(job.parties, assigned, strict=True):
        for column in columns:
            if column in holder and not job.data.overlap:
                reason = (
                    f"party {holder[column]!r} has column {column!r} as well; set overlap = true in [data], or list "
                    "each party's columns"
                )
                raise DataError(reason, code="duplicate", field=f"party {party.name!r}", value=column)
            holder.setdefault(column, party.name)


def column_counts(shares: Sequence[float], columns: int) -> list[int]:
    """Return the number of columns of each share, by the largest remainder; shares that sum to 1 use all columns.

    Equal remainders favor the last: of 31 columns, two shares of a half give 15 and 16.
    """
    exact = [share * columns for share in shares]
    counts = [math.floor(value + _ROUNDING) for value in exact]
    remaining = math.floor(sum(exact) + _ROUNDING) - sum(counts)
    by_remainder = sorted(range(len(shares)), key=lambda one: (round(exact[one] - counts[one], 9), one), reverse=True)
    for one in by_remainder[:remaining]:
        counts[one] += 1
    return counts


def rank_by_information(
    table: pa.Table,
    columns: Sequence[str],
    rows: NDArray[np.int64],
    labels: NDArray[Any],
    task: str,
    seed: int,
    *,
    hashed: Collection[str] = (),
) -> list[str]:
    """Return columns by decreasing mutual information with the labels; equal ones keep their order.

    The estimate uses nearest neighbors for numbers and counts for categories, on at most 10,000 training rows drawn by
    seed. A missing category is a category of its own. A column with missing numbers is estimated by the chain rule:
    information of the missingness, plus that of the known numbers times their share.

    Reference: the ID2Graph paper, "Impact of Feature Partitions".

    Args:
        rows: positions of the training rows.
        labels: class numbers or regression targets of all rows.
        hashed: columns whose texts are hashed, so that there may be any number of categories.
    """
    draw = rng.learning(seed, "", 0, "importance")
    if len(rows) > _IMPORTANCE_ROWS:
        rows = np.sort(draw.choice(rows, _IMPORTANCE_ROWS, replace=False))
    state = int(draw.integers(2**31))
    known = fit_encoding(table, columns, "[data] table", hashed=hashed, rows=rows)
    (values,) = transform_splits(table, known, "[data] table", [rows])
    flags = [pa.types.is_boolean(table[column].type) for column in columns]
    discrete = np.array([name in known.categories or flag for name, flag in zip(known.names, flags, strict=True)])
    values[:, discrete] = np.where(np.isnan(values[:, discrete]), -1.0, values[:, discrete])
    labels, score = labels[rows], np.zeros(len(columns))
    gaps = np.isnan(values).any(axis=0)
    score[~gaps] = _information(values[:, ~gaps], labels, discrete[~gaps], task, state)
    for column in np.flatnonzero(gaps):
        missing = np.isnan(values[:, [column]])
        known_rows = ~missing[:, 0]
        score[column] = _information(missing.astype(np.float64), labels, np.ones(1, np.bool_), task, state)[0]
        score[column] += (
            known_rows.mean()
            * _information(
                values[known_rows][:, [column]], labels[known_rows], np.zeros(1, np.bool_), task, state
            ).sum()
        )
    return [columns[position] for position in np.argsort(-score, kind="stable")]


def _information(
    values: NDArray[np.float64], labels: NDArray[Any], discrete: NDArray[np.bool_], task: str, state: int
) -> NDArray[np.float64]:
    """Return each column's mutual information with the labels in nats; 0 if there are too few rows to estimate it."""
    from sklearn.feature_selection import mutual_info_classif, mutual_info_regression

    few = len(labels) <= _NEIGHBORS or (task == "classification" and np.unique(labels, return_counts=True)[1].max() < 2)
    if few or not values.shape[1]:
        return np.zeros(values.shape[1])
    measure = mutual_info_classif if task == "classification" else mutual_info_regression
    score: NDArray[np.float64] = measure(
        values, labels, discrete_features=discrete, random_state=state, n_neighbors=_NEIGHBORS
    )
    return score


def _shuffled(columns: list[str], seed: int, *, reference: bool) -> list[str]:
    if reference:  # the published figures used Python's generator
        return random.Random(seed).sample(columns, len(columns))
    return [columns[position] for position in rng.learning(seed, "", 0, "columns").permutation(len(columns))]


def assigned_values(
    job: Job, table: pa.Table, assigned: Sequence[Sequence[str]], key: ByColumn
) -> tuple[Mapping[str, Any], ...]:
    """Return each party's part of what ``[data]`` says by column.

    Args:
        job: a job with a common table.
        assigned: columns of each party; with shares, a column of the table may be assigned to none.
        key: ``"monotone"`` or ``"edges"``.

    Raises:
        DataError: a column does not exist, or no party lists it.
    """
    wanted = getattr(job.data, key)
    for column in wanted:
        find_column(table, column, f"[data] {key}")
        if job.active.share is None and not any(column in columns for columns in assigned):
            raise DataError(
                f"column {column!r} is listed by no party", code="columns", field=f"[data] {key}", value=column
            )
    return tuple({column: wanted[column] for column in columns if column in wanted} for columns in assigned)


def party_values(
    parties: Sequence[PartySection], assigned: Sequence[Sequence[str]], key: ByColumn
) -> tuple[Mapping[str, Any], ...]:
    """Return what the section of each party says by column, of parties with their own tables.

    Args:
        parties: all parties of a simulation, or the one whose data are on this machine.
        assigned: columns of each party.
        key: ``"monotone"`` or ``"edges"``.

    Raises:
        DataError: a party names a column that is not its own; names the party that has it, if known.
    """
    for party, columns in zip(parties, assigned, strict=True):
        for column in getattr(party, key):
            if column not in columns:
                holders = [one.name for one, those in zip(parties, assigned, strict=True) if column in those]
                owner = f"party {holders[0]!r} has it" if holders else "no party has it"
                raise DataError(
                    f"column {column!r} is not among the columns of {party.name!r}"
                    + (f" ({owner})" if len(parties) > 1 else "")
                    + "; a party may name only its own columns",
                    code="columns",
                    field=f"[parties.{party.name}] {key}",
                    value=column,
                )
    return tuple(getattr(party, key) for party in parties)
