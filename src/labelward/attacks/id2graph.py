"""ID2Graph: what the leaves that a passive party can tell apart say of the labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import cluster_features, kmeans_seed, validate_features
from labelward.attacks.id2graph_variants import (
    TreeWeights,
    attribute_leaves,
    cell_weights,
    cluster_count,
    leaf_factors,
)
from labelward.attacks.instance_spaces import observed_leaves
from labelward.errors import JobError, number_code, unknown_name
from labelward.kernels.communities import communities, tree_weight_decay, trees_per_round, weighted_trees
from labelward.kernels.leaf_signatures import Signatures, merge_identical_rows
from labelward.kernels.louvain import Communities, louvain
from labelward.party.view import View

__all__ = ["Clusters", "ID2Graph", "chunked"]

Clusters = Literal["classes", "communities", "silhouette"]


@dataclass(frozen=True, kw_only=True)
class ID2Graph(Attack):
    """Rows that meet in leaves form communities; k-means on own columns and communities gives the classes.

    1. Rows are joined with weight ``eta`` ** rank for each visible tree (rank 0: the first one seen) in which
       they share a visible leaf. The trees of one round, where it grows one for each class, have one rank.
    2. Louvain's method finds communities.
    3. K-means clusters [min-max scaled own columns, ``alpha`` × indicators of the communities] into the
       classes.

    Setting: a curious passive party that follows the protocol; it reads the instance spaces that it was told
        and those of its own splits. Auxiliary knowledge: the number of classes, unless ``cluster_features`` does
        without. On a view without trees, or with a single community, the guess is that of
        :class:`~labelward.attacks.clustering.Clustering` with the same generator (and number of clusters).

    Reference: the ID2Graph paper, Section 3, Appendix D and Algorithm 3.

    Differences from the paper: the graph is exact at any size (rows with equal leaves are merged without
    loss); the best modularity of several starts counts; the modularity is the standard one; rows without a
    neighbor form one community. In the chunked form the inter-chunk edge joins the last row of a chunk with
    the first of the next, as the text says (Algorithm 3 prints a self-loop).

    ``tree_weights``, ``attributes`` and ``clusters`` are what its conclusion leaves to future work; whether they help
    is for ``labelward study options`` to say. By default none is used.

    Attributes:
        eta: discount from tree to tree, in (0, 1]; none: 1 for a forest, whose trees are grown independently,
            0.6 for a boosted model.
        alpha: weight of the communities beside columns from 0 to 1.
        starts: starts of Louvain's method.
        chunk: rows of a chunk in the paper's approximation for large data (it uses 1000); none: the exact
            graph.
        inter_chunk_weight: weight of the edge between two chunks.
        tree_weights: what leaves of a tree weigh beside its discount: "discount" (nothing), "depth" (deeper ones more),
            "size" (large ones less for each pair of rows, so that every row has the same degree in every tree), or
            "purity" (those more that agree with what the other half of the trees show).
        attributes: weight of the edges, in sum, between rows that are alike in the attacker's own columns (in one
            k-means cell), as a share of the weight of all edges that come from trees; 0: none are made.
        clusters: how many clusters are made: "classes" (as many as there are classes, which the attacker knows), or,
            where it does not, "communities" (as many as there are communities, counted by size) or "silhouette" (what
            has the best mean silhouette).
    """

    kind: ClassVar[str] = "id2graph"
    models: ClassVar[tuple[str, ...]] = ("secureboost", "forest")

    eta: float | None = None
    alpha: float = 3.0
    starts: int = 5
    chunk: int | None = None
    inter_chunk_weight: float = 100.0
    tree_weights: TreeWeights = "discount"
    attributes: float = 0.0
    clusters: Clusters = "classes"

    def __post_init__(self) -> None:
        if self.eta is not None and not 0 < _number("eta", self.eta) <= 1:
            raise JobError(f"eta must be above 0 and at most 1 but is {self.eta}", code="range", value=self.eta)
        if _number("alpha", self.alpha) < 0:
            raise JobError(f"alpha must not be negative but is {self.alpha}", code="range", value=self.alpha)
        if _number("attributes", self.attributes) < 0:
            raise JobError(
                f"attributes must not be negative but is {self.attributes}", code="range", value=self.attributes
            )
        for name, text, known in (
            ("tree_weights", self.tree_weights, get_args(TreeWeights)),
            ("clusters", self.clusters, get_args(Clusters)),
        ):
            if text not in known:
                raise JobError(unknown_name(name, text, known), code="choice", value=text)
        if self.chunk is not None and (self.attributes or self.tree_weights != "discount"):
            raise JobError(
                "chunk repeats the paper's approximation, which knows no attributes and no other tree_weights",
                code="conflict",
                value=self.chunk,
            )
        if _number("inter_chunk_weight", self.inter_chunk_weight) <= 0:
            raise JobError(
                f"inter_chunk_weight must be positive but is {self.inter_chunk_weight}",
                code="range",
                value=self.inter_chunk_weight,
            )
        for name, value in (("starts", self.starts), ("chunk", 1 if self.chunk is None else self.chunk)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise JobError(
                    f"{name} must be a whole number of at least 1 but is {value!r}",
                    code=number_code(value, whole=True),
                    value=value,
                )

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row; notes give the visible trees, the communities and their modularity.

        Raises:
            DataError: ``own`` does not hold the view's rows, or has no column, or an infinite value.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        validate_features(view, own, aux)
        seed = kmeans_seed(rng)
        leaves = observed_leaves(view, own)
        notes = {"trees": float(len(leaves))}
        together = trees_per_round(view.parameter("model.multi_strategy"), aux.classes)
        eta = tree_weight_decay(str(view.parameter("model.kind", ""))) if self.eta is None else self.eta
        leaves, weights = weighted_trees(leaves, eta, together)
        if self.chunk is not None:
            leaves, weights = chunked(leaves, weights, self.chunk, self.inter_chunk_weight)
        signatures, found = self._communities(leaves, weights, own, rng)
        notes |= {"communities": float(found.count), "modularity": found.modularity}
        community, features, count = found.community[signatures.group], own.numbers(), aux.classes
        if self.clusters != "classes":
            count = cluster_count(self.clusters, features, community, self.alpha, seed)
            notes["clusters"] = float(count)
        values = cluster_features(features, count, seed, community=community, alpha=self.alpha)
        return LabelGuess(values=values, notes=notes)

    def _communities(
        self, leaves: NDArray[np.int32], weights: NDArray[np.float64], own: AttackerData, rng: np.random.Generator
    ) -> tuple[Signatures, Communities]:
        """Return merged rows and their communities, with the cells of own columns as a last tree where these count."""
        if not len(leaves) or (self.tree_weights == "discount" and not self.attributes):
            return communities(leaves, weights, rng=rng, starts=self.starts)
        signatures = merge_identical_rows(leaves)
        by_leaf = weights[:, None] * leaf_factors(self.tree_weights, leaves, signatures, weights, rng)
        if self.attributes:
            cells = attribute_leaves(leaves, own.numbers(), kmeans_seed(rng))
            signatures = merge_identical_rows(np.vstack([leaves, cells]))
            last = cell_weights(signatures, by_leaf, self.attributes)
            by_leaf = np.pad(by_leaf, ((0, 0), (0, len(last) - by_leaf.shape[1])), constant_values=1.0)
            by_leaf = np.vstack([by_leaf, last])
        return signatures, louvain(signatures, by_leaf, rng=rng, starts=self.starts)


def chunked(
    leaves: NDArray[np.int32], weights: NDArray[np.float64], chunk: int, inter_chunk_weight: float
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the paper's approximation in the form of the exact graph: as leaves and weights.

    A leaf's rows, in ascending order, fall into chunks of ``chunk`` rows. Each chunk becomes a leaf of its
    own. The edge between the last row of a chunk and the first of the next becomes a leaf of these two rows;
    odd and even ones stand in two further trees, as a chunk of one row is in both.

    Args:
        leaves: int32 [T, n].
        weights: float64 [T].
        chunk: rows of a chunk.
        inter_chunk_weight: weight of the edges between chunks.

    Returns:
        int32 [3T, n] and float64 [3T].
    """
    trees, rows = leaves.shape
    out = np.full((3, trees, rows), -1, np.int32)
    for tree in range(trees):
        order = np.argsort(leaves[tree], kind="stable")
        order = order[np.count_nonzero(leaves[tree] < 0) :]
        if not len(order):
            continue
        leaf = leaves[tree][order]
        begins = np.flatnonzero(np.diff(leaf, prepend=-1))  # places where a leaf begins
        place = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
        number = np.cumsum(place % chunk == 0) - 1
        out[0, tree, order] = number
        first = np.flatnonzero((place % chunk == 0) & (place > 0))  # rows that begin a chunk within their leaf
        for joined in (first - 1, first):
            out[1 + number[first] % 2, tree, order[joined]] = number[first]
    edges = np.full(trees, inter_chunk_weight)
    return out.reshape(3 * trees, rows), np.concatenate((weights, edges, edges))


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise JobError(f"{name} must be a number but is {value!r}", code=number_code(value), value=value)
    return value
