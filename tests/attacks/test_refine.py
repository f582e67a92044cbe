"""ID2Graph's options: on views where each must help, and where none may change anything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blames import refused_about
from crossing import crossed
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.clustering import Clustering
from labelward.attacks.id2graph import ID2Graph
from labelward.attacks.id2graph_variants import (
    attribute_leaves,
    cell_weights,
    cluster_count,
    leaf_factors,
    rows_of_leaves,
)
from labelward.errors import JobError
from labelward.kernels.leaf_signatures import merge_identical_rows
from labelward.metrics.leakage import score_clusters
from labelward.testing.attacks import AttackContract, planted_view

ROWS = 400
OPTIONS = (
    {"tree_weights": "depth"},
    {"tree_weights": "size"},
    {"tree_weights": "purity"},
    {"attributes": 0.2},
    {"clusters": "communities"},
    {"clusters": "silhouette"},
)
DRAW = np.random.default_rng(1)


def noise(rows=ROWS):
    return AttackerData(features=np.random.default_rng(2).normal(size=(rows, 3)), columns=["a", "b", "c"])


def v_measure(attack, leaves, truth, own=None, classes=None):
    known = len(set(truth)) if classes is None else classes
    view, own = planted_view(leaves.astype(np.int32)), own or noise(leaves.shape[1])
    guess = attack(view, own, AuxiliaryKnowledge(classes=known), rng=np.random.default_rng(3))
    return score_clusters(guess.values, truth)["v_measure"]


@pytest.mark.parametrize("option", OPTIONS, ids=str)
class TestContract(AttackContract):
    @pytest.fixture(autouse=True)
    def _choose(self, option):
        self.option = option

    def attack(self):
        return ID2Graph(**self.option)

    def baseline(self):
        return Clustering() if "clusters" not in self.option else self.attack()

    def test_gives_one_guess_a_row(self):
        guess = self.planted()
        assert guess.values.shape == (self.rows,)
        assert guess.values.min() >= 0
        assert guess.values.max() < (20 if "clusters" in self.option else self.classes)


@pytest.mark.parametrize("option", OPTIONS, ids=str)
@pytest.mark.parametrize("classes", [2, 5])
def test_no_option_loses_labels_that_the_leaves_are(option, classes):
    truth = np.arange(ROWS) % classes
    assert v_measure(ID2Graph(**option), np.tile(truth, (3, 1)), truth) == pytest.approx(1.0)


@pytest.mark.parametrize("option", OPTIONS, ids=str)
@pytest.mark.parametrize("leaves", [np.zeros((1, 9)), np.arange(9)[None] % 8, np.full((2, 9), -1)], ids=str)
def test_views_that_say_next_to_nothing_are_no_trouble(option, leaves):
    view = planted_view(leaves.astype(np.int32))
    guess = ID2Graph(**option)(view, noise(9), AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(3))
    assert guess.values.shape == (9,)


def test_attributes_help_where_columns_tell_more_than_noisy_trees():
    """Communities of noisy leaves rule k-means; columns that know better must be heard before."""
    draw = np.random.default_rng(4)
    truth = np.arange(ROWS) % 4
    leaves = np.where(draw.random((3, ROWS)) < 0.6, draw.integers(4, size=(3, ROWS)), truth)
    own = AttackerData(features=np.eye(4)[truth] + 0.2 * draw.normal(size=(ROWS, 4)), columns=["a", "b", "c", "d"])
    plain, helped = (v_measure(ID2Graph(**one), leaves, truth, own) for one in ({}, {"attributes": 1.0}))
    assert helped > plain + 0.1


def test_depth_helps_where_shallow_leaves_mislead():
    """Three trees split once, by chance; one splits to the end and shows the labels."""
    draw = np.random.default_rng(5)
    truth = np.arange(ROWS) % 8
    leaves = np.vstack([draw.integers(2, size=(3, ROWS)), truth])
    plain, helped = (v_measure(ID2Graph(eta=1.0, **one), leaves, truth) for one in ({}, {"tree_weights": "depth"}))
    assert helped > plain + 0.1


def test_size_helps_where_a_large_leaf_joins_small_classes():
    """Each tree leaves most rows, other ones each time, in one leaf whose pairs outnumber all others."""
    draw = np.random.default_rng(6)
    truth = np.arange(ROWS) % 8
    leaves = np.where(draw.random((4, ROWS)) < 0.6, 8, truth)
    plain, helped = (v_measure(ID2Graph(eta=1.0, **one), leaves, truth) for one in ({}, {"tree_weights": "size"}))
    assert helped > plain + 0.1


def test_purity_helps_where_a_leaf_mixes_what_other_trees_tell_apart():
    """Half of the rows, other ones in each tree, are in one leaf, whose pairs the other trees do not confirm."""
    draw = np.random.default_rng(7)
    truth = np.arange(ROWS) % 8
    leaves = np.where(draw.random((4, ROWS)) < 0.5, 8, truth)
    plain, helped = (v_measure(ID2Graph(eta=1.0, **one), leaves, truth) for one in ({}, {"tree_weights": "purity"}))
    assert helped > plain + 0.1


@crossed("kind,classes", ["communities", "silhouette"], [2, 7, 4])
def test_the_number_of_classes_is_found_where_communities_are_the_classes(kind, classes):
    truth = np.arange(ROWS) % classes
    view = planted_view(np.tile(truth, (3, 1)).astype(np.int32))
    for believed in (2, 9):  # what the attacker is told of classes is not read
        guess = ID2Graph(clusters=kind)(
            view, noise(), AuxiliaryKnowledge(classes=believed), rng=np.random.default_rng(3)
        )
        assert guess.notes["clusters"] == classes
        assert score_clusters(guess.values, truth)["ari"] == pytest.approx(1.0)


def test_crumbs_are_no_communities():
    crumbs = np.concatenate([np.repeat([0, 1, 2], 130), 3 + np.arange(10)]).astype(np.int32)
    assert cluster_count("communities", noise().features, crumbs, 3.0, 1) == 3


matrices = st.tuples(st.integers(1, 4), st.integers(1, 15)).flatmap(
    lambda shape: arrays(np.int32, shape, elements=st.integers(-1, 4))
)


@given(matrices)
def test_rows_of_leaves_are_counted(leaves):
    rows = rows_of_leaves(merge_identical_rows(leaves))
    for tree, counted in zip(leaves, rows, strict=True):
        expected = np.unique(tree[tree >= 0], return_counts=True)[1]
        assert sorted(counted[counted > 0]) == sorted(expected)


@given(matrices, st.sampled_from(["discount", "depth", "size", "purity"]))
def test_factors_are_above_0_and_at_most_1(leaves, kind):
    signatures = merge_identical_rows(leaves)
    factors = leaf_factors(kind, leaves, signatures, np.ones(len(leaves)), np.random.default_rng(1))
    assert factors.shape == rows_of_leaves(signatures).shape
    assert np.all((factors > 0) & (factors <= 1))


def test_factors_by_hand():
    leaves = np.array([[1, 1, 1, 5, 6, 6], [0, 0, 0, 0, 0, 0]], np.int32)  # node 1 has depth 1, nodes 5 and 6 depth 2
    signatures, ones = merge_identical_rows(leaves), np.ones(2)
    depth, size = (leaf_factors(kind, leaves, signatures, ones, DRAW) for kind in ("depth", "size"))
    np.testing.assert_array_equal(depth[0], [0.5, 1, 1])
    assert depth[1, 0] == 0.01  # a root that nothing split tells nothing
    np.testing.assert_allclose(size[0], [1 / 2, 1, 1])
    assert size[1, 0] == pytest.approx(1 / 5)


def test_purity_by_hand():
    """Two trees: each is judged by the communities of the other, which are its leaves."""
    leaves = np.array([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1]], np.int32)
    factors = leaf_factors("purity", leaves, merge_identical_rows(leaves), np.ones(2), DRAW)
    chance = {0: (3 * 2 + 5 * 4) / 56, 1: (4 * 3 + 4 * 3) / 56}  # of two rows to be together in the other tree
    shares = {0: (6 / 12, 12 / 12), 1: (6 / 6, 12 / 20)}  # of the pairs of each leaf
    for tree in (0, 1):
        expected = [(share - chance[tree]) / (1 - chance[tree]) for share in shares[tree]]
        np.testing.assert_allclose(factors[tree], expected)


def test_cells_weigh_what_was_asked_for():
    leaves = np.random.default_rng(8).integers(4, size=(3, ROWS)).astype(np.int32)
    cells = attribute_leaves(leaves, noise().features, 1)
    assert len(np.unique(cells)) == 4  # as many as leaves
    signatures = merge_identical_rows(np.vstack([leaves, cells]))
    weights = np.random.default_rng(9).uniform(0.1, 1, size=(3, 4))
    rows = rows_of_leaves(signatures)
    pairs = rows * (rows - 1)
    of_cells = float(np.sum(pairs[3] * cell_weights(signatures, weights, 0.3)))
    assert of_cells == pytest.approx(0.3 * float(np.sum(pairs[:3] * weights)))


@pytest.mark.parametrize(
    ("wrong", "code", "about"),
    [
        ({"attributes": -0.1}, "range", ""),
        ({"attributes": True}, "type", ""),
        ({"tree_weights": "deepth"}, "choice", "'depth'"),
        ({"clusters": "class"}, "choice", "'classes'"),
        ({"chunk": 10, "attributes": 0.1}, "conflict", "attributes"),
        ({"chunk": 10, "tree_weights": "size"}, "conflict", "tree_weights"),
    ],
)
def test_options_that_mean_nothing_are_refused(wrong, code, about):
    name, value = next(iter(wrong.items()))
    with refused_about(about, JobError, code, field=name, value=value):
        ID2Graph(**wrong)
