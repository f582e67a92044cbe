"""``labelward plan`` through its public face."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_jobs import Call, refused, write_job

from labelward.auditing.audit import audit
from labelward.job import load_job
from labelward.messages.splitnn import (
    BatchEmbeddings,
    BatchGradients,
    EmbeddingAnswer,
    EpochOrder,
    OwnEmbeddings,
    ValidationEmbeddings,
)
from labelward.party.view import View

_ARRAYS: tuple[Any, ...] = (BatchEmbeddings, ValidationEmbeddings, EmbeddingAnswer, BatchGradients)

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
    for word in ("encrypt", "prepare rows", "aggregate", "seal", "bytes sent", "peak memory", "active", "telco"):
        assert word in told.stdout
    assert "In one process" in told.stdout
    assert "first 2 trees" in told.stdout
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
    assert "at 100 Mbit/s and 20 ms" in told
    assert "round trips" in told


def test_a_defended_run_is_told_as_such(call: Call, job: Path) -> None:
    told = call("plan", job, "--defense", "id-lmid-xi-0.1")
    assert told.exit_code == 0, told.output
    assert "defense was active" in told.stdout


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
        (("--defense", "nothing"), ("--defense", "nothing", "known")),
    ],
)
def test_bad_options_are_refused(call: Call, job: Path, options: tuple[object, ...], words: tuple[str, ...]) -> None:
    refused(call("plan", job, *options), *words)


def test_bad_jobs_are_refused(call: Call, tmp_path: Path) -> None:
    refused(call("plan", tmp_path / "none.toml"), "none.toml", "no such job file")
    refused(call("plan", write_job(tmp_path)), "table.csv")
    (tmp_path / "net.toml").write_text(NET)
    refused(call("plan", tmp_path / "net.toml", "--bandwidth", 1, "--latency", 1), "--bandwidth")
    (tmp_path / "net.toml").write_text(
        NET.replace("splitnn", "pivodl").replace("[parties]", "labels = {active = 0.5, telco = 0.5}\n[parties]")
    )
    refused(call("plan", tmp_path / "net.toml"), "net.toml", "pivodl", "secureboost")


@pytest.mark.parametrize(
    ("top", "record", "sent"),
    [
        ("true", "full", "same"),
        ("false", "epochs", "same"),
        ("true", "digests", "same"),
        ("true", "full", "float16"),
        ("false", "epochs", "float16"),
    ],
)
def test_networks_tell_the_bytes_of_their_arrays(call: Call, tmp_path: Path, top: str, record: str, sent: str) -> None:
    """Exactly those of a run: what each party's view then holds, in bytes of arrays."""
    more = f'epochs = 2\nbottom = "linear"\ntop = {top}\nwire_dtype = "{sent}"\n[run]\nrecord = "{record}"\n'
    more += "[leakage]\nprivacy = false\n"
    (tmp_path / "net.toml").write_text(NET.replace("[parties]", "validation_size = 0.2\n[parties]") + more)
    planned = json.loads(call("plan", tmp_path / "net.toml", "--json").stdout)
    assert "view" in call("plan", tmp_path / "net.toml").stdout
    audit(load_job(tmp_path / "net.toml"), tmp_path / "out", explained=False)
    for party, size in planned["views"].items():
        view = View.load(tmp_path / "out" / "runs" / "none" / "1" / party / "view")
        arrays = [each.message.values.value for kind in _ARRAYS for each in view.received(kind)]
        arrays += [each.values for each in view.observed(OwnEmbeddings)]
        arrays += [each.rows for each in view.observed(EpochOrder)]
        assert sum(len(each.data) for each in arrays) == size
