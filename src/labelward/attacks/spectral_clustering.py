"""Spectral clustering beside columns: the diffusion map of rows that share leaves, with smoothed own columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import TREE_MODELS, Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import cluster_features, cluster_points, kmeans_seed, validate_features
from labelward.attacks.leaf_smoothing import cluster_groups, graph_of_view, smoothed
from labelward.kernels.leaf_graph import LeafGraph
from labelward.parameters import NonNegativeFloat, NonNegativeInt, PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]

_SMOOTHING, _EXPONENT = 2, 0.5


@dataclass(frozen=True, kw_only=True)
class SpectralClustering(Attack):
    """K-means on the diffusion map of the leaf co-occurrence graph, beside smoothed own columns.

    1. Two rows are joined with weight 1 / m for each visible leaf of m rows that both are in. So a tree gives each row
       the same degree, and small leaves count as much as large ones.
    2. The coordinates of a row are the leading eigenvectors of the random walk on this graph, each multiplied by its
       eigenvalue to the power of ``steps``.
    3. Own columns, averaged twice over shared leaves, stand beside them with weight ``beside``. K-means clusters these
       points into the classes.

    Setting: as :class:`~labelward.attacks.leaf_smoothing.LeafSmoothing`.

    Reference: diffusion maps (Coifman and Lafon 2006) on the graph of the ID2Graph paper. The instance clustering
        attack of the CMOSB paper (:class:`~labelward.attacks.instance_clustering.InstanceClustering`) clusters the
        eigenvectors of the graph in which all pairs of a leaf count alike, without columns.
    """

    kind: ClassVar[str] = "spectral-clustering"
    models: ClassVar[tuple[str, ...]] = TREE_MODELS

    steps: Annotated[PositiveInt, Meta(description="Steps of the random walk.")] = 3
    extra: Annotated[NonNegativeInt, Meta(description="Number of eigenvectors in addition to one for each class.")] = 2
    beside: Annotated[
        NonNegativeFloat, Meta(description="Weight of the own columns relative to the eigenvectors; 0: none.")
    ] = 0.3

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
        graph, notes = graph_of_view(view, own, aux, 1.0)
        if graph is None:
            return LabelGuess(values=cluster_features(own.numbers(), aux.classes, seed), notes=notes)
        values, vectors = graph.discounted(1.0).eigenvectors(aux.classes + self.extra, rng=rng)
        points = unit_variance(graph, vectors * values**self.steps)
        if self.beside:
            points = np.hstack([points, self.beside * beside_columns(graph, own)])
        return LabelGuess(values=cluster_groups(graph, points, aux.classes, seed), notes=notes)


def beside_columns(graph: LeafGraph, own: AttackerData) -> Floats:
    """Return float64 [groups, columns]: own columns, averaged twice over shared leaves, as :func:`unit_variance`."""
    return unit_variance(graph, smoothed(graph.discounted(_EXPONENT), cluster_points(own.numbers()), _SMOOTHING))


def unit_variance(graph: LeafGraph, points: Floats) -> Floats:
    """Return float64 [groups, K]: points with mean 0 and mean square length 1 over the rows."""
    share = graph.size / graph.size.sum()
    centered: Floats = points - share @ points
    length = float(share @ np.sum(centered**2, axis=1))
    return centered / np.sqrt(length) if length > 0 else centered
