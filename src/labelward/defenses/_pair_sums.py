"""Sums over all pairs of a batch's rows: distances of embeddings, and unit vectors from one row to the other.

Rows are in the order of their classes. Embeddings of one number are sorted, which takes O(n log n). Longer ones take
O(n²) and the precision they came in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.pair_distances import direction_sums, distance_sums

Floats = NDArray[np.float64]


class OnLine:
    """Pairs of rows of one number each.

    Attributes:
        distances: sums of each row's distances to all rows, and to those of its class; [2, rows].
    """

    def __init__(self, x: Floats, counts: NDArray[np.int64]) -> None:
        self._order = np.argsort(x[:, 0])
        ordered, places = x[self._order, 0], np.arange(len(x))
        new = np.r_[True, ordered[1:] != ordered[:-1]]
        self._below = np.maximum.accumulate(np.where(new, places, 0))
        self._above = np.r_[np.flatnonzero(new)[1:], len(x)][np.cumsum(new) - 1]
        own = np.repeat(np.arange(len(counts)), counts)
        members = (own == np.arange(len(counts))[:, None]).astype(np.float64)
        units, moments = np.split(self._signed(np.concatenate([members, members * x[:, 0]])), 2)
        by_class = x[:, 0] * units - moments
        self.distances = np.array([by_class.sum(axis=0), by_class[own, places]])
        self._units, self._of_class = units.sum(axis=0), units[own, places]

    def pulled(self, masses: Floats) -> Floats:
        """Return the sums of the unit vectors to each row, [rows, numbers].

        Each counts with the masses of both its rows, less 1 where they are of the same class.
        """
        signed = self._signed(masses[None])[0]
        return np.asarray(masses * self._units + signed - self._of_class)[:, None]

    def _signed(self, masses: Floats) -> Floats:
        """Return for each row the sum of the masses of rows below it less that of the rows above, [masses, rows]."""
        sums = np.zeros((len(masses), masses.shape[1] + 1))
        np.cumsum(masses[:, self._order], axis=1, out=sums[:, 1:])
        found = np.empty_like(masses)
        found[:, self._order] = sums[:, self._below] + sums[:, self._above] - sums[:, -1:]
        return found


class InSpace:
    """Pairs of rows of several numbers each; attributes and methods as of :class:`OnLine`."""

    def __init__(self, x: Floats, counts: NDArray[np.int64], dtype: np.dtype[Any]) -> None:
        self._x = np.ascontiguousarray(x.T, dtype=dtype)
        ends = np.cumsum(counts)
        self._begin, self._end = np.repeat(ends - counts, counts), np.repeat(ends, counts)
        self._inverse, self.distances = np.empty((len(x), len(x)), dtype), np.zeros((2, len(x)), dtype)
        distance_sums(self._x, self._begin, self._end, self.distances[0], self.distances[1], self._inverse)

    def pulled(self, masses: Floats) -> Floats:
        """See :meth:`OnLine.pulled`."""
        found = np.zeros_like(self._x)
        direction_sums(self._x, self._begin, self._end, self._inverse, masses.astype(found.dtype), found)
        return found.T.astype(np.float64)
