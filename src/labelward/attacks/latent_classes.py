"""Latent classes: a mixture model of visible leaves and smoothed columns, fitted by expectation-maximization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import TREE_MODELS, Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import validate_features
from labelward.attacks.id2graph import ID2Graph
from labelward.attacks.leaf_smoothing import graph_of_view
from labelward.attacks.spectral_clustering import beside_columns, unit_variance
from labelward.kernels.leaf_graph import LeafGraph
from labelward.parameters import Fraction, PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]

_COLUMNS = 3.0  # weight of the columns relative to the eigenvectors
_EXTRA = 3  # principal components in addition to one for each class
_PSEUDO = 5.0  # rows of each class and tree that are spread over the leaves as all rows are
_VARIANCE = 1e-3  # added to the variances of the components, which are 1 over all rows
_GAIN = 1e-4  # least gain of the mean log-likelihood of a row


@dataclass(frozen=True, kw_only=True)
class LatentClasses(Attack):
    """Expectation-maximization of a latent class model from ID2Graph's clusters.

    1. The rows belong to hidden classes. Given its class, the leaves of a row in the trees are independent and have a
       distribution of each class; so have the leading principal components of the row's smoothed columns and
       eigenvectors, which are normal with variances that all classes share. The likelihood of the leaves is raised to
       the power of ``leaf_weight``, since trees are not independent.
    2. The clusters of :class:`~labelward.attacks.id2graph.ID2Graph` are the start.
    3. The guess is the most likely class of each row.

    Setting: as :class:`~labelward.attacks.leaf_smoothing.LeafSmoothing`. On a view whose leaves are roots, the guess is
        that of ID2Graph with the same generator.

    Reference: latent class analysis (Lazarsfeld and Henry 1968) by expectation-maximization (Dempster et al. 1977).
    """

    kind: ClassVar[str] = "latent-classes"
    models: ClassVar[tuple[str, ...]] = TREE_MODELS

    leaf_weight: Annotated[Fraction, Meta(description="Weight of the leaves relative to the columns.")] = 0.5
    rounds: Annotated[PositiveInt, Meta(description="Most rounds of expectation-maximization.")] = 50

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
        graph, notes = graph_of_view(view, own, aux, 1.0)
        start = ID2Graph()(view, own, aux, rng=rng).values
        if graph is None:
            return LabelGuess(values=start, notes=notes)
        points = principal_components(graph, own, aux.classes, rng)
        values = fit_classes(graph, start, aux.classes, points, self.leaf_weight, self.rounds)
        return LabelGuess(values=values, notes=notes)


def principal_components(graph: LeafGraph, own: AttackerData, classes: int, rng: np.random.Generator) -> Floats:
    """Return float64 [groups, K]: leading components of eigenvectors and smoothed columns, each of variance 1."""
    _, vectors = graph.discounted(1.0).eigenvectors(classes, rng=rng)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(length > 0, length, 1.0)
    points = np.hstack([unit_variance(graph, vectors), _COLUMNS * beside_columns(graph, own)])
    share = graph.size / graph.size.sum()
    values, axes = np.linalg.eigh((share[:, None] * points).T @ points)
    kept = np.flatnonzero(values > 1e-12 * values.max(initial=0.0))[::-1][: classes + _EXTRA]
    components: Floats = points @ axes[:, kept] / np.sqrt(values[kept])
    return components


def fit_classes(
    graph: LeafGraph,
    start: NDArray[np.int64],
    classes: int,
    points: Floats | None,
    leaf_weight: float,
    rounds: int,
    *,
    full: bool = False,
) -> NDArray[np.int64]:
    """Return int64 [rows]: the most likely class of each row after rounds of expectation-maximization.

    Args:
        graph: of the rows.
        start: int64 [rows], the classes to begin with.
        classes: number of classes.
        points: float64 [groups, K] of variance 1, normal within a class; None: leaves only.
        leaf_weight: power of the likelihood of the leaves.
        rounds: most rounds; fewer where the likelihood no longer rises.
        full: whether the classes share a covariance matrix; otherwise they share variances only.
    """
    member = graph.means(np.eye(classes)[start])
    rows = graph.leaves.T @ graph.size
    base = rows / np.bincount(graph.tree, rows)[graph.tree]
    before = -np.inf
    for _ in range(rounds):
        mass = graph.size[:, None] * member
        share = (mass.sum(axis=0) + 1) / (graph.size.sum() + classes)
        inside = graph.leaves.T @ mass
        whole = np.column_stack([np.bincount(graph.tree, column) for column in inside.T])[graph.tree]
        leaf = (inside + _PSEUDO * base[:, None]) / (whole + _PSEUDO)
        score = np.log(share) + leaf_weight * (graph.leaves @ np.log(leaf))
        if points is not None:
            score += _normal(points, mass, full)
        top = score.max(axis=1, keepdims=True)
        member = np.exp(score - top)
        total = member.sum(axis=1, keepdims=True)
        member /= total
        value = float(graph.size @ (top + np.log(total)).ravel() / graph.size.sum())
        if value - before < _GAIN:
            break
        before = value
    chosen: NDArray[np.int64] = member.argmax(axis=1)[graph.group]
    return chosen


def _normal(points: Floats, mass: Floats, full: bool) -> Floats:
    """Return float64 [groups, classes]: log densities of normal classes of equal covariance, but for a constant."""
    rows = mass.sum(axis=0)
    mean = (mass.T @ points) / np.maximum(rows, 1e-9)[:, None]
    covariance = (points.T @ (mass.sum(axis=1)[:, None] * points) - (mean.T * rows) @ mean) / rows.sum()
    covariance += _VARIANCE * np.eye(len(covariance))
    root = np.linalg.cholesky(covariance if full else np.diag(np.diag(covariance)))
    scaled, centers = np.linalg.solve(root, points.T).T, np.linalg.solve(root, mean.T).T
    density: Floats = scaled @ centers.T - 0.5 * np.sum(centers**2, axis=1) - 0.5 * np.sum(scaled**2, axis=1)[:, None]
    return density - float(np.sum(np.log(np.diag(root))))
