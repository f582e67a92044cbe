"""How trees begin: every party that takes part gets their rows, and the encrypted numbers that it does not have yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from labelward.he.contract import EncryptedRows
from labelward.messages.base import RowMask
from labelward.messages.tree import ForestRows, TreeStart
from labelward.party.context import Context
from labelward.protocols.tree.plan import Plan

__all__ = ["Opening"]


class Opening:
    """Remembers who has encrypted rows.

    Args:
        ctx: the active party's.
        once: whether the rows of the first tree serve for all trees, as in a forest.
    """

    def __init__(self, ctx: Context, *, once: bool) -> None:
        self._ctx, self._once = ctx, once
        self._served: set[str] = set()

    def start(self, plans: Sequence[Plan], rows: EncryptedRows | None, *, route: bool) -> None:
        """Announce trees that grow side by side.

        Args:
            rows: encrypted; None where no peer takes part.
            route: whether owners are asked for the sides of the rows that a tree does not grow on.
        """
        for peer in self._ctx.peers:
            mine = [plan for plan in plans if peer in plan.seen_as]
            for position, plan in enumerate(mine):
                assert rows is not None
                if self._once and peer not in self._served:
                    self._served.add(peer)
                    self._ctx.send(peer, ForestRows(rows.block()), (0,))
                sample = plan.counts > 0
                start = TreeStart(
                    plan.seen_as[peer],
                    RowMask.pack(sample),
                    None if self._once else rows.block(),
                    0 if position else len(mine),
                    route,
                    plan.counts[sample].astype(np.uint8).tobytes() if plan.counts.max() > 1 else b"",
                )
                self._ctx.send(peer, start, (start.tree,))
