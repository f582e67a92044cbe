import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from blames import refused_about
from exactly import EPSILONS, exp_below
from labelward.errors import JobError
from labelward.privacy.draws import MOST_CLASSES, draw_below, odds
from labelward.rng import SecureRandom


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_odds_stay_below_the_power_and_close_to_it(epsilon: float) -> None:
    made = odds(epsilon)
    ratio = Fraction(made.keep, made.other)
    assert 1 <= ratio <= exp_below(epsilon)
    assert float(ratio) >= math.exp(min(epsilon, 40.0)) * (1 - 2**-39)  # 2**-40 and the rounding of exp


@given(st.integers(0, 45 * 2**20))
def test_odds_never_exceed_the_power(parts: int) -> None:
    epsilon = parts / 2**20  # few digits keep the exact series fast
    made = odds(epsilon)
    assert 1 <= Fraction(made.keep, made.other) <= exp_below(epsilon)


@given(st.floats(0, 1e308))
def test_odds_fit_and_large_epsilons_act_alike(epsilon: float) -> None:
    made = odds(epsilon)
    assert made.keep >= made.other > 0
    assert made.keep + (MOST_CLASSES - 1) * made.other < 2**63
    assert (made == odds(40.0)) == (epsilon >= 40)


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf, "1", None, True])
def test_epsilon_is_a_finite_number_from_0_on(epsilon: object) -> None:
    with refused_about("epsilon", JobError, "range" if type(epsilon) is float else "type"):
        odds(epsilon)  # type: ignore[arg-type]


class Script:
    """Hands out given words, 8 bytes each."""

    def __init__(self, words: list[int]) -> None:
        self.words = words

    def bytes(self, count: int) -> bytes:
        given, self.words = self.words[: count // 8], self.words[count // 8 :]
        return b"".join(word.to_bytes(8, "little") for word in given)


def test_words_beyond_the_bound_are_drawn_again_for_their_row_alone() -> None:
    script = Script([7, 2**63 + 5, 2**64 - 1, 9, 6, 8 + 3, 4])  # of each the lowest 3 bits count, none for bound 1
    drawn = draw_below(np.array([6, 6, 1, 1]), script)  # type: ignore[arg-type]
    assert drawn.tolist() == [3, 5, 0, 0]
    assert script.words == [4]  # 4 words, then one for row 0 twice


@pytest.mark.parametrize("bound", range(1, 18))
def test_every_outcome_has_one_word_and_other_words_are_drawn_again(bound: int) -> None:
    hits = []
    for word in range(2 ** (bound - 1).bit_length()):
        script = Script([word, 0])
        drawn = draw_below(np.array([bound]), script)  # type: ignore[arg-type]
        if script.words:  # the first word was enough
            hits.append(int(drawn[0]))
    assert hits == list(range(bound))


@pytest.mark.parametrize("bound", [2, 3, 5, 12, 1000])
def test_draws_are_uniform(bound: int) -> None:
    drawn = draw_below(np.full(200_000, bound), SecureRandom(seed=bound))
    # Five bounds at 1e-6 each: a right sampler fails with a probability of 5e-6 over the choice of seeds.
    assert chisquare(np.bincount(drawn, minlength=bound)).pvalue > 1e-6


def test_large_bounds_reach_all_their_bits() -> None:
    drawn = draw_below(np.full(4000, 2**61 + 1), SecureRandom(seed=1))
    ones = ((drawn[:, None] >> np.arange(61)) & 1).mean(axis=0)
    assert (np.abs(ones - 0.5) < 0.05).all()  # 6.3 standard deviations: 61 bits fail with a probability of 2e-8


def test_rows_draw_alike_whatever_stands_beside_them() -> None:
    assert draw_below(np.empty(0, dtype=np.int64), SecureRandom()).tolist() == []
    assert draw_below(np.ones(3, dtype=np.int64), SecureRandom()).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"bounds .* 0"):
        draw_below(np.array([3, 0]), SecureRandom())


def test_the_bounds_are_left_alone() -> None:
    bounds = np.array([6, 12, 1000])
    draw_below(bounds, SecureRandom())
    assert bounds.tolist() == [6, 12, 1000]
