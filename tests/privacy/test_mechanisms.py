import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import chisquare

from blames import refused_about
from exactly import EPSILONS, Paths, exp_below, largest_ratio, tied_priors, top
from labelward.errors import JobError
from labelward.privacy import RandomizedResponse, RRTopK, RRWithPrior, mechanisms, uniform_priors
from labelward.privacy.draws import Odds, odds
from labelward.rng import SecureRandom

Array = NDArray[np.float64]
RESIDUAL = 2**-38  # the odds lie below e^epsilon by a part in 2**40; shares follow by as much, sums by a few times it

SKEWED = [
    np.array([0.05, 0.9, 0.05]),  # the one with which drawing from all classes bounds no ratio
    np.array([0.0, 1.0, 0.0, 0.0]),
    np.array([0.5, 0.0, 0.5]),
    np.array([1e-300, 1 - 1e-12, 1e-12]),
    np.full(12, 1 / 12),
    np.array([1.0]),
]


def check_table(table: list[list[Fraction]], epsilon: float) -> None:
    assert all(sum(row) == 1 for row in table)
    assert largest_ratio(table) <= exp_below(epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("classes", range(1, 13))
def test_randomized_response_keeps_its_ratio_and_comes_close_to_it(epsilon: float, classes: int) -> None:
    table = RandomizedResponse(epsilon=epsilon, classes=classes).exact()
    check_table(table, epsilon)
    power = math.exp(min(epsilon, 40.0))
    for label, output in product(range(classes), repeat=2):
        share = (power if label == output else 1) / (power + classes - 1)
        assert float(table[label][output]) == pytest.approx(share, rel=RESIDUAL)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("prior", SKEWED, ids=str)
def test_every_k_keeps_the_ratio(epsilon: float, prior: Array) -> None:
    for k in range(1, len(prior) + 1):
        check_table(RRTopK(epsilon=epsilon, k=k).exact(prior), epsilon)
    check_table(RRWithPrior(epsilon=epsilon).exact(prior), epsilon)


@settings(max_examples=200, deadline=None)  # fractions of hundreds of digits
@given(tied_priors(st.integers(1, 12)), st.sampled_from(EPSILONS), st.data())
def test_ratio_and_shares_with_zeros_and_ties(prior: Array, epsilon: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(prior)))
    table = RRTopK(epsilon=epsilon, k=k).exact(prior)
    check_table(table, epsilon)
    check_table(RRWithPrior(epsilon=epsilon).exact(prior), epsilon)
    power, chosen = math.exp(min(epsilon, 40.0)), top(prior, k)
    for label, output in product(range(len(prior)), repeat=2):
        inside = (power if label == output else 1) / (power + k - 1)
        share = 0 if output not in chosen else inside if label in chosen else 1 / k
        assert float(table[label][output]) == pytest.approx(share, rel=RESIDUAL)


def test_a_label_outside_is_drawn_from_the_top_alone() -> None:
    table = RRTopK(epsilon=math.log(3), k=2).probabilities(np.array([0.1, 0.5, 0.0, 0.4]))
    expected = [[0, 0.5, 0, 0.5], [0, 0.75, 0, 0.25], [0, 0.5, 0, 0.5], [0, 0.25, 0, 0.75]]
    np.testing.assert_allclose(table, expected, atol=RESIDUAL)


def test_drawing_from_all_classes_would_fail_this_proof() -> None:
    """The reference catches the published error: a label outside the top may then give what others never give."""
    table = RRTopK(epsilon=1.0, k=1).exact(SKEWED[0])
    table[0] = [Fraction(1, 3)] * 3
    with pytest.raises(AssertionError, match="another cannot"):
        largest_ratio(table)


def accuracy(table: list[list[Fraction]], prior: Array) -> float:
    return float(sum(Fraction(p) * row[label] for label, (p, row) in enumerate(zip(prior, table, strict=True))))


@settings(max_examples=200, deadline=None)
@given(tied_priors(st.integers(1, 12)), st.sampled_from(EPSILONS))
def test_k_is_the_most_accurate_one_of_all(prior: Array, epsilon: float) -> None:
    tables = [RRTopK(epsilon=epsilon, k=k).exact(prior) for k in range(1, len(prior) + 1)]
    each = [accuracy(table, prior) for table in tables]
    mechanism = RRWithPrior(epsilon=epsilon)
    chosen = int(mechanism.sizes(prior[None])[0])
    assert mechanism.exact(prior) == tables[chosen - 1]
    assert each[chosen - 1] >= max(each) - RESIDUAL
    assert all(value <= each[chosen - 1] + RESIDUAL for value in each[chosen:])
    power = math.exp(min(epsilon, 40.0))
    for k, value in enumerate(each, start=1):
        assert value == pytest.approx(power / (power + k - 1) * sum(prior[top(prior, k)]), abs=RESIDUAL)


@settings(max_examples=25, deadline=None)
@given(tied_priors(st.integers(2, 5)), st.sampled_from([0.1, 0.5, 1.0, 2.0]))
def test_no_mechanism_at_all_is_more_accurate(prior: Array, epsilon: float) -> None:
    """Theorem 3 of Ghazi et al.: a linear program over all tables that keep the ratio."""
    c = len(prior)
    limits = np.zeros((c * c * c, c * c))
    for i, (output, one, other) in enumerate(product(range(c), repeat=3)):
        if one != other:
            limits[i, one * c + output], limits[i, other * c + output] = 1, -math.exp(epsilon)
    best = linprog(
        -np.diag(prior).ravel(), limits, np.zeros(len(limits)), np.kron(np.eye(c), np.ones(c)), np.ones(c), (0, 1)
    )
    assert accuracy(RRWithPrior(epsilon=epsilon).exact(prior), prior) == pytest.approx(-best.fun, abs=1e-7)  # solver's


@pytest.mark.parametrize("classes", range(1, 13))
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_knowing_nothing_means_randomized_response(classes: int, epsilon: float) -> None:
    plain = RandomizedResponse(epsilon=epsilon, classes=classes)
    prior = uniform_priors(3, classes)
    assert RRWithPrior(epsilon=epsilon).sizes(prior).tolist() == [classes] * 3
    assert RRWithPrior(epsilon=epsilon).exact(prior[0]) == plain.exact()
    assert RRTopK(epsilon=epsilon, k=classes).exact(np.eye(classes)[0]) == plain.exact()


def test_known_choices_of_k() -> None:
    priors = np.array([[0.5, 0.3, 0.2], [0.9, 0.1, 0.0], [0.4, 0.4, 0.2], [0.34, 0.33, 0.33]])
    # w_k by hand, e = 2.718: (.5, .585, .576), (.9, .731, .576), (.4, .585, .576), (.34, .490, .576)
    assert RRWithPrior(epsilon=1.0).sizes(priors).tolist() == [2, 1, 2, 3]


@pytest.mark.parametrize("small", [Odds(1, 1), Odds(3, 1), Odds(5, 2)], ids=str)
@pytest.mark.parametrize("prior", [np.array([0.2, 0.5, 0.3, 0.0]), np.array([0.4, 0.4, 0.2])], ids=str)
def test_what_is_drawn_has_exactly_the_stated_probabilities(
    small: Odds, prior: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small odds every outcome of the random numbers is tried."""
    monkeypatch.setattr(mechanisms, "odds", lambda epsilon: small)
    cases = [(RRTopK(epsilon=0.0, k=k), label) for k in range(1, len(prior) + 1) for label in range(len(prior))]
    for mechanism, label in cases:
        found, paths = [Fraction(0)] * len(prior), Paths()
        monkeypatch.setattr(mechanisms, "draw_below", paths.below)
        for _ in paths:
            output = mechanism.release(np.array([label]), prior[None], SecureRandom())[0]
            found[output] += paths.chance()
        assert found == mechanism.exact(prior)[label]
        if mechanism.k == len(prior):
            plain = RandomizedResponse(epsilon=0.0, classes=len(prior))
            assert plain.exact()[label] == found
            found = [Fraction(0)] * len(prior)
            for _ in paths:
                found[plain.release(np.array([label]), SecureRandom())[0]] += paths.chance()
            assert found == plain.exact()[label]


def test_a_batch_has_the_frequencies_of_its_rows() -> None:
    """Rows of different priors and labels in one call; 20,000 of each kind, mixed."""
    priors = np.array([[0.5, 0.3, 0.2, 0.0], [0.9, 0.1, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.4, 0.2, 0.4]])
    kinds = np.tile(np.arange(16), 20_000)
    labels, rows = kinds % 4, priors[kinds // 4]
    for mechanism in (RRWithPrior(epsilon=1.0), RRTopK(epsilon=0.5, k=3)):
        noisy = mechanism.release(labels, rows, SecureRandom(seed=4))
        for kind in range(16):
            expected = mechanism.probabilities(priors[kind // 4])[kind % 4]
            seen, can = np.bincount(noisy[kinds == kind], minlength=4), expected > 0
            assert not seen[~can].any()
            # 32 tests at 1e-6 each: a right sampler fails with a probability of 3.2e-5 over the choice of seeds.
            assert can.sum() == 1 or chisquare(seen[can], expected[can] * 20_000).pvalue > 1e-6
    plain = RandomizedResponse(epsilon=1.0, classes=4)
    noisy = plain.release(labels, SecureRandom(seed=5))
    for label in range(4):
        seen = np.bincount(noisy[labels == label], minlength=4)
        assert chisquare(seen, plain.probabilities()[label] * 80_000).pvalue > 1e-6  # 4 more tests


def test_how_much_is_drawn_does_not_tell_the_labels() -> None:
    """The same random numbers serve any labels: a row whose coin says so keeps its label, others answer alike."""
    priors = np.tile([0.6, 0.4, 0.0], (500, 1))
    outcomes = [RRTopK(epsilon=1.0, k=2).release(np.full(500, y), priors, SecureRandom(seed=9)) for y in range(3)]
    assert ((outcomes[0] == outcomes[2]) | (outcomes[0] == 0)).all()
    assert ((outcomes[1] == outcomes[2]) | (outcomes[1] == 1)).all()


def test_large_epsilon_keeps_labels_and_no_rows_are_no_trouble() -> None:
    labels = np.arange(1000) % 7
    assert (RandomizedResponse(epsilon=700.5, classes=7).release(labels, SecureRandom()) == labels).all()
    assert (RRWithPrior(epsilon=1e300).release(labels, uniform_priors(1000, 7), SecureRandom()) == labels).all()
    assert RRWithPrior(epsilon=1.0).release(labels[:0], uniform_priors(0, 7), SecureRandom()).shape == (0,)
    assert RandomizedResponse(epsilon=1.0, classes=7).release(labels[:0], SecureRandom()).shape == (0,)
    assert odds(1e300) == odds(40.0)


def test_what_is_given_stays_as_it_is() -> None:
    labels, priors = np.array([2, 0, 1]), np.array([[0.2, 0.5, 0.3]] * 3)
    RRWithPrior(epsilon=0.1).release(labels, priors, SecureRandom())
    RandomizedResponse(epsilon=0.1, classes=3).release(labels, SecureRandom())
    assert labels.tolist() == [2, 0, 1]
    assert priors.tolist() == [[0.2, 0.5, 0.3]] * 3


def test_parameters_are_checked_and_have_no_defaults() -> None:
    with pytest.raises(TypeError, match="epsilon"):
        RRWithPrior()  # type: ignore[call-arg]
    for made in (lambda e: RRWithPrior(epsilon=e), lambda e: RRTopK(epsilon=e, k=1)):
        with refused_about("epsilon", JobError, "range", value=-1):
            made(-1)
    with refused_about("epsilon", JobError, "range"):
        RandomizedResponse(epsilon=math.nan, classes=2)
    for wrong in (0, 1.5, True, "2"):
        with refused_about("k must be", JobError, "range" if wrong == 0 else "type", value=wrong):
            RRTopK(epsilon=1.0, k=wrong)  # type: ignore[arg-type]
        with refused_about("classes", JobError, "range" if wrong == 0 else "type", value=wrong):
            RandomizedResponse(epsilon=1.0, classes=wrong)  # type: ignore[arg-type]
    with refused_about("classes", JobError, "range", value=2**20 + 1):
        RandomizedResponse(epsilon=1.0, classes=2**20 + 1)
    with refused_about("k must be", JobError, "range", value=4):
        RRTopK(epsilon=1.0, k=4).sizes(uniform_priors(1, 3))


@pytest.mark.parametrize(
    "row", [[0.5, 0.4], [-0.1, 1.1], [math.nan, 1.0], [math.inf, 0.0], [math.inf, -math.inf], [0.0, 0.0]], ids=str
)
def test_a_prior_is_a_distribution(row: list[float]) -> None:
    with pytest.raises(ValueError, match="row 1"):
        RRWithPrior(epsilon=1.0).release(np.array([0, 0]), np.array([[0.5, 0.5], row]), SecureRandom())


def test_labels_are_classes_and_no_message_tells_one() -> None:
    mechanism = RRWithPrior(epsilon=1.0)
    for wrong in (-1, 3, 77):
        with pytest.raises(ValueError, match=r"row 1 is no"):
            mechanism.release(np.array([0, wrong]), uniform_priors(2, 3), SecureRandom())
    with pytest.raises(ValueError, match="whole numbers"):
        mechanism.release(np.array([0.0, 1.0]), uniform_priors(2, 3), SecureRandom())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 labels but 3"):
        mechanism.release(np.array([0, 1]), uniform_priors(3, 3), SecureRandom())
    with pytest.raises(ValueError, match=r"are \[3\]"):
        mechanism.release(np.array([0, 1, 2]), np.ones(3) / 3, SecureRandom())
