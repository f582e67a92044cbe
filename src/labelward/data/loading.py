"""From a job and a seed to what each party holds: rows split, columns dealt out, values as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import pyarrow as pa

from labelward.data import catalogue
from labelward.data.column_partition import assign_columns, rank_by_information
from labelward.data.dataset import VerticalDataset, assemble_dataset, encode_columns, read_labels
from labelward.data.monotone import assigned_monotone
from labelward.data.party_tables import join_tables, sort_by_id
from labelward.data.splitting import check_split, published_split, split_rows
from labelward.data.tables import read_ids, read_table
from labelward.errors import JobError
from labelward.job import Job
from labelward.job.sections import is_path
from labelward.rng import PrivateSeed

__all__ = ["RawTables", "load_dataset", "load_tables"]


@dataclass(frozen=True, kw_only=True)
class RawTables:
    """The tables of a job, read once for all seeds.

    Attributes:
        name: what results call the data set.
        tables: one table that all parties share, or one for each party in the job's order.
    """

    name: str
    tables: tuple[pa.Table, ...]


def load_tables(job: Job) -> RawTables:
    """Read the table of a job, or each party's own.

    Raises:
        DataError: a file or catalogue name cannot be had.
        JobError: the data of a party are elsewhere.
    """
    for party in job.parties:
        if party.elsewhere:
            raise JobError(
                f"the data of {party.name!r} are elsewhere, so that nothing can be "
                f"rehearsed here; each party runs its own part with: labelward party JOB.toml --as NAME",
                code="missing",
                field=f"[parties.{party.name}] table",
            )
    if job.data.table is not None:
        if is_path(job.data.table):
            table = read_table(job.data.table, text=[job.data.id] if job.data.id else [])
            return RawTables(name=PurePath(job.data.table).stem, tables=(table,))
        return RawTables(name=job.data.table, tables=(catalogue.load_catalogue_table(job.data.table),))
    tables = tuple(read_table(party.table or "", text=[party.id or ""]) for party in job.parties)
    return RawTables(name=PurePath(job.active.table or "").stem, tables=tables)


def load_dataset(
    job: Job, seed: int, source: RawTables | None = None, *, private: Mapping[str, PrivateSeed] | None = None
) -> VerticalDataset:
    """Return all parties' data for one seed.

    ``split = "random"`` draws test rows from the label holder's private seed and shuffles columns by a generator of the
    seed. ``"reference"`` repeats the draws of the published figures: ``train_test_split(random_state=seed)`` and
    Python's ``random.Random(seed).sample``, whose head is the active party's; the parties' tables are then cut before
    they get them, and their rows numbered anew.

    Args:
        job: the job.
        seed: one of its seeds; a pure function of job, table, seed and private seeds.
        source: the tables, where they are at hand already; else they are read.
        private: by party what it draws privately from; a party that is not named draws anew.

    Raises:
        DataError: names table, column and what is wrong.
        JobError: published splits of tables of the parties' own, or of rows with ids.
    """
    check_split(job.data)
    source = load_tables(job) if source is None else source
    own = {party.name: (private or {}).get(party.name) or PrivateSeed.drawn() for party in job.parties}
    if job.data.table is None:
        tables = zip(job.parties, source.tables, strict=True)
        return join_tables(job, source.name, [sort_by_id(party, table) for party, table in tables], seed, own)
    return _from_common_table(job, seed, source, own)


def _from_common_table(job: Job, seed: int, source: RawTables, private: Mapping[str, PrivateSeed]) -> VerticalDataset:
    table, place = source.tables[0], f"table {source.name!r}"
    targets = read_labels(job, table, (job.data.label or "", job.data.weight), place)
    published = job.data.split == "reference"
    if published:
        sides = published_split(job.data, seed, targets.values, targets.classes)
    else:
        sides = split_rows(job.data, seed, len(targets.values), private[job.active.name])
    if job.data.id is not None:
        ids = read_ids(table, job.data.id, place)
        sides = sides.sorted_by(ids)
    elif published:  # as in tables that are cut already: no number tells where a row stood in the published table
        ids = np.empty(table.num_rows, dtype=f"<U{len(str(table.num_rows))}")
        for (_, rows), (_, numbers) in zip(sides.named(), sides.in_order().named(), strict=True):
            ids[rows] = numbers.astype(np.str_)
    else:
        ids = np.arange(table.num_rows).astype(np.str_)

    def ranked(columns: Sequence[str]) -> list[str]:
        return rank_by_information(table, columns, sides.train, targets.values, targets.task, seed)

    held = assign_columns(job, seed, table, ranked)
    constraints = assigned_monotone(job, table, held)
    parties = tuple(
        encode_columns(job, party.name, (table, columns, directions), sides, private[party.name])
        for party, columns, directions in zip(job.parties, held, constraints, strict=True)
    )
    return assemble_dataset(
        job, (source.name, f"{place}, label column {job.data.label!r}"), parties, targets, ids, sides
    )
