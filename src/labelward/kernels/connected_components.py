"""Rows joined through leaves: the connected parts of the graph whose edges are shared leaves."""

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit
from labelward.kernels.leaf_signatures import Signatures


def label_components(signatures: Signatures) -> NDArray[np.int32]:
    """Return int32 [G]: the part of each group, numbered from 0 as they first appear, in next to linear time.

    Two groups are in one part where a chain of leaves, of whatever trees, leads from one to the other. A group in no
    leaf is a part of its own, so that the rows in no leaf, which are one group, are together.
    """
    return _unions(signatures.leaf_of_group)


@jit
def _unions(leaf: NDArray[np.int32]) -> NDArray[np.int32]:
    """Join by size, with halved paths."""
    trees, groups = leaf.shape
    parent, size = np.arange(groups), np.ones(groups, np.int64)
    for tree in range(trees):
        first = np.full(leaf[tree].max() + 1 if groups else 0, -1, np.int64)
        for group in range(groups):
            place = leaf[tree, group]
            if place < 0:
                continue
            if first[place] < 0:
                first[place] = group
            one, other = _root(parent, group), _root(parent, first[place])
            if one != other:
                if size[one] < size[other]:
                    one, other = other, one
                parent[other] = one
                size[one] += size[other]
    number, part, count = np.full(groups, -1, np.int32), np.empty(groups, np.int32), 0
    for group in range(groups):
        root = _root(parent, group)
        if number[root] < 0:
            number[root] = count
            count += 1
        part[group] = number[root]
    return part


@jit
def _root(parent: NDArray[np.int64], group: int) -> int:
    while parent[group] != group:
        parent[group] = parent[parent[group]]
        group = parent[group]
    return group
