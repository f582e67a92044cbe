"""Leaf signatures: rows in the same leaf of every tree, merged into one vertex, numbered by first appearance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

_HASH_FACTOR = 0x9E3779B97F4A7C15  # the golden ratio in 64 bits: spreads consecutive keys over the table


@dataclass(frozen=True, kw_only=True)
class Signatures:
    """Groups of rows that share their leaf in every tree.

    Attributes:
        group: int32 [n], the group of each row; groups are numbered in the order of their first rows.
        leaf_of_group: int32 [T, G], the leaf of each group in each tree, numbered from 0 within the tree in
            the order of first rows; -1 where the group is in no leaf of that tree.
        size: int64 [G], rows of each group.
    """

    group: NDArray[np.int32]
    leaf_of_group: NDArray[np.int32]
    size: NDArray[np.int64]


def merge_identical_rows(leaves: NDArray[np.int32]) -> Signatures:
    """Merge rows with the same leaf in every tree, in time and memory linear in the number of rows.

    Neither names of leaves nor the order of trees change ``group`` and ``size``.

    Args:
        leaves: int32 [T, n]; any numbers that differ between the leaves of a tree; -1: the row is in none.

    Raises:
        ValueError: ``leaves`` is no matrix, or holds a number below -1.
    """
    if leaves.ndim != 2:
        raise ValueError(f"leaves must be a matrix [trees, rows] but have {leaves.ndim} dimensions")
    if int(leaves.min(initial=0)) < -1:
        raise ValueError(f"leaves must be -1 or more but one is {leaves.min()}")
    trees, rows = leaves.shape
    group, compact = np.zeros(rows, np.int32), np.empty((trees, rows), np.int32)
    for tree in range(trees):
        compact[tree] = _leaf_numbers(leaves[tree])
        width = int(compact[tree].max(initial=-1)) + 2
        group = relabel(group.astype(np.int64) * width + (compact[tree] + 1))
    size = np.bincount(group).astype(np.int64)
    first = np.empty(len(size), np.int64)
    first[group[::-1]] = np.arange(rows)[::-1]  # the last write is the first row
    return Signatures(group=group, leaf_of_group=np.ascontiguousarray(compact[:, first]), size=size)


def _leaf_numbers(leaf: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the leaves numbered by first appearance, with -1 kept."""
    present = leaf >= 0
    numbers = np.full(len(leaf), -1, np.int32)
    numbers[present] = relabel(leaf[present].astype(np.int64))
    return numbers


@jit
def relabel(keys: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return int32 [n]: keys numbered from 0 in the order in which they appear (open addressing, linear probing)."""
    bits = 4
    while (1 << bits) < 2 * len(keys):
        bits += 1
    slots = np.full(1 << bits, -1, dtype=np.int32)
    known = np.empty(len(keys), dtype=np.int64)
    labels = np.empty(len(keys), dtype=np.int32)
    count, mask = 0, (1 << bits) - 1
    for i in range(len(keys)):
        slot = np.int64((np.uint64(keys[i]) * np.uint64(_HASH_FACTOR)) >> np.uint64(64 - bits))
        while slots[slot] >= 0 and known[slots[slot]] != keys[i]:
            slot = (slot + 1) & mask
        if slots[slot] < 0:
            slots[slot] = count
            known[count] = keys[i]
            count += 1
        labels[i] = slots[slot]
    return labels
