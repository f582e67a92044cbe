"""The weights of trees and the communities of rows, as attack and meter share them."""

import numpy as np
import pytest

from labelward.kernels.communities import communities, tree_weight_decay, trees_per_round, weighted_trees


def test_forests_are_not_discounted() -> None:
    assert (tree_weight_decay("forest"), tree_weight_decay("secureboost")) == (1.0, 0.6)


def test_only_trees_of_a_round_have_one_rank() -> None:
    assert trees_per_round("one_output_per_tree", 3) == 3
    assert trees_per_round("one_output_per_tree", 2) == trees_per_round(None, 3) == 1
    leaves = np.zeros((5, 2), np.int32)
    assert weighted_trees(leaves, 0.5, 2)[1].tolist() == [1, 1, 0.5, 0.5, 0.25]


def test_trees_that_weigh_nothing_are_left_out() -> None:
    leaves = np.arange(500, dtype=np.int32)[:, None]
    kept, weights = weighted_trees(leaves, 0.5, 1)
    assert len(kept) == len(weights) == 200
    np.testing.assert_array_equal(kept, leaves[:200])
    assert len(weighted_trees(leaves, 1.0, 1)[0]) == 500


@pytest.mark.parametrize("trees", [0, 1])
def test_leaves_of_one_tree_are_its_communities(trees: int) -> None:
    leaves = np.array([[3, 3, 4, 4, 4]], np.int32)[:trees]
    signatures, found = communities(leaves, np.ones(trees), rng=np.random.default_rng(0), starts=2)
    assert found.community[signatures.group].tolist() == ([0, 0, 1, 1, 1] if trees else [0] * 5)
