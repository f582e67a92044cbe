"""From a job and a seed to what each party holds: rows split, columns dealt out, values as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward import rng
from labelward.errors import DataError
from labelward.job import Job, PartySection
from labelward.job.sections import is_path

from . import catalogue
from .encode import encode
from .labels import encode_labels
from .partition import assign_columns, importance
from .tables import read_ids, read_table, refuse_other_rows

__all__ = ["PartyData", "Rehearsal", "Source", "load_source", "prepare"]


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
    """What one party holds, n training rows and m test rows of F columns.

    Attributes:
        name: the party.
        columns: names of the encoded columns (F).
        train: float64[n, F] in C order.
        test: float64[m, F] in C order.
    """

    name: str
    columns: tuple[str, ...]
    train: NDArray[np.float64]
    test: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Rehearsal:
    """All parties' data for one seed; row i is the same row at every party.

    Rows are in the order of the table, or sorted by id (as text) where rows have ids.

    Attributes:
        name: the data set.
        label: table and column of the labels, in words.
        classes: the values of the label, sorted, as text (C).
        parties: the active party first.
        train_labels: int64[n], positions in ``classes``.
        test_labels: int64[m].
        train_ids: text[n]: the ids, or the row numbers of the table counted from 0.
        test_ids: text[m].
    """

    name: str
    label: str
    classes: tuple[str, ...]
    parties: tuple[PartyData, ...]
    train_labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]
    train_ids: NDArray[np.str_]
    test_ids: NDArray[np.str_]


def load_source(job: Job) -> Source:
    """Read the table of a job, or each party's own.

    Raises:
        DataError: a file or catalogue name cannot be had.
    """
    if job.data.table is not None:
        if is_path(job.data.table):
            table = read_table(job.data.table, text=[job.data.id] if job.data.id else [])
            return Source(name=PurePath(job.data.table).stem, tables=(table,))
        table = catalogue.load(job.data.table)
        if catalogue.entries()[job.data.table].task == "regression":
            raise DataError(f"[data] table: the label of {job.data.table!r} is a quantity; it must be a class")
        return Source(name=job.data.table, tables=(table,))
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


def _from_common_table(job: Job, seed: int, source: Source) -> Rehearsal:
    table, place, label = source.tables[0], f"table {source.name!r}", job.data.label or ""
    classes, labels = encode_labels(table, label, place)
    train, test = _split_rows(job, seed, labels, classes)
    if job.data.id is None:
        ids = np.arange(table.num_rows).astype(np.str_)
    else:
        ids = read_ids(table, job.data.id, place)
        train, test = train[np.argsort(ids[train])], test[np.argsort(ids[test])]
    held = assign_columns(job, seed, table, lambda columns: importance(table, columns, train, labels, seed))
    parties = tuple(
        _party_data(party, table, columns, train, test) for party, columns in zip(job.parties, held, strict=True)
    )
    where = f"{place}, label column {label!r}"
    return _rehearsal((source.name, where), classes, parties, labels, ids, (train, test))


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
    place, label = f"party {job.active.name!r}", job.active.label or ""
    classes, labels = encode_labels(sorted_tables[0], label, place)
    held = _own_columns(job, source.tables)
    train, test = _split_rows(job, seed, labels, classes)
    parties = tuple(
        _party_data(party, table, columns, train, test)
        for party, table, columns in zip(job.parties, sorted_tables, held, strict=True)
    )
    where = f"{place}, label column {label!r}"
    return _rehearsal((source.name, where), classes, parties, labels, reference_ids, (train, test))


def _own_columns(job: Job, tables: Sequence[pa.Table]) -> list[tuple[str, ...]]:
    """Return the columns that each party brings of its own table."""
    found: list[tuple[str, ...]] = []
    holder: dict[str, str] = {}
    for party, table in zip(job.parties, tables, strict=True):
        others = tuple(name for name in table.column_names if name not in (party.id, party.label))
        if party.columns is None and job.active.label in others:
            raise DataError(
                f"party {party.name!r}: its table has a column {job.active.label!r}, as the label of "
                f"{job.active.name!r} is called; if it is no label, list it under columns in [parties.{party.name}]"
            )
        found.append(others if party.columns is None else party.columns)
        for column in found[-1]:
            if column in holder and not job.data.overlap:
                raise DataError(
                    f"party {party.name!r}: column {column!r} is held by {holder[column]!r} already "
                    "(set overlap = true in [data] to allow it, or list each party's columns)"
                )
            holder.setdefault(column, party.name)
    return found


def _party_data(
    party: PartySection,
    table: pa.Table,
    columns: Sequence[str],
    train: NDArray[np.int64],
    test: NDArray[np.int64],
) -> PartyData:
    names, matrix = encode(table, columns, f"party {party.name!r}")
    return PartyData(name=party.name, columns=names, train=matrix[train], test=matrix[test])


def _rehearsal(
    named: tuple[str, str],
    classes: tuple[str, ...],
    parties: tuple[PartyData, ...],
    labels: NDArray[np.int64],
    ids: NDArray[np.str_],
    rows: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> Rehearsal:
    for party in parties[1:]:
        if not party.columns:
            raise DataError(f"party {party.name!r}: it has no column with more than one category, so it holds nothing")
    train, test = rows
    return Rehearsal(
        name=named[0],
        label=named[1],
        classes=classes,
        parties=parties,
        train_labels=labels[train],
        test_labels=labels[test],
        train_ids=ids[train],
        test_ids=ids[test],
    )


def _split_rows(
    job: Job, seed: int, labels: NDArray[np.int64], classes: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    from sklearn.model_selection import train_test_split

    state = seed if job.data.split == "reference" else int(rng.learning(seed, "", 0, "rows").integers(2**31))
    try:
        halves: Any = train_test_split(
            np.arange(len(labels)), test_size=float(job.data.test_size), random_state=state, stratify=labels
        )
    except ValueError as error:
        raise DataError(
            f"[data] test_size: {job.data.test_size} of {len(labels)} rows leaves too few for {len(classes)} classes "
            "on one side"
        ) from error
    train, test = (np.sort(half) for half in halves)
    for side, rows in (("training", train), ("test", test)):
        absent = np.setdiff1d(np.arange(len(classes)), labels[rows])
        if len(absent):
            raise DataError(f"[data] test_size: no {side} row has class {classes[absent[0]]!r}; choose another share")
    return train, test
