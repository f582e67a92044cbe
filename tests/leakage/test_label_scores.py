"""Scores of guessed labels against cases worked out by hand, who knows which rows, and guesses of labels in files."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.known_label_models import fit_boosted, fit_logistic
from labelward.errors import DataError
from labelward.leakage.known_rows import sample_known_rows
from labelward.leakage.run_attack import score_label_guess
from labelward.leakage.stored_guesses import read_guess, score_guess, write_guess
from labelward.leakage.stored_views import read_known
from labelward.metrics.leakage import label_chance, score_labels
from refusals import refused


def test_two_classes_by_hand():
    """Three of five right; of the second class two guesses, one of them right, of two rows."""
    guess, truth = np.array([0, 0, 1, 1, 0]), np.array([0, 0, 0, 1, 1])
    scores = np.column_stack([np.zeros(5), [0.1, 0.2, 0.8, 0.9, 0.3]])
    found = score_labels(guess, truth, scores, classes=2)
    right = {"accuracy": 0.6, "balanced_accuracy": pytest.approx((2 / 3 + 1 / 2) / 2)}
    assert found == {**right, "auc": pytest.approx(5 / 6), "f1": 0.5}
    assert label_chance(guess, truth, scores, classes=2) == pytest.approx(
        {"accuracy": 0.6 * 0.6 + 0.4 * 0.4, "balanced_accuracy": 0.5, "auc": 0.5, "f1": 2 * 0.16 / 0.8}
    )


def test_without_scores_the_guess_ranks():
    guess, truth = np.array([0, 1, 1, 0]), np.array([0, 0, 1, 1])
    assert score_labels(guess, truth, classes=2)["auc"] == 0.5
    assert score_labels(truth, truth, classes=2) == {
        "accuracy": 1.0,
        "balanced_accuracy": 1.0,
        "auc": 1.0,
        "f1": 1.0,
    }


def test_five_best_of_seven():
    truth = np.array([0, 6, 5, 1])
    scores = np.tile(np.arange(7.0), (4, 1))  # the best five of each row are classes 2 to 6
    found = score_labels(scores.argmax(1), truth, scores, classes=7)
    assert found["top5"] == 0.5
    assert label_chance(scores.argmax(1), truth, scores, classes=7)["top5"] == 0.5
    assert "top5" not in score_labels(scores.argmax(1), truth, classes=7)


def test_a_class_that_does_not_occur_is_left_out_of_means():
    found = score_labels(np.array([0, 1, 2, 1]), np.array([0, 1, 0, 1]), classes=3)
    assert found["f1"] == pytest.approx((2 / 3 + 1) / 2)
    assert found["auc"] == pytest.approx((0.75 + 1) / 2)


def test_a_constant_guess_is_at_chance_however_unbalanced_the_classes():
    truth = np.repeat([0, 1], [95, 5])
    found, chance = (score(np.zeros(100, np.int64), truth, classes=2) for score in (score_labels, label_chance))
    assert found["accuracy"] == 0.95
    assert found["balanced_accuracy"] == chance["balanced_accuracy"] == 0.5


def test_rows_of_one_class_only_rank_nothing():
    assert score_labels(np.array([0, 1]), np.array([1, 1]), classes=2)["auc"] == 0.5


@settings(max_examples=40)
@given(
    st.integers(2, 7).flatmap(
        lambda c: st.tuples(st.just(c), st.lists(st.integers(0, c - 1), min_size=2, max_size=4), st.integers(0, 99))
    )
)
def test_chance_is_the_mean_over_all_permutations(case):
    classes, labels, seed = case
    truth, rng = np.array(labels), np.random.default_rng(seed)
    guess, scores = rng.integers(classes, size=len(truth)), rng.normal(size=(len(truth), classes))
    every = [score_labels(guess, np.array(each), scores, classes=classes) for each in itertools.permutations(truth)]
    mean = {name: np.mean([each[name] for each in every]) for name in every[0]}
    assert label_chance(guess, truth, scores, classes=classes) == pytest.approx(mean)


def test_the_area_is_that_of_scikit_learn_with_ties():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(1)
    truth, scores = rng.integers(2, size=300), rng.integers(9, size=(300, 2)).astype(float)
    found = score_labels(scores.argmax(1), truth, scores, classes=2)["auc"]
    assert found == pytest.approx(roc_auc_score(truth, scores[:, 1]), abs=1e-12)


def test_refuses_guesses_of_other_rows():
    with refused(DataError, "rows", value=3) as caught:
        score_labels(np.zeros(3, np.int64), np.zeros(2, np.int64), classes=2)
    assert "2 rows" in caught.value.reason
    with refused(DataError, "rows", value=0):
        label_chance(np.zeros(0, np.int64), np.zeros(0, np.int64), classes=2)


def test_known_rows_are_not_scored_and_rows_outside_have_names_of_their_own():
    guess = LabelGuess(
        values=np.array([0, 0, 1]), kind="labels", outside=LabelGuess(values=np.array([1, 1]), kind="labels")
    )
    aux = AuxiliaryKnowledge(classes=2, known_rows=np.array([0]), known_labels=np.array([0]))
    found = score_label_guess(guess, np.array([0, 1, 1]), aux, np.array([1, 0]))
    assert (found["accuracy"], found["outside_accuracy"]) == (0.5, 0.5)
    assert found["chance"].keys() == found.keys() - {"chance"}


def test_known_rows_are_as_many_of_each_class():
    labels = np.repeat([0, 1, 2], [200, 50, 30])
    rows = sample_known_rows(labels, 40, seed=3)
    assert sorted(np.bincount(labels[rows]).tolist()) == [13, 13, 14]
    assert (np.diff(rows) > 0).all()
    assert np.array_equal(rows, sample_known_rows(labels, 40, seed=3))
    assert not np.array_equal(rows, sample_known_rows(labels, 40, seed=4))
    assert len(sample_known_rows(labels, 0, seed=3)) == 0


def test_a_small_class_is_known_whole_and_others_make_up_for_it():
    labels = np.repeat([0, 1, 2], [100, 100, 2])
    assert np.bincount(labels[sample_known_rows(labels, 40, seed=1)]).tolist() == [19, 19, 2]


@pytest.mark.parametrize("count", [2, 6])
def test_too_few_known_rows_or_none_left_to_guess_is_refused(count):
    with refused(DataError, "labels", field="auxiliary", value=count):
        sample_known_rows(np.array([0, 1, 2, 0, 1, 2]), count, seed=1)


@pytest.mark.parametrize("model", [fit_logistic, fit_boosted])
def test_supervised_baselines_learn_from_known_rows_alone(model):
    """Columns with a gap and a category; the labels of unknown rows are nowhere to be read."""
    rng = np.random.default_rng(1)
    labels = rng.permutation(np.arange(300) % 3)
    features = np.column_stack([labels + rng.normal(scale=0.2, size=300), rng.integers(2, size=300), np.ones(300)])
    features[5, 0] = np.nan
    own = AttackerData(features=features, columns=["a", "b", "c"], categories={"b": 2}, outside=features[:40])
    rows = sample_known_rows(labels, 60, seed=1)
    guess = model(own, AuxiliaryKnowledge(classes=3, known_rows=rows, known_labels=labels[rows]))
    found = score_label_guess(guess, labels, AuxiliaryKnowledge(classes=3, known_rows=rows), labels[:40])
    assert found["accuracy"] > 0.85
    assert found["outside_accuracy"] > 0.85
    np.testing.assert_allclose(guess.scores.sum(1), 1)


@pytest.mark.slow
def test_the_upper_bound_says_of_each_row_what_others_labels_tell():
    """Columns that say nothing give chance, although every label is learned from."""
    import torch

    torch.set_num_threads(1)  # more would wait for each other on a busy machine
    from labelward.attacks.nets.upper_bound import oracle_upper_bound
    from labelward.attacks.passive_completion import PassiveCompletion

    rng = np.random.default_rng(1)
    labels = rng.permutation(np.arange(400) % 2)

    def bottom():
        made = torch.nn.Linear(2, 4, device="meta").to_empty(device="cpu")
        with torch.no_grad():
            made.weight.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
            made.bias.zero_()
        return made

    accuracies = []
    for signal in (0.0, 3.0):
        x = rng.normal(size=(400, 2)) + signal * labels[:, None]
        own = AttackerData(features=x, columns=["a", "b"], untrained=bottom, outside=x[:50])
        guess = oracle_upper_bound(PassiveCompletion(), own, labels, classes=2, folds=2, rng=np.random.default_rng(1))
        accuracies.append(np.mean(guess.values == labels))
        assert len(guess.outside.values) == 50
    assert abs(accuracies[0] - 0.5) < 0.1  # four standard errors
    assert accuracies[1] > 0.95


def table(path, ids, **columns):
    pq.write_table(pa.table({"id": list(map(str, ids)), **columns}), path)
    return path


def test_a_guess_of_labels_is_scored_by_the_names_of_the_classes(tmp_path):
    """The attacker's numbers follow the names that it knows; rows it was told do not count."""
    known = table(tmp_path / "known.parquet", [3, 0], label=["9", "10"])
    rows, labels, names = read_known(known, ["0", "1", "2", "3"], "label")
    assert (rows.tolist(), labels.tolist(), names) == ([0, 3], [1, 0], ("9", "10"))
    scores = np.array([[0.0, 1.0], [0.2, 0.8], [0.7, 0.3], [1.0, 0.0]])
    guess = LabelGuess(values=scores.argmax(1), kind="labels", scores=scores)
    path = tmp_path / "guess.parquet"
    write_guess(path, ["0", "1", "2", "3"], guess, {"party": "telco"}, known=rows, names=names)
    stored = read_guess(path)
    np.testing.assert_array_equal(stored.scores, scores)
    assert stored.known.tolist() == [True, False, False, True]
    truth = table(tmp_path / "truth.parquet", range(4), label=["10", "10", "9", "9"])
    assert score_guess(path, truth)["accuracy"] == 1.0
    other = table(tmp_path / "other.parquet", range(4), label=["10", "10", "8", "8"])
    with refused(DataError, "labels", field=f"table '{tmp_path / 'other.parquet'}'", value="8"):
        score_guess(path, other)


def test_a_known_row_that_is_not_the_view_s_is_refused(tmp_path):
    known = table(tmp_path / "known.parquet", [3, 7], label=["a", "b"])
    with refused(DataError, "rows", field=f"table '{tmp_path / 'known.parquet'}'", value="7"):
        read_known(known, ["0", "3"], "label")


@pytest.mark.slow
def test_the_upper_bound_takes_classes_of_a_single_row():
    import torch

    from labelward.attacks.nets.upper_bound import oracle_upper_bound
    from labelward.attacks.passive_completion import PassiveCompletion

    torch.set_num_threads(1)
    x, labels = np.random.default_rng(1).normal(size=(60, 2)), np.arange(60) % 2
    labels[7] = 2
    own = AttackerData(features=x, columns=["a", "b"], untrained=lambda: torch.nn.BatchNorm1d(2))
    guess = oracle_upper_bound(PassiveCompletion(), own, labels, classes=3, folds=3, rng=np.random.default_rng(1))
    assert guess.scores.shape == (60, 3)
    assert guess.outside is None
