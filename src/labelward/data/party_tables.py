"""Parties with a table each: all of them in a rehearsal, or the one whose table is here in a run over a network.

What a party holds is the same either way, for the same tables and seed: rows are put in the order of their ids, the
active party draws the sides of the rows from its private seed, and each party encodes its columns by the training and
validation rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward.data.column_partition import check_disjoint, party_columns
from labelward.data.dataset import PartyDataset, VerticalDataset, assemble_dataset, encode_columns, read_labels
from labelward.data.monotone import party_monotone
from labelward.data.splitting import DataSplit, split_rows
from labelward.data.tables import check_same_ids, read_ids, read_table
from labelward.errors import DataError, JobError
from labelward.job import Job, PartySection
from labelward.rng import PrivateSeed

__all__ = ["PartyTable", "encode_party", "join_tables", "load_active", "load_party_table", "sort_by_id"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyTable:
    """A party's own table.

    Attributes:
        party: its section of the job.
        table: its rows, sorted by id as text.
        ids: text [rows], ascending.
    """

    party: PartySection
    table: pa.Table
    ids: NDArray[np.str_]

    @property
    def name(self) -> str:
        """What results call the data set: the file without folder and suffix."""
        return PurePath(self.party.table or "").stem


def load_party_table(job: Job, party: str) -> PartyTable:
    """Read a party's own table.

    Raises:
        DataError: the table cannot be read, has no id column, or ids are missing or repeated.
        JobError: no party has this name, or it has no table here.
    """
    section = job.party(party)
    if section.table is None:
        reason = "" if section.elsewhere else "; over a network each party has its own, not a part of that of [data]"
        raise JobError(f"required to take part as {party!r}{reason}", code="missing", field=f"[parties.{party}] table")
    return sort_by_id(section, read_table(section.table, text=[section.id or ""]))


def sort_by_id(party: PartySection, table: pa.Table) -> PartyTable:
    """Put a party's rows in the order of their ids; :class:`DataError` where ids are missing or repeated."""
    ids = read_ids(table, party.id or "", f"party {party.name!r}")
    order = np.argsort(ids)
    return PartyTable(party=party, table=table.take(pa.array(order)), ids=ids[order])


def encode_party(job: Job, own: PartyTable, split: DataSplit, private: PrivateSeed) -> PartyDataset:
    """Return what a party holds, once it knows the sides of its rows.

    Args:
        job: as the party has it; the tables of others play no part.
        own: its table.
        split: positions of the rows sorted by id, such as :meth:`DataSplit.of` gives of what the active party told.
        private: the party's own.

    Raises:
        DataError: names column and row of what cannot be used.
    """
    columns = party_columns(job, own.party, own.table)
    (directions,) = party_monotone([own.party], [columns])
    return encode_columns(job, own.party.name, (own.table, columns, directions), split, private)


def load_active(job: Job, own: PartyTable, seed: int, private: PrivateSeed) -> VerticalDataset:
    """Return what the active party knows for a seed: of all parties it holds itself alone, and it draws the sides.

    Args:
        job: as the active party has it.
        own: the active party's table.
        seed: of the run.
        private: the active party's own, from which it draws the sides.

    Raises:
        DataError: names column and row of what cannot be used.
    """
    return _rehearsal(job, own.name, [own], seed, {own.party.name: private})


def join_tables(
    job: Job, name: str, owns: Sequence[PartyTable], seed: int, private: Mapping[str, PrivateSeed]
) -> VerticalDataset:
    """Return what all parties hold for a seed.

    Args:
        job: its parties have their own tables.
        name: what results call the data set.
        owns: each party's table, in the order of the job's parties.
        seed: of the run.
        private: of each party.

    Raises:
        DataError: parties hold different rows, or a column twice; or names what cannot be used.
    """
    first = owns[0]
    for own in owns[1:]:
        check_same_ids("hold", (first.party.name, first.ids), (own.party.name, own.ids))
    held = [party_columns(job, own.party, own.table) for own in owns]
    check_disjoint(job, held)
    party_monotone(job.parties, held)  # of all parties at once, so that a message names who holds a column
    return _rehearsal(job, name, owns, seed, private)


def _rehearsal(
    job: Job, name: str, owns: Sequence[PartyTable], seed: int, private: Mapping[str, PrivateSeed]
) -> VerticalDataset:
    first = owns[0]
    if first.party.label is None:
        raise DataError(
            "it has no label column, so it is not the active party",
            code="missing",
            field=f"party {first.party.name!r}",
        )
    place = f"party {first.party.name!r}"
    targets = read_labels(job, first.table, (first.party.label, first.party.weight), place)
    split = split_rows(job.data, seed, len(targets.values), private[first.party.name])
    parties = tuple(encode_party(job, own, split, private[own.party.name]) for own in owns)
    where = f"{place}, label column {first.party.label!r}"
    return assemble_dataset(job, (name, where), parties, targets, first.ids, split)
