"""Small audits that several tests read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labelward.job import Job, parse_job
from labelward.runs.schema import ResultRow

JOB: dict[str, Any] = {
    "data": {"table": "breast_cancer"},
    "parties": {"active": 0.4, "telco": 0.4, "shop": 0.2},
    "model": {"trees": 2, "depth": 3, "feature_fraction": 0.8},
    "encryption": {"engine": "plain", "insecure": True},
    "defense": [{"kind": "id-lmid", "xi": 0.4}, {"kind": "local-trees"}],
    "attack": [{"kind": "clustering"}, {"kind": "id2graph"}],
    "leakage": {"privacy": False},
    "run": {"seeds": [1, 2]},
}
"""Without figures of privacy, which take half of the time of so small an audit and have tests of their own."""


@pytest.fixture(scope="session")
def job() -> Callable[..., Job]:
    """Make the small job, with some sections changed: ``job(run={"seeds": [1]})``; None leaves a section out."""

    def make(**sections: Any) -> Job:
        chosen = {**json.loads(json.dumps(JOB)), **sections}
        return parse_job({name: section for name, section in chosen.items() if section is not None})

    return make


@pytest.fixture(scope="session")
def finished(job: Callable[..., Job], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ResultRow]]:
    """An audit of the small job: its folder and rows. Only to be read."""
    from labelward.auditing.audit import audit

    out = tmp_path_factory.mktemp("audits") / "small"
    return out, audit(job(), out)
