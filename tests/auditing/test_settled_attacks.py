"""What an attack leaves to the model is decided when a job is completed, so that audits of earlier versions go on.

An attack with ``base = "momentum"`` is stored as the version before ``"auto"`` stored the default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from labelward.auditing import audit as module
from labelward.auditing.audit import audit
from labelward.errors import JobError
from labelward.federation.components import with_defaults
from labelward.job import Job
from labelward.party.view import View
from labelward.runs.schema import RESULTS_FILE, ResultRow, read_rows
from refusals import refused

torch.set_num_threads(1)  # sums of several threads round differently

Jobs = Callable[..., Job]
RUN, ADAM_RUN = "1-telco-malicious-optimizer", "1-telco-malicious-optimizer-base-adam"


@pytest.fixture
def nets(job: Jobs) -> Jobs:
    """Return jobs by optimizer and the parameters of each ``active-completion``."""

    def of(optimizer: str, *attacks: Mapping[str, Any]) -> Job:
        model = {"epochs": 1, "batch_size": 64, "width": 4, "optimizer": optimizer, "learning_rate": 0.01}
        return job(
            parties={"active": 0.5, "telco": 0.5},
            model={"kind": "splitnn", "top": False, **model},
            encryption=None,
            defense=None,
            attack=[{"kind": "active-completion", "auxiliary": 10, "steps": 5, **each} for each in attacks],
            leakage={"privacy": False, "upper_bound": False},
            run={"seeds": [1]},
        )

    return of


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of what is trained."""
    found: list[str] = []
    run_training = module.run_training

    def count(*args: Any, **options: Any) -> Any:
        found.append(args[4].name)
        return run_training(*args, **options)

    monkeypatch.setattr(module, "run_training", count)
    return found


def bases(rows: list[ResultRow]) -> list[tuple[str, str]]:
    """Return the bases of attack and behavior, of each row of the active attack."""
    found = [row for row in rows if row.attack and row.attack["kind"] == "active-completion"]
    return [(row.attack["base"], (row.behavior or {}).get("base", "momentum")) for row in found if row.attack]


def recorded(out: Path, run: str) -> str:
    (behavior,) = (
        each for each in View.load(out / "runs/none" / run / "telco/view").applied() if each["stage"] == "behavior"
    )
    base: str = behavior["parameters"].get("base", "momentum")
    return base


def unsettled(out: Path) -> None:
    """Make of an audit what a development version stored, which named no base."""
    for path in (out / RESULTS_FILE, out / "job.toml"):
        path.write_text(
            path.read_text().replace('"base":"momentum"', '"base":"auto"').replace('base = "momentum"', 'base = "auto"')
        )


def test_a_finished_audit_beside_sgd_is_whole(nets: Jobs, tmp_path: Path, trained: list[str]) -> None:
    out = tmp_path / "audit"
    audit(nets("sgd", {"base": "momentum"}), out, explained=False)
    assert trained == ["1", RUN]
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert bases(audit(nets("sgd", {}), out, explained=False)) == [("momentum", "momentum")]
    assert trained == ["1", RUN]
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_an_audit_beside_adam_gets_another_run_and_keeps_the_earlier_one(
    nets: Jobs, tmp_path: Path, trained: list[str]
) -> None:
    out = tmp_path / "audit"
    first = audit(nets("adam", {"base": "momentum"}), out, explained=False)
    assert bases(first) == [("momentum", "momentum")]
    rows = audit(nets("adam", {}), out, explained=False)
    assert trained == ["1", RUN, ADAM_RUN]
    assert rows[: len(first)] == first
    assert bases(rows) == [("momentum", "momentum"), ("adam", "adam")]
    assert (recorded(out, RUN), recorded(out, ADAM_RUN)) == ("momentum", "adam")
    assert audit(nets("adam", {"base": "momentum"}), out, explained=False) == rows
    longer = audit(nets("adam", {"base": "momentum", "steps": 6}), out, explained=False)  # of the earlier run
    assert bases(longer).count(("momentum", "momentum")) == 2
    assert trained == ["1", RUN, ADAM_RUN]


def test_rows_that_name_no_base_count_as_what_they_stand_for(nets: Jobs, tmp_path: Path, trained: list[str]) -> None:
    """Also where such a version resumed an audit, and job and rows have the same attack under two names."""
    out = tmp_path / "audit"
    rows = audit(nets("sgd", {"base": "momentum"}), out, explained=False)
    line = next(each for each in (out / RESULTS_FILE).read_text().splitlines() if '"base"' in each)
    unsettled(out)
    assert '"auto"' in (out / RESULTS_FILE).read_text()
    with (out / RESULTS_FILE).open("a") as file:
        file.write(line + "\n")
    assert read_rows(out) == rows
    with (out / "job.toml").open("a") as file:
        file.write('[[attack]]\nkind = "active-completion"\nauxiliary = 10\nsteps = 5\nbase = "momentum"\n')
    assert audit(nets("sgd", {}), out, explained=False) == rows
    assert trained == ["1", RUN]


def test_a_row_that_names_no_base_was_of_adam_s_steps_beside_adam(nets: Jobs, tmp_path: Path) -> None:
    out = tmp_path / "audit"
    audit(nets("adam", {"base": "momentum"}), out, explained=False)
    unsettled(out)
    assert bases(read_rows(out)) == [("adam", "adam")]
    older = (out / RESULTS_FILE).read_text().replace('"base":"auto",', "")  # before there were bases
    (out / RESULTS_FILE).write_text(older)
    assert [json.loads(each)["attack"] for each in older.splitlines()] == [row.attack for row in read_rows(out)]


def test_attacks_that_are_one_beside_the_job_s_optimizer_are_refused(nets: Jobs) -> None:
    with refused(JobError, "duplicate", field="[[attack]]"):
        with_defaults(nets("adam", {}, {"base": "adam"}))
