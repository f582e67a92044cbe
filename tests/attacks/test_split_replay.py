"""Split replay: what splits tell when the trees are grown again, its derivatives, and when nothing can be replayed."""

from __future__ import annotations

import numpy as np
import pytest
from tree_runs import cancer, found, guessed, own_of, trained

from labelward.attacks import ATTACKS
from labelward.attacks import split_replay as module
from labelward.attacks.clustering import Clustering
from labelward.attacks.coalition import joined_data
from labelward.attacks.leaf_smoothing import LeafSmoothing
from labelward.attacks.split_replay import SplitReplay, _Evidence
from labelward.errors import JobError
from labelward.kernels.split_choices import choice_gradients, push_down, relabel_rows
from labelward.party.joined_view import JoinedView
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost
from labelward.testing.attacks import AttackContract
from refusals import refused
from wiring import make_parts, make_targets, with_missing

BOOSTED = SecureBoost(trees=5, depth=5, feature_fraction=0.8, bins=16)
FOREST = FederatedForest(trees=5, depth=5, feature_fraction=0.8, row_fraction=0.8, bins=16)
BOTH = pytest.mark.parametrize("params", [BOOSTED, FOREST], ids=["boosted", "forest"])
BOTH_BOOSTED_SLOW = pytest.mark.parametrize(
    "params", [pytest.param(BOOSTED, marks=pytest.mark.slow), FOREST], ids=["boosted", "forest"]
)


class TestSplitReplay(AttackContract):
    def attack(self):
        return SplitReplay()


class TestSplitReplayOfThreeClasses(AttackContract):
    classes = 3

    def attack(self):
        return SplitReplay(steps=5)


def evidence_of(params, classes, rows=60):
    parts = make_parts(4, rows, {"active": 2, "passive": 3})
    parts = with_missing(4, parts, 0.1)
    labels = make_targets(4, make_parts(4, rows, {"active": 2, "passive": 3}), "classes", classes=classes)
    evidence = _Evidence.of(trained(parts, labels, params).views["passive"], own_of(parts), classes)
    assert evidence is not None
    return evidence.sampled(np.random.default_rng(1))[0], labels


@BOTH_BOOSTED_SLOW
def test_replayed_splits_tell_more_than_row_sets(params):
    parts, labels = cancer()
    view, own = trained(parts, labels, params).views["passive"], own_of(parts)
    others = [found(attack, view, own, labels) for attack in (Clustering(), LeafSmoothing())]
    assert found(SplitReplay(), view, own, labels) > max(others) + 0.03


@BOTH_BOOSTED_SLOW
def test_of_three_classes_with_missing_values_it_tells_more_than_row_sets(params):
    whole = make_parts(3, 300, {"active": 3, "passive": 4})
    labels = make_targets(3, whole, "classes")
    parts = with_missing(3, whole, 0.1)
    view, own = trained(parts, labels, params).views["passive"], own_of(parts)
    assert found(SplitReplay(), view, own, labels) > found(LeafSmoothing(), view, own, labels)


def test_a_coalition_offers_the_candidates_of_all_members():
    parts = make_parts(1, 200, {"active": 2, "left": 3, "right": 4})
    labels = make_targets(1, parts, "classes", classes=2)
    run = trained(parts, labels, FOREST)
    view = JoinedView([run.views["left"], run.views["right"]])
    own = joined_data(["left", "right"], [own_of(parts, "left"), own_of(parts, "right")])
    evidence = _Evidence.of(view, own, 2)
    assert np.all((evidence.grown.columns >= 0).sum(axis=1) == 5)  # of 3 columns 2 take part, of 4 columns 3
    assert "objective" in guessed(SplitReplay(steps=5), view, own, 2).notes


@pytest.mark.slow
def test_of_a_sample_of_rows_the_others_follow(monkeypatch):
    parts, labels = cancer()
    view, own = trained(parts, labels, BOOSTED).views["passive"], own_of(parts)
    evidence = _Evidence.of(view, own, 2)
    monkeypatch.setattr(module, "_CELLS", 300 * evidence.grown.columns.size)
    assert len(evidence.sampled(np.random.default_rng(1))[1]) == 300
    assert found(SplitReplay(sweeps=0), view, own, labels) > found(Clustering(), view, own, labels) + 0.03


def test_where_no_tree_fits_the_guess_is_leaf_smoothings(monkeypatch):
    parts, labels = cancer()
    view, own = trained(parts, labels, FOREST).views["passive"], own_of(parts)
    monkeypatch.setattr(module, "_TABLE", 1)
    guess = guessed(SplitReplay(), view, own, 2)
    assert "objective" not in guess.notes
    np.testing.assert_array_equal(guess.values, guessed(LeafSmoothing(), view, own, 2).values)


@BOTH
@pytest.mark.parametrize("classes", [2, 3])
def test_the_pull_on_labels_is_the_derivative_of_the_likelihood(params, classes):
    evidence, _ = evidence_of(params, classes)
    q = np.random.default_rng(4).dirichlet(np.ones(classes), size=60)
    p, weights = evidence.held(q)
    by_left, by_total = evidence.tables()

    def cost(q):
        return choice_gradients(evidence.grown, evidence.sums(q, p, weights), (0.0, 2.0), 0.05, by_left, by_total)

    cost(q)
    push_down(evidence.grown, by_left, by_total)
    pull = evidence.pull(by_left, by_total)
    for at in [(0, classes - 1), (17, 1), (59, 1)]:
        moved = np.zeros_like(q)
        moved[at] = 1e-6
        assert -pull[at] == pytest.approx((cost(q + moved) - cost(q - moved)) / 2e-6, abs=1e-5)


@BOTH
@pytest.mark.parametrize("classes", [2, 3])
def test_relabeled_rows_leave_sums_counts_and_violations_as_if_made_anew(params, classes):
    evidence, labels = evidence_of(params, classes)
    q, rng = np.eye(classes)[labels], np.random.default_rng(2)
    p, weights = evidence.held(q)
    sums, found, counts = evidence.state(labels, p, weights)
    changed = labels.copy()
    proposals = rng.permutation(60), rng.integers(1, classes, 60), np.full(60, 30.0)
    relabel_rows(evidence.grown, sums, found, counts, changed, proposals, 0.5)
    assert np.any(changed != labels)
    other_sums, *others = evidence.state(changed, p, weights)
    for mine, anew in zip((*sums, found, counts), (*other_sums, *others), strict=True):
        np.testing.assert_allclose(mine, anew, atol=1e-8)


@pytest.mark.parametrize(("name", "value"), [("steps", 0), ("sweeps", -1)])
def test_parameters_that_cannot_be_are_refused_by_name(name, value):
    with refused(JobError, "range", field=name):
        ATTACKS.make("split-replay", {name: value})
