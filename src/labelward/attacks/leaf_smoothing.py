"""Leaf smoothing: the attacker's own columns averaged over the rows that share leaves, then clustered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import TREE_MODELS, Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import cluster_features, cluster_points, kmeans, kmeans_seed, validate_features
from labelward.attacks.instance_spaces import observed_leaves
from labelward.kernels.communities import trees_per_round, weighted_trees
from labelward.kernels.leaf_graph import LeafGraph, leaf_graph
from labelward.parameters import Fraction, NonNegativeFloat, PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LeafSmoothing(Attack):
    """K-means on the attacker's columns, averaged over the rows that share leaves.

    1. Own columns are scaled to [0, 1], as by :class:`~labelward.attacks.clustering.Clustering`.
    2. The values of each row are replaced by their mean over the rows that share its leaves, ``rounds`` times. A leaf
       of m rows of the tree of rank r weighs ``eta`` ** r × m ** -``size_exponent``.
    3. K-means clusters the averages into the classes.

    Averages over pure leaves are those of a class. They remove what differs within a class and keep what differs
    between classes, even where no single column separates them.

    Setting: a curious passive party that follows the protocol; it reads the instance spaces disclosed to it and those
        of its own splits. Auxiliary knowledge: the number of classes. On a view whose leaves are roots, the guess is
        that of :class:`~labelward.attacks.clustering.Clustering` with the same generator.

    Reference: none; the averages are those of a graph convolution without weights (Wu et al. 2019, "Simplifying graph
        convolutional networks"), on the graph of the ID2Graph paper.
    """

    kind: ClassVar[str] = "leaf-smoothing"
    models: ClassVar[tuple[str, ...]] = TREE_MODELS

    rounds: Annotated[PositiveInt, Meta(description="Number of times that the columns are averaged.")] = 2
    eta: Annotated[
        Fraction | None,
        Meta(
            description="Discount of the leaf weights from tree to tree; trees of one round have one rank. Default: 1 "
            "for a forest, 0.7 for boosted trees."
        ),
    ] = None
    size_exponent: Annotated[
        NonNegativeFloat,
        Meta(
            le=1,
            description="Discount of large leaves: a leaf of m rows weighs 1 / m to this power. 0: all pairs of rows "
            "in a leaf count alike; 1: all leaves of a row count alike.",
        ),
    ] = 0.6

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row; notes give the visible trees and the merged groups of rows.

        Raises:
            DataError: ``own`` does not hold the view's rows, or has no column, or an infinite value.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        validate_features(view, own, aux)
        seed = kmeans_seed(rng)
        graph, notes = graph_of_view(view, own, aux, self.eta)
        if graph is None:
            return LabelGuess(values=cluster_features(own.numbers(), aux.classes, seed), notes=notes)
        points = smoothed(graph.discounted(self.size_exponent), cluster_points(own.numbers()), self.rounds)
        return LabelGuess(values=cluster_groups(graph, points, aux.classes, seed), notes=notes)


def graph_of_view(
    view: View, own: AttackerData, aux: AuxiliaryKnowledge, eta: float | None
) -> tuple[LeafGraph | None, dict[str, float]]:
    """Return the graph of rows that share visible leaves, and notes about it; None: no leaf but roots is visible.

    Args:
        view: of a passive party.
        own: its columns.
        aux: the number of classes.
        eta: discount from tree to tree; None: 1 for a forest, 0.7 for boosted trees.
    """
    leaves = observed_leaves(view, own)
    notes = {"trees": float(len(leaves))}
    if not (leaves > 0).any():
        return None, notes
    decay = 1.0 if "forest" in str(view.parameter("model.kind", "")) else 0.7
    together = trees_per_round(view.parameter("model.multi_strategy"), aux.classes)
    leaves, weights = weighted_trees(leaves, decay if eta is None else eta, together)
    graph = leaf_graph(leaves, weights)
    return graph, notes | {"groups": float(len(graph.size))}


def smoothed(graph: LeafGraph, values: Floats, rounds: int) -> Floats:
    """Return float64 [groups, columns]: float64 [rows, columns], averaged over neighbors so many times."""
    points = graph.means(values)
    for _ in range(rounds):
        points = graph.average(points)
    return points


def cluster_groups(graph: LeafGraph, points: Floats, classes: int, seed: int) -> NDArray[np.int64]:
    """Return int64 [rows]: k-means clusters of the points of groups, each with the weight of its rows."""
    if len(points) <= classes:
        return graph.group.copy()
    return kmeans(points, classes, seed, weights=graph.size)[graph.group]
