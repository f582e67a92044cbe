"""The lower bound of epsilon: known answers, a slow reference, and games whose true epsilon is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from labelward.metrics.epsilon_bound import (
    EpsilonEvidence,
    GuessTrial,
    blind_log_odds,
    rejected_epsilon,
    tail_probability,
)


def evidence(guesses: int, right: int, blind: int | None = None, **more: float) -> EpsilonEvidence:
    trial = GuessTrial(guesses=guesses, right=right, blind=guesses // 2 if blind is None else blind)
    return EpsilonEvidence(rows=guesses, pairs=guesses, trials=(trial,), **more)  # type: ignore[arg-type]


def tail_of_the_paper(pairs: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """The loop of Steinke et al., Appendix D."""
    share = 1 / (1 + math.exp(-epsilon))
    total = alpha = 0.0
    for step in range(1, right + 1):
        total += binom.pmf(right - step, guesses, share)
        alpha = max(alpha, total / step)
    return min(1.0, binom.sf(right - 1, guesses, share) + 2 * pairs * delta * alpha)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
def test_tails_are_those_of_the_paper(delta: float) -> None:
    for guesses, right, epsilon in ((10, 10, 0.0), (40, 31, 1.0), (200, 190, 3.0), (7, 0, 2.0)):
        found = tail_probability(right, guesses, pairs=300, epsilon=epsilon, delta=delta)
        assert found == pytest.approx(tail_of_the_paper(300, guesses, right, epsilon, delta), rel=1e-9)


def test_tails_without_delta_are_those_of_the_binomial_distribution() -> None:
    rng = np.random.default_rng(0)
    drawn = [(int(rng.integers(0, 500)), int(rng.integers(0, 500)), float(rng.uniform(-20, 20))) for _ in range(200)]
    for guesses, right, epsilon in [(0, 0, 1.0), (10, 0, 1.0), (10, 11, 1.0), (10, 10, 40.0), *drawn]:
        found = tail_probability(right, guesses, pairs=500, epsilon=epsilon)
        assert found == pytest.approx(binom.sf(right - 1, guesses, 1 / (1 + math.exp(-epsilon))), rel=1e-12, abs=0)


def test_right_guesses_alone_reject_what_their_number_allows() -> None:
    share = 0.05 ** (1 / 300)  # all right with probability 0.05
    assert rejected_epsilon(300, 300, pairs=300, level=0.05) == pytest.approx(math.log(share / (1 - share)), rel=1e-9)
    assert rejected_epsilon(0, 10, pairs=10, level=0.05) < 0
    assert blind_log_odds(5, 10, level=0.05) == pytest.approx(math.log(0.7776 / 0.2224), abs=1e-3)
    assert blind_log_odds(0, 1000, level=0.05) == 0
    assert blind_log_odds(4, 4, level=0.05) == math.inf


def test_what_makes_a_bound_larger_and_smaller() -> None:
    plain = evidence(1000, 880).bound()
    assert 1.5 < plain < math.log(0.88 / 0.12)
    assert evidence(1000, 900).bound() > plain
    assert evidence(4000, 3520).bound() > plain
    assert evidence(1000, 880, 600).bound() < plain
    assert evidence(1000, 880).bound(shared_by=20) < plain
    assert evidence(1000, 880).bound(confidence=0.99) < plain
    assert evidence(1000, 880, delta=1e-4).bound() < plain
    assert evidence(1000, 500).bound() == 0
    assert EpsilonEvidence(rows=0, pairs=0, trials=()).bound() == 0


def test_no_epsilon_covers_a_view_that_excludes_labels() -> None:
    assert evidence(10, 5, changed=20, contradicted=1).bound() == math.inf
    assert evidence(10, 10, changed=20).bound() < math.inf


@pytest.mark.parametrize(
    ("epsilon", "spread"),
    [
        (1.0, 0.5),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((0.0, 0.0), (0.0, 0.5), (1.0, 0.0), (3.0, 0.0), (3.0, 0.5))
        ),
    ],
)
def test_games_with_a_known_epsilon(epsilon: float, spread: float) -> None:
    """The best attacker knows the odds of each pair beforehand, which the label model got wrong by some factor."""
    rng, exceeded = np.random.default_rng(1), 0
    repetitions, guesses = 1000, 300
    for _ in range(repetitions):
        known = np.abs(spread * rng.normal(size=guesses))  # log odds of the better guess without the view
        blind = int((rng.random(guesses) < 1 / (1 + np.exp(-known))).sum())
        right = int((rng.random(guesses) < 1 / (1 + np.exp(-known - epsilon))).sum())
        exceeded += evidence(guesses, right, blind).bound() > epsilon
    # At most 5 in 100; 3 standard errors of that share are 0.02.
    assert exceeded / repetitions <= 0.07
