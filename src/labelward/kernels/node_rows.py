"""Node numbers of a binary tree, the rows of each node (its instance space) while the tree grows, and their routing.

The root is node 0; the children of node i are 2i + 1 (left) and 2i + 2 (right).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

Rows = NDArray[np.int32]


def children(node: int) -> tuple[int, int]:
    """Return the left and the right child of a node."""
    return 2 * node + 1, 2 * node + 2


def depth_of(node: int) -> int:
    """Return the number of splits above a node."""
    return (node + 1).bit_length() - 1


def parent(node: int) -> int:
    """Return the parent of a node; -1 for the root."""
    return (node - 1) // 2


def sibling(node: int) -> int:
    """Return the other child of a node's parent."""
    return node + 1 if node % 2 else node - 1


def ancestors(node: int) -> Iterator[int]:
    """Yield the nodes above a node, from its parent to the root."""
    while node:
        node = parent(node)
        yield node


def is_below(node: int, other: int) -> bool:
    """Return whether ``other`` is a proper ancestor of ``node``."""
    while node > other:
        node = parent(node)
        if node == other:
            return True
    return False


def leaves_below(splits: Collection[int], root: int = 0) -> list[int]:
    """Return the leaves of a tree, or of the subtree at ``root``, that splits these nodes; ascending."""
    return sorted({root, *(child for node in splits for child in children(node))}.difference(splits))


def branches(nodes: Sequence[int], leaves: Sequence[int]) -> tuple[Rows, Rows]:
    """Return for each split its left and its right successor: a split's position, or -1 - a leaf's position."""
    place = {node: position for position, node in enumerate(nodes)}
    place |= {leaf: -1 - position for position, leaf in enumerate(leaves)}
    both = np.array([[place[child] for child in children(node)] for node in nodes], dtype=np.int32).reshape(-1, 2)
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


class NodeRows:
    """Rows of each current leaf, in ascending order.

    Args:
        sample: int64: the rows on which the tree grows.
    """

    def __init__(self, total: int, sample: NDArray[np.int64]) -> None:
        self.total = total
        self._rows: dict[int, Rows] = {0: sample.astype(np.int32)}

    def __contains__(self, node: int) -> bool:
        """Return whether the node is a leaf of the tree so far."""
        return node in self._rows

    def rows(self, node: int) -> Rows:
        """Return int32: the rows of a leaf."""
        return self._rows[node]

    def size(self, node: int) -> int:
        """Return the number of rows of a leaf."""
        return len(self._rows[node])

    def split(self, node: int, left: NDArray[np.bool_]) -> None:
        """Replace a leaf by its two children; ``left`` is a mask over the leaf's rows."""
        rows = self._rows.pop(node)
        for child, mask in zip(children(node), (left, ~left), strict=True):
            self._rows[child] = rows[mask]

    def merge(self, node: int) -> None:
        """Undo all splits at and below a node, so that it is a leaf again."""
        below = [other for other in self._rows if is_below(other, node)]
        if below:
            self._rows[node] = np.sort(np.concatenate([self._rows.pop(other) for other in below]))

    def slots(self, nodes: Sequence[int]) -> NDArray[np.int32]:
        """Return int32 [total]: the position in ``nodes`` of each row's leaf, -1 for a row in none of them."""
        slot = np.full(self.total, -1, dtype=np.int32)
        if len(nodes):
            leaves = [self._rows[node] for node in nodes]
            sizes = [len(leaf) for leaf in leaves]
            slot[np.concatenate(leaves)] = np.repeat(np.arange(len(nodes), dtype=np.int32), sizes)
        return slot


@jit
def route_rows(left: NDArray[np.int32], right: NDArray[np.int32], sides: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return int32 [rows]: the leaf that each row reaches.

    Args:
        left: int32 [splits]: where a split's rows go on the left: the position of another split, or ``-1 - leaf``.
            Split 0 is the root.
        right: the same for the right.
        sides: bool [splits, rows]: whether the row goes left.
    """
    rows = sides.shape[1]
    leaves = np.zeros(rows, dtype=np.int32)
    if len(left) == 0:
        return leaves
    for row in range(rows):
        at = np.int32(0)
        while at >= 0:
            at = left[at] if sides[at, row] else right[at]
        leaves[row] = -1 - at
    return leaves
