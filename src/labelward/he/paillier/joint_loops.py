"""The loops that list and count rows by their groups, in numba, for :mod:`~labelward.he.paillier.joint`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.he.contract import Groups
from labelward.jit import jit

__all__ = ["count_joint", "count_single", "list_present"]


@jit
def list_present(
    groups: Groups, start: int, rows: NDArray[np.int32], columns: NDArray[np.int32]
) -> tuple[int, int, int]:
    """List the rows of ``groups`` [n, F] that are not absent from all columns, and their groups, column by column.

    Row 0 has the number ``start``. Returns how many there are, and the least and the greatest entry of ``groups``.
    """
    count, least, most = 0, 0, -1
    for row in range(len(groups)):
        highest = -1
        for column in range(groups.shape[1]):
            group = groups[row, column]
            columns[column, count] = group  # the next row writes over it where this one is absent
            highest, least = max(highest, group), min(least, group)
        if highest >= 0:
            rows[count] = start + row
            count += 1
        most = max(most, highest)
    return count, least, most


@jit
def count_single(groups: NDArray[np.int32], counts: NDArray[np.int32]) -> None:
    """Count the rows of each group of each column of ``groups`` [F, m] in ``counts``, from 1 on; 0 is absent."""
    for column in range(len(groups)):
        for row in range(groups.shape[1]):
            counts[column, groups[column, row] + 1] += 1


@jit
def count_joint(
    groups: NDArray[np.int32], columns: NDArray[np.int64], size: int, keys: NDArray[np.int32], counts: NDArray[np.int32]
) -> None:
    """Write each row's joint key, in digits below ``size``, and count keys: 0 if it is absent from all ``columns``."""
    keys[:] = 0
    for column in columns:
        for row in range(len(keys)):
            keys[row] = keys[row] * size + groups[column, row] + 1
    for row in range(len(keys)):
        counts[keys[row]] += 1
