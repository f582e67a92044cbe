"""Noise from a key: its distributions, and that contexts decide on it and on nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from labelward.privacy.noise import KEY_BYTES, KeyedDraws, on_grid

KEY = bytes(range(KEY_BYTES))
COUNT = 200_000


def test_laplace_and_gaussian_noise_have_their_distributions() -> None:
    """The key is fixed, so that the p-values are, too."""
    laplace = KeyedDraws(KEY, b"laplace").laplace(COUNT, 0.3)
    gaussian = KeyedDraws(KEY, b"gaussian").gaussian(COUNT + 1, 2.0)
    assert stats.kstest(laplace, stats.laplace(scale=0.3).cdf).pvalue > 0.01
    assert stats.kstest(gaussian, stats.norm(scale=2.0).cdf).pvalue > 0.01
    assert len(gaussian) == COUNT + 1
    half = COUNT // 2  # both numbers of a pair come from one radius
    assert abs(np.corrcoef(gaussian[:half], gaussian[half + 1 : 2 * half + 1])[0, 1]) < 5 / math.sqrt(half)


def test_tails_are_finite() -> None:
    """The outermost words."""

    class Fixed(KeyedDraws):
        word = 0

        def words(self, count: int) -> Any:
            return np.full(count, self.word, dtype=np.uint64)

    for word, laplace, gaussian in ((0, 44.4, 9.49), (2**64 - 1, 0.0, 0.0)):
        draws = Fixed(KEY)
        draws.word = word
        assert abs(draws.laplace(1, 1.0)[0]) == pytest.approx(laplace, abs=0.1)
        assert abs(draws.gaussian(2, 1.0)).max() == pytest.approx(gaussian, abs=0.01)


def test_equal_contexts_give_equal_noise_and_others_do_not() -> None:
    first = KeyedDraws(KEY, b"a", b"bc")
    values = first.laplace(50, 1.0)
    assert np.array_equal(values, KeyedDraws(KEY, b"a", b"bc").laplace(50, 1.0))
    others = [first, KeyedDraws(KEY, b"ab", b"c"), KeyedDraws(KEY, b"a"), KeyedDraws(KEY[::-1], b"a", b"bc")]
    for other in others:
        assert not np.isin(other.laplace(50, 1.0), values).any()
    with pytest.raises(ValueError, match="32 bytes"):
        KeyedDraws(b"short")


def test_orders_are_orders() -> None:
    """All six orders of three numbers, about equally often: within five deviations of 1,000."""
    draws = KeyedDraws(KEY)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        order = tuple(draws.order(3).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(abs(count - 1000) < 150 for count in counts.values())


@given(noise=st.floats(1e-9, 1e6), values=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5))
@settings(deadline=None)
def test_a_grid_depends_on_the_noise_alone(noise: float, values: list[float]) -> None:
    step = 2.0 ** math.floor(math.log2(noise / 4096))
    rounded = on_grid(np.array(values), noise)
    assert noise / 8192 < step <= noise / 4096
    assert np.array_equal(rounded, np.round(rounded / step) * step)
    assert (np.abs(rounded - values) <= step / 2).all()
