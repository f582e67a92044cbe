"""Files that nobody can read, by the command line: exit code 2, one line that says what was seen, nothing written.

So do a ``positive`` that is no class and an audit that grows over changed data. Audits of different data are compared,
and the title says so.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_jobs import JOB, Call, refused, write_job, write_table

ENCRYPTED = JOB.replace('engine = "plain"\ninsecure = true\n', "")
"""Its only line on stderr is the error: there is nothing insecure to warn of."""

Lines = list[str]


def _text(change: Callable[[Lines], Lines]) -> Callable[[Lines], bytes]:
    return lambda lines: "\n".join(change(lines)).encode()


def _mixed(lines: Lines) -> bytes:
    cities = [f"{line},Köln".encode("utf-8" if row % 2 else "cp1252") for row, line in enumerate(lines[1:])]
    return b"\n".join([f"{lines[0]},city".encode(), *cities])


def _with_nul(lines: Lines) -> bytes:
    whole = "\n".join(lines).encode()
    return whole[:500] + b"\0\0" + whole[500:]


def _wide(_: Lines) -> bytes:
    return b",".join(b"c%d" % column for column in range(100_000)) + b"\n" + b",".join([b"1"] * 100_000)


def _empty_sheet(_: Lines) -> bytes:
    xlsxwriter = pytest.importorskip("xlsxwriter")
    import io

    with io.BytesIO() as made:
        book = xlsxwriter.Workbook(made, {"in_memory": True})
        book.add_worksheet()
        book.close()
        return made.getvalue()


BEYOND_REPAIR: dict[str, tuple[str, Callable[[Lines], bytes], str]] = {
    "two headers": ("a.csv", _text(lambda lines: [lines[0], *lines]), "row 0"),
    "a header of groups above the names": ("a.csv", _text(lambda lines: ['"bank",,"telco",,,', *lines]), "no name"),
    "files joined with their headers": ("a.csv", _text(lambda lines: [*lines, *lines]), "row 120"),
    "ragged rows": ("a.csv", _text(lambda lines: [*lines[:50], f"{lines[50]},1,2", *lines[51:]]), "row 49"),
    "a quote that does not end": ("a.csv", _text(lambda lines: [*lines[:50], f'"{lines[50]}', *lines[51:]]), "row 49"),
    "mixed encodings": ("a.csv", _mixed, "line 2"),
    "NUL bytes": ("a.csv", _with_nul, "NUL"),
    "a hundred thousand columns": ("a.csv", _wide, "100000 columns"),
    "two columns of one name": ("a.csv", _text(lambda lines: [lines[0].replace("a1", "a0"), *lines[1:]]), "'a0'"),
    "an empty sheet": ("a.xlsx", _empty_sheet, "empty"),
    "a workbook with a password": ("a.xlsx", lambda _: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "password"),
    "a workbook that is called text": ("a.csv", _empty_sheet, "workbook"),
    "a compressed file that was cut": ("a.csv.gz", lambda lines: gzip.compress("\n".join(lines).encode())[:200], "csv"),
    "a web page": ("a.csv", lambda _: b"<!DOCTYPE html>\n<html><body>Log in</body></html>", "web page"),
    "text that is called Parquet": ("a.parquet", _text(lambda lines: lines), "parquet"),
    "names without rows": ("a.csv", _text(lambda lines: [f"{lines[0]}\n"]), "no rows"),
}


def _contents(folder: Path) -> dict[str, str]:
    """Return the files of a folder by their digests."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("name", BEYOND_REPAIR)
def test_a_file_beyond_repair(tmp_path: Path, call: Call, name: str) -> None:
    file, make, word = BEYOND_REPAIR[name]
    lines = write_table(tmp_path / "good.csv").read_text().splitlines()
    (tmp_path / "good.csv").unlink()
    (tmp_path / file).write_bytes(make(lines))
    job = write_job(tmp_path, ENCRYPTED.replace("{table}", file))
    before = _contents(tmp_path)
    for command in (("audit", job), ("train", job, "--defense", "none")):
        refused(call(*command, "--out", tmp_path / "out", "--quiet"), file.partition(".")[0], word)
    assert _contents(tmp_path) == before
    assert not (tmp_path / "out").exists()


def test_there_are_fourteen() -> None:
    assert len(BEYOND_REPAIR) >= 14


@pytest.mark.slow
def test_unusable_columns_of_all_parties_are_named_at_once(tmp_path: Path, call: Call) -> None:
    texts = [[f"{letter}{row}" for row in range(120)] for letter in "abc"]
    write_table(tmp_path / "table.csv", a1=texts[0], t0=texts[1], t2=texts[2])
    job = write_job(tmp_path, ENCRYPTED)
    refused(call("audit", job, "--out", tmp_path / "out", "--quiet"), "'a1'", "'t0'", "'t2'", "drop")
    job.write_text(job.read_text().replace("[data]", '[data]\ndrop = ["a1", "t0", "t2"]'))
    job.write_text(job.read_text().replace('["a0", "a1"]', '["a0"]').replace('["t0", "t1", "t2"]', '["t1"]'))
    plan = call("plan", job)
    assert plan.exit_code == 0, plan.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("positive", ["ja", "JA", "", "🙂"])
def test_a_positive_that_is_no_class(tmp_path: Path, call: Call, positive: str) -> None:
    write_table(tmp_path / "table.csv", label=np.where(np.arange(120) % 2, "jà", "nein").tolist())
    job = write_job(tmp_path, ENCRYPTED, changes={'label = "label"': f'label = "label"\npositive = "{positive}"'})
    refused(call("audit", job, "--out", tmp_path / "out", "--quiet"), "positive")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "changed", ["a feature", *(pytest.param(each, marks=pytest.mark.slow) for each in ("a label", "a row more"))]
)
def test_an_audit_does_not_grow_over_changed_data(tmp_path: Path, call: Call, changed: str) -> None:
    write_table(tmp_path / "table.csv")
    job = write_job(tmp_path, changes={"seeds = [1, 2]": "seeds = [1]"})
    assert call("audit", job, "--out", tmp_path / "out", "--quiet").exit_code == 0
    before = _contents(tmp_path / "out")
    lines = (tmp_path / "table.csv").read_text().splitlines()
    last = lines[-1].split(",")
    if changed == "a feature":
        last[0] = str(float(last[0]) + 1)
    elif changed == "a label":
        last[-1] = str(1 - int(last[-1]))
    lines = [*lines[:-1], ",".join(last), *([lines[-1]] if changed == "a row more" else [])]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    grown = write_job(tmp_path)
    refused(call("audit", grown, "--out", tmp_path / "out", "--quiet"), str(tmp_path / "out"))
    assert _contents(tmp_path / "out") == before


@pytest.mark.slow
def test_audits_of_different_data_are_compared_and_the_title_says_so(tmp_path: Path, call: Call) -> None:
    for name, rows in (("first", 120), ("second", 140)):
        write_table(tmp_path / "table.csv", rows=rows)
        job = write_job(tmp_path, changes={"seeds = [1, 2]": "seeds = [1]"})
        assert call("audit", job, "--out", tmp_path / name, "--quiet").exit_code == 0
    same = call("compare", tmp_path / "first", tmp_path / "first", "--out", tmp_path / "same.html")
    other = call("compare", tmp_path / "first", tmp_path / "second", "--out", tmp_path / "other.html")
    assert (same.exit_code, other.exit_code) == (0, 0)
    assert "different data" not in same.stdout.splitlines()[0]
    assert "different data" in other.stdout.splitlines()[0]
    assert "different data" in (tmp_path / "other.html").read_text().split("<h1>")[1].split("</h1>")[0]
