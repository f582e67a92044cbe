"""Gradient modes: among rows that a party embeds alike, returned gradients lie in two heaps, one for each class.

A defense that adds to a gradient what follows from the embedding (``adversarial``, ``distance-correlation``) moves both
heaps together and may turn around which is the lower one. So the sign of a gradient tells little, and the gap between
the heaps as much as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.nets.view_gradients import gradient_batches
from labelward.attacks.row_ranking import TwoClassRanking
from labelward.parameters import PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]

_FURTHEST = 4.0
"""Deviations beyond which a row's distance from the cut counts no more."""


@dataclass(frozen=True, kw_only=True)
class GradientModes(TwoClassRanking):
    """Rows ranked by the heap of gradients in which they lie, among the rows of a batch that are embedded alike.

    The rows of each batch are cut into cells along the main direction of the party's embeddings. In each cell the
    gradients, along the direction in which they differ most, are cut into two heaps where the variance between them is
    largest; the smaller heap is that of the rarer class. A row's score is its distance from the cut, in deviations
    within the heaps, summed over batches.

    Setting: a curious passive party of a split network of two classes, one of which is rarer. It knows no label, and
        not which class is rarer. Embeddings are those of its trained bottom model; those of the time would serve it
        better. It reads training rows only. Fresh noise without a gap, as that of ``marvell``, leaves it nothing.

    Reference: none; found by attacking the defenses of the LPSC paper's comparison. The cut is Otsu's (1979).
    """

    kind: ClassVar[str] = "gradient-modes"

    epochs: Annotated[PositiveInt, Meta(description="Number of first epochs whose gradients are read.")] = 3
    cell: Annotated[int, Meta(ge=4, description="Number of rows of a batch, about, that count as embedded alike.")] = 80

    @property
    def reads_arrays(self) -> bool:
        """Always true: the attack reads gradients."""
        return True

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a score for every training row; without gradients scores are drawn at random.

        Raises:
            DataError: the view is the active party's; ``own`` does not hold its rows, or no bottom model; the view has
                digests of the gradients.
            FileFormatError: records of the view contradict each other.
            JobError: not two classes.
        """
        from labelward.attacks.nets.completion import embedded

        self.check_view(view, own, aux)
        batches = gradient_batches(view, self.epochs)
        if not batches:
            return self.guess_of(rng.normal(size=view.rows), {})
        order = np.argsort(_along(embedded(self.trained_bottom(view, own), own.features)), kind="stable")
        rank = np.empty(view.rows, dtype=np.int64)
        rank[order] = np.arange(view.rows)
        scores, seen = np.zeros(view.rows), np.zeros(view.rows, dtype=np.bool_)
        for rows, values in batches:
            cells = np.array_split(np.argsort(rank[rows]), max(1, len(rows) // self.cell))
            for cell in cells:
                scores[rows[cell]] += heap_distances(_along(values[cell]))
            seen[rows] = True
        return self.guess_of(scores, {"rows without a gradient": float((~seen).sum())})


def heap_distances(values: Floats) -> Floats:
    """Return how far each number lies from the cut into two heaps, in deviations within them; the rarer heap's above 0.

    Args:
        values: float64 [rows]; zeros are returned where all are equal.
    """
    order = np.sort(values)
    if len(order) < 2 or order[0] == order[-1]:
        return np.zeros(len(values))
    below = np.arange(1, len(order))
    sums = np.cumsum(order)
    means = sums[:-1] / below, (sums[-1] - sums[:-1]) / (len(order) - below)
    cut = int(np.argmax(below * (len(order) - below) * (means[1] - means[0]) ** 2))
    low, high = order[: cut + 1], order[cut + 1 :]
    within = np.sqrt((low.var() * len(low) + high.var() * len(high)) / len(order))
    distances = (values - (low[-1] + high[0]) / 2) / max(within, 1e-9 * (order[-1] - order[0]))
    return np.asarray(np.clip(distances if len(high) < len(low) else -distances, -_FURTHEST, _FURTHEST))


def _along(values: Floats) -> Floats:
    """Return the projections of rows, less their mean, onto the direction in which they differ most."""
    centered = values - values.mean(axis=0)
    if centered.shape[1] == 1:
        return np.asarray(centered[:, 0])
    return np.asarray(centered @ np.linalg.svd(centered, full_matrices=False)[2][0])
