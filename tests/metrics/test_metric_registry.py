"""Metrics are listed once: all that is computed has a name, a direction and a chance level."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest

from labelward.attacks import ATTACKS, STANDING
from labelward.attacks.base import ColumnGuess, LabelGuess
from labelward.attacks.lying_sums import LyingSums
from labelward.data import PartyDataset
from labelward.leakage.column_scores import score_columns
from labelward.metrics.leakage import cluster_chance, permutation_chance, score_clusters, score_labels
from labelward.metrics.registry import CHANCE_LEVELS, METRICS, Metric, find_metric
from labelward.metrics.utility import class_scores, regression_scores

TRUTH = np.array([0, 1, 2, 0, 1, 2, 3, 4, 5])
GUESS = np.array([0, 1, 1, 0, 2, 2, 3, 4, 5])
HITS = Metric(name="hits", title="hits")


def hits(guess: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    return {"hits": float(np.mean(guess == truth))}


def test_all_computed_metrics_are_listed() -> None:
    scores = np.eye(6)[GUESS]
    table, empty = TRUTH[:, None].astype(float), np.empty((0, 1))
    telco = PartyDataset(name="telco", columns=("a",), train=table, validation=empty, test=empty)
    cells = {"telco": GUESS[:, None] * 1.0}
    columns = score_columns(ColumnGuess(cells=cells, by_splits=cells, kind="values"), [telco], {})
    computed = {
        *score_clusters(GUESS, TRUTH, TRUTH.astype(float), known_per_cluster=1),
        *score_labels(GUESS, TRUTH, scores, classes=6),
        *class_scores(scores, scores, TRUTH),
        *regression_scores(TRUTH + 1.0, TRUTH + 2.0, power=1.5),
        *(columns.keys() - {"chance"}),
    }
    assert computed <= METRICS.keys()
    assert METRICS.keys() - computed == {"loss", "error"}  # of early stopping


def test_stated_chance_levels_are_those_of_any_guess() -> None:
    chance = cluster_chance(GUESS, TRUTH) | permutation_chance([find_metric("auc")], lambda _: {}, TRUTH)
    assert {name: chance[name] for name in CHANCE_LEVELS} == CHANCE_LEVELS == {"ari": 0.0, "auc": 0.5}


def test_chance_of_another_metric_is_the_mean_over_permutations() -> None:
    """The exact mean over all permutations, within four standard errors of 200 draws."""
    guess, truth = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    each = [hits(guess, np.array(order))["hits"] for order in itertools.permutations(truth)]
    found = permutation_chance([HITS], lambda labels: hits(guess, labels), truth)
    assert found["hits"] == pytest.approx(np.mean(each), abs=4 * np.std(each) / np.sqrt(200))
    assert found == permutation_chance([HITS], lambda labels: hits(guess, labels), truth)


def test_chance_of_labels_read_under_the_better_name_follows_from_their_shares() -> None:
    """Of 5 % of one class and a guess of one side for most rows, most are right by chance."""
    truth = (np.arange(400) % 20 == 0).astype(np.int64)
    guess = LabelGuess(values=np.where(np.arange(400) < 60, np.arange(400) % 10 == 0, 2).astype(np.int64))
    attack = LyingSums()
    chance = permutation_chance(attack.metrics, partial(attack.score, guess), truth)
    assert chance["read"] == 0.0
    # 6 of 60 are guessed as the rarer class: .1 · .05 + .9 · .95 is right in the mean
    assert chance["read_right"] == pytest.approx(0.86, abs=0.01)


def test_metrics_are_found_by_name() -> None:
    assert find_metric("hits", [HITS]) is HITS
    assert find_metric("hits").title == "hits"
    outside = find_metric("outside_logloss")
    assert (outside.name, outside.higher_is_better) == ("outside_logloss", False)
    assert outside.title.startswith(METRICS["logloss"].title)
    assert (find_metric("rmse").better(2.0), find_metric("auc").better(2.0)) == (-2.0, 2.0)


def test_attacks_declare_metrics_that_are_not_listed() -> None:
    attacks = ATTACKS.classes()
    assert STANDING in attacks
    for attack in attacks.values():
        own = {metric.name for metric in attack.metrics}
        assert not own & METRICS.keys()
        assert attack.primary in METRICS.keys() | own
    assert {kind for kind, attack in attacks.items() if not attack.reads_view} == {"clustering"}
