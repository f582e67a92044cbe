"""Fronts and hypervolumes against an implementation that only enumerates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.tuning.pareto import front_of, hypervolume, hypervolumes, pooled_bounds, ranks_of

Points = NDArray[np.float64]


def generated(number: int) -> Points:
    """Up to 50 points with ties, duplicates, and points outside the unit box."""
    rng = np.random.default_rng(number)
    points = rng.uniform(-0.2, 1.3, (rng.integers(1, 51), 2 + number % 2))
    points = np.round(points, rng.integers(1, 4))
    return points[rng.integers(0, len(points), len(points))]


def dominated(point: Points, others: Points) -> bool:
    return bool(((others <= point).all(axis=1) & (others < point).any(axis=1)).any())


def volume(points: Points) -> float:
    """Slab by slab of the last objective, within the unit box."""
    inside = np.clip(points[(points < 1.0).all(axis=1)], 0.0, None)
    if not len(inside):
        return 0.0
    if inside.shape[1] == 1:
        return float(1.0 - inside.min())
    levels = np.unique(np.append(inside[:, -1], 1.0))
    slabs = itertools.pairwise(levels)
    return float(sum((high - low) * volume(inside[inside[:, -1] <= low, :-1]) for low, high in slabs))


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_front_and_hypervolume_are_those_of_enumeration(first: int) -> None:
    for number in range(first, first + 20):
        points = generated(number)
        bounds = np.array([[0.0], [1.0]]).repeat(points.shape[1], axis=1)
        kept = front_of(points)
        wanted = [at for at, point in enumerate(points) if not dominated(point, points)]
        assert {tuple(points[at]) for at in kept} == {tuple(points[at]) for at in wanted}
        assert len({tuple(points[at]) for at in kept}) == len(kept)
        assert (ranks_of(points)[wanted] == 0).all()
        assert abs(hypervolume(points, bounds) - volume(points)) < 1e-12
        steps = hypervolumes(points, bounds)
        assert abs(steps[-1] - volume(points)) < 1e-12
        assert abs(steps[len(points) // 2] - volume(points[: len(points) // 2 + 1])) < 1e-12


def test_bounds_scale_the_box() -> None:
    points = np.array([[1.0, 20.0], [2.0, 10.0]])
    assert hypervolume(points, np.array([[0.0, 0.0], [4.0, 40.0]])) == pytest.approx(0.375 + 0.125)
    assert pooled_bounds([points, np.array([[0.0, 50.0]])]).tolist() == [[0.0, 10.0], [2.0, 50.0]]


def test_nothing_has_no_front() -> None:
    assert front_of(np.empty((0, 3))).tolist() == []
    assert hypervolumes(np.empty((0, 3)), np.array([[0.0] * 3, [1.0] * 3])) == []
