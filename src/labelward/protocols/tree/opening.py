"""How trees begin: every party that takes part gets their rows, and the encrypted numbers that it does not have yet."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

import numpy as np

from labelward.he.base import CipherBlock, Integers, PrivateKey
from labelward.messages.base import RowMask
from labelward.messages.tree import EncryptedForestRows, EncryptedTreeRows, TreeStart
from labelward.party.context import Context
from labelward.protocols.tree.blocks import blocks_of, encrypted
from labelward.protocols.tree.growth import Growth
from labelward.protocols.tree.plan import Plan
from labelward.protocols.tree.rows import Encoded

__all__ = ["Opening"]


class Opening:
    """Begins trees, and remembers who has encrypted rows.

    Args:
        ctx: the active party's.
        private: its key; None where there is no peer.
        once: whether the rows of the first tree serve for all trees, as in a forest.
    """

    def __init__(self, ctx: Context, private: PrivateKey | None, *, once: bool) -> None:
        self._ctx, self._private, self._once = ctx, private, once
        self._served: set[str] = set()
        self._kept: list[CipherBlock] = []

    def start(
        self, growths: Sequence[Growth], encoded: Encoded, sample: Integers, *, route: bool, further: bool
    ) -> None:
        """Announce trees that grow side by side, and their first levels, and send the rows to those who are to sum.

        What is to be summed comes before the rows, so that it can be summed while they come.

        Args:
            encoded: the numbers of all rows.
            sample: the rows whose numbers are sent: of the one tree, or all.
            route: whether owners are asked for the sides of the rows that a tree does not grow on.
            further: whether rows will be encrypted for another tree; some of that work is then begun.
        """
        for peer in self._ctx.peers:
            mine = [growth.plan for growth in growths if peer in growth.plan.seen_as]
            for position, plan in enumerate(mine):
                self._start(peer, plan, together=0 if position else len(mine), route=route)
        for growth in growths:
            growth.announce()
        asked = {peer: growth.plan.seen_as[peer] for growth in growths for peer in growth.listening}
        due = [peer for peer in self._ctx.peers if peer in asked and peer not in self._served]
        if not due:
            return
        ciphertexts = 0
        parts, others = blocks_of(len(sample)), self._once and len(self._served) + len(due) < len(self._ctx.peers)
        with closing(self._blocks(encoded, sample)) as blocks:
            for part, block in enumerate(blocks):
                for peer in due:
                    if self._once:
                        self._ctx.send(peer, EncryptedForestRows(block, part, parts), (part,))
                    else:
                        self._ctx.send(peer, EncryptedTreeRows(asked[peer], part, parts, block), (asked[peer], part))
                if others and len(self._kept) < parts:
                    self._kept.append(block)
                ciphertexts += block.count
        if further and self._private is not None:
            self._private.prepare(ciphertexts)
        if self._once:
            self._served.update(due)
            self._kept = self._kept if others else []

    def _start(self, peer: str, plan: Plan, *, together: int, route: bool) -> None:
        sample = plan.counts > 0
        start = TreeStart(
            tree=plan.seen_as[peer],
            rows=RowMask.pack(sample),
            together=together,
            route=route,
            repeats=plan.counts[sample].astype(np.uint8).tobytes() if plan.counts.max() > 1 else b"",
        )
        self._ctx.send(peer, start, (start.tree,))

    def _blocks(self, encoded: Encoded, sample: Integers) -> Generator[CipherBlock, None, None]:
        """Yield the encrypted rows, for a forest those that another party has got already."""
        if self._kept:
            yield from self._kept[:]
            return
        assert self._private is not None
        values = encoded.values if len(sample) == len(encoded.values) else encoded.values[sample]
        yield from encrypted(self._ctx, self._private, values, encoded.layout)
