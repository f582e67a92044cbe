"""What must not change the attack, on trees that the protocol has grown: names, orders, who holds the other columns."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from labelward.attacks.instance_spaces import observed_leaves
from labelward.kernels.communities import communities, weighted_trees
from labelward.kernels.information import joint_information
from labelward.metrics.information import leakage_bounds
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel
from wiring import Setting, make_labels, make_parts, readable_content

MODELS = {
    "boosted": SecureBoost(trees=4, depth=4, bins=8),
    "sampled": SecureBoost(trees=4, depth=4, bins=8, row_fraction=0.7),
    "forest": FederatedForest(trees=4, depth=4, bins=8, row_fraction=0.8),
}


def setting(params: TreeModel, seed: int = 61) -> Setting:
    parts = make_parts(seed, 150, {"active": 2, "left": 3, "right": 4})
    return Setting(parts, make_labels(seed, parts), params)


def adjacency(leaves: NDArray[np.int32], eta: float) -> NDArray[np.float64]:
    """Return the graph as the paper writes it: the summed weight of the trees in which two rows share a leaf."""
    total = np.zeros((leaves.shape[1],) * 2)
    for tree, weight in zip(*weighted_trees(leaves, eta, 1), strict=True):
        total += weight * ((tree[:, None] == tree) & (tree >= 0))
    return total


@pytest.mark.parametrize("params", MODELS.values(), ids=MODELS)
def test_a_view_does_not_tell_who_holds_the_other_columns(params: TreeModel) -> None:
    given = setting(params)
    right = given.parts["right"]
    several = {
        "active": given.parts["active"],
        "left": given.parts["left"],
        "right": np.ascontiguousarray(right[:, :1]),
        "third": np.ascontiguousarray(right[:, 1:]),
    }
    one, two = given.run(), given.run(parts=several)
    assert readable_content(one.views["left"]) == readable_content(two.views["left"])


@pytest.mark.parametrize("params", MODELS.values(), ids=MODELS)
def test_the_graph_depends_on_the_order_of_trees_only_under_a_discount(params: TreeModel) -> None:
    leaves = observed_leaves(setting(params).run().views["left"])
    other, renamed = leaves[::-1], np.where(leaves >= 0, 1000 - leaves, -1).astype(np.int32)
    np.testing.assert_allclose(adjacency(leaves, 1.0), adjacency(other, 1.0), rtol=0, atol=1e-12)  # sums in any order
    assert not np.allclose(adjacency(leaves, 0.6), adjacency(other, 0.6))
    np.testing.assert_array_equal(adjacency(leaves, 0.6), adjacency(renamed, 0.6))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("params", MODELS.values(), ids=MODELS)
def test_communities_tell_no_more_than_the_joint_bound(params: TreeModel, seed: int) -> None:
    given = setting(params, seed)
    leaves = observed_leaves(given.run().views["left"])
    signatures, found = communities(*weighted_trees(leaves, 0.6, 1), rng=np.random.default_rng(seed), starts=3)
    told = joint_information(found.community[signatures.group].astype(np.int64), given.labels)
    measured = leakage_bounds(leaves, given.labels)
    assert 0 <= told <= measured.joint_information + 1e-12 <= measured.joint_bound + 2e-12  # roundings of sums of logs
