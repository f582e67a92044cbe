"""What each passive party knows of the rows, as the active party can tell while it trains.

The active party knows which rows it sends to whom, and, once a party has answered for its own splits, which rows
these send left. So it can rebuild the instance spaces that stand in the party's view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from labelward.messages.base import Array
from labelward.party.context import Context
from labelward.policy.base import KnownInstanceSpaces, PendingSplit

__all__ = ["Exposure"]

Rows = NDArray[np.int32]


class Exposure:
    """Asks and tells the policies of rows. Where none of them cares, nothing is kept.

    Memory: 4 bytes for each training row, tree and passive party.

    Args:
        ctx: the active party's.
        rows: training rows.
    """

    def __init__(self, ctx: Context, rows: int) -> None:
        self._ctx, self._policies, self._rows = ctx, ctx.policies, rows
        self._peers = ctx.peers if ctx.policies.at("before_rows") or ctx.policies.at("after_rows") else ()
        self._leaves = {peer: np.empty((0, rows), dtype=np.int32) for peer in self._peers}
        self._seen = dict.fromkeys(self._peers, 0)
        self._pending: dict[str, dict[tuple[int, int], PendingSplit]] = {peer: {} for peer in self._peers}
        self._kept = dict.fromkeys(self._peers, 0)

    def news(self) -> dict[str, Array]:
        """Return for each peer int32 [trees, rows]: the leaves of the trees that it saw since this was asked last.

        To be asked between trees, when no split is pending.
        """
        found = {peer: Array.pack(self._leaves[peer][self._kept[peer] : self._seen[peer]]) for peer in self._peers}
        self._kept = dict(self._seen)
        return found

    def resume(self, tree: int, news: Sequence[Mapping[str, Array]]) -> None:
        """Take in all that :meth:`news` returned, up to a tree, and tell the policies what every peer knows."""
        for peer in self._peers:
            parts = [np.empty((0, self._rows), dtype=np.int32), *(each[peer].unpack() for each in news)]
            self._leaves[peer] = np.concatenate(parts).astype(np.int32)
            self._seen[peer] = self._kept[peer] = len(self._leaves[peer])
        if news:
            self.finished(tree)

    def may_begin(self, tree: int, peers: frozenset[str], sample: NDArray[np.bool_]) -> frozenset[str]:
        """Return those of the peers for which a tree of these rows may begin; it then has begun."""
        return frozenset(peer for peer in sorted(peers) if self._begin(tree, peer, sample))

    def show(self, tree: int, peer: str, at: int, node: int, spaces: Mapping[int, Rows]) -> bool:
        """Return whether a peer may be told the rows of a node's children; it then knows them.

        Args:
            at: the tree's position among those that the peer has seen.
            spaces: rows of each child.
        """
        if peer not in self._leaves:
            return True
        leaf = self._leaves[peer][at]
        before = [(rows, leaf[rows]) for rows in spaces.values()]
        self.learn(peer, at, node, spaces)
        allowed = self._ask(self._visible(tree, peer, at, node))
        if not allowed:
            for rows, old in before:
                leaf[rows] = old
        return allowed

    def learn(self, peer: str, at: int, node: int, spaces: Mapping[int, Rows]) -> None:
        """Take in that a peer knows the rows of a node's children, such as those of its own split."""
        if peer in self._leaves:
            self._pending[peer].pop((at, node), None)
            for child, rows in spaces.items():
                self._leaves[peer][at, rows] = child

    def expect(self, peer: str, at: int, node: int, split: PendingSplit) -> None:
        """Take in that a peer is told that it owns a split."""
        if peer in self._leaves:
            self._pending[peer][at, node] = split

    def known(self, tree: int, peer: str, at: int) -> KnownInstanceSpaces | None:
        """Return what a peer knows; None where no policy asks."""
        return self._visible(tree, peer, at, -1) if peer in self._leaves else None

    def finished(self, tree: int) -> None:
        """Tell the policies what every peer knows after the trees up to this one."""
        for peer in self._peers:
            with self._ctx.phase("leakage meter"):
                self._policies.after_rows(self._visible(tree, peer, self._seen[peer] - 1, -1))

    def _begin(self, tree: int, peer: str, sample: NDArray[np.bool_]) -> bool:
        if peer not in self._leaves:
            return True
        at = self._seen[peer]
        if at == len(self._leaves[peer]):
            room = np.empty((max(4, at), self._rows), dtype=np.int32)
            self._leaves[peer] = np.concatenate([self._leaves[peer], room])
        self._leaves[peer][at] = np.where(sample, 0, -1)
        self._seen[peer] += 1
        if self._ask(self._visible(tree, peer, at, -1)):
            return True
        self._seen[peer] -= 1
        return False

    def _ask(self, rows: KnownInstanceSpaces) -> bool:
        with self._ctx.phase("leakage meter"):
            return self._policies.before_rows(rows)

    def _visible(self, tree: int, peer: str, at: int, node: int) -> KnownInstanceSpaces:
        leaves = self._leaves[peer][: self._seen[peer]]
        leaves.flags.writeable = False
        pending = tuple(self._pending[peer].values())
        return KnownInstanceSpaces(party=peer, tree=tree, at=at, node=node, leaves=leaves, pending=pending)
