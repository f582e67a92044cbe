"""Jobs of a run over a network: what a rehearsal refuses, and what the active party checks by itself."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

from labelward.auditing.audit import audit
from labelward.data import load_active, load_party_table
from labelward.defenses.local_trees import LocalTrees
from labelward.errors import JobError, PolicyError
from labelward.federation.components import model_family
from labelward.federation.train import train_variant
from labelward.job import Job, parse_job
from labelward.rng import PrivateSeed
from refusals import refused


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return the job file of the bank, with its table; there may be nothing of its own but the label."""
    csv.write_csv(pa.table({"who": range(40), "y": ["no", "yes"] * 20}), tmp_path / "bank.csv")
    return parse_job(
        {
            "parties": {"bank": {"table": "bank.csv", "id": "who", "label": "y"}, "telco": {}},
            "encryption": {"engine": "plain", "insecure": True},
            "network": {"address": "bank.example:7443"},
        },
        base=tmp_path,
    )


def test_no_rehearsal_without_the_data_of_all(job: Job, tmp_path: Path) -> None:
    with refused(JobError, "missing", field="[parties.telco] table") as caught:
        train_variant(job, tmp_path / "train", seed=1)
    assert "labelward party JOB.toml" in caught.value.reason
    with refused(JobError, "missing", field="[parties.telco] table") as caught:
        audit(job, tmp_path / "audit")
    assert "labelward party JOB.toml" in caught.value.reason
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank.csv"]


def test_the_active_party_checks_for_peers_whose_data_it_has_not(job: Job) -> None:
    """Without columns of its own it can grow no local tree; with the names of its peers the rest passes."""
    data, programs = (
        load_active(job, load_party_table(job, "bank"), 1, PrivateSeed(bytes(32))),
        model_family(job.model),
    )
    programs.check(data, {}, passive=["telco"])
    with refused(PolicyError, "inapplicable", field="defense 'local-trees'"):
        programs.check(data, {data.parties[0].name: (LocalTrees(count=1),)}, passive=["telco"])
