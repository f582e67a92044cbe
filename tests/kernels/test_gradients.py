"""Filters of gradients against slow references."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelward.kernels.gradient_compression import keep_largest, nearest_level, top_k_count

NUMBERS = st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0]), min_size=2, max_size=24)


@given(values=NUMBERS, share=st.floats(0.01, 0.99))
def test_the_largest_are_kept_and_of_equal_ones_the_first(values: list[float], share: float) -> None:
    count = top_k_count(share, len(values))
    order = sorted(range(len(values)), key=lambda place: (-abs(values[place]), place))
    taken = keep_largest(np.array(values).reshape(-1, 1), count)
    assert taken.shape == (len(values), 1)
    assert np.flatnonzero(taken).tolist() == sorted(order[:count])


@pytest.mark.parametrize(
    ("share", "size", "count"), [(0.1, 320, 32), (0.75, 320, 240), (0.7, 10, 7), (0.99, 4, 3), (0.1, 4, 0)]
)
def test_a_share_is_rounded_down(share: float, size: int, count: int) -> None:
    assert top_k_count(share, size) == count


@given(count=st.integers(0, 500), size=st.integers(1, 500))
def test_a_share_that_is_a_whole_number_of_values_is_that_number(count: int, size: int) -> None:
    assert top_k_count(count / size, size) == min(count, size - 1)


@given(value=st.floats(-5, 5), origin=st.floats(-1, 1), step=st.sampled_from([0.125, 0.5, 2.0]))
def test_no_step_is_nearer(value: float, origin: float, step: float) -> None:
    found = float(nearest_level(np.array([value]), origin, step)[0])
    steps = (Fraction(found) - Fraction(origin)) / Fraction(step)
    assert abs(steps - round(steps)) < 1e-9  # the sum is rounded
    assert abs(found - value) <= step / 2 + 1e-12
