"""Costs of a logistic regression, from a few of its batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelward.data import load_dataset, load_tables
from labelward.errors import JobError
from labelward.federation.components import make_engine, with_defaults
from labelward.federation.simulation import simulate_job
from labelward.job import load_job, parse_job
from labelward.party.context import no_progress
from labelward.planning.logistic_cost import estimate_logistic
from labelward.planning.workload import RemoteShape
from refusals import refused

JOB = """
[data]
table = "breast_cancer"
[parties]
active = 0.5
telco = 0.5
[model]
kind = "{kind}"
{more}
[encryption]
bits = 512
insecure = true
"""


def job_file(
    folder: Path, kind: str = "logistic", more: str = "batch_size = 64\nepochs = 3\nrows_per_column = 0"
) -> Path:
    path = folder / "job.toml"
    path.write_text(JOB.format(kind=kind, more=more))
    return path


@pytest.mark.slow
def test_operations_and_bytes_are_those_of_the_training(tmp_path: Path) -> None:
    job = load_job(job_file(tmp_path))
    found = estimate_logistic(job, seed=1)
    assert (found.batches, found.tried) == (24, 4)  # 455 rows in batches of 64
    job = with_defaults(job)
    engine = make_engine(job.encryption)
    data = load_dataset(job, 1, load_tables(job))
    cost = simulate_job(job, data, job.variants()[-1], engine, None, seed=1, progress=no_progress).cost
    engine.close()
    for name in ("encryptions", "decryptions"):
        assert getattr(found, name) == pytest.approx(getattr(cost, name), rel=0.12), name
    assert found.additions == pytest.approx(cost.additions, rel=0.15)
    assert sum(found.bytes.values()) == pytest.approx(cost.bytes, rel=0.15)
    assert set(found.phases["telco"]) >= {"add", "mask"}
    assert found.seconds > 0


def test_batches_that_the_training_refuses(tmp_path: Path) -> None:
    job = load_job(job_file(tmp_path, more="batch_size = 64"))
    with refused(JobError, "range", field="[model] batch_size", value=64) as caught:
        estimate_logistic(job, seed=1)
    assert "455" in caught.value.reason  # of the job's rows, not of those that are tried


def test_remote_columns_of_a_million_rows() -> None:
    sections = {
        "parties": {"bank": {"role": "active"}, "telco": {"role": "passive"}},
        "model": {"kind": "logistic"},
        "encryption": {"engine": "plain", "insecure": True},
        "network": {"listener": "bank", "address": "127.0.0.1:1"},
    }
    found = estimate_logistic(parse_job(sections), remote=RemoteShape(rows=1_000_000, columns={"bank": 2, "telco": 3}))
    assert found.batches == 5 * -(-800_000 // 2048)
    assert found.generated == ("bank", "telco")


def test_other_models_are_refused(tmp_path: Path) -> None:
    with refused(JobError, "unsupported", field="[model] kind", value="secureboost"):
        estimate_logistic(load_job(job_file(tmp_path, "secureboost", "trees = 2")))
