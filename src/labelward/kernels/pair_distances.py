"""Distances of all pairs of rows of several numbers, and sums of the directions from one row to another.

All loops run over the rows of one number, which lie side by side, so that a processor takes several at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit


@jit
def distance_sums(
    x: NDArray[Any],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    sums: NDArray[Any],
    of_class: NDArray[Any],
    inverse: NDArray[Any],
) -> None:
    """Add each row's distances to all rows and to those of its class, and note the inverse of each.

    Args:
        x: [numbers, rows], rows ordered by class; all arrays have its type.
        begin: int64 [rows]: the first row of each row's class.
        end: int64 [rows]: the row behind its last one.
        sums: [rows], added to.
        of_class: [rows], added to.
        inverse: [rows, rows], written; 0 for rows that are equal.
    """
    numbers, rows = x.shape
    far = np.empty(rows, x.dtype)
    for i in range(rows):
        far[:] = 0
        for k in range(numbers):
            here = x[k, i]
            for j in range(rows):
                step = x[k, j] - here
                far[j] += step * step
        for j in range(rows):
            far[j] = np.sqrt(far[j])
            sums[j] += far[j]
            inverse[i, j] = 1 / far[j] if far[j] > 0 else 0
        for j in range(begin[i], end[i]):
            of_class[j] += far[j]


@jit
def direction_sums(
    x: NDArray[Any],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    inverse: NDArray[Any],
    masses: NDArray[Any],
    sums: NDArray[Any],
) -> None:
    """Add to each row the unit vectors from all rows, times the masses of both; less 1 within a class.

    Args:
        x: as of :func:`distance_sums`, like the next three.
        masses: [rows].
        sums: [numbers, rows], added to.
    """
    numbers, rows = x.shape
    share = np.empty(rows, x.dtype)
    for i in range(rows):
        mass = masses[i]
        for j in range(rows):
            share[j] = (mass + masses[j]) * inverse[i, j]
        for j in range(begin[i], end[i]):
            share[j] -= inverse[i, j]
        for k in range(numbers):
            here = x[k, i]
            for j in range(rows):
                sums[k, j] += share[j] * (x[k, j] - here)
