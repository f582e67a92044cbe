"""Fidelity: settings are trained on few rows first, and what adds most to the front there on all rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import hearing, without_trainings

from labelward.job import Job
from labelward.tuning.ledger import Evaluation
from labelward.tuning.pareto import hypervolume
from labelward.tuning.tune import TuneResult, tune

Small = Callable[..., Job]
UNIT = np.array([[0.0] * 3, [1.0] * 3])


def test_a_fidelity_trains_on_fewer_rows(small: Small, tmp_path: Path) -> None:
    found = tune(small(fidelity=[0.5, 1.0], evaluations=5, search="random"), out=tmp_path / "out")
    shares = [each.share for each in found.evaluations]
    assert set(shares) == {0.5, 1.0}
    assert sum(shares) <= 5
    assert {repr(each.setting) for each in found.front} <= {
        repr(setting) for each in found.evaluations if each.share == 1.0 for setting, _ in each.compared()
    }


@pytest.mark.parametrize("search", ["random", "tpe", "nsga2"])
def test_a_fidelity_ends_where_the_rest_of_the_budget_is_too_small(
    search: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trainings(monkeypatch.setattr)
    found = tune(small(fidelity=[0.33, 1.0], evaluations=8, search=search, population=3), out=tmp_path / "out")
    few, whole = ([each for each in found.evaluations if each.share == share] for share in (0.33, 1.0))
    pays = 0.33 * len(few) + len(whole)
    assert 7.0 < pays <= 8.0
    assert len(whole) >= len(few) / 2  # nothing is trained on few rows in vain
    assert len({varied(each) for each in (*few, *whole)}) > len(
        {varied(each) for each in few}
    )  # the last ones on all rows at once


def test_a_search_hears_of_the_share_that_all_settings_have(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On fewer rows trees cost less: settings that were passed over would seem the better ones."""
    heard = hearing(monkeypatch.setattr)
    found = tune(small(fidelity=[0.5, 1.0], evaluations=6, search="random"), out=tmp_path / "out").evaluations
    few = [each for each in found if each.share == 0.5]
    assert len(few) == 4
    for told, each in zip(heard[:4], few, strict=True):
        assert told.values in [point.values for point in each.points]
    cost = {varied(each): each.points[-1].values[1] for each in found if each.share == 1.0}
    assert any(cost[varied(each)] > each.points[-1].values[1] for each in few if varied(each) in cost)


def test_few_rows_are_attacked_after_powers_of_two_only(small: Small, tmp_path: Path) -> None:
    """An attack on each of the first trees takes longer than the training."""
    variables = [{"name": "model.trees", "low": 1, "high": 6}, {"name": "model.depth", "low": 1, "high": 3}]
    found = tune(small(variables=variables, fidelity=[0.5, 1.0], evaluations=5, search="random"), out=tmp_path / "out")
    lengths = {share: {len(each.points) for each in found.evaluations if each.share == share} for share in (0.5, 1.0)}
    assert lengths == {0.5: {3}, 1.0: {6}}
    few = next(each for each in found.evaluations if each.share == 0.5)
    assert [setting["model.trees"] for setting, _ in few.compared()] == [1, 2, 4]
    assert few.setting["model.trees"] == 4  # no more are trained


@pytest.mark.parametrize("keys", [{}, {"constraints": {"leakage": 0.5}}, {"constraints": {"cost": 1e-9}}])
def test_what_adds_most_is_trained_on_more_rows(
    keys: dict[str, Any], small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trainings(monkeypatch.setattr)
    job = small(fidelity=[0.5, 1.0], evaluations=15, search="random", sections={"run": {"seeds": [2]}}, **keys)
    found = tune(job, out=tmp_path / "out").evaluations
    few = [each for each in found if each.share == 0.5]
    whole = [varied(each) for each in found if each.share == 1.0]
    limit = keys.get("constraints", {})

    def volume(evaluations: list[Evaluation]) -> float:
        values = np.array([each.points[0].values for each in evaluations]).reshape(-1, 3)
        within = (values[:, 1] <= limit.get("cost", 1.0)) & (values[:, 2] <= limit.get("leakage", 1.0))
        return hypervolume(values[within], UNIT) if within.any() else 0.0

    def beyond(each: Evaluation) -> float:
        _, cost, leakage = each.points[0].values
        values = {"cost": cost, "leakage": leakage}
        return sum(max(0.0, values[name] / most - 1.0) for name, most in limit.items())

    decided, later, gone, waiting = 0, 0, list[Evaluation](), list[Evaluation]()
    by_setting = {varied(each): each for each in few}
    for number in range(0, len(few), 4):  # the search asks for four at a time
        batch = few[number : number + 4]
        waiting += batch
        while len(gone) < (min(number + 4, len(few)) + 1) // 2:
            gains = {varied(each): (-volume([*gone, each]), beyond(each)) for each in waiting}
            chosen = by_setting[whole[len(gone)]]
            assert gains[varied(chosen)] == min(gains.values())
            decided += len(set(gains.values())) > 1
            later += chosen not in batch
            gone.append(chosen)
            waiting.remove(chosen)
    assert len(waiting) <= 8  # all that were passed over
    assert decided >= 3
    assert later > 0 or keys


def test_only_what_was_trained_on_a_share_goes_to_the_next(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_trainings(monkeypatch.setattr)
    job = small(fidelity=[0.2, 0.5, 1.0], evaluations=40, search="nsga2", population=8)
    result = tune(job, out=tmp_path / "out")
    of = {share: settings_of(result, share) for share in (0.2, 0.5, 1.0)}
    assert of[1.0] & of[0.2] < of[0.5] < of[0.2]  # the last ones are trained on all rows at once


def settings_of(result: TuneResult, share: float) -> set[str]:
    return {varied(each) for each in result.evaluations if each.share == share}


def varied(evaluation: Evaluation) -> str:
    """Return what the search varies of a setting: fewer rows have fewer trees."""
    return repr(sorted((name, value) for name, value in evaluation.setting.items() if name != "model.trees"))
