"""Expected improvement: reaches in directions are the hypervolume, and what settings promise is as it turns out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.tuning.improvement import Surrogate, confidence, directions, reaches
from labelward.tuning.pareto import hypervolume

Rows = NDArray[np.float64]


def box(objectives: int) -> Rows:
    return np.stack([np.zeros(objectives), np.ones(objectives)])


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_the_mean_reach_is_the_hypervolume(objectives: int) -> None:
    """But for a constant: the volume of the part of the unit ball where all coordinates are positive."""
    rng = np.random.default_rng(1)
    along = directions(200_000, objectives, rng)
    assert np.allclose(np.linalg.norm(along, axis=1), 1)
    assert (along > 0).all()
    constant = {1: 1.0, 2: np.pi / 4, 3: np.pi / 6, 4: np.pi**2 / 32}[objectives]
    for _ in range(5):
        points = rng.uniform(-0.2, 1.2, (rng.integers(1, 8), objectives))
        exact = hypervolume(points, box(objectives))
        assert constant * np.maximum(reaches(points, along), 0.0).mean() == pytest.approx(exact, abs=0.005)


def test_what_several_trainings_reach_is_what_their_points_together_reach() -> None:
    rng = np.random.default_rng(2)
    along = directions(50, 3, rng)
    sets = [rng.random((count, 3)) for count in (1, 4, 9)]
    together = reaches(np.concatenate(sets), along)
    assert np.array_equal(together, np.max([reaches(each, along) for each in sets], axis=0))


def test_what_lies_beyond_the_bounds_reaches_less_the_farther_it_lies() -> None:
    along = directions(20, 3, np.random.default_rng(3))
    near, far, inside = (reaches(np.array([[0.5, 0.5, last], [0.5, 3.0, last]]), along) for last in (1.1, 1.5, 0.9))
    assert near == pytest.approx(np.full(20, -0.1))
    assert far == pytest.approx(np.full(20, -0.5))
    assert (inside > 0).all()
    assert (reaches(np.array([[np.inf, 0.0, 1e300]]), along) == reaches(np.array([[1e6, 0.0, 1e6]]), along)).all()


def made(rng: np.random.Generator, count: int, noise: float) -> tuple[Rows, Rows]:
    """Return settings of three variables and what they reach in two directions, a mean of two variables each."""
    places = rng.random((count, 3))
    return places, (places[:, :2] + places[:, 1:]) / 2 + noise * rng.standard_normal((count, 2))


def test_expected_reaches_are_near_those_of_a_smooth_function() -> None:
    """But for those that are raised, since the best is nearer to the median than they are."""
    rng = np.random.default_rng(4)
    known, reached = made(rng, 40, 0.01)
    new, truth = made(rng, 200, 0.0)
    floor = 2 * np.median(reached, axis=0) - reached.max(axis=0)
    assert np.abs(Surrogate(known, reached).expected(new) - np.maximum(truth, floor)).mean() < 0.03


@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.slow), 1000.0])
@pytest.mark.parametrize(
    ("noise", "ahead"),
    [(0.1, 6), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0.02, 10), (0.3, 2.5), (0.6, 1.7)))],
)
def test_the_expected_improvement_is_that_of_outcomes(noise: float, ahead: float, scale: float) -> None:
    """Over 300 tables of 20 settings: the most promising one adds as much as it promised, and more than others."""
    rng, hoped, gained, random = np.random.default_rng(5), list[float](), list[float](), list[float]()
    for _ in range(300):
        known, reached = made(rng, 20, noise)
        places, outcomes = made(rng, 100, noise)
        promise = Surrogate(known, scale * reached).improvement(places) / scale
        assert (promise >= 0).all()
        gains = np.maximum(outcomes - reached.max(axis=0), 0.0).mean(axis=1)
        best = int(promise.argmax())
        hoped.append(float(promise[best]))
        gained.append(float(gains[best]))
        random.append(float(gains.mean()))
    assert np.mean(gained) > ahead * np.mean(random)
    assert 0.4 < np.mean(hoped) / np.mean(gained) < 1.5


def test_a_setting_that_is_good_by_itself_adds_less_where_others_are_as_good() -> None:
    """Of two directions the first is served by settings at the left, the second has nobody: the right is promising."""
    rng = np.random.default_rng(6)
    known = np.stack([np.linspace(0.0, 0.6, 12), rng.random(12)], axis=1)
    rows = np.stack([1.0 - known[:, 0] ** 2, 0.2 * known[:, 0]], axis=1)
    new = np.array([[0.05, 0.5], [0.9, 0.5]])
    promise = Surrogate(known, rows).improvement(new)
    assert promise[1] > 1.3 * promise[0]
    alone = Surrogate(known, rows).expected(new).mean(axis=1)
    assert alone[0] > alone[1]


def test_luck_is_part_of_what_is_promised() -> None:
    """Where outcomes are nothing but luck, a setting like known ones promises about what a draw of them adds."""
    rng = np.random.default_rng(11)
    known, reached = rng.random((40, 3)), rng.standard_normal((40, 1))
    draws = np.maximum(reached.std() * rng.standard_normal(100_000) + reached.mean() - reached.max(), 0.0).mean()
    promise = Surrogate(known, reached).improvement(known + 1e-3)
    assert draws / 3 < promise.mean() < 3 * draws


def test_a_kernel_counts_by_its_likelihood() -> None:
    """A function that changes fast is expected to be as it is at places nearby, not as it is all around."""
    places = np.linspace(0.0, 1.0, 40)[:, None]
    between = (places[:-1] + places[1:]) / 2
    for truth, far in ((lambda x: np.sin(9 * x), 0.15), (lambda x: x, 0.01)):
        exact, reached = truth(between), truth(places)
        found = Surrogate(places, reached).expected(between)
        assert np.abs(found - exact)[exact > np.median(reached)].mean() < far


def test_confidence_is_larger_where_less_is_known() -> None:
    """Of two settings of which the same is expected, between good and bad ones."""
    known = np.array([[0.0, 0.0], [0.1, 0.0], [0.2, 0.0], [0.3, 0.0], [0.4, 0.0]])
    reached = np.array([[0.0, 1.0], [0.3, 0.8], [0.5, 0.5], [0.7, 0.2], [1.0, 0.0]])
    reached = np.tile(reached + np.array([[0.0], [1.0], [0.0], [-1.0], [0.0]]), 4)
    near, far = confidence(known, reached, np.array([[0.2, 0.0], [0.2, 2.0]]))
    assert far > near + 0.5


def test_confidence_follows_what_all_directions_reach() -> None:
    known = np.linspace(0.0, 1.0, 9)[:, None]
    reached = np.concatenate([known, 1.0 - 3 * known], axis=1)
    low, high = confidence(known, reached, np.array([[0.1], [0.9]]))
    assert low > high + 1


@pytest.mark.parametrize("rows", [np.full((6, 4), 0.5), np.full((6, 4), -3.0)])
def test_outcomes_all_alike_are_no_error(rows: Rows) -> None:
    """So are trainings that were all refused."""
    known = np.random.default_rng(8).random((6, 3))
    for found in (Surrogate(known, rows).improvement(known + 0.1), confidence(known, rows, known + 0.1)):
        assert np.isfinite(found).all()


def test_one_bad_outcome_does_not_hide_what_the_others_tell() -> None:
    """A training far beyond the bounds counts as if it were as far below the median as the best is above."""
    rng = np.random.default_rng(9)
    known, reached = made(rng, 30, 0.01)
    new, truth = made(rng, 100, 0.0)
    for bad in (1, 20):
        spoiled = reached.copy()
        spoiled[:bad] = -50.0
        error = Surrogate(known, spoiled).expected(new) - truth
        assert np.median(np.abs(error)) < (0.05 if bad == 1 else 0.3)
