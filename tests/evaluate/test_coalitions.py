"""Coalitions of passive parties: who attacks together, what they know, and where it is reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labelward.auditing.audit import audit
from labelward.errors import JobError
from labelward.federation.components import attacking_parties, check_job, with_defaults
from labelward.job import Job
from labelward.report.page import write_report
from labelward.runs.schema import ResultRow, read_run
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


def test_an_entry_has_a_party_or_a_coalition_and_each_attack_runs_once(job: Callable[..., Job]) -> None:
    both = {"kind": "id2graph", "party": "telco", "collude": ["telco", "shop"]}
    with refused(JobError, "conflict", field="[[attack]] 1: party", value="telco"):
        with_defaults(job(attack=[both]))
    twice = [{"kind": "id2graph"}, {"kind": "id2graph", "collude": ["telco", "shop"]}]
    made = with_defaults(job(attack=twice, leakage={"collude": ["telco", "shop"]}))
    with refused(JobError, "duplicate", field="[[attack]] 2"):
        check_job(made)
    check_job(with_defaults(job(attack=twice)))
