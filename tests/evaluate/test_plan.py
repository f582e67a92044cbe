"""Plans against what runs count of themselves: operations, ciphertexts, messages and bytes; times are only positive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from labelward.data import load_source, prepare
from labelward.errors import InputError, JobError
from labelward.evaluate.costs.prospect import Prospect, foresee
from labelward.evaluate.costs.units import UnitCosts, training_cost
from labelward.evaluate.kinds import completed, make_engine
from labelward.evaluate.metering import metered
from labelward.evaluate.plan import Elsewhere, Line, plan
from labelward.evaluate.record import TrainingRecord, read_record
from labelward.evaluate.results import read_run
from labelward.evaluate.train import train
from labelward.evaluate.wire import wire_flows
from labelward.he import Counts
from labelward.job import Job, parse_job

GREETING = ("Hello", "Begin", "Ready", "KeyOffer")
PAILLIER = {"engine": "paillier", "bits": 512, "insecure": True, "workers": 1}
SHAPES: dict[str, dict[str, Any]] = {
    "boosted": {"trees": 3, "depth": 3},
    "deep": {"trees": 2, "depth": 6, "min_rows": 4, "max_leaves": 9, "bins": 7},
    "some rows and columns": {"trees": 2, "depth": 3, "row_fraction": 0.6, "feature_fraction": 0.5},
    "large gradients": {"trees": 1, "depth": 3, "sampling": "goss"},
    "mixed": {"trees": 3, "depth": 2, "mode": "mixed"},
    "layered": {"trees": 2, "depth": 4, "mode": "layered", "passive_depth": 2},
    "candidates of the node": {"trees": 2, "depth": 3, "candidates": "node", "bins": 9},
    "forest": {"kind": "forest", "trees": 3, "depth": 3, "row_fraction": 0.7, "replace": True},
}


def table(folder: Path, rows: int = 400, *, quantities: bool = False, classes: int = 2) -> str:
    """Write a table with missing values, a mostly constant column and a categorical one; return its path."""
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {f"c{number}": rng.normal(size=rows) for number in range(7)}
    score = columns["c0"] + 2 * columns["c4"] + columns["c5"] + 0.3 * rng.normal(size=rows)
    columns["c1"] = np.where(rng.random(rows) < 0.9, 0.0, columns["c1"])
    columns["c5"] = pa.array(columns["c5"], mask=rng.random(rows) < 0.2)
    columns["c6"] = pa.array([["red", "green", "blue"][each] for each in rng.integers(0, 3, rows)])
    edges = np.quantile(score, np.arange(1, classes) / classes)
    columns["y"] = score if quantities else np.searchsorted(edges, score)
    path = folder / "table.csv"
    pyarrow.csv.write_csv(pa.table(columns), path)
    return str(path)


def job_of(folder: Path, model: dict[str, Any], **more: Any) -> Job:
    made = {name: more.pop(name) for name in ("quantities", "classes", "rows") if name in more}
    data = {"table": table(folder, **made), "label": "y", **more.pop("data", {})}
    if made.get("quantities"):
        data["task"] = "regression"
    parties = {"active": ["c0", "c1", "c2"], "telco": ["c3", "c4"], "shop": ["c5", "c6"]}
    sections = {"data": data, "parties": parties, "model": model, "encryption": PAILLIER, **more}
    return parse_job(sections)


def foreseen(job: Job) -> Prospect:
    job = completed(job)
    prospect = foresee(job, prepare(job, 1, load_source(job)), make_engine(job.encryption), 1)
    assert prospect is not None
    return prospect


def trained(job: Job, out: Path) -> tuple[TrainingRecord, dict[tuple[str, str, str], tuple[int, int]]]:
    """Train; return its record, and messages and bytes by sender, receiver and type."""
    train(job, out, seed=1)
    views = [(party.name, out / party.name / "view") for party in job.parties]
    flows = wire_flows(views, active="active", secure=True)
    return read_record(out), {
        (flow.sender, flow.receiver, flow.type): (flow.messages, flow.bytes)
        for flow in flows
        if flow.type not in GREETING
    }


def check_exactly(job: Job, out: Path) -> None:
    record, flows = trained(job, out)
    expected = record.estimate
    assert expected is not None
    for name in ("encryptions", "additions", "decryptions", "ciphertexts"):
        assert getattr(expected, name) == getattr(record.cost, name), name
    prospect = foreseen(job)
    works = prospect.works(metered(job, prepare(completed(job), 1), (), seed=1))
    told = {
        (sender, receiver, kind): (round(flow.messages), round(flow.bytes))
        for sender, work in works.items()
        for (receiver, kind), flow in work.flows.items()
        if kind != "greeting"
    }
    assert told == flows
    assert sum(expected.bytes.values()) == pytest.approx(record.cost.bytes, rel=0.05)
    prospect.engine.close()


@pytest.mark.parametrize("shape", SHAPES)
def test_what_the_first_trees_take_is_foreseen_exactly(shape: str, tmp_path: Path) -> None:
    check_exactly(job_of(tmp_path, SHAPES[shape]), tmp_path / "out")


def test_classes_in_one_tree_and_apart_are_foreseen_exactly(tmp_path: Path) -> None:
    for strategy in ("multi_output_tree", "one_output_per_tree"):
        folder = tmp_path / strategy
        folder.mkdir()
        model = {"trees": 1, "depth": 3, "multi_strategy": strategy}
        check_exactly(job_of(folder, model, classes=4), folder / "out")


def test_quantities_with_validation_rows_are_foreseen_exactly(tmp_path: Path) -> None:
    data = {"validation_size": 0.25}
    check_exactly(job_of(tmp_path, {"trees": 2, "depth": 3}, quantities=True, data=data), tmp_path / "out")
