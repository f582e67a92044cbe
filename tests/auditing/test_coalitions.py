"""Coalitions of passive parties: who attacks together, what they know, and where it is reported."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import labelward
from labelward.attacks import ATTACKS
from labelward.attacks.base import Attack
from labelward.auditing.audit import audit
from labelward.cli.app import app
from labelward.errors import JobError
from labelward.federation.components import MODELS as MODEL_CLASSES
from labelward.federation.components import attacking_parties, check_job, with_defaults
from labelward.job import Job
from labelward.leakage.stored_guesses import read_guess, score_guess
from labelward.report.page import write_report
from labelward.runs.schema import ResultRow, read_rows, read_run
from refusals import refused

TOGETHER = "telco+shop"


@pytest.fixture(scope="module")
def colluding(job: Callable[..., Job], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[ResultRow]]:
    """An audit in which both passive parties attack alone and together. Only to be read."""
    out = tmp_path_factory.mktemp("audits") / "colluding"
    entries = [{"kind": "id2graph"}, {"kind": "clustering", "party": "shop"}]
    chosen = job(leakage={"collude": ["shop", "telco"]}, attack=entries, run={"seeds": [1]}, defense=None)
    return out, audit(chosen, out)


def test_each_party_attacks_alone_and_all_together(colluding: tuple[Path, list[ResultRow]]) -> None:
    rows = [(row.party, row.attack["kind"]) for row in colluding[1] if row.attack is not None]
    assert rows == [
        ("telco", "id2graph"),
        ("telco", "split-posterior"),
        ("shop", "id2graph"),
        ("shop", "clustering"),
        ("shop", "split-posterior"),
        (TOGETHER, "id2graph"),
        (TOGETHER, "split-posterior"),
    ]
    by_party = {row.party: row for row in colluding[1]}
    assert by_party[TOGETHER].coalition == ("telco", "shop")
    stored = [json.loads(line) for line in (colluding[0] / "results.jsonl").read_text().splitlines()]
    assert all(("coalition" in each) == (each["party"] == TOGETHER) for each in stored)
    assert all("collude" not in each["attack"] for each in stored)


def test_a_coalition_knows_at_least_what_each_member_knows(colluding: tuple[Path, list[ResultRow]]) -> None:
    run = read_run(colluding[0], [], 1)
    assert run is not None
    seen = {party: run.seen[party] for party in ("telco", "shop", TOGETHER)}
    together = seen[TOGETHER]
    assert together.columns == seen["telco"].columns + seen["shop"].columns
    assert together.own_splits == seen["telco"].own_splits + seen["shop"].own_splits
    for alone in (seen["telco"], seen["shop"]):
        assert together.trees == alone.trees
        assert together.leaves >= alone.leaves
        assert together.joint_information is not None
        assert alone.joint_information is not None
        assert together.joint_information >= alone.joint_information - 1e-12
    last = {party: readings[-1] for party, readings in run.meter.items()}
    assert last[TOGETHER].trees == last["telco"].trees
    assert last[TOGETHER].groups >= max(last["telco"].groups, last["shop"].groups) - 1e-12


@pytest.mark.slow
def test_the_report_names_the_coalition(colluding: tuple[Path, list[ResultRow]], tmp_path: Path) -> None:
    page = write_report(shutil.copytree(colluding[0], tmp_path / "audit")).read_text()
    assert TOGETHER in page


@pytest.mark.parametrize(
    ("entry", "leakage", "expected"),
    [
        ({"kind": "id2graph"}, {}, ("telco", "shop")),
        ({"kind": "id2graph"}, {"collude": ["shop", "telco"]}, ("telco", "shop", TOGETHER)),
        ({"kind": "id2graph", "collude": ["shop", "telco"]}, {}, (TOGETHER,)),
        ({"kind": "id2graph", "party": "shop"}, {"collude": ["shop", "telco"]}, ("shop",)),
    ],
)
def test_who_attacks(
    job: Callable[..., Job], entry: dict[str, Any], leakage: dict[str, Any], expected: tuple[str, ...]
) -> None:
    made = with_defaults(job(attack=[entry], leakage=leakage))
    check_job(made)
    assert attacking_parties(made, made.attacks[0]) == expected


@pytest.mark.parametrize(
    ("wanted", "code", "value"),
    [
        (["telco"], "type", ("telco",)),
        (["telco", "telco"], "type", ("telco", "telco")),
        ("telco", "type", "telco"),
        (["telco", "active"], "unknown", "active"),
        (["telco", "bank"], "unknown", "bank"),
    ],
)
def test_coalitions_that_cannot_be(job: Callable[..., Job], wanted: Any, code: Any, value: Any) -> None:
    with refused(JobError, code, field="[[attack]] 1: collude", value=value):
        with_defaults(job(attack=[{"kind": "id2graph", "collude": wanted}]))
    if isinstance(wanted, list):
        with refused(JobError, code, field="[leakage] collude", value=value):
            with_defaults(job(leakage={"collude": wanted}))


def test_a_coalition_of_one_is_told_as_it_is_written(job: Callable[..., Job]) -> None:
    with refused(JobError, "type") as caught:
        with_defaults(job(leakage={"collude": ["telco"]}))
    assert 'not ["telco"]' in caught.value.reason


def test_an_entry_has_a_party_or_a_coalition_and_each_attack_runs_once(job: Callable[..., Job]) -> None:
    both = {"kind": "id2graph", "party": "telco", "collude": ["telco", "shop"]}
    with refused(JobError, "conflict", field="[[attack]] 1: party", value="telco"):
        with_defaults(job(attack=[both]))
    twice = [{"kind": "id2graph"}, {"kind": "id2graph", "collude": ["telco", "shop"]}]
    made = with_defaults(job(attack=twice, leakage={"collude": ["telco", "shop"]}))
    with refused(JobError, "duplicate", field="[[attack]] 2"):
        check_job(made)
    check_job(with_defaults(job(attack=twice)))


# -- every registered attack -------------------------------------------------------------------------------------------

REQUIRED: dict[str, Any] = {"auxiliary": 20, "column": "telco.mean texture"}
QUICK: dict[str, Any] = {"steps": 5, "starts": 2}
OF_NOBODY = "mean smoothness"
"""A column that no party has, for the attack on a further attribute."""
MODELS: dict[str, dict[str, Any]] = {
    "trees": {"kind": "secureboost", "trees": 2, "depth": 3},
    "samples": {"kind": "secureboost", "trees": 2, "depth": 3, "sampling": "goss"},
    "sum": {"kind": "splitnn", "epochs": 1, "top": False, "bottom": "linear"},
    "top": {"kind": "splitnn", "epochs": 1, "width": 4},
    "regression": {"kind": "logistic", "epochs": 1, "batch_size": 32, "rows_per_column": 0},
}
HOLDERS: dict[str, dict[str, Any]] = {"holders": {"kind": "pivodl", "trees": 2, "depth": 3}}
"""Models without coalitions: several parties may hold labels."""
SHARED: dict[str, dict[str, Any]] = {"pivot": {"kind": "pivot", "dealer": "shop", "depth": 3}}
"""Models without coalitions: a colluding dealer knows everything."""
DATA = {
    "sum": {"table": "breast_cancer", "drop": [OF_NOBODY]},
    "top": {"table": "breast_cancer", "drop": [OF_NOBODY]},
    "samples": {"table": "breast_cancer", "monotone": dict.fromkeys(["worst area", "mean area", "mean texture"], -1)},
}
"""With constraints, for the attack that reads splits of such columns; without the column of nobody."""


def entries(model: str) -> dict[str, dict[str, Any]]:
    """Return for each registered attack that reads views of a model an entry of a job, quick where it can be."""
    chosen = dict((MODELS | HOLDERS | SHARED)[model])
    model_kind = chosen.pop("kind")
    complete = {"kind": model_kind, **MODEL_CLASSES.make(model_kind, chosen).parameters()}
    found = {}
    for kind, made in ATTACKS.classes().items():
        if made.reads_directions and "monotone" not in DATA.get(model, {}):
            continue
        parameters = {field.name: field for field in fields(made) if field.init}  # type: ignore[arg-type]
        given = {name: REQUIRED[name] for name, each in parameters.items() if each.default is MISSING}
        given |= {name: value for name, value in QUICK.items() if name in parameters}
        if made.attribute is not Attack.attribute:
            given["column"] = OF_NOBODY
        with contextlib.suppress(JobError):
            ATTACKS.make(kind, given).check_model(complete)
            found[kind] = {"kind": kind, **given}
    return found


def test_every_registered_attack_reads_views_of_some_model_here() -> None:
    assert set(ATTACKS.classes()) == {kind for model in MODELS | HOLDERS | SHARED for kind in entries(model)}


@pytest.mark.parametrize(
    "model", [each if each == "trees" else pytest.param(each, marks=pytest.mark.slow) for each in MODELS]
)
def test_every_registered_attack_reads_a_joined_view_or_says_why_not(
    job: Callable[..., Job], tmp_path: Path, model: str
) -> None:
    """In an audit in which both passive parties collude; an attack that cannot is refused with its reason."""
    asked = entries(model)
    encryption = {"engine": "plain", "insecure": True} if model in ("trees", "samples", "regression") else None
    sections = {"model": MODELS[model], "encryption": encryption, "defense": None, "run": {"seeds": [1]}}
    sections |= {"data": DATA[model]} if model in DATA else {}
    leakage = {"collude": ["telco", "shop"], "upper_bound": False}
    audited = [each for each in asked.values() if each.get("column") in (None, OF_NOBODY)]  # none has two values
    chosen = job(**sections, attack=audited, leakage=leakage)
    rows = audit(chosen, tmp_path / "out", explained=False, attackers=(TOGETHER,))
    colluding = {row.attack["kind"] for row in rows if row.party == TOGETHER and row.attack is not None}
    for kind, entry in asked.items():
        made = ATTACKS.make(kind, {name: value for name, value in entry.items() if name != "kind"})
        assert (kind in colluding) == (not made.alone)
        if made.alone:
            with refused(JobError, "unsupported", field="[[attack]] 1: collude", value=("telco", "shop")):
                with_defaults(job(**sections, attack=[{**entry, "collude": ["telco", "shop"]}]))
    for row in rows:
        if row.party == TOGETHER:
            assert row.leakage is not None
            assert row.leakage["primary"] in row.leakage


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS | HOLDERS | SHARED)
def test_an_audit_stores_what_every_registered_attack_finds(
    job: Callable[..., Job], tmp_path: Path, model: str
) -> None:
    asked = [each for each in entries(model).values() if each.get("column") in (None, OF_NOBODY)]  # two values: none
    sections: dict[str, Any] = {"model": (MODELS | HOLDERS | SHARED)[model], "defense": None, "run": {"seeds": [1]}}
    if model in ("sum", "top"):
        sections["encryption"] = None
    if model in DATA:
        sections["data"] = DATA[model]
    elif model == "holders":
        sections["data"] = {"table": "breast_cancer", "labels": {"active": 0.5, "telco": 0.5}}
    elif model == "pivot":
        sections["parties"] = {"active": 0.5, "telco": 0.5, "shop": 0.0}
    audit(job(**sections, attack=asked, leakage={"upper_bound": False}), tmp_path / "out", explained=False)
    rows = [row for row in read_rows(tmp_path / "out") if row.attack is not None]
    assert {each["kind"] for each in asked} <= {row.attack["kind"] for row in rows if row.attack}
    for row in rows:
        assert row.leakage is not None
        assert row.leakage["primary"] in row.leakage
        assert row.leakage["chance"].keys() <= row.leakage.keys()


@pytest.mark.parametrize("model", HOLDERS)
def test_no_coalition_is_of_parties_that_may_hold_labels(job: Callable[..., Job], model: str) -> None:
    """Whatever the attack; those that read no other model say so themselves."""
    sections, members = {"model": HOLDERS[model], "defense": None}, ("telco", "shop")
    for kind, entry in entries(model).items():
        made = ATTACKS.make(kind, {name: value for name, value in entry.items() if name != "kind"})
        assert made.alone or {*made.models} != {HOLDERS[model]["kind"]}
        with refused(JobError, "unsupported", field="[[attack]] 1: collude", value=members):
            with_defaults(job(**sections, attack=[{**entry, "collude": [*members]}]))
    with refused(JobError, "unsupported", field="[leakage] collude", value=members):
        with_defaults(job(**sections, leakage={"collude": [*members]}))


def test_a_stored_coalition_is_attacked_as_in_the_audit(
    colluding: tuple[Path, list[ResultRow]], tmp_path: Path
) -> None:
    """By the command with several folders, by the function, and by the scores of the audit."""
    out, rows = colluding
    views = [out / f"runs/none/1/{party}/view" for party in ("telco", "shop")]
    tables = [out / f"data/1/{party}.parquet" for party in ("telco", "shop")]
    guess = tmp_path / "guess.parquet"
    options = ["--attack", "id2graph", "--classes", "2", "--seed", "1", "--out", str(guess)]
    given = [option for table in tables for option in ("--features", str(table))]
    result = CliRunner().invoke(app, ["attack", *map(str, views), *given, *options])
    assert result.exit_code == 0, result.output
    assert TOGETHER in result.output
    scores = score_guess(guess, out / "data/1/truth.parquet")
    expected = next(row for row in rows if row.party == TOGETHER and row.attack and row.attack["kind"] == "id2graph")
    assert expected.leakage is not None
    assert scores["v_measure"] == expected.leakage["v_measure"]
    ids, found = labelward.attack(views[0], tables[0], "id2graph", classes=2, seed=1, colluding={views[1]: tables[1]})
    assert read_guess(guess).values.tolist() == found.values.tolist()
    assert read_guess(guess).ids == ids
    few = CliRunner().invoke(app, ["attack", *map(str, views), *given[:2], *options, "--force"])
    assert few.exit_code == 2
    with refused(JobError, "unsupported", field="attack 'active-completion'", value="active-completion"):
        labelward.attack(
            views[0],
            tables[0],
            "active-completion",
            classes=2,
            seed=1,
            parameters={"auxiliary": 20},
            colluding={views[1]: tables[1]},
        )
