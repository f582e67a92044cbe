"""Attacks that an audit runs though its job does not list them: on the row split, and on what an option tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labelward.attacks import STANDING
from labelward.auditing.audit import audit
from labelward.federation.components import with_defaults, with_standing
from labelward.job import Job

SAMPLED = {"sampling": "goss"}


def added(job: Job, classes: int = 2) -> list[str]:
    """Return the kinds of the attacks that are not listed."""
    job = with_defaults(job)
    attacks = with_standing(job, 100, classes)
    assert attacks[: len(job.attacks)] == job.attacks
    return [each.kind for each in attacks[len(job.attacks) :]]


@pytest.mark.parametrize(
    ("model", "classes", "expected"),
    [
        ({}, 2, [STANDING]),
        ({}, 0, []),
        (SAMPLED, 2, [STANDING, "goss-sample"]),
        (SAMPLED, 3, [STANDING]),
        (SAMPLED, 0, []),
        ({"row_fraction": 0.5}, 2, [STANDING]),
    ],
)
def test_what_the_model_and_the_labels_call_for(
    job: Callable[..., Job], model: dict[str, Any], classes: int, expected: list[str]
) -> None:
    assert added(job(model=model, attack=[{"kind": "id2graph"}]), classes) == expected


def test_a_listed_attack_runs_once_and_a_published_split_is_not_attacked(job: Callable[..., Job]) -> None:
    listed = job(model=SAMPLED, attack=[{"kind": "goss-sample", "eta": 0.5}])
    assert added(listed) == [STANDING]
    assert added(replace(listed, data=replace(listed.data, split="reference"))) == []


def test_an_audit_says_what_the_sample_tells(job: Callable[..., Job], tmp_path: Path) -> None:
    rows = audit(
        job(model=SAMPLED, attack=[{"kind": "clustering"}], run={"seeds": [1]}, defense=None), tmp_path / "out"
    )
    told = [row for row in rows if row.attack is not None and row.attack["kind"] == "goss-sample"]
    assert {row.party for row in told} == {row.party for row in rows if row.attack is not None}
    assert all("auc_either" in row.leakage for row in told)
