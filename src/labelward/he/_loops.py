"""Loops over the integers of rows and sums, compiled; imported when they are first asked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit


@jit
def group_sums(
    values: NDArray[np.int64], groups: NDArray[np.int32], sums: NDArray[np.int64], seen: NDArray[np.uint8]
) -> int:
    """Add ``values[n, k]`` to ``sums[F, n_groups, k]`` by ``groups[n, F]``; mark in ``seen`` who got any.

    Returns:
        The number of entries that were present, or -1 where an entry is no group and not -1.
    """
    n, columns = groups.shape
    n_groups, k = sums.shape[1], sums.shape[2]
    present = 0
    for row in range(n):
        for column in range(columns):
            group = groups[row, column]
            if group == -1:
                continue
            if group < 0 or group >= n_groups:
                return -1
            present += 1
            seen[column, group] = 1
            for j in range(k):
                sums[column, group, j] += values[row, j]
    return present


@jit
def first_beyond(values: NDArray[np.int64], limits: NDArray[np.int64]) -> int:
    """Return the lowest column of ``values[n, k]`` with an absolute value above its limit, -1 for none."""
    n, k = values.shape
    lowest = k
    for row in range(n):
        for column in range(lowest):
            if values[row, column] > limits[column] or values[row, column] < -limits[column]:
                lowest = column
                break
    return lowest if lowest < k else -1
