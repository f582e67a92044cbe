"""Split evidence: what the choice of splits tells beyond the row sets, its gradients, and when it tells too little."""

from __future__ import annotations

import numpy as np
import pytest
from tree_runs import cancer, found, guessed, own_of, trained

from labelward.attacks import ATTACKS
from labelward.attacks.base import AttackerData
from labelward.attacks.clustering import Clustering
from labelward.attacks.coalition import joined_data
from labelward.attacks.instance_clustering import InstanceClustering
from labelward.attacks.instance_spaces import drawn_columns, observed_trees
from labelward.attacks.leaf_smoothing import LeafSmoothing
from labelward.attacks.split_evidence import Choices, SplitEvidence, disclosed_nodes
from labelward.errors import JobError
from labelward.kernels.candidate_gains import Blocks, add_gradients, candidate_gains
from labelward.party.joined_view import JoinedView
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost
from labelward.testing.attacks import AttackContract
from refusals import refused
from wiring import make_parts, make_targets, with_missing

BOOSTED = SecureBoost(trees=5, depth=5, feature_fraction=0.8)
FOREST = FederatedForest(trees=5, depth=5, feature_fraction=0.8, row_fraction=0.8)


class TestSplitEvidence(AttackContract):
    def attack(self):
        return SplitEvidence()


class TestSplitEvidenceOfThreeClassesWithoutThreshold(AttackContract):
    classes = 3

    def attack(self):
        return SplitEvidence(least_evidence=0.0, steps=5)


@pytest.mark.slow
@pytest.mark.parametrize("params", [BOOSTED, FOREST], ids=["boosted", "forest"])
def test_the_choice_of_splits_tells_more_than_row_sets(params):
    parts, labels = cancer()
    view, own = trained(parts, labels, params).views["passive"], own_of(parts)
    others = [found(attack, view, own, labels) for attack in (Clustering(), LeafSmoothing(), InstanceClustering())]
    assert found(SplitEvidence(), view, own, labels) > max(others) + 0.03


@pytest.mark.parametrize("params", [BOOSTED, FOREST], ids=["boosted", "forest"])
def test_of_three_classes_with_missing_values_it_tells_more_than_row_sets(params):
    whole = make_parts(3, 300, {"active": 3, "passive": 4})
    labels = make_targets(3, whole, "classes")
    parts = with_missing(3, whole, 0.1)
    view, own = trained(parts, labels, params).views["passive"], own_of(parts)
    others = [found(attack, view, own, labels) for attack in (LeafSmoothing(), InstanceClustering())]
    assert found(SplitEvidence(), view, own, labels) > max(others)


def test_the_columns_of_a_tree_are_those_that_its_owner_drew():
    parts, labels = cancer()
    view = trained(parts, labels, BOOSTED).views["passive"]
    for tree, drawn in zip(observed_trees(view), drawn_columns(view), strict=True):
        assert len(drawn) == 12
        assert {split.column for split in tree.mine.values()} <= set(drawn)


def test_a_coalition_offers_the_candidates_of_all_members():
    parts = make_parts(1, 200, {"active": 2, "left": 3, "right": 4})
    labels = make_targets(1, parts, "classes", classes=2)
    run = trained(parts, labels, FOREST)
    view = JoinedView([run.views["left"], run.views["right"]])
    own = joined_data(["left", "right"], [own_of(parts, "left"), own_of(parts, "right")])
    names = drawn_columns(view)
    assert all(
        [len([name for name in drawn if name.startswith(f"{party}.")]) for party in ("left", "right")] == [2, 3]
        for drawn in names
    )
    assert all(len(node.columns) == 5 for node in disclosed_nodes(view, own))
    assert "objective" in guessed(SplitEvidence(), view, own, 2).notes


def test_with_too_little_evidence_the_guess_is_leaf_smoothings():
    parts = make_parts(2, 1500, {"active": 3, "passive": 3}, levels=2)
    labels = make_targets(2, parts, "classes", classes=2)
    view, own = trained(parts, labels, FOREST).views["passive"], own_of(parts)
    guess = guessed(SplitEvidence(), view, own, 2)
    assert 0 < guess.notes["evidence"] < 0.06
    assert "objective" not in guess.notes
    np.testing.assert_array_equal(guess.values, guessed(LeafSmoothing(), view, own, 2).values)
    assert "objective" in guessed(SplitEvidence(least_evidence=0.0), view, own, 2).notes


def test_categorical_columns_offer_no_candidates():
    parts, labels = cancer()
    view, own = trained(parts, labels, FOREST).views["passive"], own_of(parts)
    coded = AttackerData(features=own.features, columns=own.columns, categories={own.columns[0]: 3})
    assert all(0 not in node.columns for node in disclosed_nodes(view, coded))
    assert any(0 in node.columns for node in disclosed_nodes(view, own))


def small_blocks():
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.permutation(9)[:7], rng.permutation(9)]).astype(np.int32)
    cut = np.zeros(16, np.bool_)
    cut[[0, 3, 5, 8, 14]] = True
    return Blocks(rows, np.array([0, 7, 16]), np.array([0, 1]), cut, np.array([0, 0, 0, 1, 1])), rng


def test_gains_are_those_of_their_definition_and_their_derivatives_those_of_differences():
    blocks, rng = small_blocks()
    q, p, h = rng.random((9, 3)), rng.random((2, 9, 3)), rng.random((2, 9, 3))
    gains, factors = candidate_gains(blocks, q, p, h, 0.5), rng.normal(size=5)

    def score(rows):
        return np.sum((p[0, rows] - q[rows]).sum(0) ** 2 / (h[0, rows].sum(0) + 0.5))

    left, right = blocks.rows[:4], blocks.rows[4:7]
    assert gains[1] == pytest.approx(score(left) + score(right) - score(blocks.rows[:7]))
    gradient = np.zeros_like(q)
    add_gradients(blocks, factors, q, p, h, 0.5, gradient)
    np.testing.assert_allclose(
        gradient, by_differences(lambda q: factors @ candidate_gains(blocks, q, p, h, 0.5), q), atol=1e-6
    )


def by_differences(function, q, step=1e-6):
    gradient = np.zeros_like(q)
    for at in np.ndindex(q.shape):
        moved = np.zeros_like(q)
        moved[at] = step
        gradient[at] = (function(q + moved) - function(q - moved)) / (2 * step)
    return gradient


@pytest.mark.parametrize("params", [BOOSTED, FOREST], ids=["boosted", "forest"])
def test_the_gradient_of_the_objective_is_that_of_differences(params):
    parts = make_parts(4, 60, {"active": 2, "passive": 3})
    labels = make_targets(4, parts, "classes")
    view, own = trained(parts, labels, params).views["passive"], own_of(parts)
    choices = Choices.of(view, own, 3, list(disclosed_nodes(view, own)))
    q = np.random.default_rng(4).dirichlet(np.ones(3), size=60)
    held = choices.held(q)
    _, gradient = choices.objective(q, held, choices.parts)
    differences = by_differences(lambda q: choices.objective(q, held, choices.parts)[0], q)
    np.testing.assert_allclose(
        *(each - each.mean(axis=1, keepdims=True) for each in (gradient, differences)), atol=1e-6
    )


@pytest.mark.parametrize(("name", "value"), [("steps", 0), ("least_evidence", -0.1)])
def test_parameters_that_cannot_be_are_refused_by_name(name, value):
    with refused(JobError, "range", field=name):
        ATTACKS.make("split-evidence", {name: value})
