"""SecureBoost, a passive party: it has columns and no label.

Setting: semi-honest parties. The passive party sees which rows each node holds (the instance spaces, which is what
ID2Graph reads), and ciphertexts; never a label, a gradient or a leaf weight. What it returns are sealed sums, and the
rows of its own splits.

Reference: Cheng et al., SecureBoost (2021); Algorithm 1 of the ID2Graph paper. Differences: one message per level
instead of per node; sums packed and compressed; only the smaller of two siblings is summed.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from labelward.errors import PeerError
from labelward.he.contract import CipherBlock, EncryptedRows, PublicKey
from labelward.kernels.histogram import groups
from labelward.kernels.histogram import partition as goes_left
from labelward.messages.base import RowMask
from labelward.messages.tree import (
    ChosenSplits,
    Level,
    LevelSums,
    NodeSplit,
    OwnSplit,
    PredictAnswers,
    SplitRows,
    TrainingEnd,
    TreeStart,
)
from labelward.party.context import Context
from labelward.protocols.tree.columns import Columns, LevelCodes, Splitter
from labelward.protocols.tree.params import SecureBoost
from labelward.protocols.tree.partition import Partition
from labelward.protocols.tree.share import Records

__all__ = ["train_passive"]


def train_passive(ctx: Context, params: SecureBoost, columns: Columns, public: PublicKey) -> Records:
    """Take part in training until the active party ends it; return this party's splits.

    Args:
        columns: this party's training columns, rows in the agreed order.
        public: the active party's key.

    Raises:
        PeerError: the active party failed, stayed silent or sent something that cannot be.
    """
    with ctx.phase("binning"):
        splitter = Splitter(ctx.party, columns, params, ctx.seed)
    own = _Own(ctx, splitter, columns, public)
    tree = 0
    while True:
        message = ctx.recv(ctx.active, (TreeStart, TrainingEnd), (tree,))
        if isinstance(message, TrainingEnd):
            return Records(tuple(own.columns), tuple(own.thresholds))
        own.take_part(cast("TreeStart", message))
        tree += 1


class _Own:
    """A passive party's state: its splits so far, and the tree that grows."""

    def __init__(self, ctx: Context, splitter: Splitter, columns: Columns, public: PublicKey) -> None:
        self.ctx, self.splitter, self.x, self.public = ctx, splitter, columns.x, public
        self.columns: list[int] = []
        self.thresholds: list[float] = []

    def take_part(self, start: TreeStart) -> None:
        """One tree: sum, answer for own splits, until there is nothing to build."""
        ctx, total = self.ctx, len(self.x)
        step = (start.tree,)
        with ctx.blaming(ctx.active, "TreeStart", step):
            sample = np.flatnonzero(start.rows.unpack(total))
        if not isinstance(start.gradients, CipherBlock) or start.gradients.shape != (len(sample),):
            raise PeerError(ctx.active, "sent gradients of other rows than the tree's", message="TreeStart", step=step)
        with ctx.phase("receive rows"), ctx.blaming(ctx.active, "TreeStart", step):
            rows = self.public.rows(start.gradients)
        self.splitter.start_tree(start.tree)
        partition = Partition(total, sample)
        first_record, depth = len(self.columns), 0
        while True:
            level = ctx.recv(ctx.active, Level, (start.tree, depth))
            for split in level.splits:
                self._split(partition, split, ctx.active)
            if not level.build:
                break
            codes = self._sum(level, partition, rows, sample)
            self._answer(level, partition, codes)
            depth += 1
        if len(sample) < total:
            self._route_others(start.tree, first_record, sample)

    def _sum(self, level: Level, partition: Partition, rows: EncryptedRows, sample: np.ndarray) -> LevelCodes:
        """Sum the nodes that are to be built, and send the sums sealed."""
        ctx, step = self.ctx, (level.tree, level.depth)
        for node in level.build:
            if not partition.knows(node):
                raise PeerError(
                    ctx.active, f"asks for sums of node {node}, which is no leaf", message="Level", step=step
                )
        with ctx.phase("aggregate"):
            slot = partition.slots(level.build)
            codes = self.splitter.level(slot, len(level.build))
            grouped = groups(codes.codes, slot, codes.bins)
            chosen = grouped if len(sample) == len(slot) else np.ascontiguousarray(grouped[sample])
            sums = rows.group_sums(chosen, len(level.build) * codes.bins)
        with ctx.phase("seal"):
            sealed = sums.seal()
        ctx.send(ctx.active, LevelSums(level.tree, level.depth, codes.bins, sealed), step)
        return codes

    def _answer(self, level: Level, partition: Partition, codes: LevelCodes) -> None:
        """Tell the rows of own splits that were chosen, and keep their thresholds."""
        ctx, step = self.ctx, (level.tree, level.depth)
        chosen = ctx.recv(ctx.active, ChosenSplits, step)
        if not chosen.splits:
            return
        slot_of = {node: position for position, node in enumerate(level.build)}
        answers = []
        for split in chosen.splits:
            slot = slot_of.get(split.node, 0)
            known = partition.knows(split.node) and codes.offers(slot, split.column, split.code)
            if not known or split.record != len(self.columns):
                raise PeerError(ctx.active, f"chose a split that cannot be: {split}", message="ChosenSplits", step=step)
            column = int(self.splitter.sample[split.column])
            threshold = codes.threshold(slot, split.column, split.code)
            left = RowMask.pack(goes_left(codes.codes, partition.rows(split.node), split.column, split.code))
            self.columns.append(column)
            self.thresholds.append(threshold)
            name = self.splitter.names[column]
            ctx.observe(OwnSplit(level.tree, split.node, name, threshold, split.record, left))
            answers.append(NodeSplit(split.node, left))
        ctx.send(ctx.active, SplitRows(level.tree, level.depth, tuple(answers)), step)
        for answer in answers:
            self._split(partition, answer, ctx.party)

    def _route_others(self, tree: int, first_record: int, sample: np.ndarray) -> None:
        """Answer for the rows out of the tree's sample, so that the active party can update their margins."""
        others = np.ones(len(self.x), dtype=np.bool_)
        others[sample] = False
        own = Records(tuple(self.columns[first_record:]), tuple(self.thresholds[first_record:]))
        answers = own.answers(self.x[others])
        bits = np.packbits(answers, bitorder="little").tobytes()
        self.ctx.send(self.ctx.active, PredictAnswers(len(answers), int(others.sum()), bits), (tree,))

    def _split(self, partition: Partition, split: NodeSplit, owner: str) -> None:
        if not partition.knows(split.node):
            raise PeerError(owner, f"told a split of node {split.node}, which is no leaf", message="Level")
        with self.ctx.blaming(owner, "Level", ()):
            left = split.left.unpack(partition.size(split.node))
        partition.split(split.node, left, owner)
