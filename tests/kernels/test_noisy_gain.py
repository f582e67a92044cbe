"""Splits and weights under noise of a known deviation: what is known exactly holds, and noise gains nothing."""

from __future__ import annotations

import numpy as np
import pytest

from labelward.kernels.gain import GainRule, leaf_weights
from labelward.kernels.noisy_gain import SumNoise, best_noisy_splits
from labelward.kernels.row_layout import FixedPointScales, RowLayout, choose_scales
from labelward.kernels.split_candidates import candidates

NUMBERS = RowLayout(outputs=1, hessians=1)
SCALES: FixedPointScales = choose_scales(np.zeros((0, 1)), np.zeros((0, 1)), 30, bounded=True)
RULE = GainRule(reg_lambda=1.0)
BINS = 32


def sums_of(counts: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Return int64 [1, nodes, bins, 3] of rows with hessian ¼."""
    fixed = [np.rint(gradients * SCALES.g), np.rint(counts / 4 * SCALES.h), counts]
    return np.stack(fixed, axis=-1).astype(np.int64)[None]


def found(sums: np.ndarray, totals: np.ndarray, deviation: float) -> tuple[np.ndarray, np.ndarray]:
    noise = SumNoise(deviation, BINS)
    whole, variance = noise.reconciled(sums, totals, NUMBERS, SCALES)
    offered = candidates(whole, totals, NUMBERS, SCALES, RULE, kinds=np.zeros(1, np.int8))
    best = best_noisy_splits(offered, totals, NUMBERS, SCALES, RULE, noise=noise, variance=variance[0])
    return best.gain, best.candidate


def test_bins_lie_within_their_counts_and_add_up_to_the_node() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 40, size=(200, BINS)) * (rng.random((200, BINS)) < 0.7)
    exact = sums_of(counts, counts * rng.uniform(-0.3, 0.3, size=(200, 1)))
    noisy = exact.copy()
    noisy[..., 0] += np.rint(rng.normal(size=counts.shape) * 5 * SCALES.g).astype(np.int64)
    totals = exact[0].sum(axis=1)
    whole, variance = SumNoise(5.0, BINS).reconciled(noisy, totals, NUMBERS, SCALES)
    error, before = (np.abs((each - exact)[0, ..., 0].sum(axis=1)).mean() for each in (whole, noisy))
    assert error < before / 2
    assert not whole[0, ..., 0][counts == 0].any()
    np.testing.assert_array_equal(whole[..., 1:], exact[..., 1:])
    np.testing.assert_allclose(variance[0], 25 * (counts > 0).sum(axis=1) / 4)
    apart = np.abs((whole - exact)[0, ..., 0]).mean() / SCALES.g
    assert apart < 5 * np.sqrt(2 / np.pi)  # no worse than the noise itself


def test_a_column_with_missing_values_is_not_made_to_add_up() -> None:
    exact = sums_of(np.full((1, BINS), 50), np.zeros((1, BINS)))
    totals = exact[0].sum(axis=1) + np.array([[int(30 * SCALES.g), 0, 40]])
    whole, _ = SumNoise(1.0, BINS).reconciled(exact, totals, NUMBERS, SCALES)
    np.testing.assert_array_equal(whole, exact)


def test_noise_favors_no_small_nodes() -> None:
    """A clear split in the middle of 3,200 rows, and noise that makes raw gains of the smallest sides the largest."""
    rng, chosen = np.random.default_rng(1), []
    counts = np.full((1, BINS), 100)
    counts[0, -4:] = 3
    exact = sums_of(counts, counts * np.where(np.arange(BINS) < 14, 0.15, -0.15))
    totals = exact[0].sum(axis=1)
    for _ in range(100):
        noisy = exact.copy()
        noisy[..., 0] += np.rint(rng.normal(size=counts.shape) * 13 * SCALES.g).astype(np.int64)
        chosen.append(int(found(noisy, totals, 13.0)[1][0]))
    assert np.mean(np.abs(np.array(chosen) - 13) <= 3) > 0.9


def test_noise_alone_gains_a_fraction_of_what_it_would() -> None:
    rng, gains = np.random.default_rng(2), []
    counts = np.full((1, BINS), 20)
    for _ in range(50):
        noisy = sums_of(counts, rng.normal(size=counts.shape) * 13)
        totals = sums_of(counts, np.zeros_like(counts))[0].sum(axis=1)
        raw = candidates(noisy, totals, NUMBERS, SCALES, RULE, kinds=np.zeros(1, np.int8)).left[0, 0]
        g, h = raw[:-1, 0] / SCALES.g, raw[:-1, 1] / SCALES.h
        plain = (g**2 / (h + 1) + g**2 / (totals[0, 1] / SCALES.h - h + 1)).max()
        gains.append(max(found(noisy, totals, 13.0)[0][0], 0) / plain)
    assert np.mean(gains) < 0.3


def test_without_noise_it_is_the_exact_search() -> None:
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 40, size=(30, BINS))
    sums = sums_of(counts, counts * rng.uniform(-0.9, 0.9, size=counts.shape))
    totals = sums[0].sum(axis=1)
    gain, candidate = found(sums, totals, 1e-9)
    g, h = sums[0, ..., 0].cumsum(axis=1) / SCALES.g, sums[0, ..., 1].cumsum(axis=1) / SCALES.h
    whole = g[:, -1:] ** 2 / (h[:, -1:] + 1)
    exact = (g**2 / (h + 1) + (g[:, -1:] - g) ** 2 / (h[:, -1:] - h + 1) - whole)[:, :-1]
    np.testing.assert_allclose(gain, exact.max(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(candidate, exact.argmax(axis=1))


@pytest.mark.parametrize(("deviation", "factor"), [(0.0, 1.0), (10.0, 51 / (50 + 1 + 100 * 8 / 50))])
def test_weights_shrink_with_the_noise(deviation: float, factor: float) -> None:
    totals = np.array([[int(-20 * SCALES.g), int(50 * SCALES.h), 200]])
    plain = leaf_weights(totals, NUMBERS, SCALES, RULE, 0.3)[:, 0]
    shrunk = SumNoise(deviation, BINS).shrunk(plain, np.array([50.0]), 1.0)
    np.testing.assert_allclose(shrunk, plain * factor)
    assert SumNoise(deviation or 1.0, BINS).shrunk(plain, np.zeros(1), 1.0) == 0
