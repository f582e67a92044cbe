"""The loops that count rows by joint cell, in numba, for :mod:`~labelward.he.paillier.joint`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.he.contract import Groups
from labelward.jit import jit

__all__ = ["count_joint", "count_single", "present_rows"]


def present_rows(groups: Groups) -> NDArray[np.int32]:
    """Return the rows of ``groups`` [n, F] that are not absent from all columns."""
    found = np.empty(len(groups), np.int32)
    return found[: _present(groups, found)]


@jit
def _present(groups: Groups, found: NDArray[np.int32]) -> int:
    count, columns = 0, groups.shape[1]
    for row in range(len(groups)):
        column = 0
        while column < columns and groups[row, column] < 0:
            column += 1
        if column < columns:
            found[count] = row
            count += 1
    return count


@jit
def count_single(groups: Groups, present: NDArray[np.int32], counts: NDArray[np.int32]) -> None:
    """Count the rows of each group of each column in ``counts`` [F, n_groups + 1], from 1 on; 0 is absent."""
    for row in present:
        for column in range(groups.shape[1]):
            counts[column, groups[row, column] + 1] += 1


@jit
def count_joint(
    groups: Groups, present: NDArray[np.int32], columns: NDArray[np.int64], n_groups: int, counts: NDArray[np.int32]
) -> None:
    """Count the rows of each joint key: 0 for those that are absent from all columns of the set."""
    for row in present:
        key = 0
        for column in columns:
            key = key * (n_groups + 1) + groups[row, column] + 1
        counts[key] += 1
