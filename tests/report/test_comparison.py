"""Comparison of audits: what differs, side by side, for the same data and for others."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from labelward.auditing.audit import audit
from labelward.errors import FileFormatError, InputError
from labelward.job import ComponentSpec, parse_job
from labelward.report.comparison import compare_audits, write_comparison
from refusals import refused

JOB = """
[data]
table = "breast_cancer"
[parties]
active = 0.5
telco = 0.5
[model]
trees = 1
depth = 2
[encryption]
engine = "plain"
insecure = true
[[attack]]
kind = "clustering"
[leakage]
privacy = false
[run]
seeds = [1, 2]
"""


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder, job = tmp_path_factory.mktemp("compared"), parse_job(JOB)
    deeper = dataclasses.replace(job, model=ComponentSpec("secureboost", {"trees": 2, "depth": 2}))
    audit(job, folder / "small")
    audit(deeper, folder / "large <b>", repeat=[folder / "small"])
    return folder / "small", folder / "large <b>"


def test_two_audits(audits: tuple[Path, Path], tmp_path: Path) -> None:
    found = compare_audits(audits)
    assert found.title == "small and large <b>: breast_cancer"
    jobs, utility, leakage, cost = found.tables
    assert jobs.rows == (("model.trees", "1", "2"),)
    assert utility.header == ("defense", "seeds", "small", "large <b>", "difference")
    assert utility.rows[0][:2] == ("no defense", "2")
    assert ("no defense", "telco", "clustering") in [row[:3] for row in leakage.rows]
    same = next(row for row in leakage.rows if row[2] == "clustering")
    assert leakage.header[3] == "seeds"
    assert same[3] == "2"
    assert same[4] == same[5]  # it does not read the view, and the rows are the same
    assert same[6].startswith("0.000")
    assert [row[:2] for row in cost.rows] == [("no defense", "time"), ("no defense", "traffic")]
    page = write_comparison(found, tmp_path / "c.html").read_text(encoding="utf-8")
    assert "large &lt;b&gt;" in page
    assert "<b>" not in page


@pytest.mark.slow
def test_three_audits_and_other_data(audits: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "small"
    audit(parse_job(JOB.replace("breast_cancer", "digits").replace("[1, 2]", "[1]")), other)
    found = compare_audits([*audits, other])
    assert found.title.endswith("breast_cancer, digits, on different data")
    assert found.names[0] != found.names[2]
    assert found.tables[1].header[-1] == found.names[2]  # a difference is one of two


def test_what_cannot_be_compared(audits: tuple[Path, Path], tmp_path: Path) -> None:
    with refused(InputError, "range", value=1):
        compare_audits(audits[:1])
    with refused(FileFormatError, "unreadable"):
        compare_audits([audits[0], tmp_path])
    damaged = tmp_path / "damaged"
    shutil.copytree(audits[0], damaged)
    (damaged / "results.jsonl").write_text("{}\n")
    with pytest.raises(FileFormatError):
        compare_audits([audits[0], damaged])
