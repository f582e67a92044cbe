"""From a job and a seed to what each party holds: rows split, columns dealt out, values as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward.errors import DataError
from labelward.job import Job
from labelward.job.sections import is_path

from . import catalogue
from .constraints import common_constraints, own_constraints
from .encode import coding, encode_sides
from .labels import encode_labels, encode_quantities, encode_weights, label_bins
from .partition import assign_columns, importance, own_columns
from .rows import Split, split_rows
from .tables import read_ids, read_table, refuse_other_rows

__all__ = ["PartyData", "Rehearsal", "Source", "load_source", "prepare"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Source:
    """The tables of a job, read once for all seeds.

    Attributes:
        name: what results call the data set.
        tables: one table that all parties share, or one for each party in the job's order.
    """

    name: str
    tables: tuple[pa.Table, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyData:
    """What one party holds: n training, v validation and m test rows of F columns, float64 in C order, NaN missing.

    Attributes:
        name: the party.
        columns: names of the encoded columns (F).
        train: [n, F].
        validation: [v, F].
        test: [m, F].
        categories: for each column (by position) that holds codes its categories, by code: those of the training and
            validation rows, so that a test row may have the code -1 of a category that training never met.
        monotone: for some columns (by position) 1 or -1: predictions may only rise, or fall, with the column.
        dates: names of the columns that hold dates or times.
    """

    name: str
    columns: tuple[str, ...]
    train: Floats
    validation: Floats
    test: Floats
    categories: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    monotone: Mapping[int, int] = field(default_factory=dict)
    dates: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, eq=False)
class Rehearsal:
    """All parties' data for one seed; row i is the same row at every party.

    Rows are in the order of the table, or sorted by id (as text) where rows have ids.

    Attributes:
        name: the data set.
        label: table and column of the labels, in words.
        task: ``"classification"`` or ``"regression"``.
        classes: the values of the label, sorted, as text (C); empty for regression.
        parties: the active party first.
        train_values: float64[n], what is learned: positions in ``classes``, or quantities.
        validation_values: float64[v].
        test_values: float64[m].
        train_weights: float64[n], at least 0; 1 where no column says otherwise.
        validation_weights: float64[v].
        test_weights: float64[m].
        train_labels: int64[n], what attacks guess: positions in ``classes``; for regression the bin of each quantity
            among bins of equal numbers of training rows (:func:`~labelward.data.labels.label_bins`).
        test_labels: int64[m].
        train_ids: text[n]: the ids, or the row numbers of the table counted from 0.
        validation_ids: text[v].
        test_ids: text[m].
        split: where these rows stand among all rows in order.
    """

    name: str
    label: str
    task: str
    classes: tuple[str, ...]
    parties: tuple[PartyData, ...]
    train_values: Floats
    validation_values: Floats
    test_values: Floats
    train_weights: Floats
    validation_weights: Floats
    test_weights: Floats
    train_labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]
    train_ids: NDArray[np.str_]
    validation_ids: NDArray[np.str_]
    test_ids: NDArray[np.str_]
    split: Split

    @property
    def ids(self) -> NDArray[np.str_]:
        """text[n + v + m]: the ids of all rows, in their order."""
        given = np.concatenate([self.train_ids, self.validation_ids, self.test_ids])
        order = np.concatenate([rows for _, rows in self.split.named()])
        return given[np.argsort(order)]


def load_source(job: Job) -> Source:
    """Read the table of a job, or each party's own.

    Raises:
        DataError: a file or catalogue name cannot be had.
    """
    if job.data.table is not None:
        if is_path(job.data.table):
            table = read_table(job.data.table, text=[job.data.id] if job.data.id else [])
            return Source(name=PurePath(job.data.table).stem, tables=(table,))
        return Source(name=job.data.table, tables=(catalogue.load(job.data.table),))
    tables = tuple(read_table(party.table or "", text=[party.id or ""]) for party in job.parties)
    return Source(name=PurePath(job.active.table or "").stem, tables=tables)


def prepare(job: Job, seed: int, source: Source | None = None) -> Rehearsal:
    """Return all parties' data for one seed.

    ``split = "random"`` draws stratified test rows and shuffles columns from generators of the seed. ``"reference"``
    repeats the draws of the published figures: ``train_test_split(random_state=seed)`` and Python's
    ``random.Random(seed).sample``, whose head is the active party's.

    Args:
        job: the job.
        seed: one of its seeds; a pure function of job, table and seed.
        source: the tables, where they are at hand already; else they are read.

    Raises:
        DataError: names table, column and what is wrong.
    """
    source = load_source(job) if source is None else source
    if job.data.table is None:
        return _from_own_tables(job, seed, source)
    return _from_common_table(job, seed, source)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Targets:
    """The active party's label and weight columns, of all rows in order."""

    task: str
    classes: tuple[str, ...]
    values: NDArray[Any]
    weights: Floats


def _from_common_table(job: Job, seed: int, source: Source) -> Rehearsal:
    table, place = source.tables[0], f"table {source.name!r}"
    targets = _targets(job, table, (job.data.label or "", job.data.weight), place)
    sides = split_rows(job.data, seed, targets.values, targets.classes)
    if job.data.id is None:
        ids = np.arange(table.num_rows).astype(np.str_)
    else:
        ids = read_ids(table, job.data.id, place)
        sides = sides.sorted_by(ids)

    def ranked(columns: Sequence[str]) -> list[str]:
        return importance(table, columns, sides.train, targets.values, targets.task, seed)

    held = assign_columns(job, seed, table, ranked)
    constraints = common_constraints(job, table, held)
    parties = tuple(
        _party_data(job, party.name, (table, columns, directions), sides)
        for party, columns, directions in zip(job.parties, held, constraints, strict=True)
    )
    return _rehearsal(job, (source.name, f"{place}, label column {job.data.label!r}"), parties, targets, ids, sides)


def _from_own_tables(job: Job, seed: int, source: Source) -> Rehearsal:
    sorted_tables, reference_ids = [], np.empty(0, dtype=np.str_)
    for party, table in zip(job.parties, source.tables, strict=True):
        ids = read_ids(table, party.id or "", f"party {party.name!r}")
        order = np.argsort(ids)
        ids = ids[order]
        if party is job.active:
            reference_ids = ids
        refuse_other_rows("hold", (job.active.name, reference_ids), (party.name, ids))
        sorted_tables.append(table.take(pa.array(order)))
    place = f"party {job.active.name!r}"
    targets = _targets(job, sorted_tables[0], (job.active.label or "", job.active.weight), place)
    held = own_columns(job, source.tables)
    constraints = own_constraints(job, held)
    sides = split_rows(job.data, seed, targets.values, targets.classes)
    parties = tuple(
        _party_data(job, party.name, (table, columns, directions), sides)
        for party, table, columns, directions in zip(job.parties, sorted_tables, held, constraints, strict=True)
    )
    where = f"{place}, label column {job.active.label!r}"
    return _rehearsal(job, (source.name, where), parties, targets, reference_ids, sides)


def _targets(job: Job, table: pa.Table, columns: tuple[str, str | None], place: str) -> _Targets:
    label, weight = columns
    weights = np.ones(table.num_rows) if weight is None else encode_weights(table, weight, place)
    task = job.data.task or _usual_task(job.data.table)
    if task == "regression":
        return _Targets(task=task, classes=(), values=encode_quantities(table, label, place), weights=weights)
    classes, codes = encode_labels(table, label, place)
    return _Targets(task=task, classes=classes, values=codes, weights=weights)


def _usual_task(table: str | None) -> str:
    entry = catalogue.entries().get(table or "")
    return "classification" if entry is None else entry.task


def _party_data(
    job: Job, name: str, held: tuple[pa.Table, Sequence[str], Mapping[str, int]], sides: Split
) -> PartyData:
    table, columns, directions = held
    place = f"party {name!r}"
    seen = np.concatenate([sides.train, sides.validation])
    known = coding(table, columns, place, style=job.data.categories, rows=seen)
    for column in directions:
        if column not in known.names or column in known.categories:
            raise DataError(f"{place}: monotone: column {column!r} holds categories, which have no order")
    train, validation, test = encode_sides(table, known, place, [rows for _, rows in sides.named()])
    return PartyData(
        name=name,
        columns=known.names,
        train=train,
        validation=validation,
        test=test,
        categories={known.names.index(column): names for column, names in known.categories.items()},
        monotone={known.names.index(column): direction for column, direction in directions.items()},
        dates=known.dates or frozenset(),
    )


def _rehearsal(
    job: Job,
    named: tuple[str, str],
    parties: tuple[PartyData, ...],
    targets: _Targets,
    ids: NDArray[np.str_],
    sides: Split,
) -> Rehearsal:
    for party in parties[1:]:
        if not party.columns:
            raise DataError(f"party {party.name!r}: it has no column with more than one category, so it holds nothing")
    weights = targets.weights
    for name, rows in sides.named():
        if len(rows) and not weights[rows].any():
            raise DataError(f"{named[1]}: every {name} row has weight 0")
    values, bins = targets.values.astype(np.float64), targets.values
    if targets.task == "regression":
        learned = values[sides.train]
        if (learned == learned[0]).all():
            raise DataError(f"{named[1]}: every training row has the label {learned[0]:g}; there is nothing to learn")
        bins = np.searchsorted(label_bins(learned, job.leakage.label_bins), values)
    return Rehearsal(
        name=named[0],
        label=named[1],
        task=targets.task,
        classes=targets.classes,
        parties=parties,
        train_values=values[sides.train],
        validation_values=values[sides.validation],
        test_values=values[sides.test],
        train_weights=weights[sides.train],
        validation_weights=weights[sides.validation],
        test_weights=weights[sides.test],
        train_labels=bins[sides.train],
        test_labels=bins[sides.test],
        train_ids=ids[sides.train],
        validation_ids=ids[sides.validation],
        test_ids=ids[sides.test],
        split=sides if job.data.id is None or job.data.table is None else sides.among(ids),
    )
