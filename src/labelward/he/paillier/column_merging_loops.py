"""The loops that list and count rows by their groups, in numba, for :mod:`~labelward.he.paillier.column_merging`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.he.base import Groups
from labelward.jit import jit


@jit
def list_present(groups: Groups, rows: NDArray[np.int32]) -> tuple[int, int, int]:
    """List the rows of ``groups`` [n, F] that are not absent from all columns.

    Returns how many there are, and the least and the greatest entry of ``groups``, or -1. Loops without branches, as
    these are, take eight entries at a time.
    """
    count, least, most, flat = 0, np.int32(-1), np.int32(-1), groups.reshape(-1)
    for row in range(len(groups)):
        together = np.int32(-1)  # negative if all are
        for column in range(groups.shape[1]):
            together &= groups[row, column]
        rows[count] = row
        count += int(together >= 0)
    for entry in flat:
        least, most = min(least, entry), max(most, entry)
    return count, int(least), int(most)


@jit
def by_column(groups: Groups, rows: NDArray[np.int32], columns: NDArray[np.int32]) -> None:
    """Write the groups of ``rows``, column by column, to ``columns`` [F, m]."""
    for i in range(len(rows)):
        row = groups[rows[i]]
        for column in range(len(row)):
            columns[column, i] = row[column]


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


@jit
def count_filled(
    groups: NDArray[np.int32],
    columns: NDArray[np.int64],
    size: int,
    filled: NDArray[np.bool_],
    with_group: NDArray[np.int64],
) -> tuple[int, int]:
    """As :func:`count_sorted`, for so few joint keys that ``filled``, of all that there could be, has room for them."""
    absent, cells = 0, 0
    for row in range(groups.shape[1]):
        key = np.int64(0)
        for column in columns:
            key = key * size + groups[column, row] + 1
        if key == 0:
            absent += 1
        elif not filled[key]:
            filled[key] = True
            cells += 1
            for at in range(len(columns)):
                with_group[at] += int(groups[columns[at], row] >= 0)
    return absent, cells


@jit
def count_sorted(
    groups: NDArray[np.int32], columns: NDArray[np.int64], size: int, with_group: NDArray[np.int64]
) -> tuple[int, int]:
    """Return how many rows are absent from all ``columns``, and how many joint cells the others fill.

    ``with_group`` [columns] becomes the number of these cells that have a group of each column.
    """
    keys = np.zeros(groups.shape[1], np.int64)
    for column in columns:
        for row in range(len(keys)):
            keys[row] = keys[row] * size + groups[column, row] + 1
    keys.sort()
    absent, cells, last = 0, 0, np.int64(0)
    for key in keys:
        absent += int(key == 0)
        if key != last:
            cells, last, rest = cells + 1, key, key
            for at in range(len(columns) - 1, -1, -1):
                with_group[at] += int(rest % size > 0)
                rest //= size
    return absent, cells
