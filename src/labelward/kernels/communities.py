"""The communities that ID2Graph finds among rows, as the attack and the leakage meter both work them out.

Reference: the ID2Graph paper, Section 3, step 2; see :mod:`labelward.attacks.id2graph`.
"""

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.leaf_signatures import Signatures, merge_identical_rows
from labelward.kernels.louvain import Communities, louvain

Floats = NDArray[np.float64]
Leaves = NDArray[np.int32]

_NEGLIGIBLE = 2.0**-200
"""Trees whose weight beside the first one's is below this cannot change a sum of weights in double precision."""


def tree_weight_decay(model: str) -> float:
    """Return the discount from tree to tree for a kind of model: 1 for a forest, 0.6 for a boosted model."""
    return 1.0 if "forest" in model else 0.6


def trees_per_round(multi_strategy: str | None, classes: int) -> int:
    """Return how many trees are grown on the same margins."""
    return classes if multi_strategy == "one_output_per_tree" and classes > 2 else 1


def weighted_trees(leaves: Leaves, eta: float, together: int) -> tuple[Leaves, Floats]:
    """Return the trees whose weight counts, and their weights: ``eta`` to the power of the tree's rank.

    Args:
        leaves: int32 [T, n]; the first tree seen has rank 0.
        eta: above 0, at most 1.
        together: how many trees in a row have one rank.
    """
    ranks = np.arange(len(leaves)) // together
    weights: Floats = eta ** ranks.astype(np.float64)
    counts = weights > _NEGLIGIBLE
    return leaves[counts], weights[counts]


def communities(
    leaves: Leaves, weights: Floats, *, rng: np.random.Generator, starts: int
) -> tuple[Signatures, Communities]:
    """Return the merged rows of weighted trees and their communities.

    Args:
        leaves: int32 [T, n], -1 where a row is in no leaf.
        weights: float64 [T], positive.
        rng: draws the starts of Louvain's method.
    """
    signatures = merge_identical_rows(leaves)
    return signatures, louvain(signatures, weights, rng=rng, starts=starts)
