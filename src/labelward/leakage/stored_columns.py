"""Stored guesses of other parties' columns.

A Parquet file with the columns ``id`` (text), ``PARTY/POSITION`` (float64, a column of the guess; null: no answer), and
``PARTY/COLUMN/scores`` (lists of float64). Its metadata under ``labelward`` holds what that of a guess of labels does,
the kind ``"columns"``, and what the cells contain.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from labelward.attacks.base import ColumnGuess
from labelward.data import PartyDataset, fit_encoding, read_ids, read_table, transform
from labelward.errors import DataError, FileFormatError
from labelward.leakage.attributes import value_numbers
from labelward.leakage.column_scores import score_columns

FORMAT = 1
METADATA = b"labelward"


def guess_table(ids: Sequence[str], guess: ColumnGuess, about: Mapping[str, Any]) -> pa.Table:
    """Return the table of a guess."""
    columns: dict[str, Any] = {"id": pa.array(list(ids), pa.string())}
    for party, cells in guess.cells.items():
        columns |= {f"{party}/{at}": pa.array(column, from_pandas=True) for at, column in enumerate(cells.T)}
    for party, cells in (guess.by_splits or {}).items():
        columns |= {f"{party}/{at}/by_splits": pa.array(column, from_pandas=True) for at, column in enumerate(cells.T)}
    for (party, column), scores in guess.scores.items():
        columns[f"{party}/{column}/scores"] = pa.array(list(scores), pa.list_(pa.float64(), scores.shape[1]))
    text = json.dumps({"format": FORMAT, **about, "kind": "columns", "cells": guess.kind, "notes": guess.notes})
    return pa.table(columns).replace_schema_metadata({METADATA: text})


def open_guess(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return the table of a stored guess of any kind, and its metadata.

    Raises:
        FileFormatError: the file is missing, damaged, not a guess, or of another format version.
    """
    if not path.is_file():
        raise FileFormatError("no such file; labelward attack writes guesses", code="not-found", field=str(path))
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = f"is not the output of labelward attack ({' '.join(str(error).split())})"
        raise FileFormatError(reason, code="unreadable", field=str(path)) from error
    with guess_errors(path):
        about = json.loads((table.schema.metadata or {})[METADATA])
        version = about["format"]
    if version != FORMAT:
        raise FileFormatError(
            f"a guess of format {version!r}; this version reads format {FORMAT}",
            code="format-version",
            field=str(path),
            value=version,
        )
    return table, about


@contextlib.contextmanager
def guess_errors(path: Path) -> Iterator[None]:
    """Convert what a file lacks to a :class:`~labelward.errors.FileFormatError`: it is no guess."""
    try:
        yield
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise FileFormatError(f"not a guess of labelward attack ({error})", code="foreign", field=str(path)) from error


def rows_by_id(ids: Sequence[str], wanted: Sequence[str], place: str) -> list[int]:
    """Return the positions of the wanted ids among those of a table; :class:`DataError` where it lacks one."""
    row_of = {name: row for row, name in enumerate(ids)}
    missing = next((name for name in wanted if name not in row_of), None)
    if missing is not None:
        raise DataError(f"has no row {missing!r}", code="rows", field=place, value=missing)
    return [row_of[name] for name in wanted]


def score_stored_columns(guess: Path, truth: Path, party: str, *, id_column: str | None = None) -> dict[str, Any]:
    """Score a stored guess against the true columns of one party; metric names as in result rows, with ``chance``.

    Args:
        guess: file of a guess of columns.
        truth: table of the party's columns, in its order, of these rows: the party's table in the folder of an audit.
            Of a further attribute, any table with its column.
        party: its name; of a further attribute, any.
        id_column: column of row ids; by default ``id``.

    Raises:
        FileFormatError: as :func:`open_guess`, or the guess is of labels.
        DataError: the table cannot be used, or lacks a row or column of the guess.
    """
    stored, about = open_guess(guess)
    if about.get("kind") != "columns":
        raise FileFormatError("is a guess of labels, not of columns", code="foreign", field=str(guess))
    place, name = f"table {str(truth)!r}", id_column or "id"
    table = read_table(truth, text=[name])
    rows = rows_by_id(read_ids(table, name, place).tolist(), stored.column("id").to_pylist(), place)
    table = table.take(pa.array(rows)).drop_columns([name])
    known = fit_encoding(table, table.column_names, place)
    train = transform(table, known.names, known.categories, place)
    categories = {known.names.index(column): names for column, names in known.categories.items()}
    own = PartyDataset(
        name=party, columns=known.names, train=train, validation=train[:0], test=train[:0], categories=categories
    )
    positions = [f"{party}/{at}" for at in range(len(known.names))]
    cells = [each for each in positions if each in stored.column_names]
    scores = {
        (holder, column): np.array(stored.column(f"{holder}/{column}/scores").to_pylist(), np.float64)
        for holder in (party, "")
        for column in known.names
        if f"{holder}/{column}/scores" in stored.column_names
    }
    further = {
        ("", column): value_numbers(train[:, at], categorical=column in known.categories)
        for at, column in enumerate(known.names)
        if ("", column) in scores
    }
    if cells != positions and (cells or not scores):
        raise DataError(f"the guess has {len(cells)} of {len(positions)} columns", code="columns", value=party)
    alone = [f"{each}/by_splits" for each in cells]
    answered, by_splits = (
        {party: np.stack([stored.column(each).to_numpy() for each in names], axis=1)}
        if names and {*names} <= {*stored.column_names}
        else {}
        for names in (cells, alone)
    )
    found = ColumnGuess(cells=answered, kind=about["cells"], scores=scores, by_splits=by_splits or None)
    return score_columns(found, [own], about.get("model", {}), further)
