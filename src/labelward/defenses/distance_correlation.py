"""Distance correlation of embeddings and labels, as a penalty (FE-VFL).

Setting: a curious passive party reads labels from its embeddings. To the gradient that it gets the active party adds
``weight`` times that of the sample distance correlation of the batch's embeddings and labels, which is 0 where they are
independent (in the limit of many rows) and 1 at most. Labels are those that policies of targets leave. No bound on what
is learned follows; batches of one class, and embeddings that are all equal, get nothing added.

Reference: Sun et al., "Label leakage and protection from forward embedding in vertical federated learning" (2022).
Differences: the correlation itself is the penalty, where the paper has its logarithm, which has no bound; the rows of a
large batch are compared in parts, since their pairs grow with its square.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.defenses._class_gradients import check_classes, known_classes
from labelward.defenses._pair_sums import InSpace, OnLine
from labelward.kernels.pair_distances import covariances
from labelward.parameters import NonNegativeFloat
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.net_points import ReturnedGradient, Values

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class DistanceCorrelation(Policy):
    """Penalize the distance correlation of embeddings and labels."""

    kind: ClassVar[str] = "distance-correlation"

    weight: Annotated[
        NonNegativeFloat, Meta(description="Weight of the distance correlation, against the training loss; 0: nothing.")
    ]
    rows: Annotated[
        int,
        Meta(
            ge=2,
            description="Most rows of a batch that are compared with each other; of a larger batch the penalty is the "
            "mean over parts of so many. Embeddings of one number are compared in any number.",
        ),
    ] = 256

    def check(self, setup: PolicyContext) -> None:
        """Refuse quantities, and a place in the chain where labels are not known any more."""
        check_classes(self, setup)

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the gradient of loss and penalty."""
        labels = known_classes(self, returned)
        parts = 1 if returned.embeddings.shape[1] == 1 else -(-len(labels) // self.rows)
        gradient = np.empty(returned.values.shape)
        for rows in np.array_split(np.arange(len(labels)), parts):
            _, pulled = distance_correlation(returned.embeddings[rows], labels[rows])
            gradient[rows] = pulled * len(rows) / len(labels)
        return np.asarray((returned.values + self.weight * gradient).astype(returned.values.dtype))


def distance_correlation(embeddings: Values, labels: NDArray[np.int64]) -> tuple[float, Floats]:
    """Return the distance correlation of a batch, and its gradient by the embeddings, float64 [rows, numbers].

    Classes are as far from each other as they are different: 0 or 1. As the matrix of these distances is constant in
    blocks, only sums over all rows and over the rows of each class are needed of the embeddings' distances.
    """
    order, counts = np.argsort(labels, kind="stable"), np.bincount(labels)
    counts = counts[counts > 0]
    gradient = np.zeros(embeddings.shape)
    x = embeddings[order].astype(np.float64)
    x -= x[0].copy()
    if len(counts) < 2 or not x.any():
        return 0.0, gradient
    x -= x.mean(axis=0)
    pairs = OnLine(x, counts) if x.shape[1] == 1 else InSpace(x, counts, embeddings.dtype)
    (near, within), masses = pairs.distances / len(x), np.empty(len(x))
    shared, rows, classes = covariances(
        near, within, np.repeat(1 - counts / len(x), counts), float(np.vdot(x, x)) / len(x), masses
    )
    if rows <= 0 or shared <= 0:
        return 0.0, gradient
    correlation = float(np.sqrt(shared / np.sqrt(rows * classes)))
    pull = pairs.pulled(masses) - (shared / rows * len(x)) * x
    gradient[order] = pull / (np.sqrt(rows * classes) * len(x) ** 2 * correlation)
    return correlation, gradient
