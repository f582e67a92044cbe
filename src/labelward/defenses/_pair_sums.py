"""Sums over all pairs of a batch's rows: distances of embeddings, and unit vectors from one row to the other.

Rows are in the order of their classes. Embeddings of one number are sorted, which takes O(n log n). Longer ones take
O(n²) and the precision they came in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.pair_distances import (
    direction_weights,
    distance_sums,
    line_direction_sums,
    line_distance_sums,
)

Floats = NDArray[np.float64]


class OnLine:
    """Pairs of rows of one number each.

    Attributes:
        distances: sums of each row's distances to all rows, and to those of its class; [2, rows].
    """

    def __init__(self, x: Floats, counts: NDArray[np.int64]) -> None:
        own = np.repeat(np.arange(len(counts)), counts)
        self._order = np.argsort(x[:, 0])
        self._ordered, found = x[self._order, 0], np.zeros((4, len(x)))
        line_distance_sums(self._ordered, own[self._order], found)
        sums = np.empty_like(found)
        sums[:, self._order] = found
        self.distances, self._units, self._of_class = sums[:2], sums[2], sums[3]

    def pulled(self, masses: Floats) -> Floats:
        """Return the sums of the unit vectors to each row, [rows, numbers].

        Each counts with the masses of both its rows, less 1 where they are of the same class.
        """
        found, signed = np.empty(len(masses)), np.empty(len(masses))
        line_direction_sums(self._ordered, masses[self._order], found)
        signed[self._order] = found
        return np.asarray(masses * self._units + signed - self._of_class)[:, None]


class InSpace:
    """Pairs of rows of several numbers each; attributes and methods as of :class:`OnLine`."""

    def __init__(self, x: Floats, counts: NDArray[np.int64], dtype: np.dtype[Any]) -> None:
        self._x = np.ascontiguousarray(x.T, dtype=dtype)
        ends = np.cumsum(counts)
        self._begin, self._end = np.repeat(ends - counts, counts), np.repeat(ends, counts)
        self._inverse, self.distances = np.empty((len(x), len(x)), dtype), np.zeros((2, len(x)), dtype)
        distance_sums(self._x, self._begin, self._end, self.distances[0], self.distances[1], self._inverse)

    def pulled(self, masses: Floats) -> Floats:
        """See :meth:`OnLine.pulled`; once, since the distances are overwritten."""
        direction_weights(self._begin, self._end, self._inverse, masses.astype(self._inverse.dtype))
        *sums, shares = np.vstack([self._x, np.ones_like(self._x[:1])]) @ self._inverse
        return np.asarray(shares * self._x - sums).T.astype(np.float64)
