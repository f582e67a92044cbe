"""Clusters named by a few known rows: exact means, against all draws written out."""

from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.metrics.cluster_labeling import (
    contingency_table,
    expected_accuracy,
    expected_accuracy_by_class,
    majority_accuracy,
    majority_chance,
)
from labelward.metrics.leakage import cluster_chance, score_clusters

ROUNDING = 1e-9  # sums of a few hundred products of probabilities, those from logarithms of factorials


def written_out(guess, truth, known):
    """All draws of known rows, all ways to break ties: the mean recall of each class over the draws that leave one."""
    names = sorted(set(truth))
    members = [[row for row, cluster in enumerate(guess) if cluster == each] for each in sorted(set(guess))]
    draws = list(product(*[combinations(rows, min(known, len(rows))) for rows in members]))
    recalls = {name: [] for name in names}
    for draw in draws:
        tied = []
        for told in draw:
            counts = {name: sum(truth[row] == name for row in told) for name in names}
            tied.append([name for name in names if counts[name] == max(counts.values())])
        for name in names:
            scored = [
                (row, cluster)
                for cluster, rows in enumerate(members)
                for row in rows
                if row not in draw[cluster] and truth[row] == name
            ]
            if scored:
                right = [(name in tied[cluster]) / len(tied[cluster]) for _, cluster in scored]
                recalls[name].append(sum(right) / len(scored))
    means = [np.mean(found) for found in recalls.values() if found]
    return np.mean(means) if means else 1 / len(names)


small = st.integers(1, 8).flatmap(
    lambda rows: st.tuples(*[st.lists(st.integers(0, 2), min_size=rows, max_size=rows) for _ in range(2)])
)


@settings(max_examples=60, deadline=None)
@given(small, st.integers(1, 5))
def test_the_mean_over_all_draws(pair, known):
    guess, truth = pair
    found = expected_accuracy(contingency_table(np.array(guess), np.array(truth)), known)
    assert found == pytest.approx(written_out(guess, truth, known), abs=ROUNDING)


def written_out_by_class(guess, truth, known):
    """All draws of known rows of each class, all ways to break ties."""
    names, clusters = sorted(set(truth)), sorted(set(guess))
    members = [[row for row, label in enumerate(truth) if label == each] for each in names]
    found = {name: [] for name in names}
    for draw in product(*[combinations(rows, min(known, len(rows))) for rows in members]):
        told = [row for rows in draw for row in rows]
        tied = {}
        for cluster in clusters:
            counts = {name: sum(truth[row] == name for row in told if guess[row] == cluster) for name in names}
            tied[cluster] = [name for name in names if counts[name] == max(counts.values())]
        for name, rows in zip(names, members, strict=True):
            right = [(name in tied[guess[row]]) / len(tied[guess[row]]) for row in rows if row not in told]
            if right:
                found[name].append(np.mean(right))
    means = [np.mean(values) for values in found.values() if values]
    return np.mean(means) if means else 1 / len(names)


@settings(max_examples=60, deadline=None)
@given(small, st.integers(1, 4))
def test_the_mean_over_all_draws_of_each_class(pair, known):
    guess, truth = pair
    found = expected_accuracy_by_class(contingency_table(np.array(guess), np.array(truth)), known)
    assert found == pytest.approx(written_out_by_class(guess, truth, known), abs=ROUNDING)


def test_more_known_rows_of_each_class_approach_the_majority():
    table = np.array([[4_000_000, 1_000_000, 0], [1_000_000, 3_000_000, 500_000], [0, 100_000, 900_000]])
    many = [expected_accuracy_by_class(table, known) for known in (1, 3, 11, 100)]
    assert many == sorted(many)
    assert many[-1] == pytest.approx(majority_accuracy(table), abs=1e-4)


def test_chance_with_known_rows_of_each_class():
    """Every permutation of the truth; each class has more rows than are known."""
    guess, truth = np.array([0, 0, 0, 1, 1, 2, 2]), np.array([0, 0, 0, 0, 1, 1, 1])
    scores = [
        score_clusters(guess, np.array(order), known_per_class=2)["accuracy"]
        for order in set(permutations(truth.tolist()))
    ]
    assert np.mean(scores) == pytest.approx(cluster_chance(guess, truth, known_per_class=2)["accuracy"], abs=ROUNDING)


def test_ties_among_many_classes():
    """Six known rows of up to four classes tie in pairs, threes and fours."""
    truth = [0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 0, 1]
    guess = [0] * 10 + [1] * 2
    for known in (2, 3, 4, 6):
        found = expected_accuracy(contingency_table(np.array(guess), np.array(truth)), known)
        assert found == pytest.approx(written_out(guess, truth, known), abs=ROUNDING)


def test_clusters_that_are_the_classes_and_clusters_that_say_nothing():
    truth = np.repeat([0, 1, 2], [500, 300, 200])
    perfect = contingency_table(truth + 5, truth)
    assert [expected_accuracy(perfect, known) for known in (1, 7)] == pytest.approx([1.0, 1.0], abs=ROUNDING)
    assert majority_accuracy(perfect) == 1.0
    one = contingency_table(np.zeros(1000, np.int64), truth)
    assert expected_accuracy(one, 1) == pytest.approx(1 / 3, abs=ROUNDING)
    assert majority_accuracy(one) == pytest.approx(1 / 3)


def test_a_large_table_by_hand():
    """One known row: the name is a class's with its share of the cluster; one row of millions changes nothing."""
    table = np.array([[4_000_000, 1_000_000], [1_000_000, 3_000_000]])
    # class 0: .8 · .8 + .2 · .25; class 1: .25 · .2 + .75 · .75
    assert expected_accuracy(table, 1) == pytest.approx((0.69 + 0.6125) / 2, abs=1e-6)  # one row of a million
    assert majority_accuracy(table) == pytest.approx((0.8 + 0.75) / 2)
    many = [expected_accuracy(table, known) for known in (1, 3, 11, 100)]
    assert many == sorted(many)
    assert many[-1] == pytest.approx(
        majority_accuracy(table), abs=1e-4
    )  # the known rows are among the scored ones here


def test_the_majority_counts_each_class_alike():
    """A rare class is named where its share is larger, though its rows are fewer: no naming does better."""
    table = np.array([[900, 5], [80, 15]])
    best = max(
        np.mean([table[[cluster for cluster, named in enumerate(names) if named == c], c].sum() / table[:, c].sum()
                 for c in (0, 1)])
        for names in product((0, 1), repeat=2)
    )  # fmt: skip
    assert majority_accuracy(table) == pytest.approx(best)


@pytest.mark.parametrize("known", [1, 2, 3])
def test_chance_is_the_mean_over_permutations(known):
    guess, truth = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 0, 1, 1, 1])
    scores = [
        score_clusters(guess, np.array(order), known_per_cluster=known) for order in set(permutations(truth.tolist()))
    ]
    expected = cluster_chance(guess, truth, known_per_cluster=known)
    if 2 * known < 3:  # a class that may be known as a whole is left out of some draws
        assert np.mean([found["accuracy"] for found in scores]) == pytest.approx(expected["accuracy"], abs=ROUNDING)
    values = [found["accuracy_majority"] for found in scores]
    error = np.std(values) / np.sqrt(2000)
    assert abs(np.mean(values) - expected["accuracy_majority"]) < 4 * error
    assert majority_chance(contingency_table(guess, truth)) == expected["accuracy_majority"]


def test_without_known_rows_there_is_no_accuracy():
    guess, truth = np.array([0, 1, 1]), np.array([0, 1, 0])
    assert (
        set(score_clusters(guess, truth))
        == set(cluster_chance(guess, truth))
        == {"v_measure", "ari", "matched_accuracy"}
    )
    names = {"v_measure", "ari", "matched_accuracy", "accuracy", "accuracy_majority"}
    assert (
        set(score_clusters(guess, truth, known_per_cluster=1))
        == set(cluster_chance(guess, truth, known_per_cluster=1))
        == names
    )
