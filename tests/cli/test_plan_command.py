"""``labelward plan`` through its public face."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_jobs import Call, refused, write_job

NET = """
[data]
table = "breast_cancer"
[parties]
active = 0.5
telco = 0.5
[model]
kind = "splitnn"
"""


def test_tables_tell_phases_and_operations(call: Call, job: Path) -> None:
    told = call("plan", job)
    assert told.exit_code == 0, told.output
    for word in ("encrypt", "prepare rows", "aggregate", "seal", "bytes sent", "memory at the peak", "active", "telco"):
        assert word in told.stdout
    assert "In one process" in told.stdout
    assert "The first 2 trees" in told.stdout
    assert "Between companies" not in told.stdout
    assert told.stderr.count("warning") == 1  # the engine protects nothing


def test_json_is_one_object(call: Call, job: Path) -> None:
    told = call("plan", job, "--json", "--bandwidth", 100, "--latency", 20, "--seed", 2)
    found = json.loads(told.stdout)
    assert found["parties"] == ["active", "telco"]
    assert found["rows"] == 96
    assert found["estimate"]["encryptions"] == 2 * 96
    assert found["estimate"]["between"]["latency"] == 20
    assert found["unit_costs"]["engine"] == "plain"


def test_a_line_between_companies_is_told(call: Call, job: Path) -> None:
    told = call("plan", job, "--bandwidth", 100, "--latency", 20).stdout
    assert "100 Mbit/s and 20 ms" in told
    assert "(overlapped)" in told


def test_a_defended_run_is_told_as_such(call: Call, job: Path) -> None:
    told = call("plan", job, "--defense", "id-lmid-xi-0.1")
    assert told.exit_code == 0, told.output
    assert "What the defense refuses" in told.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--bandwidth", 5), ("--latency",)),
        (("--columns", "telco"), ("NAME=COUNT", "telco")),
        (("--columns", "telco=-1"), ("NAME=COUNT",)),
        (("--columns", "telco=1000000"), ("below 1,000,000", "telco=1000000")),
        (("--columns", "telco=3", "--columns", "telco=4"), ("given twice",)),
        (("--columns", "telco=3"), ("telco", "are here")),
        (("--classes", 1), ("--classes", "got 1")),
        (("--classes", -2), ("--classes", "-2")),
        (("--classes", 3), ("--classes", "3", "are here")),
        (("--rows", 9), ("--rows", "9")),
        (("--bandwidth", "inf", "--latency", 1), ("--bandwidth", "inf")),
        (("--bandwidth", "nan", "--latency", 1), ("--bandwidth", "nan")),
        (("--bandwidth", 1, "--latency", "inf"), ("--latency", "inf")),
        (("--bandwidth", 1, "--latency", -1), ("--latency", "-1")),
        (("--defense", ""), ("''",)),
        (("--defense", "nothing"), ("nothing", "known")),
    ],
)
def test_bad_options_are_refused(call: Call, job: Path, options: tuple[object, ...], words: tuple[str, ...]) -> None:
    refused(call("plan", job, *options), *words)


def test_bad_jobs_are_refused(call: Call, tmp_path: Path) -> None:
    refused(call("plan", tmp_path / "none.toml"), "none.toml", "no such job file")
    refused(call("plan", write_job(tmp_path)), "table.csv")
    (tmp_path / "net.toml").write_text(NET)
    refused(call("plan", tmp_path / "net.toml"), "net.toml", "splitnn", "secureboost")
