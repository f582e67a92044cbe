"""Stages are composed by enumeration: of probabilities, and of every path of the code that draws."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from exactly import Paths, exp_below, largest_ratio
from labelward.errors import PolicyError
from labelward.privacy import Budget, RandomizedResponse, RRWithPrior, mechanisms, multi_stage
from labelward.privacy.draws import Odds
from labelward.rng import SecureRandom
from refusals import refused

Rows = NDArray[np.int64]


def lean(rows: Rows, noisy: Rows, following: Rows, classes: int = 3) -> NDArray[np.float64]:
    """A prior that leans on all noisy labels so far, with zeros, ties and a tilt for each row."""
    counts = np.bincount(noisy, minlength=classes) * 1.0
    priors = np.tile(counts, (len(following), 1))
    priors[np.arange(len(following)), following % classes] += 1 + following // 2
    priors /= priors.sum(axis=1, keepdims=True)
    return priors


def composed(labels: tuple[int, ...], first: Rows, second: Rows, epsilon: float) -> dict[tuple[int, ...], Fraction]:
    """P(all noisy labels | labels) of two stages: the second one's table follows from the first one's outputs."""
    plain, mechanism = RandomizedResponse(epsilon=epsilon, classes=3).exact(), RRWithPrior(epsilon=epsilon)
    chances = {}
    for early in product(range(3), repeat=len(first)):
        tables = [mechanism.exact(prior) for prior in lean(first, np.array(early), second)]
        for late in product(range(3), repeat=len(second)):
            chance = Fraction(1)
            for row, output in zip(first, early, strict=True):
                chance *= plain[labels[row]][output]
            for row, table, output in zip(second, tables, late, strict=True):
                chance *= table[labels[row]][output]
            noisy = np.empty(len(labels), dtype=np.int64)
            noisy[first], noisy[second] = early, late
            chances[tuple(noisy.tolist())] = chance
    return chances


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0])
def test_two_stages_cost_what_one_costs(epsilon: float) -> None:
    """Every pair of label vectors that differ in one row, every outcome of both stages."""
    first, second = np.array([0, 2]), np.array([1, 3])
    known = {y: composed(y, first, second, epsilon) for y in product(range(3), repeat=4)}
    outcomes = list(product(range(3), repeat=4))
    priors = [lean(first, np.array(early), second) for early in product(range(3), repeat=2)]
    assert len(set(RRWithPrior(epsilon=epsilon).sizes(np.concatenate(priors)).tolist())) > 1, "the stages interact"
    assert all(sum(chances.values()) == 1 for chances in known.values())
    assert len({len([o for o in outcomes if chances[o]]) for chances in known.values()}) == 1
    for row, rest in product(range(4), product(range(3), repeat=3)):
        neighbors = [known[(*rest[:row], label, *rest[row:])] for label in range(3)]
        assert largest_ratio([[chances[o] for o in outcomes] for chances in neighbors]) <= exp_below(epsilon)


def run(labels: Rows, stages: list[Rows], protection: SecureRandom, epsilon: float = 1.0) -> Rows:
    return multi_stage(labels, 3, stages, lean, budget=Budget(epsilon=epsilon, rows=len(labels)), protection=protection)


def test_every_path_of_the_code_together_keeps_the_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code itself, with odds of 3 to 1 and every outcome of every random number, one row in each stage."""
    monkeypatch.setattr(mechanisms, "odds", lambda epsilon: Odds(3, 1))
    outcomes, known = list(product(range(3), repeat=2)), {}
    for labels in outcomes:
        paths, chances = Paths(), dict.fromkeys(outcomes, Fraction(0))
        monkeypatch.setattr(mechanisms, "draw_below", paths.below)
        for _ in paths:
            chances[tuple(run(np.array(labels), [np.array([1]), np.array([0])], SecureRandom()).tolist())] += (
                paths.chance()
            )
        known[labels] = chances
        assert chances == composed(labels, np.array([1]), np.array([0]), 1.0)
    for fixed in range(3):
        for neighbors in ([(y, fixed) for y in range(3)], [(fixed, y) for y in range(3)]):
            assert largest_ratio([[known[y][o] for o in outcomes] for y in neighbors]) == 3


@pytest.mark.slow
def test_frequencies_of_whole_outcomes_are_the_composed_ones() -> None:
    labels, first, second = (2, 0, 1), np.array([2, 0]), np.array([1])
    protection, runs = SecureRandom(seed=3), 4000
    seen = dict.fromkeys(product(range(3), repeat=3), 0)
    for _ in range(runs):
        seen[tuple(run(np.array(labels), [first, second], protection).tolist())] += 1
    chances = composed(labels, first, second, 1.0)
    can = [o for o in seen if chances[o]]
    assert sum(seen[o] for o in can) == runs
    # A right sampler fails with a probability of 1e-6 over the choice of seeds.
    assert min(float(chances[o]) * runs for o in can) > 10
    assert chisquare([seen[o] for o in can], [float(chances[o]) * runs for o in can]).pvalue > 1e-6


def test_a_prior_sees_noisy_labels_of_earlier_stages_alone() -> None:
    labels = np.arange(12) % 3
    stages = [np.array([11, 0, 5]), np.array([1, 2, 3, 4]), np.array([10, 9, 8, 7, 6])]
    calls = []

    def prior(rows: Rows, noisy: Rows, following: Rows) -> NDArray[np.float64]:
        calls.append((rows.tolist(), noisy.tolist(), following.tolist()))
        return lean(rows, noisy, following)

    budget = Budget(epsilon=0.5, rows=12)
    noisy = multi_stage(labels, 3, stages, prior, budget=budget, protection=SecureRandom(seed=8))
    assert [(rows, following) for rows, _, following in calls] == [
        ([11, 0, 5], [1, 2, 3, 4]),
        ([11, 0, 5, 1, 2, 3, 4], [10, 9, 8, 7, 6]),
    ]
    assert all(told == noisy[rows].tolist() for rows, told, _ in calls)
    assert (budget.spent, budget.unused, len(budget.spends)) == (0.5, 0, 3)


def test_one_stage_is_randomized_response() -> None:
    labels = np.arange(300) % 3
    plain = RandomizedResponse(epsilon=1.0, classes=3).release(labels, SecureRandom(seed=6))
    assert (run(labels, [np.arange(300)], SecureRandom(seed=6)) == plain).all()


def test_a_second_use_of_the_labels_is_refused_before_anything_is_drawn() -> None:
    budget = Budget(epsilon=1.0, rows=4)
    stages = [np.array([0, 1]), np.array([2, 3])]
    multi_stage(np.zeros(4, dtype=np.int64), 3, stages, lean, budget=budget, protection=SecureRandom())
    with refused(PolicyError, "budget", value=2):
        multi_stage(np.zeros(4, dtype=np.int64), 3, stages, lean, budget=budget, protection=SecureRandom())


@pytest.mark.parametrize(
    "stages", [[], [[0, 1]], [[0, 1], [1, 2, 3]], [[0, 1, 2, 3, 4]], [[0, 1], [2, -1]], [[0, 1, 2, 2]]], ids=str
)
def test_stages_are_every_row_once(stages: list[list[int]]) -> None:
    budget = Budget(epsilon=1.0, rows=4)
    with pytest.raises(ValueError, match="4 rows once"):
        multi_stage(
            np.zeros(4, dtype=np.int64),
            3,
            [np.array(rows) for rows in stages],
            lean,
            budget=budget,
            protection=SecureRandom(),
        )
    assert budget.unused == 4


def test_what_cannot_be_is_refused_before_it_is_spent() -> None:
    budget = Budget(epsilon=1.0, rows=2)
    stages = [np.array([0]), np.array([1])]
    with pytest.raises(ValueError, match="row 1 is no"):
        multi_stage(np.array([0, 3]), 3, stages, lean, budget=budget, protection=SecureRandom())
    with pytest.raises(ValueError, match="at least one"):
        multi_stage(np.array([0, 1]), 3, [*stages, np.array([])], lean, budget=budget, protection=SecureRandom())
    assert budget.unused == 2
    with pytest.raises(ValueError, match=r"\[1, 3\] but"):
        multi_stage(
            np.array([0, 1]), 3, stages, lambda *_: np.full((1, 2), 0.5), budget=budget, protection=SecureRandom()
        )
