"""Party tables: the data of all parties in a simulation, or of one party in a run over a network.

Both give a party the same data for the same tables and seeds: rows are sorted by id, the active party draws the split
from its private seed, and each party encodes its columns by the training and validation rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward.data.column_partition import BY_COLUMN, check_disjoint, party_columns, party_values
from labelward.data.dataset import (
    LabelColumn,
    OwnSource,
    PartyDataset,
    VerticalDataset,
    assemble_dataset,
    encode_all,
    encode_columns,
    read_held_labels,
    read_labels,
)
from labelward.data.encoding import is_categorical, max_categories
from labelward.data.label_holders import join_labels
from labelward.data.splitting import DataSplit, split_rows
from labelward.data.tables import check_same_ids, read_ids, read_source, rows_taken
from labelward.data.unaligned import load_unaligned
from labelward.errors import DataError, JobError
from labelward.job import Job, PartySection
from labelward.job.table_formats import table_name
from labelward.rng import PrivateSeed


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyTable:
    """Table of one party."""

    party: PartySection
    table: pa.Table  # rows, sorted by id as text
    ids: NDArray[np.str_]  # text [rows], ascending
    file_rows: NDArray[np.int64]  # positions of these rows in the file

    @property
    def name(self) -> str:
        """Name of the data set in results: that of the file, without folder and suffix."""
        return table_name(self.party.table or "")


def load_party_table(job: Job, party: str) -> PartyTable:
    """Read the table of a party.

    Raises:
        DataError: the table cannot be read or has no id column, or ids are missing or repeated.
        JobError: no party has this name, or the job gives it no table.
    """
    section = job.party(party)
    if section.table is None:
        reason = "" if section.elsewhere else "; over a network parties cannot share the table of [data]"
        raise JobError(f"required to run as {party!r}{reason}", code="missing", field=f"[parties.{party}] table")
    return sort_by_id(section, read_party_source(section))


def read_party_source(party: PartySection) -> pa.Table:
    """Return the table of a party as its section wants it read; :class:`DataError` if that cannot be."""
    return read_source(party.table or "", party, party.id, place=f"[parties.{party.name}]")


def sort_by_id(party: PartySection, table: pa.Table) -> PartyTable:
    """Sort the rows of a party's table by id.

    Raises:
        DataError: the id column does not exist, or ids are missing or repeated.
    """
    ids = read_ids(table, party.id or "", f"party {party.name!r}")
    order = np.argsort(ids)
    return PartyTable(party=party, table=table.take(pa.array(order)), ids=ids[order], file_rows=order)


def encode_party(job: Job, own: PartyTable, split: DataSplit, private: PrivateSeed) -> PartyDataset:
    """Return the encoded columns of one party.

    Args:
        job: the party's job file; other parties' tables are not read.
        split: positions of the rows sorted by id, such as :meth:`DataSplit.of` the masks that the active party sent.

    Raises:
        DataError: a column or value is not valid.
    """
    columns = party_columns(job, own.party, own.table)
    (directions,), (edges,) = (party_values([own.party], [columns], key) for key in BY_COLUMN)
    with rows_taken(own.file_rows):
        return encode_columns(job, own.party.name, OwnSource(own.table, columns, directions, edges), split, private)


def most_columns(job: Job, own: PartyTable) -> int:
    """Return a bound of the encoded columns of one party, which does not depend on the split of the rows.

    Raises:
        DataError: a column is not valid.
    """
    columns = party_columns(job, own.party, own.table)
    if job.data.categories != "dummies":
        return len(columns)
    texts = sum(is_categorical(own.table.schema.field(name).type) for name in columns)
    return len(columns) + (max_categories(own.table.num_rows) - 1) * texts


def load_active(job: Job, own: PartyTable, seed: int, private: PrivateSeed) -> VerticalDataset:
    """Return the data set as the active party knows it in a run over a network: its own columns alone.

    Args:
        private: private seed of the active party, from which it draws the split.

    Raises:
        DataError: a column or value is not valid.
    """
    return _assemble(job, own.name, [own], seed, {own.party.name: private})


def join_tables(
    job: Job, name: str, owns: Sequence[PartyTable], seed: int, private: Mapping[str, PrivateSeed]
) -> VerticalDataset:
    """Return the data of all parties, whose tables are all on this machine.

    Args:
        job: a job whose parties have their own tables.
        name: name of the data set in results.
        owns: the tables, in the order of the job's parties.

    Raises:
        DataError: parties have different ids or the same column, or a column or value is not valid.
    """
    first = owns[0]
    for own in owns[1:]:
        check_same_ids("have", (first.party.name, first.ids), (own.party.name, own.ids))
    columns = [party_columns(job, own.party, own.table) for own in owns]
    check_disjoint(job, columns)
    for key in BY_COLUMN:  # with all parties, so the error can name the party that has the column
        party_values(job.parties, columns, key)
    return _assemble(job, name, owns, seed, private)


def held_labels(job: Job, own: PartyTable) -> LabelColumn:
    """Return the labels that one of several holders has: :func:`read_held_labels` of its table."""
    with rows_taken(own.file_rows):
        return read_held_labels(job, own.party, own.table)


def _assemble(
    job: Job, name: str, owns: Sequence[PartyTable], seed: int, private: Mapping[str, PrivateSeed]
) -> VerticalDataset:
    first = owns[0]
    if first.party.label is None:
        reason = "the active party needs a label column; set label in its section"
        raise DataError(reason, code="missing", field=f"party {first.party.name!r}")
    place = f"party {first.party.name!r}"
    holders = [own for own in owns if own.party.label is not None]
    for key in ("weight", "unaligned") if len(job.holders) > 1 else ():
        if getattr(first.party, key) is not None:
            reason = "is not supported where several parties have labels"
            raise JobError(reason, code="unsupported", field=f"[parties.{first.party.name}] {key}")
    targets = _read_targets(job, holders)
    split = split_rows(job.data, seed, len(targets.values), private[first.party.name])
    parties = encode_all(partial(encode_party, job, own, split, private[own.party.name]) for own in owns)
    if first.party.unaligned is not None:
        parties = (load_unaligned(first.party, parties[0], targets, first.ids), *parties[1:])
    where = f"{place}, label column {first.party.label!r}"
    return assemble_dataset(job, (name, where), parties, targets, first.ids, split)


def _read_targets(job: Job, holders: Sequence[PartyTable]) -> LabelColumn:
    """Return the labels of the holders whose tables are here, the active party first."""
    first = holders[0]
    label, place = first.party.label or "", f"party {first.party.name!r}"
    if len(job.holders) > len(holders):
        return held_labels(job, first)
    if len(holders) == 1:
        with rows_taken(first.file_rows):
            return read_labels(job, first.table, (label, first.party.weight), place)
    parts = zip(*((own.party, own.table, own.file_rows) for own in holders), strict=True)
    joined, positions = join_labels(*parts)
    with rows_taken(first.file_rows):
        place = f"labels of all holders, rows of {place}"
        return replace(read_labels(job, joined, ("label", None), place), holders=positions)
