"""Grouped integer sums, compiled; imported when the first sum is asked for."""

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
