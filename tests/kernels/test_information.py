import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score, v_measure_score

from labelward.kernels.information import (
    entropy,
    joint_information,
    node_bound,
    node_information,
    v_measure,
    v_measure_bound,
)

ROUNDING = 1e-12  # sums of at most 6 terms below 20 nats, each a few units of 1e-16


def slow_divergence(part: list[int], totals: list[int]) -> float:
    """KL of a side's class shares from those of all rows; 0 for a side without rows."""
    n = sum(part)
    terms = [p / n * (math.log(p / n) - math.log(t / sum(totals))) for p, t in zip(part, totals, strict=True) if p]
    return sum(terms)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    totals = draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=6).filter(any))
    return [draw(st.integers(0, t)) for t in totals], totals


@settings(max_examples=300, deadline=None)  # the first example compiles
@given(nodes())
def test_theorem_2_and_the_definitions(case: tuple[list[int], list[int]]) -> None:
    counts, totals = case
    rest = [t - c for c, t in zip(counts, totals, strict=True)]
    inside, outside = slow_divergence(counts, totals), slow_divergence(rest, totals)
    bound, information = node_bound(counts, totals), node_information(counts, totals)
    assert bound == pytest.approx(max(inside, outside, 0.0), abs=ROUNDING)
    share = sum(counts) / sum(totals)
    assert information == pytest.approx(share * inside + (1 - share) * outside, abs=ROUNDING)
    assert 0 <= information <= bound
    assert information <= entropy(totals) + ROUNDING
    assert node_bound(rest, totals) == pytest.approx(float(bound), abs=ROUNDING)


def test_hand_values() -> None:
    totals = [50, 50]
    assert node_bound([25, 25], totals) == 0.0
    assert node_information([25, 25], totals) == 0.0
    assert node_bound([50, 0], totals) == pytest.approx(math.log(2), abs=ROUNDING)
    assert node_information([50, 0], totals) == pytest.approx(math.log(2), abs=ROUNDING)
    # a single row: its node says all about it, log 2, and next to nothing on the whole
    assert node_bound([1, 0], totals) == pytest.approx(math.log(2), abs=ROUNDING)
    assert node_information([1, 0], totals) < 0.01
    # three quarters on one side, one quarter on the other
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert node_bound([30, 10], [50, 50]) == pytest.approx(expected, abs=ROUNDING)


def test_empty_sides_and_absent_classes_contribute_nothing() -> None:
    assert node_bound([0, 0], [3, 4]) == 0.0
    assert node_bound([3, 4], [3, 4]) == 0.0
    assert node_information([3, 4], [3, 4]) == 0.0
    assert node_bound([0, 0], [0, 0]) == 0.0
    assert node_bound([1, 0, 2], [2, 0, 4]) == pytest.approx(0.0, abs=ROUNDING)


def test_arrays_of_candidates_keep_their_shape() -> None:
    rng = np.random.default_rng(0)
    totals = np.array([40, 30, 20])
    counts = rng.integers(0, totals + 1, (2, 3, 4, 3))
    bound, information = node_bound(counts, totals), node_information(counts, totals)
    assert bound.shape == information.shape == (2, 3, 4)
    for where in np.ndindex(2, 3, 4):
        assert bound[where] == node_bound(counts[where], totals)
        assert information[where] == node_information(counts[where], totals)


def test_node_information_is_the_information_of_the_indicator() -> None:
    rng = np.random.default_rng(0)
    labels, inside = rng.integers(0, 3, 200), rng.integers(0, 2, 200)
    counts = np.bincount(labels[inside == 1], minlength=3)
    expected = joint_information(inside, labels)
    assert node_information(counts, np.bincount(labels)) == pytest.approx(expected, abs=ROUNDING)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 2)), min_size=1, max_size=60))
def test_joint_information_is_the_plug_in_estimate(pairs: list[tuple[int, int]]) -> None:
    groups, labels = np.array(pairs).T
    assert joint_information(groups, labels) == pytest.approx(mutual_info_score(groups, labels), abs=ROUNDING)


def test_joint_information_of_known_groupings() -> None:
    labels = np.array([0, 0, 1, 1])
    assert joint_information(np.array([7, 7, -1, -1]), labels) == pytest.approx(math.log(2), abs=ROUNDING)
    assert joint_information(np.array([0, 1, 0, 1]), labels) == 0.0
    assert joint_information(np.zeros(4, dtype=np.int64), labels) == 0.0


def test_entropy_of_known_shares() -> None:
    expected = [math.log(2), 0, 0]
    np.testing.assert_allclose(entropy([[5, 5], [3, 0], [0, 0]]), expected, atol=ROUNDING)


@pytest.mark.parametrize("counts", [[-1, 0], [3, 0], [math.nan, 0]])
def test_counts_that_cannot_be_are_refused(counts: list[float]) -> None:
    with pytest.raises(ValueError, match="class's total"):
        node_bound(counts, [2, 2])


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit totals"):
        node_bound([1, 2, 3], [4, 4])
    with pytest.raises(ValueError, match="one length"):
        joint_information(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="at least 0"):
        entropy([-1.0, 2.0])


@settings(max_examples=200, deadline=None)  # the first example compiles
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 2)), min_size=1, max_size=30))
def test_the_v_measure_is_that_of_scikit_learn_and_within_its_bound(rows: list[tuple[int, int]]) -> None:
    clusters, labels = np.array(rows).T
    found = v_measure(clusters, labels)
    assert found == pytest.approx(v_measure_score(labels, clusters), abs=1e-9)  # it rounds small information to 0
    most = float(entropy(np.unique(labels, return_counts=True)[1]))
    if most > 0:
        assert found <= float(v_measure_bound(joint_information(clusters, labels), most)) + ROUNDING


def test_one_cluster_says_exactly_nothing() -> None:
    assert v_measure([7] * 11, [0, 1, 2] * 3 + [0, 1]) == 0.0
    assert v_measure([7, 7], [1, 1]) == 1.0
    assert v_measure([0, 1], [1, 1]) == 0.0


def test_the_bound_of_the_v_measure_grows_to_1() -> None:
    bound = v_measure_bound(np.linspace(0, 0.7, 50), 0.7)
    assert bound[0] == 0.0
    assert bound[-1] == 1.0
    assert (np.diff(bound) > 0).all()
    assert v_measure_bound(0.0, 0.0) == 0.0
