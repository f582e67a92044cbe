"""Attacks that an audit runs though its job does not list them: on the row split, and on what an option tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_diabetes

from labelward.attacks import STANDING
from labelward.auditing.audit import audit
from labelward.errors import JobError
from labelward.federation.components import check_job, with_defaults, with_standing
from labelward.job import Job
from labelward.leakage.stored_guesses import score_guess, write_guess
from labelward.leakage.stored_views import attack_view
from labelward.report.page import write_report
from labelward.runs.schema import ResultRow, read_run
from refusals import refused

SAMPLED = {"sampling": "goss"}
DIRECTED = {"monotone": {"mean radius": -1, "mean texture": -1}}
HELD = {"active": ["mean area", "worst area"], "telco": ["mean radius", "mean texture"], "shop": ["mean symmetry"]}
"""The party that has the columns with a constraint is telco."""
SIDES = "monotone-sides"


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


@pytest.fixture(scope="module")
def directed(job: Callable[..., Job], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ResultRow]]:
    """An audit in which one of two passive parties has columns with a constraint. Only to be read."""
    out = tmp_path_factory.mktemp("audits") / "directed"
    sections: dict[str, Any] = {"data": {"table": "breast_cancer", **DIRECTED}, "parties": HELD, "defense": None}
    sections |= {"model": {"trees": 5, "depth": 3}, "attack": [{"kind": "clustering"}], "run": {"seeds": [1]}}
    return out, audit(job(**sections, leakage={"collude": ["telco", "shop"], "privacy": False}), out)


def test_constraints_call_for_the_attack_on_their_splits(job: Callable[..., Job]) -> None:
    given = job(data={"table": "breast_cancer", **DIRECTED})
    assert added(given) == [STANDING, SIDES]
    assert added(given, 0) == [SIDES]
    listed = job(data={"table": "breast_cancer", **DIRECTED}, attack=[{"kind": SIDES, "eta": 0.5}])
    assert added(listed) == [STANDING]


def test_an_audit_says_what_a_constraint_tells_whoever_has_it(directed: tuple[Path, list[ResultRow]]) -> None:
    """The party alone, and its coalition; no other."""
    out, rows = directed
    told = [row for row in rows if row.attack is not None and row.attack["kind"] == SIDES]
    assert [row.party for row in told] == ["telco", "telco+shop"]
    for row in told:
        assert row.leakage is not None
        assert row.leakage["primary"] == "ordered_pairs"
        assert row.leakage["ordered_pairs"] == pytest.approx(row.leakage["auc"], rel=1e-12)  # rounding
        assert row.leakage["ordered_pairs"] > row.leakage["chance"]["ordered_pairs"] + 0.3
    run = read_run(out, [], 1)
    assert run is not None
    accounts = [each for each in run.attacks if each.attack["kind"] == SIDES]
    assert all(each.auxiliary["columns with a monotone constraint"] == 2 for each in accounts)
    assert all(each.notes["splits"] > 2 for each in accounts)
    assert f"{SIDES} measures this" in write_report(out).read_text(encoding="utf-8")


def test_a_stored_view_states_the_constraints(directed: tuple[Path, list[ResultRow]], tmp_path: Path) -> None:
    """So that the attack gives the audit's figures; one that states none is refused, as those of earlier versions."""
    out, rows = directed
    guess, truth = tmp_path / "guess.parquet", out / "data/1/truth.parquet"
    view, columns = (out / path for path in ("runs/none/1/telco/view", "data/1/telco.parquet"))
    ids, found = attack_view(view, columns, SIDES, {}, classes=2, seed=1)
    write_guess(guess, ids, found, {"attack": {"kind": SIDES}, "party": "telco", "seed": 1})
    scores = score_guess(guess, truth)
    row = next(row for row in rows if row.party == "telco" and row.attack and row.attack["kind"] == SIDES)
    assert row.leakage is not None
    assert {name: row.leakage[name] for name in scores} == scores
    with refused(JobError, "unsupported", field=f"attack {SIDES!r}"):
        attack_view(out / "runs/none/1/shop/view", out / "data/1/shop.parquet", SIDES, {}, classes=2, seed=1)


def test_nothing_to_read(job: Callable[..., Job], tmp_path: Path) -> None:
    """Without any constraint, and where no attacking party has a column with one, a listed attack is refused."""
    with refused(JobError, "conflict", value=SIDES):
        check_job(with_defaults(job(attack=[{"kind": SIDES}])))
    data = {"table": "breast_cancer", "monotone": {"mean area": 1}}
    with refused(JobError, "conflict", field="[[attack]] 1", value=SIDES):
        audit(job(data=data, parties=HELD, attack=[{"kind": SIDES}]), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    shop = job(data={"table": "breast_cancer", **DIRECTED}, parties=HELD, attack=[{"kind": SIDES, "party": "shop"}])
    with refused(JobError, "conflict", field="[[attack]] 1", value=SIDES):
        audit(shop, tmp_path / "out")


def test_quantities_under_constraints(job: Callable[..., Job], tmp_path: Path) -> None:
    """Bins of the labels are ranked; figures of an audit of boosted trees and of a forest."""
    table = load_diabetes(as_frame=True).frame
    pq.write_table(pa.table({name: table[name].to_numpy() for name in table}), tmp_path / "diabetes.parquet")
    data: dict[str, Any] = {"table": str(tmp_path / "diabetes.parquet"), "label": "target", "task": "regression"}
    data |= {"monotone": {"bmi": 1, "s5": 1}}
    for kind in ("secureboost", "forest"):
        model = {"kind": kind, "trees": 4, "depth": 3}
        parties = {"active": ["age", "sex", "s1"], "telco": ["bmi", "s5"], "shop": ["bp", "s3"]}
        sections: dict[str, Any] = {"data": data, "parties": parties, "model": model, "defense": None}
        chosen = job(**sections, attack=[{"kind": "clustering"}], leakage={"label_bins": 3}, run={"seeds": [1]})
        rows = audit(chosen, tmp_path / kind)
        (told,) = [row for row in rows if row.attack is not None and row.attack["kind"] == SIDES]
        assert told.leakage is not None
        assert (told.party, told.leakage["ordered_pairs"] > 0.7) == ("telco", True)
        write_report(tmp_path / kind)
