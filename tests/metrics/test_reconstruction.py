"""Reconstruction advantage: known answers, errors, and the axis of epsilon."""

from __future__ import annotations

import numpy as np
import pytest

from labelward.metrics.reconstruction import reconstruction_advantages, right_rows


def test_clusters_get_the_best_names_one_to_one() -> None:
    truth = np.array([0, 0, 0, 1, 1, 2])
    assert right_rows(np.array([7, 7, 3, 3, 3, 9]), truth, named=False).tolist() == [
        True,
        True,
        False,
        True,
        True,
        True,
    ]
    assert right_rows(np.arange(6), truth, named=False).sum() == 3  # one cluster for each class
    assert right_rows(np.array([1, 0, 0, 1, 0, 2]), truth, named=True).tolist() == [
        False,
        True,
        True,
        True,
        False,
        True,
    ]


def test_known_advantages() -> None:
    truth = np.repeat([0, 1], [60, 20])
    view, blind, worse = np.ones((3, 80), dtype=bool)
    view[:6], blind[:30], worse[:] = False, False, False
    (found,) = reconstruction_advantages([view], [worse, blind], truth, rng=np.random.default_rng(0))
    assert (found.accuracy, found.without_view) == pytest.approx((0.95, 0.75))
    assert found.additive == pytest.approx(0.2)
    assert found.multiplicative == pytest.approx(np.log(19) - np.log(3))
    # The recall of class 0 differs in 24 of 60 rows, and weighs half.
    assert found.additive_error == pytest.approx(0.5 * np.sqrt(0.4 * 0.6 / 60), rel=0.2)


def test_a_perfect_attack_has_a_finite_advantage() -> None:
    truth = np.arange(100) % 2
    (found,) = reconstruction_advantages([truth == truth], [truth == 0], truth, rng=np.random.default_rng(0))
    assert found.additive == pytest.approx(0.5)
    assert found.multiplicative == pytest.approx(np.log(199))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomized_response_stays_below_its_epsilon(epsilon: float) -> None:
    """The optimal attackers with and without the noisy labels; rows differ in how sure their labels are."""
    rng = np.random.default_rng(3)
    share = rng.uniform(0.05, 0.95, size=200_000)
    truth = (rng.random(len(share)) < share).astype(np.int64)
    keep = 1 / (1 + np.exp(-epsilon))
    noisy = np.where(rng.random(len(truth)) < keep, truth, 1 - truth)
    likely = np.log(share / (1 - share)) + epsilon * (2 * noisy - 1) > 0
    (found,) = reconstruction_advantages([likely == truth], [(share > 0.5) == truth], truth, rng=rng)
    assert 0 < found.multiplicative <= epsilon + 3 * found.multiplicative_error
