"""Which training rows lie in which node of the tree that grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PeerError

__all__ = ["Partition", "children", "depth_of", "is_below", "parent", "sibling"]

Rows = NDArray[np.int32]


def children(node: int) -> tuple[int, int]:
    """Return the numbers of a node's children: left, right."""
    return 2 * node + 1, 2 * node + 2


def depth_of(node: int) -> int:
    """Return how many splits lie above a node."""
    return (node + 1).bit_length() - 1


def parent(node: int) -> int:
    """Return the number of a node's parent; -1 for the root."""
    return (node - 1) // 2


def sibling(node: int) -> int:
    """Return the number of the other child of a node's parent."""
    return node + 1 if node % 2 else node - 1


def is_below(node: int, other: int) -> bool:
    """Whether the way from the root to a node leads over another one."""
    while node > other:
        node = parent(node)
        if node == other:
            return True
    return False


class Partition:
    """Rows of each known node, in ascending order.

    Args:
        total: number of training rows.
        sample: rows that the tree grows on.
    """

    def __init__(self, total: int, sample: NDArray[np.int64]) -> None:
        self.total = total
        self._rows: dict[int, Rows] = {0: sample.astype(np.int32)}

    def rows(self, node: int) -> Rows:
        """Return the rows of a node."""
        return self._rows[node]

    def knows(self, node: int) -> bool:
        """Whether the node's rows are known and it was not split."""
        return node in self._rows

    def size(self, node: int) -> int:
        """Return the number of rows of a node."""
        return len(self._rows[node])

    def split(self, node: int, left: NDArray[np.bool_], owner: str) -> None:
        """Split a node by a mask over its rows; ``owner`` is to blame for a node that does not exist."""
        if node not in self._rows:
            raise PeerError(owner, f"split node {node}, which is no leaf of the tree", code="peer-message", value=node)
        rows = self._rows.pop(node)
        for child, mask in zip(children(node), (left, ~left), strict=True):
            self._rows[child] = rows[mask]

    def join(self, node: int) -> None:
        """Undo all splits below a node."""
        below = [other for other in self._rows if is_below(other, node)]
        if below:
            self._rows[node] = np.sort(np.concatenate([self._rows.pop(other) for other in below]))

    def slots(self, nodes: Sequence[int]) -> NDArray[np.int32]:
        """Return int32 [total]: the position in ``nodes`` of each row's node, -1 where it lies in none of them."""
        slot = np.full(self.total, -1, dtype=np.int32)
        for position, node in enumerate(nodes):
            slot[self._rows[node]] = position
        return slot
