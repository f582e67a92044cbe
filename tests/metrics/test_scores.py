from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.errors import DataError
from labelward.metrics.leakage import cluster_chance, score_clusters
from refusals import refused

DRAWN = 0.15  # 100 draws of a figure of standard deviation 0.3 at most: 5 standard errors
ROUNDING = 1e-9  # log-gamma sums in the expectation, against sums of logarithms

small = st.integers(1, 4).flatmap(
    lambda rows: st.tuples(*(st.lists(st.integers(0, 2), min_size=rows, max_size=rows) for _ in range(2)))
)


def test_known_scores():
    truth = np.array(["a", "a", "b", "b"])
    assert score_clusters(np.array([5, 5, 0, 0]), truth) == {"v_measure": 1.0, "ari": 1.0, "matched_accuracy": 1.0}
    assert score_clusters(np.array([0, 0, 0, 0]), truth) == {"v_measure": 0.0, "ari": 0.0, "matched_accuracy": 0.5}
    # Clusters {a}, {a, b, b}: mutual information log 4 - 3/4 log 3, entropies log 2 and log 4 - 3/4 log 3.
    information = np.log(4) - 0.75 * np.log(3) - 0.5 * np.log(2)
    expected = 2 * information / (np.log(2) + np.log(4) - 0.75 * np.log(3))
    assert score_clusters(np.array([0, 1, 1, 1]), truth)["v_measure"] == pytest.approx(expected, abs=ROUNDING)


def test_classes_are_matched_with_one_group_each():
    guess = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    truth = np.array([0, 0, 1, 0, 1, 1, 1, 1])
    # Group 0 is class 0 (2 of 3 rows), group 2 is class 1 (3 of 5); group 1 has no class left.
    assert score_clusters(guess, truth)["matched_accuracy"] == pytest.approx((2 / 3 + 3 / 5) / 2)
    assert cluster_chance(guess, truth)["matched_accuracy"] < (2 / 3 + 3 / 5) / 2


@pytest.mark.slow
@settings(max_examples=30)
@given(small)
def test_chance_is_the_mean_over_all_permutations(pair):
    guess, truth = (np.array(values) for values in pair)
    scores = [score_clusters(guess, np.array(order)) for order in permutations(truth)]
    for name, expected in cluster_chance(guess, truth).items():
        tolerance = DRAWN if name == "matched_accuracy" else ROUNDING
        assert np.mean([found[name] for found in scores]) == pytest.approx(expected, abs=tolerance)


@given(small, st.permutations([0, 1, 2]))
def test_names_of_clusters_do_not_matter(pair, names):
    guess, truth = (np.array(values) for values in pair)
    renamed = np.array(names)[guess]
    for function in (score_clusters, cluster_chance):
        assert function(renamed, truth) == pytest.approx(function(guess, truth), abs=ROUNDING)


def test_a_guess_that_knows_nothing_of_many_rows_has_hardly_any_chance():
    rng = np.random.default_rng(1)
    guess, truth = rng.integers(2, size=100_000), rng.integers(2, size=100_000)
    # The expectation is close to (K-1)(C-1)/2N over the mean entropy, log 2 nats here.
    assert cluster_chance(guess, truth)["v_measure"] == pytest.approx(1 / 200_000 / np.log(2), rel=0.01)


@pytest.mark.parametrize(("guess", "truth"), [([], []), ([0, 1], [0])])
@pytest.mark.parametrize("function", [score_clusters, cluster_chance])
def test_unfit_guesses_are_refused(function, guess, truth):
    with refused(DataError, "rows", value=len(guess)):
        function(np.array(guess, np.int64), np.array(truth))


QUANTITIES = st.integers(2, 5).flatmap(
    lambda rows: st.tuples(
        st.lists(st.integers(0, 2), min_size=rows, max_size=rows),
        st.lists(st.integers(-3, 3), min_size=rows, max_size=rows),
    )
)


def explained(guess, quantities):
    """What the best constant for each cluster takes away of the squared error of the best constant for all."""
    left = sum(
        (quantities[row] - np.mean([q for q, g in zip(quantities, guess, strict=True) if g == guess[row]])) ** 2
        for row in range(len(guess))
    )
    return 1 - left / np.sum((quantities - np.mean(quantities)) ** 2) if np.ptp(quantities) else 0.0


@settings(max_examples=30)
@given(QUANTITIES)
def test_of_quantities_the_variance_that_clusters_explain(pair):
    guess, quantities = np.array(pair[0]), np.array(pair[1], float)
    bins = (quantities > 0).astype(np.int64)
    assert score_clusters(guess, bins, quantities)["r2"] == pytest.approx(explained(guess, quantities), abs=ROUNDING)
    mean = np.mean([explained(guess, np.array(order)) for order in permutations(quantities)])
    assert cluster_chance(guess, bins, quantities)["r2"] == pytest.approx(mean, abs=ROUNDING)


def test_quantities_of_any_size_and_shift():
    guess, bins = np.array([0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1])
    plain = score_clusters(guess, bins, np.array([1.0, 2.0, 3.0, 5.0, 8.0]))["r2"]
    assert score_clusters(guess, bins, 1e149 * np.array([1.0, 2.0, 3.0, 5.0, 8.0]))["r2"] == pytest.approx(plain)
    assert score_clusters(guess, bins, 7.0 + np.array([1.0, 2.0, 3.0, 5.0, 8.0]))["r2"] == pytest.approx(plain)
    assert (
        score_clusters(guess, bins, np.full(5, 3.0))["r2"] == cluster_chance(guess, bins, np.full(5, 3.0))["r2"] == 0.0
    )
    with refused(DataError, "rows", value=5) as caught:
        score_clusters(guess, bins, np.ones(4))
    assert "4 rows" in caught.value.reason
