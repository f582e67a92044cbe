"""ID2Graph: label inference from the instance spaces visible to a passive party."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import TREE_MODELS, Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import cluster_features, kmeans_seed, validate_features
from labelward.attacks.id2graph_variants import (
    TreeWeights,
    attribute_leaves,
    cell_weights,
    cluster_count,
    leaf_factors,
)
from labelward.attacks.instance_spaces import observed_leaves
from labelward.errors import JobError, number_code
from labelward.kernels.communities import communities, tree_weight_decay, trees_per_round, weighted_trees
from labelward.kernels.leaf_signatures import Signatures, merge_identical_rows
from labelward.kernels.louvain import Communities, louvain
from labelward.parameters import Fraction, NonNegativeFloat, PositiveFloat, PositiveInt
from labelward.party.view import View

Clusters = Literal["classes", "communities", "silhouette"]


@dataclass(frozen=True, kw_only=True)
class ID2Graph(Attack):
    """Communities of rows that share leaves, clustered into classes together with the attacker's columns.

    1. Rows are joined with weight ``eta`` ** rank for each visible tree (rank 0: the first one seen) in which
       they share a visible leaf. The trees of one round, where it grows one for each class, have one rank.
    2. Louvain's method finds communities.
    3. K-means clusters [min-max scaled own columns, ``alpha`` × indicators of the communities] into the
       classes.

    Setting: a curious passive party that follows the protocol; it reads the instance spaces disclosed to it
        and those of its own splits. Auxiliary knowledge: the number of classes, unless ``cluster_features`` does
        without. On a view without trees, or with a single community, the guess is that of
        :class:`~labelward.attacks.clustering.Clustering` with the same generator (and number of clusters).

    Reference: the ID2Graph paper, Section 3, Appendix D and Algorithm 3.

    Differences from the paper: the graph is exact at any size (rows with equal leaves are merged without
    loss); the best modularity of several starts counts; the modularity is the standard one; rows without a
    neighbor form one community. In the chunked form the inter-chunk edge joins the last row of a chunk with
    the first of the next, as the text says (Algorithm 3 prints a self-loop), and the rows of a leaf are chunked in
    a drawn order, as that of a table may tell the labels.

    ``tree_weights``, ``attributes`` and ``clusters`` are what its conclusion leaves to future work; whether they help
    is for ``labelward study options`` to say. By default none is used.
    """

    kind: ClassVar[str] = "id2graph"
    models: ClassVar[tuple[str, ...]] = TREE_MODELS

    eta: Annotated[
        Fraction | None,
        Meta(
            description="Discount of the edge weights from tree to tree; trees of one round have one rank. Default: 1 "
            "for a forest, whose trees are independent, 0.6 for boosted trees."
        ),
    ] = None
    alpha: Annotated[
        NonNegativeFloat,
        Meta(description="Weight of the community indicators relative to the min-max scaled columns."),
    ] = 3.0
    starts: Annotated[PositiveInt, Meta(description="Number of runs of Louvain's method; the best counts.")] = 5
    chunk: Annotated[
        PositiveInt | None,
        Meta(description="Rows per chunk in the paper's approximation (which uses 1000). Default: the exact graph."),
    ] = None
    inter_chunk_weight: Annotated[
        PositiveFloat, Meta(description="Weight of the edge between two consecutive chunks.")
    ] = 100.0
    tree_weights: Annotated[
        TreeWeights,
        Meta(
            description="Weight of leaves in addition to their tree's discount: 'discount' (none), 'depth' (deeper "
            "leaves weigh more), 'size' (every row has the same degree in every tree) or 'purity' (leaves weigh more "
            "that the other half of the trees confirm)."
        ),
    ] = "discount"
    attributes: Annotated[
        NonNegativeFloat,
        Meta(
            description="Total weight of edges between rows in one k-means cell of the attacker's columns, as a "
            "fraction of the total weight of tree edges; 0: no such edges."
        ),
    ] = 0.0
    clusters: Annotated[
        Clusters,
        Meta(
            description="Number of clusters: 'classes' (known to the attacker), 'communities' (number of communities, "
            "weighted by size) or 'silhouette' (the best mean silhouette)."
        ),
    ] = "classes"

    def check_parameters(self) -> None:
        """Refuse options that the chunked approximation does not have."""
        if self.chunk is not None and (self.attributes or self.tree_weights != "discount"):
            raise self.error("chunk", "is the paper's approximation, without attributes and other tree_weights")

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
            leaves, weights = self._in_chunks(leaves, weights, self.chunk, seed)
        signatures, communities = self._communities(leaves, weights, own, rng)
        notes |= {"communities": float(communities.count), "modularity": communities.modularity}
        community, features, count = communities.community[signatures.group], own.numbers(), aux.classes
        if self.clusters != "classes":
            count = cluster_count(self.clusters, features, community, self.alpha, seed)
            notes["clusters"] = float(count)
        values = cluster_features(features, count, seed, community=community, alpha=self.alpha)
        return LabelGuess(values=values, notes=notes)

    def _in_chunks(
        self, leaves: NDArray[np.int32], weights: NDArray[np.float64], chunk: int, seed: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the chunked graph over the rows in a drawn order: a table may be sorted by label."""
        order = np.random.default_rng(seed).permutation(leaves.shape[1])
        cut, weights = chunked(leaves[:, order], weights, chunk, self.inter_chunk_weight)
        restored = np.empty_like(cut)
        restored[:, order] = cut
        return restored, weights

    def _communities(
        self, leaves: NDArray[np.int32], weights: NDArray[np.float64], own: AttackerData, rng: np.random.Generator
    ) -> tuple[Signatures, Communities]:
        """Return merged rows and their communities; weighted cells of own columns count as a last tree."""
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
    odd and even ones are in two further trees, since a chunk of one row is in both.

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
