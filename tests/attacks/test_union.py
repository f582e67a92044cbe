import numpy as np
import pytest

from labelward.attacks import ATTACKS
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.clustering import Clustering
from labelward.attacks.union import Union, UnionClustering
from labelward.errors import DataError, InputError
from labelward.metrics.leakage import score_clusters
from labelward.testing.attacks import AttackContract, planted_view
from refusals import refused


class TestUnion(AttackContract):
    """Without a view it knows nothing, of own columns neither: :class:`TestUnionClustering` is beside CL."""

    def attack(self):
        return Union()

    def baseline(self):
        return Union()


class TestUnionClustering(AttackContract):
    classes = 3

    def attack(self):
        return UnionClustering()


def attacked(attack, leaves, own=None, classes=2):
    own = own or AttackerData(features=np.random.default_rng(1).normal(size=(leaves.shape[1], 2)), columns=["a", "b"])
    return attack(planted_view(leaves), own, AuxiliaryKnowledge(classes=classes), rng=np.random.default_rng(2))


def test_rows_that_share_a_leaf_of_any_tree_are_joined():
    leaves = np.array(
        [
            [0, 0, 1, 2, 2, 3, -1, -1, -1],
            [5, 6, 6, 7, 8, 9, 9, -1, -1],
        ],
        np.int32,
    )
    guess = attacked(Union(), leaves)
    #  0-1 in tree 0, 1-2 in tree 1; 3-4; 5-6; 7 and 8 are nowhere
    assert guess.values.tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert guess.notes == {"trees": 2, "parts": 4}


def test_a_row_alone_in_its_leaves_is_a_part_of_its_own():
    assert attacked(Union(), np.array([[0, 0, 1, 2]], np.int32)).values.tolist() == [0, 0, 1, 2]


def test_without_trees_there_is_one_part():
    guess = attacked(Union(), np.zeros((0, 5), np.int32))
    assert guess.values.tolist() == [0] * 5
    assert guess.notes == {"trees": 0, "parts": 1}


def test_pure_leaves_of_one_class_each_give_the_classes_away():
    truth = np.random.default_rng(3).integers(3, size=300)
    leaves = np.tile(truth, (2, 1)).astype(np.int32)
    for attack in (Union(), UnionClustering()):
        guess = attacked(attack, leaves, classes=3)
        assert score_clusters(guess.values, truth)["ari"] == 1.0


def test_one_union_adds_nothing_to_clustering():
    """The usual case: a single leaf in common suffices to join everything."""
    rng = np.random.default_rng(4)
    leaves = rng.integers(3, size=(4, 300)).astype(np.int32)
    own = AttackerData(features=rng.normal(size=(300, 3)), columns=["a", "b", "c"])
    joined, alone = attacked(UnionClustering(), leaves, own), attacked(Clustering(), leaves, own)
    assert joined.notes["parts"] == 1
    np.testing.assert_array_equal(joined.values, alone.values)
    assert score_clusters(attacked(Union(), leaves, own).values, rng.integers(2, size=300))["v_measure"] == 0


def test_unions_weigh_as_much_as_a_column():
    """Between two values of a column of range 1 and two parts k-means takes what has the larger spread."""
    part = np.arange(300) % 2
    column = (np.arange(300) // 2 % 10 == 0).astype(np.float64)  # of one row in ten
    guess = attacked(
        UnionClustering(), part[None].astype(np.int32), AttackerData(features=column[:, None], columns=["a"])
    )
    assert score_clusters(guess.values, part)["ari"] == 1.0
    many = AttackerData(
        features=np.repeat(np.arange(300)[:, None] % 4 // 2, 4, axis=1).astype(float), columns=list("abcd")
    )
    guess = attacked(UnionClustering(), part[None].astype(np.int32), many)
    assert score_clusters(guess.values, many.features[:, 0])["ari"] == 1.0


@pytest.mark.parametrize("kind", ["union", "union-clustering"])
def test_they_have_no_parameters(kind):
    assert ATTACKS.make(kind, {}).parameters() == {}
    with refused(InputError, "unknown", value="alpha"):
        ATTACKS.make(kind, {"alpha": 2.0})


def test_own_columns_are_needed_for_clustering_only():
    leaves, none = np.zeros((1, 4), np.int32), AttackerData(features=np.empty((4, 0)), columns=[])
    assert attacked(Union(), leaves, none).values.tolist() == [0] * 4
    with refused(DataError, "columns", value="passive"):
        attacked(UnionClustering(), leaves, none)
