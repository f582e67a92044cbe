"""PIVODL: boosted trees where every party has columns and several hold the labels of some rows each.

Setting: semi-honest parties. For each node and each *source*, a party whose columns may split it, one other party is
the source's *split client*, drawn from public randomness. The source knows which rows lie in which bin and no sum; its
split client learns the sums over all label holders (:mod:`.secure_sums`) and is not told which rows they cover, decides
on the best candidate and keeps the weights of the leaves below it. From the sides of many splits it works out the rows
(attack ``bin-bounds``), so that companies train on noisy sums unless the job allows exact ones
(``opened_sums``). What every party learns: who labels which rows, the rows
and the sums of gradients and hessians of every node that is not a leaf, the best gain of every source, and whose split
it is. The gain tells the source of a split nearly the sums of its children (attack ``split-gains``). A source tells
each holder the bins of all its columns, in an order that it draws, for the rows that this holder labels. Columns that
two parties have in common end the training (:mod:`.common_columns`).

Reference: Zhu et al., PIVODL (2023), Algorithms 2 and 3, steps 1 to 7. Differences: level by level; bins travel once
instead of the rows of each candidate at each node, which tells a holder no more than the first level of the paper's
does; sums, not rows, are encrypted, several to a ciphertext; aggregation and encryption client serve the root only,
since step 7 gives the sums of children; the holders of labels in a leaf are told which rows it has; a node without a
gainful split is a leaf whose weight everybody can work out. The right term of the gain has its square.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from labelward.errors import wrong_message
from labelward.messages.base import RowMask
from labelward.messages.pivodl import (
    MISSING,
    ColumnCodes,
    HeldRows,
)
from labelward.party.context import Context
from labelward.protocols.common.columns import OwnColumns, OwnRecord, SourceColumns, received_columns
from labelward.protocols.pivodl.agreed_sizes import matches
from labelward.protocols.pivodl.common_columns import refuse_common_columns
from labelward.protocols.pivodl.fixed import Fixed
from labelward.protocols.pivodl.params import Pivodl
from labelward.protocols.pivodl.secure_sums import SecureSums

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Training:
    """One party's part of a training.

    Args:
        ctx: of the party.
        fixed: public constants.
        sums: secure sums over the holders.
        own: its columns.
        held: bool [training rows]: which it labels.
        labels: float64 [training rows]; NaN where another party holds the label.
    """

    def __init__(
        self,
        ctx: Context,
        fixed: Fixed,
        sums: SecureSums,
        own: OwnColumns,
        held: NDArray[np.bool_],
        labels: Floats,
    ) -> None:
        assert isinstance(fixed.params, Pivodl)
        self.params = fixed.params
        self.ctx, self.fixed, self.sums, self.own = ctx, fixed, sums, own
        self.parties = tuple(ctx.topology.assigned)
        self.held = np.flatnonzero(held).astype(np.int32)
        self.labels, self.margins = labels[self.held], np.zeros(len(self.held))
        self.records: list[OwnRecord] = []
        self.counts = [0] * len(self.parties)  # splits of each party so far
        self.offered = self.refused = 0  # own candidates so far, and those that the instance threshold refused
        self.sources: dict[str, SourceColumns] = {}
        self._exchange(held)

    def is_holder(self, party: str) -> bool:
        """Return whether a party labels any rows."""
        return party in self.sums.holders

    def _exchange(self, held: NDArray[np.bool_]) -> None:
        """Tell all which rows this party labels, and each holder the bins of its rows (step 3, once)."""
        ctx, own = self.ctx, self.own
        self.holding = {ctx.party: held} if self.is_holder(ctx.party) else {}
        for peer in ctx.peers:
            ctx.send(peer, HeldRows(RowMask.pack(held)), ())
        for peer in ctx.peers:
            with ctx.blaming(peer, "HeldRows", ()):
                rows = ctx.recv(peer, HeldRows, ()).rows.unpack(len(held))
            if self.is_holder(peer):
                self.holding[peer] = rows
            elif rows.any():
                raise wrong_message(peer, "HeldRows", "is no label holder, and labels rows")
        self._check_holding()
        sizes, kinds = tuple(own.sizes.tolist()), tuple(own.kinds.tolist())
        for peer in ctx.peers:
            rows = self.holding.get(peer, np.zeros(0, dtype=np.bool_))
            told = len(rows) and self.params.exchange == "codes"
            codes = own.codes[rows].astype("<u2").tobytes() if told else b""
            ctx.send(peer, ColumnCodes(sizes, kinds, codes), ())
        self.sources = {peer: self._columns(peer, ctx.recv(peer, ColumnCodes, ())) for peer in ctx.peers}
        self.sources[ctx.party] = SourceColumns(own.sizes, own.kinds, np.ascontiguousarray(own.codes[self.held]))
        if self.params.exchange == "codes":
            self.check_common(self.sources)

    def check_common(self, sources: Mapping[str, SourceColumns]) -> None:
        """Refuse as a label holder columns that two parties have in common, unless noise or the job allow them."""
        if len(self.held) and self.params.common_columns == "refuse" and self.fixed.noise is None:
            refuse_common_columns(sources)

    def _check_holding(self) -> None:
        """Refuse rows that two parties label, or nobody; of two others it cannot be told which one is wrong."""
        count = np.sum(list(self.holding.values()), axis=0)
        own = self.holding.get(self.ctx.party, np.zeros(0, dtype=np.bool_))
        for peer, rows in self.holding.items():
            if peer != self.ctx.party and len(own) and (rows & own).any():
                raise wrong_message(peer, "HeldRows", "labels rows that this party labels")
        twice = [peer for peer, rows in self.holding.items() if (count[rows] > 1).any()]
        if twice:
            reason = f"labels rows that {' and '.join(map(repr, twice[1:]))} labels, too; one of them is wrong"
            raise wrong_message(twice[0], "HeldRows", reason)
        if (count == 0).any():
            raise wrong_message(self.ctx.topology.coordinator, "HeldRows", "nobody labels some rows")
        self.params.check_holders({peer: int(rows.sum()) for peer, rows in self.holding.items()})

    def _columns(self, peer: str, message: ColumnCodes) -> SourceColumns:
        params, mine = self.params, len(self.held)
        told = params.exchange == "codes"
        if not matches(message, self.sums.offers[peer]):
            raise wrong_message(peer, "ColumnCodes", "has other columns than it stated")
        found = received_columns(message, peer, mine if told else 0, params.most_bins)
        if told:
            return found
        return found._replace(codes=np.full((mine, len(found.sizes)), MISSING, dtype=np.uint16))
