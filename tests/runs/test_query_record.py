"""Questions about rows: counted over processes, refused beyond the limit, in a file of the owner's alone."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from labelward.errors import FileFormatError, OutputError, PolicyError
from labelward.runs.query_record import QUERIES_FILE, QuerySummary, count_queries, summarize_queries
from refusals import refused


def test_rows_are_counted_for_each_who_asks(tmp_path: Path) -> None:
    assert summarize_queries(tmp_path) == ()
    assert not (tmp_path / QUERIES_FILE).exists()
    count_queries(tmp_path, "bank", ["a", "b", "c"], 5)
    count_queries(tmp_path, "bank", ["b", "d"], 5)
    count_queries(tmp_path, "bank", [], 5)
    count_queries(tmp_path, "shop", ["b"], 5)
    bank = QuerySummary(asker="bank", predictions=3, refused=0, answers=5, rows=4, repeated=1, most=2)
    shop = QuerySummary(asker="shop", predictions=1, refused=0, answers=1, rows=1, repeated=0, most=1)
    assert summarize_queries(tmp_path) == (bank, shop)


def test_one_row_over_the_limit_refuses_the_prediction(tmp_path: Path) -> None:
    """Nothing of it is counted as asked; other rows may still be asked, and another peer has a count of its own."""
    for _ in range(2):
        count_queries(tmp_path, "bank", ["a", "b"], 2)
    with refused(PolicyError, "budget", field="[network] row_queries", value=2):
        count_queries(tmp_path, "bank", ["b", "c"], 2)
    count_queries(tmp_path, "bank", ["c"], 2)
    count_queries(tmp_path, "shop", ["b"], 2)
    bank, _ = summarize_queries(tmp_path)
    assert bank == QuerySummary(asker="bank", predictions=3, refused=1, answers=5, rows=3, repeated=2, most=2)
    count_queries(tmp_path, "bank", ["b"], 3)


def test_the_file_is_private_and_has_no_ids(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        count_queries(tmp_path, "bank", ["customer-4711"], 2)
    finally:
        os.umask(before)
    assert (tmp_path / QUERIES_FILE).stat().st_mode & 0o777 == 0o600
    assert b"4711" not in (tmp_path / QUERIES_FILE).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == [QUERIES_FILE]


def test_a_damaged_or_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / QUERIES_FILE
    count_queries(tmp_path, "bank", [f"c{number}" for number in range(2000)], 2)
    whole = path.read_bytes()
    for damaged in (b"no database" * 100, whole[:5000], whole[:4096] + bytes(len(whole) - 4096)):
        path.write_bytes(damaged)
        with pytest.raises((FileFormatError, OutputError)):
            count_queries(tmp_path, "bank", ["c1"], 2)
    path.write_bytes(whole)
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA user_version = 9")
    with refused(FileFormatError, "format-version", field=str(path), value=9):
        summarize_queries(tmp_path)
