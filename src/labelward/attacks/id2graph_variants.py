"""Variants of ID2Graph from the paper's future work: node attributes, other weights, unknown number of classes.

All of them read only the passive party's visible leaves and own columns. Time and memory are linear in rows.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.clustering import cluster_points, kmeans
from labelward.kernels.leaf_signatures import Signatures, merge_identical_rows
from labelward.kernels.louvain import louvain

TreeWeights = Literal["discount", "depth", "size", "purity"]

_LEAST = 0.01  # of a leaf that says next to nothing: edges without weight are not edges of the graph
_ROWS = 2_000  # on which silhouettes are measured: they cost the square of it
_MOST_CLUSTERS = 20

Floats = NDArray[np.float64]
Leaves = NDArray[np.int32]


def leaf_factors(
    kind: TreeWeights, leaves: Leaves, signatures: Signatures, weights: Floats, rng: np.random.Generator
) -> Floats:
    """Return float64 [T, L], in (0, 1]: factor of each leaf on the weight of its tree.

    ``"discount"``: 1. ``"depth"``: the leaf's depth as a share of the deepest one's, as each split made its rows purer.
    ``"size"``: one for each other row of the leaf, so that a tree gives each row the same degree and large leaves do
    not rule the graph. ``"purity"``: how pure the leaf is, in excess of chance, in the communities that the *other*
    half of the trees (even and odd ones) make: the share of its pairs of rows that are together there. A passive party
    cannot know how pure a leaf is in labels, not even out of the bag, since it has none; what it can know is whether
    trees agree that were grown on other samples or columns.

    Args:
        kind: which.
        leaves: int32 [T, rows]: numbers of nodes, the root 0 and the children of u 2u + 1 and 2u + 2; -1 for none.
        signatures: the same rows merged.
        weights: float64 [T]: of the trees.
        rng: for the communities of ``"purity"``; no other kind draws.
    """
    rows = rows_of_leaves(signatures)
    if kind == "depth":
        node = np.zeros_like(rows)
        for tree, nodes in enumerate(leaves):
            inside = nodes >= 0
            node[tree, _leaf_numbers(signatures, tree)[inside]] = nodes[inside]
        depth = np.floor(np.log2(node + 1.0))
        shares: Floats = np.maximum(depth / max(depth.max(initial=0.0), 1.0), _LEAST)
        return shares
    if kind == "size":
        return 1.0 / np.maximum(rows - 1.0, 1.0)
    if kind == "purity" and len(leaves) > 1:
        return _purities(leaves, signatures, weights, rng)
    return np.ones_like(rows)


def rows_of_leaves(signatures: Signatures) -> Floats:
    """Return float64 [T, L]: rows of each leaf, 0 for leaf numbers that a tree does not have."""
    leaf = signatures.leaf_of_group
    rows = np.zeros((len(leaf), int(leaf.max(initial=-1)) + 1))
    for tree, numbers in enumerate(leaf):
        inside = numbers >= 0
        rows[tree] = np.bincount(numbers[inside], signatures.size[inside], rows.shape[1])
    return rows


def attribute_leaves(leaves: Leaves, features: Floats, seed: int) -> Leaves:
    """Return int32 [rows]: k-means cells of the min-max scaled own columns, like the leaves of a further tree.

    There are as many cells as a visible tree has leaves on average, and at least two.

    Args:
        leaves: int32 [T, rows], T at least 1.
        features: float64 [rows, columns].
        seed: of k-means.
    """
    leaves_of_tree = [len(np.unique(tree[tree >= 0])) for tree in leaves]
    cells = min(max(2, round(float(np.mean(leaves_of_tree)))), len(features))
    return kmeans(cluster_points(features), cells, seed).astype(np.int32)


def cell_weights(signatures: Signatures, weights: Floats, share: float) -> Floats:
    """Return float64 [L], one for all cells: the edges of all cells weigh ``share`` times what those of all trees do.

    Args:
        signatures: of the trees, then the cells as the last tree.
        weights: float64 [T, L], of the trees' leaves.
        share: above 0.
    """
    rows = rows_of_leaves(signatures)
    pairs = rows * np.maximum(rows - 1.0, 0.0)
    trees, cells = float(np.sum(pairs[:-1, : weights.shape[1]] * weights)), float(pairs[-1].sum())
    return np.full(rows.shape[1], share * trees / cells if trees > 0 and cells > 0 else 1.0)


def cluster_count(
    kind: Literal["communities", "silhouette"], features: Floats, community: Leaves, alpha: float, seed: int
) -> int:
    """Return a number of clusters, at least 2, that is chosen without knowing the number of classes.

    ``"communities"``: the number of communities, counted by size: the exponential of the entropy of their shares of the
    rows, so that crumbs do not count. ``"silhouette"``: from 2 to 20, the number whose k-means clusters have the best
    mean silhouette, on 2,000 rows at most; the least of equals.

    Args:
        kind: which.
        features: float64 [rows, columns].
        community: int32 [rows], numbered from 0.
        alpha: weight of the communities in the points that are clustered.
        seed: of the rows and of k-means.
    """
    if len(features) < 3:
        return len(features)
    if kind == "communities":
        shares = np.bincount(community) / len(community)
        shares = shares[shares > 0]
        return max(2, round(math.exp(-float(np.sum(shares * np.log(shares))))))
    from sklearn.metrics import silhouette_score

    sampled = np.sort(np.random.default_rng(seed).permutation(len(features))[:_ROWS])
    sample = cluster_points(features, community, alpha)[sampled]
    best, count = -math.inf, 2
    for clusters in range(2, min(_MOST_CLUSTERS, len(sampled) - 1) + 1):
        labels = kmeans(sample.copy(), clusters, seed)
        if 1 < len(np.unique(labels)) < len(sampled):
            value = float(silhouette_score(sample, labels))
            best, count = max((best, count), (value, clusters), key=lambda each: each[0])
    return count


def _purities(leaves: Leaves, signatures: Signatures, weights: Floats, rng: np.random.Generator) -> Floats:
    """Return float64 [T, L]: purity of each leaf in the communities of the other half of the trees."""
    factors = rows_of_leaves(signatures)
    for own in (0, 1):
        others = merge_identical_rows(leaves[1 - own :: 2])
        community = louvain(others, weights[1 - own :: 2], rng=rng).community[others.group]
        for tree in range(own, len(leaves), 2):
            factors[tree] = _purity(_leaf_numbers(signatures, tree), factors[tree], community)
    return factors


def _purity(numbers: NDArray[np.int64], rows: Floats, community: Leaves) -> Floats:
    """Return float64 [L]: the share of each leaf's pairs of rows that are in one community, in excess of chance."""
    whole = np.bincount(community).astype(np.float64)
    chance = float(np.sum(whole * (whole - 1.0)) / max(whole.sum() * (whole.sum() - 1.0), 1.0))
    inside = numbers >= 0
    keys, counts = np.unique(numbers[inside] * len(whole) + community[inside], return_counts=True)
    together = np.bincount(keys // len(whole), counts * (counts - 1.0), len(rows))
    purity = together / np.maximum(rows * (rows - 1.0), 1.0)
    return np.clip((purity - chance) / (1.0 - chance) if chance < 1.0 else np.ones_like(purity), _LEAST, 1.0)


def _leaf_numbers(signatures: Signatures, tree: int) -> NDArray[np.int64]:
    """Return int64 [rows]: the leaves of one tree, numbered as in its signatures."""
    numbers: NDArray[np.int64] = signatures.leaf_of_group[tree, signatures.group].astype(np.int64)
    return numbers
