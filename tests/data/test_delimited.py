"""Tables as people have them: 60 generated files that read alike, and files beyond repair with one message each."""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from labelward.data import read_table
from labelward.errors import DataError, DataNote
from labelward.job.table_formats import WrittenForm
from refusals import refused

NAMES = (("age", "income", "since", "town", "note"), ("größe", "año", "dès", "naïve £", "straße"))
CODECS = {"utf-8": "", "utf-8-sig": "", "utf-16": "utf-16", "cp1252": "cp1252", "utf-16-le": "utf-16"}
SEPARATORS = {",": "", ";": "';'", "\t": "tab", "|": "'|'"}
NUMBERS = {  # decimal mark, mark between thousands, and what is said
    ".": (("0.5", "1234.25", "-7"), ""),
    ",": (("0,5", "1.234,25", "-7"), "decimal comma"),
    "',": (("0.5", "1,234.25", "-7"), "between thousands"),
}
FILES = list(itertools.product(CODECS, SEPARATORS, NUMBERS))


def quoted(field: str, separator: str) -> str:
    return f'"{field}"' if separator in field or "\n" in field else field


@pytest.mark.parametrize(("codec", "separator", "numbers"), FILES)
def test_a_table_written_in_any_way_is_the_same(
    tmp_path: Path, codec: str, separator: str, numbers: str, recwarn: pytest.WarningsRecorder
) -> None:
    names = NAMES[FILES.index((codec, separator, numbers)) % 2]
    texts, told = NUMBERS[numbers]
    columns = {
        names[0]: ("31", "", "42"),
        names[1]: texts,
        names[2]: ("31.3.2024", "1.4.2024", ""),
        names[3]: ("Köln", "", "a, b; c|d\te"),
        names[4]: ("line\nbreak", "ß", "x"),
    }
    lines = [names, *zip(*columns.values(), strict=True)]
    text = "\r\n".join(separator.join(quoted(field, separator) for field in line) for line in lines) + "\r\n"
    path = tmp_path / ("a.tsv" if separator == "\t" and codec == "utf-8" else "a.csv")
    path.write_bytes(text.encode(codec))
    assert read_table(path).to_pydict() == {
        names[0]: [31, None, 42],
        names[1]: [0.5, 1234.25, -7.0],
        names[2]: [dt.datetime(2024, 3, 31), dt.datetime(2024, 4, 1), None],
        names[3]: ["Köln", None, "a, b; c|d\te"],
        names[4]: ["line\nbreak", "ß", "x"],
    }
    (note,) = recwarn
    assert note.category is DataNote
    said = [CODECS[codec], "" if path.suffix == ".tsv" else SEPARATORS[separator], told, "day first"]
    assert all(each in str(note.message) for each in said)


def test_a_plain_file_is_read_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('x,d,t,c\n1.5,2024-03-31,18:00:00,"1, 2"\n2,2024-04-01,06:30:00,b\n')
    read_table(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("values", "form", "expected"),
    [
        (("3/31/2024", "4/1/2024"), {}, [dt.datetime(2024, 3, 31), dt.datetime(2024, 4, 1)]),
        (("3/4/2024", "5/6/2024"), {"dates": "day-first"}, [dt.datetime(2024, 4, 3), dt.datetime(2024, 6, 5)]),
        (("3/4/2024", "5/6/2024"), {"dates": "month-first"}, [dt.datetime(2024, 3, 4), dt.datetime(2024, 5, 6)]),
        (("3/3/2024", "5/5/2024"), {}, [dt.datetime(2024, 3, 3), dt.datetime(2024, 5, 5)]),
        (("31 Mar 2024", "1 Apr 2024"), {}, [dt.datetime(2024, 3, 31), dt.datetime(2024, 4, 1)]),
        (("2024/03/31", "2024/4/1"), {}, [dt.datetime(2024, 3, 31), dt.datetime(2024, 4, 1)]),
        (("31.3.24 18:05", "1.4.24 6:30"), {}, [dt.datetime(2024, 3, 31, 18, 5), dt.datetime(2024, 4, 1, 6, 30)]),
        (("36:15:00", "-1:00:30"), {}, [130500.0, -3630.0]),
        (("2 days 04:00:00", "1 day"), {}, [187200.0, 86400.0]),
        (("P1DT2H", "PT30S"), {}, [93600.0, 30.0]),
        (("12 000", "5"), {}, [12000, 5]),
        (("1'234'567.5", "0"), {}, [1234567.5, 0.0]),
        (("1,234", "5,678"), {"decimal": ","}, [1.234, 5.678]),
        (("1,234", "5,678"), {"decimal": "."}, [1234, 5678]),
        (("030 123", "0"), {}, ["030 123", "0"]),  # no number has a zero in front of its thousands
        (("31.02.2024", "1.3.2024"), {}, ["31.02.2024", "1.3.2024"]),  # no date
        (("P", "PT"), {}, ["P", "PT"]),
        (("ja", "nein"), {}, ["ja", "nein"]),
    ],
)
@pytest.mark.filterwarnings("ignore::labelward.errors.DataNote")
def test_values_as_they_are_written(
    tmp_path: Path, values: tuple[str, str], form: dict[str, Any], expected: list[Any]
) -> None:
    (tmp_path / "a.csv").write_text("x;y\n" + "".join(f"{value};k\n" for value in values))
    assert read_table(tmp_path / "a.csv", form=WrittenForm(**form))["x"].to_pylist() == expected


@pytest.mark.filterwarnings("ignore::labelward.errors.DataNote")
def test_compressed_files(tmp_path: Path) -> None:
    text = b"sep=;\r\na;b\r\n1;2\r\n"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.tsv.zst").write_bytes(pa.Codec("zstd").compress(text, asbytes=True))
    for name in ("a.csv.gz", "a.tsv.zst"):
        assert read_table(tmp_path / name).to_pydict() == {"a": [1], "b": [2]}


WIDE = ",".join(f"c{column}" for column in range(100_000)).encode()


@pytest.mark.parametrize(
    ("name", "content", "code", "about"),
    [
        ("ragged.csv", b"a,b\n1,2\n3\n4,5,6\n", "unreadable", "row 1, counting from 0, has 1 field"),
        ("nul.csv", b"a,b\n1,2\n\0,3\n", "unreadable", "line 3"),
        ("mixed.csv", "a,b\nü,2\n".encode() + "é,3\n".encode("latin-1"), "unreadable", "line 3"),
        ("binary.csv", bytes(range(1, 256)) * 9, "unreadable", ""),
        ("wide.csv", WIDE + b"\n" + b",".join([b"1"] * 100_000), "columns", "100000 columns"),
        ("marks.csv", b"a;b\n1,5;2.5\n2,5;3.5\n", "values", "'b' with a decimal point"),
        ("unsure.csv", b"a;b\n1,234;x\n2,500;y\n", "values", "1.234 or 1234"),
        ("days.csv", b"a;b\n3/4/2024;x\n5/6/2024;y\n", "values", "day-first"),
        ("no.csv.gz", b"a,b\n1,2\n", "unreadable", ""),
        ("half.csv", 'a,b\n"1,2\n3,4\n'.encode("utf-16")[:-1], "unreadable", "UTF-16"),
        ("empty.csv", b"\xff\xfe", "unreadable", "empty"),
        ("blank.csv", b" \n\n", "unreadable", "empty"),
        ("names.csv", b"a,b", "rows", ""),
        ("a.xlsx", b"PK\3\4nothing", "unreadable", "workbook"),
        (
            "quote.csv",
            b'a,b\n1,2\n"' + b"x" * 200_000 + b'",3,4\n',
            "unreadable",
            "row 1, counting from 0, has 3 fields",
        ),
        ("open.csv", b'a,b\n1,2\n"3,4\n' + b"5,6\n" * 300_000, "unreadable", "row 1, counting from 0, has 1 field"),
    ],
)
def test_files_beyond_repair(tmp_path: Path, name: str, content: bytes, code: Any, about: str) -> None:
    (tmp_path / name).write_bytes(content)
    with refused(DataError, code) as caught:
        read_table(tmp_path / name)
    assert about in caught.value.reason
    assert str(tmp_path / name) in caught.value.field
    assert len(str(caught.value)) < 500


def test_a_field_longer_than_what_is_parsed_at_once(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_bytes(b"a,b\n1,x\n2," + b"x" * 3_000_000 + b"\n3,x\n")
    assert read_table(tmp_path / "long.csv")["a"].to_pylist() == [1, 2, 3]


def test_lines_that_end_in_a_carriage_return_alone(tmp_path: Path) -> None:
    """Separators of the whole file were counted as those of its line of names."""
    (tmp_path / "a.csv").write_bytes(b"a,b\r" + b"1,2\r" * 20_000)
    assert read_table(tmp_path / "a.csv").shape == (20_000, 2)


def test_two_lines_of_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,income\nyears,euro\n" + "".join(f"{row},{row * 100}\n" for row in range(40)))
    from labelward.data import fit_encoding

    with refused(DataError, "columns", value=("here, column 'age'", "here, column 'income'")) as caught:
        fit_encoding(read_table(tmp_path / "a.csv"), ["age", "income"], "here")
    assert "second line of names" in caught.value.reason


def test_all_columns_that_cannot_be_used_are_named_at_once() -> None:
    from labelward.data import fit_encoding

    rows = range(40)
    table = pa.table(
        {
            "key": [f"k{row}" for row in rows],
            "typo": [*map(str, rows[1:]), "4o"],
            "list": [[row] for row in rows],
            "fine": list(rows),
        }
    )
    with refused(DataError, "columns", field="here") as caught:
        fit_encoding(table, table.column_names, "here")
    assert caught.value.value == tuple(f"here, column {name!r}" for name in ("key", "typo", "list"))
    for about in ("under drop", "'4o'", "list<"):
        assert about in caught.value.reason


@pytest.mark.parametrize("head", ["id,a,a", "id,town,,"])
def test_columns_of_one_name_are_refused_whatever_they_hold(tmp_path: Path, head: str) -> None:
    """Two texts of one name, such as what separators at the ends of lines leave, ended in a KeyError."""
    path = tmp_path / "people.csv"
    path.write_text(f"{head}\n1,x{',y' * (head.count(',') - 1)}\n")
    with refused(DataError, "columns", field=f"table {str(path)!r}"):
        read_table(path)


def test_lines_may_end_in_several_ways(tmp_path: Path) -> None:
    """A carriage return alone within a line of names ended in an error of Python's reader."""
    path = tmp_path / "people.csv"
    path.write_bytes(b"id,age\r1,2\r3,4\r")
    assert read_table(path).to_pydict() == {"id": [1, 3], "age": [2, 4]}
    path.write_bytes(b"i\r,age\n,4\n,5\n")
    with refused(DataError, "unreadable", field=f"table {str(path)!r}"):
        read_table(path)
