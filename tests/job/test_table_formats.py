"""Table formats: one list from which the check of paths, the reader and the texts derive."""

import pyarrow as pa
import pytest

from labelward.data import read_table
from labelward.errors import DataError, JobError
from labelward.job import DataSection, PartySection, table_formats, template
from refusals import refused


def read_nothing(file, text, form):
    """Read a table of one row, whatever the file holds."""
    return pa.table({"name": [file.name], **{name: ["?"] for name in text}})


@pytest.fixture
def with_new_format(monkeypatch):
    monkeypatch.setitem(table_formats.READERS, ".nothing", f"{__name__}:read_nothing")


def test_a_registered_format_is_accepted_and_read(with_new_format, tmp_path):
    path = tmp_path / "a.NOTHING"
    path.touch()
    assert read_table(path, text=["id"]).to_pydict() == {"name": ["a.NOTHING"], "id": ["?"]}
    assert DataSection(table=str(path), label="y").table == str(path)
    assert PartySection(name="bank", table=str(path), id="id").table == str(path)


def test_texts_name_all_formats(with_new_format, tmp_path):
    assert ".ods or .nothing file" in template()
    (tmp_path / "a.docx").touch()
    with refused(DataError, "choice", value=".docx") as caught:
        read_table(tmp_path / "a.docx")
    assert ".nothing" in caught.value.reason
    with refused(JobError, "choice", field="[data] table", value="a.docx") as caught:
        DataSection(table="a.docx", label="y")
    assert ".nothing" in caught.value.reason


@pytest.mark.parametrize("error", [ValueError, OSError, pa.ArrowInvalid])
def test_what_a_reader_raises_names_the_table(monkeypatch, tmp_path, error):
    def fail(file, text, form):
        raise error("broken\n at line 3")

    monkeypatch.setattr("labelward.data.delimited.read_delimited", fail)
    (tmp_path / "a.csv").touch()
    with refused(DataError, "unreadable", field=f"table '{tmp_path / 'a.csv'}'"):
        read_table(tmp_path / "a.csv")


def test_every_listed_reader_exists():
    for suffix in table_formats.READERS:
        assert suffix == suffix.lower()
        assert callable(table_formats.table_reader(suffix))
