"""Workbooks: a sheet becomes the table that was written."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from labelward.data import read_table
from labelward.errors import DataError, DataNote
from labelward.job.table_formats import WrittenForm
from refusals import refused

xlsxwriter = pytest.importorskip("xlsxwriter")
pytest.importorskip("python_calamine")

LINES = [
    ["id", "x", "n", "town", "since", "flag", "code", "amount"],
    ["007", 1.5, 3, "Köln", dt.datetime(2024, 3, 31), True, 7, "1.234,5"],
    ["08", None, 4, None, dt.datetime(2024, 4, 1), False, "8a", "0,5"],
]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "a.xlsx"
    with xlsxwriter.Workbook(path, {"default_date_format": "dd.mm.yyyy"}) as made:
        made.add_worksheet("empty")
        sheet = made.add_worksheet("rows")
        for place, line in enumerate(LINES):
            sheet.write_row(place, 0, line)
        made.add_worksheet("other").write_row(0, 0, ["only names"])
    return path


def test_cells_keep_their_types(book: Path, recwarn: pytest.WarningsRecorder) -> None:
    table = read_table(book, text=["id"], form=WrittenForm(decimal=","))
    sheet, thousands = recwarn
    assert sheet.category is thousands.category is DataNote
    assert "sheet 'rows'" in str(sheet.message)
    assert "'amount'" in str(thousands.message)
    assert table.to_pydict() == {
        "id": ["007", "08"],
        "x": [1.5, None],
        "n": [3, 4],
        "town": ["Köln", None],
        "since": [dt.date(2024, 3, 31), dt.date(2024, 4, 1)],
        "flag": [True, False],
        "code": ["7", "8a"],
        "amount": [1234.5, 0.5],
    }


def test_sheets_that_cannot_be_used(book: Path) -> None:
    with refused(DataError, "not-found", value="no"):
        read_table(book, form=WrittenForm(sheet="no"))
    with refused(DataError, "rows", value=0):
        read_table(book, form=WrittenForm(sheet="empty"))
    with refused(DataError, "rows", value=0):
        read_table(book, form=WrittenForm(sheet="other"))


def test_a_workbook_with_a_password(tmp_path: Path) -> None:
    """Excel encrypts the whole file, in the container of older versions."""
    (tmp_path / "a.xlsx").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 504)
    with refused(DataError, "unreadable", field=f"table {str(tmp_path / 'a.xlsx')!r}") as caught:
        read_table(tmp_path / "a.xlsx")
    assert "password" in caught.value.reason
