"""The leakage meter within jobs: recomputed from stored views, in run.json, live, in the report; budgets that hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelward.auditing.audit import audit
from labelward.data import load_dataset, load_tables
from labelward.errors import Code, JobError, PolicyError
from labelward.federation.components import with_defaults
from labelward.federation.leakage_monitor import measure_view
from labelward.federation.simulation import VIEW
from labelward.federation.train import train_variant
from labelward.job import Job
from labelward.party.view import View
from labelward.report.page import write_report
from labelward.runs.schema import ResultRow, RunDetails, read_run, run_folder
from refusals import refused

Jobs = Callable[..., Job]
Finished = tuple[Path, list[ResultRow]]


def run_of(out: Path, defense: list[dict[str, Any]], seed: int = 1) -> RunDetails:
    found = read_run(out, defense, seed)
    assert found is not None
    return found


@pytest.mark.slow
def test_the_last_reading_is_that_of_the_stored_view(job: Jobs, finished: Finished) -> None:
    out, rows = finished
    wanted = with_defaults(job())
    source = load_tables(wanted)
    for row in rows:
        labels = load_dataset(wanted, row.seed, source).train_labels
        run = run_of(out, list(row.defense), row.seed)
        folder = run_folder(out, row.defense, row.seed)
        assert set(run.meter) == {"telco", "shop"}
        for party, readings in run.meter.items():
            assert [each.trees for each in readings] == [1, 2]
            found = measure_view(View.load(folder / party / VIEW), labels, seed=row.seed)
            last = readings[-1]
            assert (last.v_measure, last.communities, last.groups) == (
                found.v_measure,
                found.communities,
                found.groups,
            )
    assert run_of(out, []).meter["telco"][-1].v_measure > 0.2
    assert "leakage meter" in run_of(out, []).phases["active"]


def test_the_meter_is_no_defense(finished: Finished) -> None:
    out, _ = finished
    assert run_of(out, []).applied == ()


def test_without_the_meter_views_are_the_same(job: Jobs, finished: Finished, tmp_path: Path) -> None:
    out, _ = finished
    bare = job(leakage={"meter": False}, defense=None, run={"seeds": [1]})
    audit(bare, tmp_path / "bare")
    run = run_of(tmp_path / "bare", [])
    assert run.meter == {}
    assert "leakage meter" not in run.phases["active"]
    for party in ("active", "telco", "shop"):
        views = [View.load(run_folder(folder, [], 1) / party / VIEW) for folder in (out, tmp_path / "bare")]
        assert views[0].digest() == views[1].digest()


@pytest.mark.parametrize(
    "model",
    [
        {"trees": 3, "depth": 4},
        pytest.param({"kind": "forest", "trees": 3, "depth": 4}, marks=pytest.mark.slow),
    ],
)
def test_a_budget_holds_in_every_variant(job: Jobs, tmp_path: Path, model: dict[str, Any]) -> None:
    defense = [{"kind": "local-trees", "mode": "add"}] if "kind" not in model else None
    small = job(leakage={"budget": 0.2}, model=model, defense=defense, attack=None, run={"seeds": [1]})
    rows = audit(small, tmp_path / "audit")
    source = load_tables(with_defaults(small))
    labels = load_dataset(with_defaults(small), 1, source).train_labels
    for row in rows:
        run = run_of(tmp_path / "audit", list(row.defense))
        account = run.applied[-1]
        assert (account["kind"], account["budget"]) == ("leakage-budget", 0.2)
        assert account["refused_candidates"] > 0
        assert "readings" not in account
        for party, readings in run.meter.items():
            view = View.load(run_folder(tmp_path / "audit", row.defense, 1) / party / VIEW)
            assert measure_view(view, labels, seed=1).v_measure == readings[-1].v_measure <= 0.2
    text = write_report(tmp_path / "audit").read_text()
    assert "leakage-budget" in text


def test_a_budget_for_quantities_counts_bins(job: Jobs, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    y = x.sum(axis=1) + 0.1 * rng.normal(size=200)
    table = tmp_path / "table.csv"
    lines = [",".join(map(repr, [*map(float, row), float(value)])) for row, value in zip(x, y, strict=True)]
    table.write_text("\n".join(["a,b,c,d,y", *lines]) + "\n")
    parties = {"active": ["a"], "telco": ["b", "c", "d"]}
    model = {"trees": 3, "depth": 3}
    data = {"table": str(table), "label": "y", "task": "regression"}
    for leakage in ({}, {"budget": 0.15}):
        out = tmp_path / f"audit{len(leakage)}"
        audit(
            job(
                data=data, parties=parties, model=model, leakage=leakage, defense=None, attack=None, run={"seeds": [1]}
            ),
            out,
        )
        last = run_of(out, []).meter["telco"][-1].v_measure
        assert (last <= 0.15) == bool(leakage)


def test_progress_and_report_tell_of_the_meter(job: Jobs, finished: Finished, tmp_path: Path) -> None:
    out, _ = finished
    heard: list[tuple[str, int, int, str]] = []
    train_variant(job(defense=None), tmp_path / "model", seed=1, watch=lambda *news: heard.append(news))
    assert [news[0] for news in heard if news[0].startswith("leakage")] == ["leakage telco", "leakage shop"] * 2
    text = write_report(out).read_text()
    words = re.findall(r'<img src="data:image/svg[^"]*" alt="([^"]*)"', text)
    words = [each for each in words if "over trees" in each]
    assert len(words) == 2
    assert all("over trees (1, 2): no defense 0." in each and "local-trees" in each for each in words)
    assert "Known to telco" in text


@pytest.mark.parametrize(
    ("leakage", "code", "field", "value"),
    [
        ({"budget": 1.5}, "range", "[leakage] budget", 1.5),
        ({"budget": -0.1}, "range", "[leakage] budget", -0.1),
        ({"budget": True}, "type", "[leakage] budget", True),
        ({"budget": "0.3"}, "type", "[leakage] budget", "0.3"),
        ({"meter": 1}, "type", "[leakage] meter", 1),
        ({"budget": 0.3, "meter": False}, "conflict", "[leakage] budget", 0.3),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    job: Jobs, leakage: dict[str, Any], code: Code, field: str, value: object
) -> None:
    with refused(JobError, code, field=field, value=value):
        job(leakage=leakage)


def test_a_budget_beside_label_dp_is_refused_before_anything_is_written(job: Jobs, tmp_path: Path) -> None:
    noisy = job(leakage={"budget": 0.3}, defense=[{"kind": "randomized-response", "epsilon": 1.0}])
    with refused(PolicyError, "inapplicable", value="leakage-budget"):
        audit(noisy, tmp_path / "audit")
    assert not (tmp_path / "audit").exists()
