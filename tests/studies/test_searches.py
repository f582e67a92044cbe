"""A study whose tasks are searches: what it stores, and what its page shows of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from labelward.job import TuneVariable
from labelward.report.study import StudyReport, write_study
from labelward.runs.private_seeds import stored_seeds
from labelward.studies import find_study
from labelward.studies.datasets import synthetic
from labelward.studies.run import run_study
from labelward.studies.searches import FIXED, POOLED, WITHIN, read_hypervolumes
from labelward.studies.spec import Study, StudyDataset
from labelward.tuning import ledger
from labelward.tuning.pareto import hypervolume

VARIABLES = (
    TuneVariable(name="model.trees", low=1, high=3),
    TuneVariable(name="model.learning_rate", low=0.01, high=0.5),
)


def tiny() -> Study:
    """The study of 3 evaluations on 150 rows, with two of its strategies."""
    study, models = find_study("cmosb"), {}
    for name in ("random", "mosb"):
        model = study.models[name]
        assert model.search is not None
        section = replace(model.search, evaluations=3, population=2, variables=VARIABLES)
        models[name] = replace(model, search=section)
    table = StudyDataset(name="synthetic1", title="Synthetic1", generate=partial(synthetic, 150, 2))
    parts = tuple(replace(part, models=tuple(models)) for part in study.parts)
    printed = {place: each for place, each in study.printed.items() if place[1].model in models}
    return replace(study, datasets=(table,), models=models, parts=parts, printed=printed, seeds=1, full=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("searches") / "study"
    assert not run_study(tiny(), out).failed
    return out


def test_hypervolumes_are_those_of_the_ledgers(folder: Path) -> None:
    points = {}
    for name in ("random", "mosb"):
        task = folder / "searches" / "synthetic1" / name / "0"
        lines = ledger.read_evaluations(task)
        points[name] = np.array([each.points[-1].values for each in lines])
    every = np.concatenate(list(points.values()))
    bounds = np.stack([every.min(axis=0), every.max(axis=0)])
    for name, own in points.items():
        found = read_hypervolumes(folder / "searches" / "synthetic1" / name / "0")
        assert found is not None
        assert found.final[POOLED] == pytest.approx(hypervolume(own, bounds), abs=1e-12)
        assert found.utility == pytest.approx(1 - own[:, 0].min(), abs=1e-12)
        assert set(found.history) == {FIXED, *WITHIN}
        for title, line in found.history.items():
            assert len(line) == 2  # three evaluations, two a generation
            assert sorted(line) == list(line)
            assert found.final[title] == line[-1] <= found.final[FIXED]


def test_searches_of_a_start_have_its_private_draws(folder: Path) -> None:
    start = stored_seeds(folder / "searches" / "synthetic1" / "start" / "0")
    assert start.keys() == {"active", "telco"}
    for name in ("random", "mosb"):
        assert stored_seeds(folder / "searches" / "synthetic1" / name / "0") == start


@pytest.mark.slow
def test_the_page_shows_fronts_and_generations(folder: Path) -> None:
    result = run_study(tiny(), folder)  # nothing is left to run
    report = StudyReport(result, folder)
    by_name = {section.part.name: section for section in report.sections}
    (table,) = by_name["table 4"].tables
    assert [cell.paper for cell in table.rows[1][1]] == ["", "0.920", ""]
    assert len(by_name["figure 6"].images) == 3
    assert len(by_name["figure 8"].images) == len(by_name["figure 9"].images) == 1
    assert len(by_name["figure 10"].tables) == len(by_name["figure 10"].images) == 2
    assert "Three sides" in write_study(report, folder).read_text(encoding="utf-8")


def test_a_page_of_searches_needs_no_library_of_theirs() -> None:
    code = "import labelward.report.study, sys; sys.exit(bool({'optuna', 'pymoo'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
