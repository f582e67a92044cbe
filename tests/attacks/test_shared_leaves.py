"""Leaf smoothing, spectral clustering, latent classes, consensus: what they find, and their bounds."""

import numpy as np
import pytest

from labelward.attacks import ATTACKS
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.id2graph import ID2Graph
from labelward.attacks.latent_classes import fit_classes
from labelward.errors import JobError
from labelward.kernels.leaf_graph import leaf_graph
from labelward.metrics.leakage import score_clusters
from labelward.testing.attacks import AttackContract, planted_view
from refusals import refused

KINDS = ("leaf-smoothing", "spectral-clustering", "latent-classes", "consensus")


class TestLeafSmoothing(AttackContract):
    def attack(self):
        return ATTACKS.make("leaf-smoothing", {})


class TestLeafSmoothingOfThreeClasses(AttackContract):
    classes = 3

    def attack(self):
        return ATTACKS.make("leaf-smoothing", {"rounds": 3, "eta": 1.0, "size_exponent": 0.0})


class TestSpectralClustering(AttackContract):
    def attack(self):
        return ATTACKS.make("spectral-clustering", {})


class TestSpectralClusteringWithoutColumns(AttackContract):
    classes = 3

    def attack(self):
        return ATTACKS.make("spectral-clustering", {"beside": 0.0, "extra": 0, "steps": 1})


class TestLatentClasses(AttackContract):
    def attack(self):
        return ATTACKS.make("latent-classes", {})


class TestConsensus(AttackContract):
    def attack(self):
        return ATTACKS.make("consensus", {})


class TestConsensusOfThreeClasses(AttackContract):
    classes = 3

    def attack(self):
        return ATTACKS.make("consensus", {"rounds": 0})


def noisy_trees(classes=3, rows=3000, seed=4):
    """A fifth of the rows are in leaves of any class; columns hardly tell of the classes."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=rows)
    seen = np.where(rng.random((5, rows)) < 0.2, rng.integers(classes, size=(5, rows)), truth)
    leaves = (4 * seen + rng.integers(4, size=seen.shape)).astype(np.int32)
    columns = rng.normal(size=(rows, 6))
    columns[:, 0] += 0.3 * truth
    return truth, leaves, AttackerData(features=columns, columns=list("abcdef"))


@pytest.mark.parametrize("kind", KINDS)
def test_classes_that_leaves_show_with_noise_are_found(kind):
    truth, leaves, own = noisy_trees()
    guess = ATTACKS.make(kind, {})(
        planted_view(leaves), own, AuxiliaryKnowledge(classes=3), rng=np.random.default_rng(1)
    )
    blind = ATTACKS.make("clustering", {})(
        planted_view(leaves), own, AuxiliaryKnowledge(classes=3), rng=np.random.default_rng(1)
    )
    assert score_clusters(guess.values, truth)["v_measure"] > 0.6
    assert score_clusters(blind.values, truth)["v_measure"] < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_leaves_that_say_nothing_leave_chance(kind):
    rng = np.random.default_rng(2)
    truth, leaves = rng.integers(2, size=4000), rng.integers(4, size=(5, 4000)).astype(np.int32)
    own = AttackerData(features=rng.normal(size=(4000, 3)), columns=list("abc"))
    guess = ATTACKS.make(kind, {})(planted_view(leaves), own, AuxiliaryKnowledge(classes=2), rng=rng)
    assert score_clusters(guess.values, truth)["v_measure"] < 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_groups_than_classes_and_rows_in_no_leaf_are_guessed(kind):
    leaves = np.array([[1, 1, 2, 2, -1, -1]] * 2, np.int32)
    own = AttackerData(features=np.arange(6.0)[:, None], columns=["a"])
    guess = ATTACKS.make(kind, {})(
        planted_view(leaves), own, AuxiliaryKnowledge(classes=5), rng=np.random.default_rng(1)
    )
    assert guess.values.shape == (6,)
    assert guess.values.max() < 5


def test_expectation_maximization_repairs_noisy_classes():
    truth, leaves, _ = noisy_trees()
    rng = np.random.default_rng(5)
    start = np.where(rng.random(len(truth)) < 0.3, rng.integers(3, size=len(truth)), truth)
    found = fit_classes(leaf_graph(leaves, np.ones(5)), start, 3, None, 1.0, 50)
    assert np.mean(found == truth) > np.mean(start == truth) + 0.1


def test_consensus_states_how_far_the_attacks_agree():
    _, leaves, own = noisy_trees()
    view, aux = planted_view(leaves), AuxiliaryKnowledge(classes=3)
    clear = ATTACKS.make("consensus", {})(view, own, aux, rng=np.random.default_rng(1)).notes["agreement"]
    shuffled = np.random.default_rng(2).permuted(leaves, axis=1)
    unclear = ATTACKS.make("consensus", {})(planted_view(shuffled), own, aux, rng=np.random.default_rng(1))
    assert unclear.notes["agreement"] < 0.6 < clear


@pytest.mark.parametrize(
    ("kind", "name", "value", "code"),
    [
        ("leaf-smoothing", "rounds", 0, "range"),
        ("leaf-smoothing", "eta", 1.2, "range"),
        ("leaf-smoothing", "size_exponent", 1.5, "range"),
        ("spectral-clustering", "steps", 0, "range"),
        ("spectral-clustering", "beside", -1.0, "range"),
        ("latent-classes", "leaf_weight", 0.0, "range"),
        ("consensus", "rounds", -1, "range"),
        ("consensus", "rounds", 1.5, "type"),
    ],
)
def test_parameters_that_cannot_be_are_refused_by_name(kind, name, value, code):
    with refused(JobError, code, field=name):
        ATTACKS.make(kind, {name: value})


def test_a_view_of_roots_gives_what_id2graph_gives():
    """A tree's sample alone, which is drawn at random, tells nothing."""
    leaves = np.zeros((3, 300), np.int32)
    leaves[np.random.default_rng(1).random(leaves.shape) < 0.2] = -1
    own = AttackerData(features=np.random.default_rng(2).normal(size=(300, 3)), columns=list("abc"))
    aux = AuxiliaryKnowledge(classes=2)
    guesses = [
        ATTACKS.make(kind, {})(planted_view(leaves), own, aux, rng=np.random.default_rng(1)).values
        for kind in ("leaf-smoothing", "clustering")
    ]
    np.testing.assert_array_equal(*guesses)
    found = ATTACKS.make("consensus", {})(planted_view(leaves), own, aux, rng=np.random.default_rng(1)).values
    expected = ID2Graph()(planted_view(leaves), own, aux, rng=np.random.default_rng(1)).values
    np.testing.assert_array_equal(found, expected)
