"""The weight of unlabeled rows: what is held out, how weights are ranked, and unbalanced classes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.nets.weight_choice import WEIGHTS, Trial, guess_entropy, ranked_weights, try_weights
from labelward.attacks.passive_completion import PassiveCompletion
from labelward.metrics.leakage import score_labels
from labelward.testing.label_attacks import gradient_view, gradients_of


def test_half_of_the_known_rows_of_each_class_is_held_out_once():
    rows, labels = np.arange(10, 24), np.array([0] * 9 + [1] * 5)
    seen = []

    def scores(known, weight):
        seen.append((weight, *known))
        return np.eye(2)[np.isin(np.arange(30), np.arange(19, 24)).astype(int)]  # right about every known row

    trials = try_weights(scores, (rows, labels), 2, rng=np.random.default_rng(1))
    assert [(each.weight, each.agreement) for each in trials] == [(weight, 1.0) for weight in WEIGHTS]
    for weight in WEIGHTS:
        first, second = (told for at, told, _ in seen if at == weight)
        np.testing.assert_array_equal(np.sort(np.concatenate([first, second])), rows)
        for told in (first, second):
            of_class = np.bincount(labels[np.isin(rows, told)], minlength=2)
            assert of_class[0] in (4, 5)
            assert of_class[1] in (2, 3)


def test_agreement_counts_each_class_alike():
    known = np.arange(10), np.array([0] * 8 + [1] * 2)
    (first, *_) = try_weights(lambda *_: np.tile([1.0, 0.0], (40, 1)), known, 2, rng=np.random.default_rng(1))
    assert first.agreement == 0.5
    assert first.spread == 0.0


def test_a_single_known_row_of_a_class_is_not_held_out():
    seen = []

    def scores(known, weight):
        seen.append(known[0].tolist())
        return np.eye(2)[np.arange(30) % 2]

    trials = try_weights(scores, (np.array([4, 5, 6]), np.array([0, 0, 1])), 2, rng=np.random.default_rng(1))
    assert seen == [[4, 5, 6]] * len(WEIGHTS)
    assert all(np.isnan(each.agreement) for each in trials)
    assert trials[0].spread == pytest.approx(guess_entropy(np.repeat([0, 1], [13, 14]), 2))


def test_constant_guesses_come_last_however_well_they_agree():
    trials = [Trial(50.0, 0.9, 0.0), Trial(5.0, 0.7, 0.8), Trial(0.5, 0.8, 0.6)]
    assert ranked_weights(trials) == [0.5, 5.0, 50.0, 0.0]
    assert ranked_weights(
        [Trial(each, np.nan, spread) for each, spread in zip(WEIGHTS, (0.1, 0.9, 0.8), strict=True)]
    ) == [
        5.0,
        0.5,
        50.0,
        0.0,
    ]


def test_the_published_weight_wins_where_it_agrees_best():
    trials = [Trial(50.0, 0.9, 0.8), Trial(5.0, 0.8, 0.9), Trial(0.5, 0.7, 0.9)]
    assert ranked_weights(trials)[0] == 50.0


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2))])
def test_unbalanced_classes_are_not_given_one_class(seed):
    """One row of seven is of the second class, which one column of four tells roughly; ten labels of each are known."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(700) < 1 / 7).astype(np.int64)
    columns = rng.normal(size=(700, 4))
    columns[:, 0] += 1.5 * labels

    def bottom():
        linear = torch.nn.Linear(4, 4)
        with torch.no_grad():
            linear.weight.copy_(torch.eye(4) + 0.1)
            linear.bias.zero_()
        return linear.eval()

    known = np.concatenate([np.flatnonzero(labels == c)[:10] for c in (0, 1)])
    aux = AuxiliaryKnowledge(classes=2, known_rows=known, known_labels=labels[known])
    own = AttackerData(features=columns, columns=list("abcd"), bottom=bottom, untrained=bottom)
    attack = PassiveCompletion(auxiliary=20, steps=200, learning_rate=0.01)
    view, left = gradient_view(gradients_of(labels, 2, 1)), np.setdiff1d(np.arange(700), known)
    guess = attack(view, own, aux, rng=np.random.default_rng(seed))
    found = score_labels(guess.values[left], labels[left], guess.scores[left], classes=2)
    assert found["auc"] > 0.6
    assert found["balanced_accuracy"] > 0.55
    assert guess.notes["unlabeled_weight"] in (*WEIGHTS, 0.0)
    fixed = replace(attack, unlabeled_weight=50.0)(view, own, aux, rng=np.random.default_rng(seed))
    assert fixed.notes.keys() == {"loss"}
