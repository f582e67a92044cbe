"""Loading: from a job and a seed to the data of all parties, with rows split, columns assigned and values encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from labelward.data import catalog
from labelward.data.column_partition import (
    BY_COLUMN,
    assign_columns,
    assigned_values,
    check_disjoint,
    rank_by_information,
)
from labelward.data.content import image_columns, text_columns
from labelward.data.dataset import OwnSource, VerticalDataset, assemble_dataset, encode_all, encode_columns, read_labels
from labelward.data.label_holders import deal_labels
from labelward.data.party_tables import join_tables, read_party_source, sort_by_id
from labelward.data.splitting import DataSplit, check_split, published_split, split_rows
from labelward.data.tables import prepared, read_ids, read_source, rows_taken
from labelward.data.unaligned import draw_unaligned, with_unaligned
from labelward.errors import JobError
from labelward.job import Job, is_table_path
from labelward.job.table_formats import table_name
from labelward.rng import PrivateSeed


@dataclass(frozen=True, kw_only=True)
class RawTables:
    """Tables of a job, read once for all seeds."""

    name: str
    tables: tuple[pa.Table, ...]  # one common table, or one table per party in the order of the job
    width: int = 0  # of images in pixels, or of texts in tokens; each party gets columns side by side
    dropped: pa.Table | None = None  # columns of the common table that the job drops; None: none


def load_tables(job: Job) -> RawTables:
    """Read the common table of a job, or the table of each party.

    Raises:
        DataError: a file cannot be read, or a data set of the catalog is unknown or was not found.
        JobError: a party's table is on another machine.
    """
    for party in job.parties:
        if party.elsewhere:
            reason = (
                f"required to simulate party {party.name!r}; if its data are on another machine, each party runs "
                "`labelward party JOB.toml --as NAME`"
            )
            raise JobError(reason, code="missing", field=f"[parties.{party.name}] table")
    if job.data.table is not None:
        if is_table_path(job.data.table):
            name, width = table_name(job.data.table), 0
            table = read_source(job.data.table, replace(job.data, drop=()), job.data.id, place="[data]")
        else:
            name = job.data.table
            table, width = _content(catalog.load_catalog_table(name), job)
        kept = prepared(table, job.data, place="[data]")
        return RawTables(name=name, tables=(kept,), width=width, dropped=table.select(job.data.drop))
    tables = tuple(read_party_source(party) for party in job.parties)
    return RawTables(name=table_name(job.active.table or ""), tables=tables)


def _content(table: pa.Table, job: Job) -> tuple[pa.Table, int]:
    """Return a table of the catalog with its texts or images as columns, and how many of them lie side by side."""
    entry, model = catalog.catalog_entries()[job.data.table or ""], job.model.params
    table = table.drop_columns(list(entry.unused))
    if entry.texts:
        return text_columns(table, entry.texts, model)
    return image_columns(table, entry.image, model) if entry.image else (table, 0)


def _with_hashed(job: Job) -> Job:
    """Return a job whose text columns of many values are hashed, where the catalog says so and the job nothing."""
    data = job.data
    entry = catalog.catalog_entries().get(data.table or "")
    if entry is None or not entry.hashed or data.categories != "native" or data.hashed:
        return job
    return replace(job, data=replace(data, hashed=tuple(name for name in entry.hashed if name not in data.drop)))


def load_dataset(
    job: Job, seed: int, source: RawTables | None = None, *, private: Mapping[str, PrivateSeed] | None = None
) -> VerticalDataset:
    """Return the data of all parties for one seed: a pure function of job, tables, seed and private seeds.

    ``split = "random"`` draws test rows from the label holder's private seed and shuffles columns by the seed of the
    run. ``"reference"`` repeats the draws of the published figures: ``train_test_split(random_state=seed)`` for rows
    and ``random.Random(seed).sample`` for columns, the first of which are the active party's; the parties then get
    tables that are already cut, with rows numbered anew.

    Args:
        source: tables of the job; None: they are read.
        private: private seeds by party; a party without one draws a new one.

    Raises:
        DataError: a table, column or value is not valid.
        JobError: the published split is asked for parties' own tables or rows with ids.
    """
    check_split(job.data)
    job = _with_hashed(job)
    source = load_tables(job) if source is None else source
    seeds = {party.name: (private or {}).get(party.name) or PrivateSeed.drawn() for party in job.parties}
    if job.data.table is None:
        tables = zip(job.parties, source.tables, strict=True)
        return join_tables(job, source.name, [sort_by_id(party, table) for party, table in tables], seed, seeds)
    return _from_common_table(job, seed, source, seeds)


def _from_common_table(job: Job, seed: int, source: RawTables, private: Mapping[str, PrivateSeed]) -> VerticalDataset:
    table, place = source.tables[0], f"table {source.name!r}"
    targets = read_labels(job, table, (job.data.label or "", job.data.weight), place)
    if job.data.labels:
        classes = targets.values if targets.classes else None
        dealt = deal_labels(job.data, seed, classes, table.num_rows, private[job.active.name])
        places = np.array([job.holders.index(name) for name in job.data.labels])
        targets = replace(targets, holders=places[dealt])
    whole, told, published = table, targets, job.data.split == "reference"
    if published:
        sides = published_split(job.data, seed, targets.values, targets.classes)
    else:
        sides = split_rows(job.data, seed, len(targets.values), private[job.active.name])
    apart = draw_unaligned(job.data, seed, sides, private[job.active.name])
    kept = np.setdiff1d(np.arange(table.num_rows), apart)
    if len(apart):  # the parties' tables have aligned rows only, numbered anew
        table, targets, sides = table.take(pa.array(kept)), targets.at(kept), sides.among(kept)
    if job.data.id is not None:
        ids = read_ids(table, job.data.id, place)
        sides = sides.sorted_by(ids)
    elif published:  # tables are cut already: numbers that gave the place in the full table would reveal the split
        ids = np.empty(table.num_rows, dtype=f"<U{len(str(table.num_rows))}")
        for (_, rows), (_, numbers) in zip(sides.items(), sides.contiguous().items(), strict=True):
            ids[rows] = numbers.astype(np.str_)
    else:
        ids = np.arange(table.num_rows).astype(np.str_)

    def ranked(columns: Sequence[str]) -> list[str]:
        hashed = job.data.categories == "hashed"
        listed = columns if hashed else job.data.hashed
        return rank_by_information(table, columns, sides.train, targets.values, targets.task, seed, hashed=listed)

    assigned = assign_columns(job, seed, table, ranked, width=source.width)
    if any(party.drop for party in job.parties):
        check_disjoint(job, assigned)
    stated = [assigned_values(job, table, assigned, key) for key in BY_COLUMN]
    with rows_taken(kept):
        parties = encode_all(
            partial(encode_columns, job, party.name, OwnSource(table, columns, *own), sides, private[party.name])
            for party, columns, *own in zip(job.parties, assigned, *stated, strict=True)
        )
    if len(apart):
        with rows_taken(apart):
            own_rows = with_unaligned(parties[0], whole.take(pa.array(apart)), told.at(apart))
        parties = (own_rows, *parties[1:])
    named = (source.name, f"{place}, label column {job.data.label!r}")
    placed = DataSplit(**{name: kept[rows] for name, rows in sides.items()})
    found = assemble_dataset(job, named, parties, targets, ids, sides)
    return replace(found, table_rows=placed, table=_without_roles(job, whole, source.dropped))


def _without_roles(job: Job, table: pa.Table, dropped: pa.Table | None) -> pa.Table:
    """Return the columns of the common table that a party may hold, with those that the job drops at the end."""
    if dropped is not None:
        for name in dropped.column_names:
            table = table.append_column(name, dropped[name])
    return table.drop_columns([name for name in job.data.roles().values() if name in table.column_names])
