"""Pivot: a classification tree of which no party sees a statistic, grown level by level.

Setting: semi-honest parties, of which all but one may collude, and a dealer that colludes with nobody. One party holds
all labels. Every party but the dealer has a part of one private key, and shares of all statistics. Opened are, to all:
which nodes split, the party, column and bin of each split, and the class of each leaf. Which rows a node has is known
to nobody: the owner of a split multiplies the encrypted rows of the node by its sides, and sends them on.

Reference: Wu et al., Privacy preserving vertical federated learning for tree-based models (2020), Algorithm 3, basic
protocol. Differences: one-hot classes travel instead of row flags, so that the label holder need not multiply anew at
every node; right children are the difference of shares; a leaf's rows never travel; prune bits also stop nodes without
any gain; the dealer deals triples and keys, where the paper makes them among the parties.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from labelward.errors import wrong_message
from labelward.he.base import CipherBlock
from labelward.kernels.node_rows import children, depth_of, leaves_below
from labelward.kernels.split_search import CATEGORICAL
from labelward.messages.base import RowMask
from labelward.messages.pivodl import MISSING
from labelward.messages.pivot import (
    ChildCiphertexts,
    LabelRows,
    LeafClasses,
    OpenedTree,
    SplitNodes,
    SplitOffers,
    SplitPlaces,
)
from labelward.party.context import Context
from labelward.protocols.common.columns import OwnColumns, OwnRecord
from labelward.protocols.pivot.agreed_sizes import TrainingSizes
from labelward.protocols.pivot.arithmetic import SharedArithmetic
from labelward.protocols.pivot.cart import candidate_at
from labelward.protocols.pivot.dealer import Dealt
from labelward.protocols.pivot.dealt_shares import Words
from labelward.protocols.pivot.params import Pivot
from labelward.protocols.pivot.split_finding import left_counts, majority, shared_splits
from labelward.protocols.pivot.statistics import Offers, Statistics, checked_block, statistics_layout

Integers = NDArray[np.int64]

MOST_CLASSES = 1000


@dataclass
class GrownTree:
    """The tree as one party knows it.

    Attributes:
        owners: by node that splits the party of its split.
        own: by node the party's own splits.
        labels: by leaf its class.
    """

    owners: dict[int, str] = field(default_factory=dict)
    own: dict[int, OwnRecord] = field(default_factory=dict)
    labels: dict[int, int] = field(default_factory=dict)


class TreeTraining:
    """One party's part of a training.

    Args:
        mpc: its shares.
        dealt: its part of the key.
        params: of the model.
        x: float64 [training rows, columns] of the party.
        own: the same, binned.
        labels: int64 [training rows], at the label holder; None elsewhere.
        classes: number of classes, at the label holder.
        sizes: bounds of what peers send.
    """

    def __init__(
        self,
        mpc: SharedArithmetic,
        dealt: Dealt,
        params: Pivot,
        x: NDArray[np.float64],
        own: OwnColumns,
        labels: Integers | None,
        classes: int,
        sizes: TrainingSizes | None,
    ) -> None:
        assert dealt.part is not None
        self.ctx, self.mpc, self.params, self.own, self._x = mpc.ctx, mpc, params, own, x
        self._rows, self._public = len(x), dealt.part.public
        params.check_rows(self._rows, len(mpc.parties))
        self._offers = self._exchange_offers()
        self.classes = classes
        for peer in mpc.peers:
            cells = [offers.cells for offers in self._offers.values()]
            self.ctx.expect(peer, None if sizes is None else sizes.largest(cells))
        self._blocks = {0: self._exchange_labels(labels)}
        with_columns = {party: offers for party, offers in self._offers.items() if offers.cells}
        bits = params.mask_bits(self._rows)
        self._statistics = Statistics(mpc, dealt.part, self._layout, with_columns, own, bits)
        self._sizes = np.concatenate([offers.sizes for offers in with_columns.values()])
        self._categorical = np.concatenate([offers.categorical for offers in with_columns.values()])
        self._ends = {
            party: int(end)
            for party, end in zip(
                with_columns, np.cumsum([offers.cells for offers in with_columns.values()]), strict=True
            )
        }
        totals = np.zeros(self.classes, np.int64) if labels is None else np.bincount(labels, minlength=classes)
        self._totals: dict[int, Words] = {0: totals.astype(np.int64).view(np.uint64)}
        self._cells: dict[int, Words] = {}

    def grow(self) -> GrownTree:
        """Grow the tree, with all other parties."""
        tree, level = GrownTree(), [0]
        while level:
            self._sum(level)
            left = left_counts(np.stack([self._cells[node] for node in level]), self._sizes.cumsum(), self._categorical)
            totals = np.stack([self._totals[node] for node in level])
            with self.ctx.phase("shares"):
                bits, places = shared_splits(self.mpc, left, totals, self.params)
            split = self._told_splits(bits)
            kept = np.array(split)
            for node, place, counts in self._told_places(level, kept, places, left):
                self._divide(tree, node, place, counts)
            depth = depth_of(level[0]) + 1
            grown = [node for node, splits in zip(level, split, strict=True) if splits]
            level = [child for node in grown for child in children(node)] if depth < self.params.depth else []
        self._label(tree)
        self._observe(tree)
        return tree

    def _exchange_offers(self) -> dict[str, Offers]:
        ctx, step = self.ctx, self.mpc.next_step()
        sizes, kinds = tuple(self.own.sizes.tolist()), tuple(self.own.kinds.tolist())
        for peer in self.mpc.peers:
            ctx.send(peer, SplitOffers(sizes, kinds), step)
        received = {peer: ctx.recv(peer, SplitOffers, step) for peer in self.mpc.peers}
        received[ctx.party] = SplitOffers(sizes, kinds)
        return {party: self._checked(received[party], party) for party in self.mpc.parties}

    def _checked(self, message: SplitOffers, peer: str) -> Offers:
        sizes, kinds = np.array(message.sizes, dtype=np.int64), np.array(message.kinds, dtype=np.int64)
        limit = max(self.params.most_bins or MISSING, 1000)
        fits = len(sizes) == len(kinds) and np.isin(kinds, (0, CATEGORICAL)).all()
        if not fits or ((sizes < 1) | (sizes > limit)).any():
            raise wrong_message(peer, "SplitOffers", "offers no columns")
        return Offers(sizes, kinds == CATEGORICAL)

    def _exchange_labels(self, labels: Integers | None) -> CipherBlock:
        """Send the encrypted classes of all rows to all parties, or receive them."""
        ctx, step = self.ctx, self.mpc.next_step()
        if labels is None:
            first = self.mpc.parties[0]
            message = ctx.recv(first, LabelRows, step)
            if not 2 <= message.classes <= MOST_CLASSES:
                raise wrong_message(first, "LabelRows", "has too few or many classes")
            self.classes = message.classes
            self._layout = statistics_layout(self.params, self._rows, self.classes, len(self.mpc.parties))
            return checked_block(first, message.rows, (self._rows,), self._layout)
        self._layout = statistics_layout(self.params, self._rows, self.classes, len(self.mpc.parties))
        with ctx.phase("encrypt"):
            one_hot = np.eye(self.classes, dtype=np.int64)[labels]
            sent = self._public.encrypt(one_hot, self._layout).block()
        for peer in self.mpc.peers:
            ctx.send(peer, LabelRows(self.classes, sent), step)
        return sent

    def _sum(self, level: list[int]) -> None:
        """Get shares of the sums of all nodes: of right children by difference."""
        for node in level:
            right = node > 0 and node % 2 == 0
            cells = (
                self._cells[(node - 1) // 2] - self._cells[node - 1]
                if right
                else self._statistics.shares(self._blocks[node])
            )
            self._cells[node] = cells

    def _told_splits(self, bits: Words) -> tuple[bool, ...]:
        """Open which nodes split."""
        ctx, opened, step = self.ctx, self.mpc.result(bits), self.mpc.next_step()
        if opened is None:
            split = ctx.recv(self.mpc.parties[0], SplitNodes, step).split.value
            if len(split) != len(bits):
                raise wrong_message(self.mpc.parties[0], "SplitNodes", "told what is no tree")
            return split
        told = tuple(each == 1 for each in opened.tolist())
        for peer in self.mpc.peers:
            ctx.send(peer, SplitNodes(ctx.policies.release_opened(told)), step)
        return told

    def _told_places(
        self, level: list[int], kept: NDArray[np.bool_], places: Words, left: Words
    ) -> list[tuple[int, int, Words]]:
        """Open the winners; return each node that splits with its candidate's place and the share of its left side."""
        if not kept.any():
            return []
        ctx, opened, step = self.ctx, self.mpc.result(places[kept]), self.mpc.next_step()
        if opened is None:
            told = ctx.recv(self.mpc.parties[0], SplitPlaces, step).places.value
        else:
            told = tuple(opened.tolist())
            for peer in self.mpc.peers:
                ctx.send(peer, SplitPlaces(ctx.policies.release_opened(told)), step)
        if len(told) != kept.sum() or not all(0 <= place < left.shape[1] for place in told):
            raise wrong_message(self.mpc.parties[0], "SplitPlaces", "told what is no tree")
        at = np.flatnonzero(kept).tolist()
        return [(level[position], place, left[position, place]) for position, place in zip(at, told, strict=True)]

    def _divide(self, tree: GrownTree, node: int, place: int, counts: Words) -> None:
        """Note a split; its owner divides the encrypted rows, where anybody needs those of the children."""
        owner = next(party for party, end in self._ends.items() if place < end)
        tree.owners[node] = owner
        one, other = children(node)
        self._totals[one], self._totals[other] = counts, self._totals[node] - counts
        if owner == self.ctx.party:
            start = self._ends[owner] - self._offers[owner].cells
            tree.own[node] = self.own.record(candidate_at(self.own, place - start))
        levels = self.params.depth - depth_of(one)  # that the children may yet split
        if levels < 1:
            return
        step, ctx = self.mpc.next_step(), self.ctx
        if owner == ctx.party:
            with ctx.phase("select"):
                left = self._left(tree.own[node])
                blocks = [self._public.select(self._blocks[node], left)]
                blocks += [self._public.select(self._blocks[node], ~left)] if levels > 1 else []
            for peer in self.mpc.peers:
                ctx.send(peer, ChildCiphertexts(blocks[0], blocks[1] if levels > 1 else None), step)
        else:
            message = ctx.recv(owner, ChildCiphertexts, step)
            found = (message.left, message.right) if levels > 1 else (message.left,)
            blocks = [checked_block(owner, block, (self._rows,), self._layout) for block in found]
        self._blocks |= zip((one, other), blocks, strict=False)
        del self._blocks[node]

    def _left(self, record: OwnRecord) -> NDArray[np.bool_]:
        """Return which training rows an own split sends left."""
        return record.goes_left(self._x)

    def _label(self, tree: GrownTree) -> None:
        """Open the classes of all leaves."""
        leaves = leaves_below(tree.owners)
        with self.ctx.phase("shares"):
            found = majority(self.mpc, np.stack([self._totals[leaf] for leaf in leaves]))
        ctx, opened, step = self.ctx, self.mpc.result(found), self.mpc.next_step()
        if opened is None:
            told = ctx.recv(self.mpc.parties[0], LeafClasses, step).classes.value
            if len(told) != len(leaves) or not all(0 <= each < self.classes for each in told):
                raise wrong_message(self.mpc.parties[0], "LeafClasses", "told what is no tree")
        else:
            told = tuple(opened.tolist())
            for peer in self.mpc.peers:
                ctx.send(peer, LeafClasses(ctx.policies.release_opened(told)), step)
        tree.labels = dict(zip(leaves, told, strict=True))

    def _observe(self, tree: GrownTree) -> None:
        nodes = sorted(tree.owners)
        left = tuple(RowMask.pack(self._left(tree.own[node])) for node in nodes if node in tree.own)
        owners = tuple(tree.owners[node] for node in nodes)
        leaves = sorted(tree.labels)
        self.ctx.observe(
            OpenedTree(tuple(nodes), owners, tuple(leaves), tuple(tree.labels[each] for each in leaves), left)
        )


def shared_arithmetic(ctx: Context, dealer: str, dealt: Dealt) -> SharedArithmetic:
    """Return a party's arithmetic for the parties of its context but the dealer."""
    parties = tuple(party for party in ctx.topology.assigned if party != dealer)
    return SharedArithmetic(ctx, dealer, parties, dealt.seed)
