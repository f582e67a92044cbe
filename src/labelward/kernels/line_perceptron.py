"""Gradients of a perceptron of one number: between the places where a hidden number sets in, its outputs are lines.

So a row takes a search among these places and its softmax, however wide the hidden layer is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

Floats = NDArray[np.float64]


def line_gradients(
    weights: Sequence[Floats], x: Floats, labels: NDArray[np.int64]
) -> tuple[Floats, tuple[Floats, ...]]:
    """Return the gradients of the sum of rows' cross-entropies by the rows, float64 [rows], and by the weights.

    Args:
        weights: of the hidden layer (ReLU), [1, width] and [width], and of the last one, [width, classes], [classes].
        x: float64 [rows].
        labels: int64 [rows], class numbers.
    """
    (first, bias, last, last_bias), width = weights, len(weights[1])
    steep = first[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        cuts = np.where(steep != 0, -bias / steep, np.where(bias > 0, -np.inf, np.inf))
    rising = steep >= 0  # set in above their cut, the others below it
    order = np.argsort(cuts)
    place = np.empty(width, dtype=np.int64)
    place[order] = np.arange(width)
    lines = np.stack([steep[:, None] * last, bias[:, None] * last])
    changes = np.where(rising[:, None], lines, -lines)[:, order]
    start = lines[:, ~rising].sum(axis=1) + np.stack([np.zeros_like(last_bias), last_bias])
    pieces = np.concatenate([start[:, None], changes], axis=1).cumsum(axis=1)
    by_rows, sums = np.empty(len(x)), np.zeros_like(pieces)
    _row_gradients(cuts[order], pieces, x, labels, by_rows, sums)
    below = sums.cumsum(axis=1)
    whole = below[:, -1]
    moments, errors = np.where(rising[:, None], whole[:, None] - below[:, place], below[:, place])
    by_last = steep[:, None] * moments + bias[:, None] * errors
    return by_rows, ((moments * last).sum(axis=1)[None], (errors * last).sum(axis=1), by_last, whole[1])


@jit
def _row_gradients(
    cuts: Floats, pieces: Floats, x: Floats, labels: NDArray[np.int64], by_rows: Floats, sums: Floats
) -> None:
    """Write the gradient of each row's cross-entropy, and add up those by the lines of its piece.

    Args:
        cuts: float64 [width], ascending; a row lies in the piece of as many as are below it.
        pieces: float64 [2, width + 1, classes], steepness and height of each output in each piece.
        x: float64 [rows].
        labels: int64 [rows].
        by_rows: float64 [rows], written.
        sums: as ``pieces``, added to: errors of outputs times the row, and errors.
    """
    classes = pieces.shape[2]
    odds = np.empty(classes)
    for row in range(len(x)):
        here, low, high = x[row], 0, len(cuts)
        while low < high:
            middle = (low + high) // 2
            if cuts[middle] < here:
                low = middle + 1
            else:
                high = middle
        most, total = -np.inf, 0.0
        for each in range(classes):
            odds[each] = pieces[0, low, each] * here + pieces[1, low, each]
            most = max(most, odds[each])
        for each in range(classes):
            odds[each] = np.exp(odds[each] - most)
            total += odds[each]
        pulled = 0.0
        for each in range(classes):
            error = odds[each] / total - (1.0 if labels[row] == each else 0.0)
            pulled += error * pieces[0, low, each]
            sums[0, low, each] += error * here
            sums[1, low, each] += error
        by_rows[row] = pulled
