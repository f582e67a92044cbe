"""How often a party answered about each row in predictions over a network, and the limit of this.

Setting: the asker is curious. An answer that a defense draws noise for is worth more each time it is drawn anew: the
mean of n answers has noise of 1/√n. Answers about one row are therefore counted, over all predictions with one model
and in all processes, before any of them leaves. A prediction that is cut off counts.

The file is an SQLite database of mode 0600 beside the party's share. Rows are kept as SHA-256 digests of 16 bytes of
their ids, which are as sensitive as the ids.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from labelward.errors import FileFormatError, OutputError, PolicyError

QUERIES_FILE = "queries.sqlite"
FORMAT = 1
_DIGEST = 16
_PATIENCE = 60.0  # seconds to wait for another process of this party
_SCHEMA = """
CREATE TABLE predictions (time TEXT NOT NULL, asker TEXT NOT NULL, rows INTEGER NOT NULL, refused INTEGER NOT NULL);
CREATE TABLE rows (asker TEXT NOT NULL, row BLOB NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (asker, row))
    WITHOUT ROWID;
"""


@dataclass(frozen=True, kw_only=True)
class QuerySummary:
    """What one peer asked for.

    Attributes:
        asker: the peer.
        predictions: that were answered; ``refused``: that were not.
        answers: rows of all answered predictions, those that are asked again counted again.
        rows: different rows among them.
        repeated: rows among these that were asked more than once.
        most: how often one row was asked at most.
    """

    asker: str
    predictions: int
    refused: int
    answers: int
    rows: int
    repeated: int
    most: int


def count_queries(folder: Path, asker: str, ids: Sequence[str], limit: int) -> None:
    """Count one question about each of these rows, or refuse all of them.

    Args:
        folder: of the party in its run.
        ids: of the rows; all different.
        limit: how often one row may be asked for.

    Raises:
        FileFormatError: the record is damaged, or of another version.
        OutputError: it cannot be written.
        PolicyError: a row would be asked more often; nothing but the refusal is counted.
    """
    rows = [hashlib.sha256(each.encode()).digest()[:_DIGEST] for each in ids]
    with _open(folder / QUERIES_FILE) as base:
        base.execute("CREATE TEMP TABLE asked (row BLOB PRIMARY KEY) WITHOUT ROWID")
        base.execute("BEGIN IMMEDIATE")
        base.executemany("INSERT INTO asked VALUES (?)", ((row,) for row in rows))
        over, most = base.execute(
            "SELECT count(*), max(times) FROM asked JOIN rows USING (row) WHERE asker = ? AND times >= ?",
            (asker, limit),
        ).fetchone()
        if not over:
            base.execute(
                "INSERT INTO rows SELECT ?, row, 1 FROM asked WHERE true "
                "ON CONFLICT (asker, row) DO UPDATE SET times = times + 1",
                (asker,),
            )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        base.execute("INSERT INTO predictions VALUES (?, ?, ?, ?)", (now, asker, len(rows), bool(over)))
        base.execute("COMMIT")
    if over:
        raise PolicyError(
            f"{asker!r} asks for {over} of {len(rows)} rows again that it asked for {most} times; a row may be asked "
            f"for {limit} times with one model. Raise row_queries if that is meant",
            code="budget",
            field="[network] row_queries",
            value=limit,
        )


def summarize_queries(folder: Path) -> tuple[QuerySummary, ...]:
    """Return what each peer asked for, in order of names; empty where nothing was asked.

    Args:
        folder: of the party in its run.

    Raises:
        FileFormatError: the record is damaged, or of another version.
    """
    if not (folder / QUERIES_FILE).exists():
        return ()
    with _open(folder / QUERIES_FILE) as base:
        told = base.execute(
            "SELECT asker, sum(NOT refused), sum(refused), sum(rows * (NOT refused)) FROM predictions "
            "GROUP BY asker ORDER BY asker"
        ).fetchall()
        counted = {
            asker: numbers
            for asker, *numbers in base.execute(
                "SELECT asker, count(*), sum(times > 1), max(times) FROM rows GROUP BY asker"
            )
        }
    summaries = []
    for asker, predictions, refused, answers in told:
        rows, repeated, most = counted.get(asker, (0, 0, 0))
        summaries.append(
            QuerySummary(
                asker=asker,
                predictions=predictions,
                refused=refused,
                answers=answers,
                rows=rows,
                repeated=repeated,
                most=most,
            )
        )
    return tuple(summaries)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield the database of a file, which is created where there is none."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as base:
            _require_format(base, path)
            yield base
    except OSError as error:
        raise OutputError(f"cannot be written ({error.strerror})", code="unwritable", field=str(path)) from error
    except sqlite3.OperationalError as error:
        raise OutputError(f"cannot be written ({error})", code="unwritable", field=str(path)) from error
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        raise FileFormatError(f"a damaged record of predictions: {error}", code="damaged", field=str(path)) from error


def _require_format(base: sqlite3.Connection, path: Path) -> None:
    """Write the tables of a new file; refuse another version."""
    base.execute("BEGIN IMMEDIATE")
    (found,) = base.execute("PRAGMA user_version").fetchone()
    (tables,) = base.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not found and not tables:
        for statement in _SCHEMA.split(";")[:-1]:
            base.execute(statement)
        base.execute(f"PRAGMA user_version = {FORMAT}")
    elif found != FORMAT:
        reason = f"a record of predictions of format {found}; this version reads format {FORMAT}"
        raise FileFormatError(reason, code="format-version", field=str(path), value=found)
    base.execute("COMMIT")
