"""Instance spaces that each passive party knows, as the active party can reconstruct them while it trains.

The active party knows which rows it sends to whom and, once a party has answered for its own splits, which rows these
send left. So it can rebuild the instance spaces in that party's view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from labelward.messages.base import Array
from labelward.policy.base import KnownInstanceSpaces, PendingSplit

Rows = NDArray[np.int32]


class KnowledgeTracker:
    """The finest node that each peer knows of each row, tree by tree.

    Memory: 4 bytes for each training row, tree and peer.

    Args:
        peers: the passive parties.
        rows: number of training rows.
    """

    def __init__(self, peers: Iterable[str], rows: int) -> None:
        self.peers, self._rows = tuple(peers), rows
        self._leaves = {peer: np.empty((0, rows), dtype=np.int32) for peer in self.peers}
        self._seen = dict.fromkeys(self.peers, 0)  # trees in which the peer takes part
        self._saved = dict.fromkeys(self.peers, 0)  # those of them that a checkpoint holds
        self._pending: dict[str, dict[tuple[int, int], PendingSplit]] = {peer: {} for peer in self.peers}

    def visible(self, peer: str, tree: int, at: int | None = None, node: int = -1) -> KnownInstanceSpaces:
        """Return what a peer knows.

        Args:
            tree: of the model: the one that grows, or was finished last.
            at: its position among the trees that the peer has seen; None: the last of these.
            node: whose children the peer is about to learn; -1 for none.
        """
        at = self._seen[peer] - 1 if at is None else at
        others = (self._known(other, tree, self._seen[other] - 1) for other in self.peers if other != peer)
        return replace(self._known(peer, tree, at), node=node, others=tuple(others))

    def _known(self, peer: str, tree: int, at: int) -> KnownInstanceSpaces:
        leaves = self._leaves[peer][: self._seen[peer]]
        leaves.flags.writeable = False
        pending = tuple(self._pending[peer].values())
        return KnownInstanceSpaces(party=peer, tree=tree, at=at, node=-1, leaves=leaves, pending=pending)

    def begin(self, peer: str, sample: NDArray[np.bool_]) -> None:
        """Record that a peer learns the rows of a tree."""
        at = self._seen[peer]
        if at == len(self._leaves[peer]):
            room = np.empty((max(4, at), self._rows), dtype=np.int32)
            self._leaves[peer] = np.concatenate([self._leaves[peer], room])
        self._leaves[peer][at] = np.where(sample, 0, -1)
        self._seen[peer] += 1

    def undo_begin(self, peer: str) -> None:
        """Record that the peer takes no part in the tree after all."""
        self._seen[peer] -= 1

    def learn(self, peer: str, at: int, node: int, spaces: Mapping[int, Rows]) -> None:
        """Record that a peer knows the rows of a node's children.

        Args:
            at: the tree's position among those that the peer has seen.
            spaces: rows of each child.
        """
        self._pending[peer].pop((at, node), None)
        for child, rows in spaces.items():
            self._leaves[peer][at, rows] = child

    def undo_learn(self, peer: str, at: int, node: int, spaces: Mapping[int, Rows]) -> None:
        """Record that a peer, which knows the node, does not learn the rows of its children after all."""
        for rows in spaces.values():
            self._leaves[peer][at, rows] = node

    def expect(self, peer: str, at: int, node: int, split: PendingSplit) -> None:
        """Record that a peer knows of its own split, whose rows only the peer can compute so far."""
        self._pending[peer][at, node] = split

    def unsaved(self) -> dict[str, Array]:
        """Return for each peer int32 [trees, rows]: its leaves of the trees since the last call, for a checkpoint.

        To be called between trees, when no split is pending.
        """
        added = {peer: Array.pack(self._leaves[peer][self._saved[peer] : self._seen[peer]]) for peer in self.peers}
        self._saved = dict(self._seen)
        return added

    def restore(self, saved: Sequence[Mapping[str, Array]]) -> None:
        """Take over everything that :meth:`unsaved` has returned."""
        for peer in self.peers:
            parts = [np.empty((0, self._rows), dtype=np.int32), *(each[peer].unpack() for each in saved)]
            self._leaves[peer] = np.concatenate(parts).astype(np.int32)
            self._seen[peer] = self._saved[peer] = len(self._leaves[peer])
