"""Rows of each class out of the sums of a node, and how pure a node is, in one pass over many nodes or candidates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@jit
def counts_of_flags(sums: Integers, count: int) -> Integers:
    """Return int64 [n, C] of sums int64 [n, k], where the flags of all classes but the first follow the count."""
    n, others = len(sums), sums.shape[1] - count - 1
    found = np.empty((n, others + 1), dtype=np.int64)
    for i in range(n):
        first = sums[i, count]
        for c in range(1, others + 1):
            found[i, c] = sums[i, count + c]
            first -= sums[i, count + c]
        found[i, 0] = first
    return found


@jit
def counts_of_gradients(sums: Integers, stored: int, count: int) -> Integers:
    """Return int64 [n, C] of sums int64 [n, k], where gradients are minus the flags, and that of the last class is not
    stored."""
    n = len(sums)
    found = np.empty((n, stored + 1), dtype=np.int64)
    for i in range(n):
        last = sums[i, count]
        for c in range(stored):
            found[i, c] = -sums[i, c]
            last += sums[i, c]
        found[i, stored] = last
    return found


@jit
def purities(counts: Integers) -> Floats:
    """Return the share of the largest class of counts int64 [n, C], float64 [n]; 0 where there is no row."""
    found = np.empty(len(counts))
    for i in range(len(counts)):
        found[i] = _purity(counts[i])
    return found


@jit
def child_purities(left: Integers, node: Integers) -> tuple[Floats, Floats, np.int64]:
    """Return the purity of both children of each candidate, float64 [S, m] each, and the least count of a right child.

    Args:
        left: int64 [S, m, C]: rows of each class that go left, by node and candidate.
        node: int64 [S, C]: all rows of each node.
    """
    nodes, each, classes = left.shape
    of_left, of_right, least = np.empty((nodes, each)), np.empty((nodes, each)), np.int64(0)
    right = np.empty(classes, dtype=np.int64)
    for s in range(nodes):
        for a in range(each):
            for c in range(classes):
                right[c] = node[s, c] - left[s, a, c]
                least = min(least, right[c])
            of_left[s, a], of_right[s, a] = _purity(left[s, a]), _purity(right)
    return of_left, of_right, least


@jit
def _purity(counts: Integers) -> float:
    most, rows = np.int64(0), np.int64(0)
    for count in counts:
        if count > most:
            most = count
        rows += count
    return float(most / rows) if rows > 0 else 0.0
