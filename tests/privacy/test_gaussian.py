"""Epsilon and delta of Gaussian noise against the definition, integrated numerically."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from blames import refused_about
from labelward.errors import JobError
from labelward.privacy.gaussian import composed, delta_of, epsilon_of, ratio_for

STEP = 0.004
POINTS = np.arange(-14.0, 18.0, STEP)


def density(mean: float) -> NDArray[np.float64]:
    return np.exp(-((POINTS - mean) ** 2) / 2) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0, 3.0])
def test_delta_is_what_e_to_epsilon_does_not_cover(epsilon: float, ratio: float) -> None:
    """Delta is the integral of the positive part of p - e^epsilon q; the sum's error is of the order of the step."""
    expected = np.clip(density(ratio) - math.exp(epsilon) * density(0.0), 0, None).sum() * STEP
    assert delta_of(epsilon, ratio) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.5])
@pytest.mark.parametrize("ratios", [(0.3, 0.4), (1.0, 1.0), (0.1, 2.0)])
def test_two_releases_tell_as_much_as_one_of_the_composed_ratio(epsilon: float, ratios: tuple[float, float]) -> None:
    """The same integral over both releases together."""
    coarse = slice(None, None, 10)
    first, second, none = (density(each)[coarse] for each in (*ratios, 0.0))
    both = np.outer(first, second) - math.exp(epsilon) * np.outer(none, none)
    expected = np.clip(both, 0, None).sum() * (10 * STEP) ** 2
    assert delta_of(epsilon, composed(ratios)) == pytest.approx(expected, abs=1e-4)  # of the coarser step


def test_many_releases_where_later_ones_depend_on_earlier_ones() -> None:
    """The second release's numbers move in a direction that the first one's outcome decides; its ratio stays."""
    step = 0.05
    grid = np.arange(-9.0, 9.0, step)

    def normal(mean: Any) -> NDArray[np.float64]:
        return np.exp(-((grid - mean) ** 2) / 2) / math.sqrt(2 * math.pi)

    sign = np.where(grid > 0.3, 1.0, -1.0)[:, None]
    p = normal(0.8)[:, None] * np.exp(-((grid[None, :] - 0.6 * sign) ** 2) / 2) / math.sqrt(2 * math.pi)
    q = normal(0.0)[:, None] * normal(0.0)[None, :]
    expected = np.clip(p - math.e * q, 0, None).sum() * step**2
    assert delta_of(1.0, composed([0.8, 0.6])) == pytest.approx(expected, abs=1e-3)  # of the step


def test_a_known_value() -> None:
    """The deviation for epsilon 1 and delta 1e-5 that Balle and Wang's mechanism is known for."""
    assert 1 / ratio_for(1.0, 1e-5) == pytest.approx(3.7306, abs=1e-4)


@given(epsilon=st.floats(0, 30), delta=st.floats(1e-12, 0.5))
@settings(deadline=None, max_examples=40)
def test_the_ratio_keeps_epsilon_and_delta_and_is_the_largest(epsilon: float, delta: float) -> None:
    ratio, rounding = ratio_for(epsilon, delta), 1e-15  # delta is a difference of numbers up to 1
    assert delta_of(epsilon, ratio) <= delta + rounding
    assert delta_of(epsilon, ratio * (1 + 1e-6)) > delta - rounding  # it stays 1e-9 below the largest
    assert epsilon_of(delta, ratio) == pytest.approx(epsilon, abs=1e-6 * (1 + epsilon))


def test_far_out_nothing_overflows() -> None:
    assert delta_of(1000.0, 0.5) == 0.0
    assert delta_of(0.0, 100.0) == 1.0
    assert delta_of(1.0, 0.0) == 0.0
    assert 4900 < epsilon_of(1e-5, 100.0) < 5500  # about ratio**2 / 2 + 4.3 ratio


@pytest.mark.parametrize("delta", [0, 1, -0.1, float("nan"), True, "1e-5", None])
def test_deltas_that_cannot_be(delta: Any) -> None:
    with refused_about("delta", JobError, "range" if type(delta) in (int, float) else "type"):
        ratio_for(1.0, delta)
