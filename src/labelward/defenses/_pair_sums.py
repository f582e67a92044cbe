"""Sums over all pairs of a batch's rows: distances of embeddings, and unit vectors from one row to the other.

Rows are in the order of their classes. Embeddings of one number are sorted, which takes O(n log n). Longer ones take
O(n²) and the precision they came in: distances in blocks that fit a processor's cache, unit vectors as products of
matrices. Rows that are as near each other as rounding decides count as equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_BLOCK = 64


class OnLine:
    """Pairs of rows of one number each.

    Attributes:
        distances: sums of each row's distances to all rows, and to those of its class; [2, rows].
        units: sums of the unit vectors to each row from all rows, [rows, numbers].
        units_of_class: the same, from the rows of its class.
    """

    def __init__(self, x: Floats, counts: NDArray[np.int64]) -> None:
        self._order = np.argsort(x[:, 0])
        ordered, places = x[self._order, 0], np.arange(len(x))
        new = np.r_[True, ordered[1:] != ordered[:-1]]
        self._below = np.maximum.accumulate(np.where(new, places, 0))
        self._above = np.r_[np.flatnonzero(new)[1:], len(x)][np.cumsum(new) - 1]
        own = np.repeat(np.arange(len(counts)), counts)
        members = np.eye(len(counts))[own]
        units, moments = self._signed(members), self._signed(members * x)
        by_class = x * units - moments
        self.distances = np.array([by_class.sum(axis=1), by_class[places, own]])
        self.units, self.units_of_class = units.sum(axis=1, keepdims=True), units[places, own][:, None]

    def weighed(self, masses: Floats) -> Floats:
        """Return the sums of the unit vectors from all rows, each times the mass of the row that it comes from."""
        return self._signed(masses[:, None])

    def _signed(self, masses: Floats) -> Floats:
        """Return for each row the sum of the masses of rows below it less that of the rows above, [rows, masses]."""
        sums = np.zeros((len(masses) + 1, masses.shape[1]))
        np.cumsum(masses[self._order], axis=0, out=sums[1:])
        found = np.empty_like(masses)
        found[self._order] = sums[self._below] + sums[self._above] - sums[-1]
        return found


class InSpace:
    """Pairs of rows of several numbers each; attributes and methods as of :class:`OnLine`."""

    def __init__(self, x: Floats, counts: NDArray[np.int64], dtype: np.dtype[Any]) -> None:
        self._x, self._known = x, np.c_[np.ones(len(x)), x].astype(dtype)
        self._inverse, self.distances = np.empty((len(x), len(x)), dtype), np.empty((2, len(x)))
        own, squares = np.repeat(np.arange(len(counts)), counts), np.square(x).sum(axis=1, keepdims=True)
        members, ones = np.eye(len(counts), dtype=dtype)[own], np.ones_like(squares)
        left, right = np.c_[-2 * x, squares, ones].astype(dtype), np.c_[x, ones, squares].T.astype(dtype)
        rounding = (16 * float(np.finfo(dtype).eps) * squares).astype(dtype)
        for start in range(0, len(x), _BLOCK):
            rows = slice(start, start + _BLOCK)
            distances = left[rows] @ right
            equal = distances <= rounding[rows]
            distances[equal] = 0
            np.sqrt(distances, out=distances)
            by_class = distances @ members
            self.distances[:, rows] = by_class.sum(axis=1), by_class[np.arange(len(by_class)), own[rows]]
            distances[equal] = np.inf
            np.reciprocal(distances, out=self._inverse[rows])
        self.units, self.units_of_class = self.weighed(np.ones(len(x))), np.empty_like(x)
        for rows in _classes(counts):
            self.units_of_class[rows] = self._toward(rows, self._inverse[rows, rows] @ self._known[rows])

    def weighed(self, masses: Floats) -> Floats:
        """See :meth:`OnLine.weighed`."""
        return self._toward(slice(None), self._inverse @ (self._known * masses[:, None].astype(self._known.dtype)))

    def _toward(self, rows: slice, sums: NDArray[Any]) -> Floats:
        """Return sums of unit vectors, given those of the inverse distances, and of these times the embeddings."""
        return np.asarray(self._x[rows] * sums[:, :1] - sums[:, 1:], dtype=np.float64)


def _classes(counts: NDArray[np.int64]) -> list[slice]:
    """Return the rows of each class."""
    ends = np.cumsum(counts).tolist()
    return [slice(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)]
