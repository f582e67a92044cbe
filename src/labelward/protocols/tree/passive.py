"""Federated trees, a passive party: it has columns and no label.

Setting: semi-honest parties. The passive party sees which rows each node holds (the instance spaces, which is what
ID2Graph reads), and ciphertexts; never a label, a gradient or a leaf weight. What it returns are sealed sums, which of
its columns are categorical or monotone and how many bins each has, and the rows of its own splits. Of validation rows
and of rows that a tree does not grow on it learns nothing: it answers, for all of them, on which side of its splits
they lie.

Reference: Cheng et al., SecureBoost (2021); Algorithm 1 of the ID2Graph paper. Differences: one message per level
instead of per node; sums packed and compressed; only the smaller of two siblings is summed; cells that are empty, or
that follow from the others, are left out (:mod:`.cells`); rows come in blocks, and are summed meanwhile
(:mod:`.blocks`).
"""

from __future__ import annotations

from typing import cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import PeerError
from labelward.he.base import EncryptedRows, EncryptedSums, PublicKey
from labelward.kernels.histogram import goes_left, groups
from labelward.messages.base import RowMask
from labelward.messages.tree import (
    EncryptedForestRows,
    EncryptedTreeRows,
    LevelHistograms,
    LevelRequest,
    NodeSplit,
    OwnSplit,
    PredictAnswers,
    SplitMasks,
    TrainingEnd,
    TreeStart,
    WinningSplit,
    WinningSplits,
)
from labelward.party.context import Context
from labelward.protocols.tree.blocks import Arriving
from labelward.protocols.tree.cells import Told
from labelward.protocols.tree.columns import Columns, LevelCodes, Splitter, TreeSplitter
from labelward.protocols.tree.gather import parts
from labelward.protocols.tree.params import TreeModel
from labelward.protocols.tree.partition import Partition, depth_of
from labelward.protocols.tree.records import RecordBook
from labelward.protocols.tree.share import Records

__all__ = ["most_trees", "train_passive"]

_KEPT_APART = 256  # checkpoints: the active party keeps one for a round, of as many trees as there are classes


def train_passive(
    ctx: Context,
    params: TreeModel,
    columns: Columns,
    public: PublicKey,
    *,
    most: int,
    validation: int = 0,
    before: tuple[Records, int] = (Records(), 0),
    resume: int | None = None,
) -> tuple[Records, int]:
    """Take part in training until the active party ends it.

    Args:
        columns: this party's columns of the training rows, then of the validation rows, in the agreed order.
        public: the active party's key.
        most: trees that this training may have (:func:`most_trees`).
        validation: how many of the last rows are validation rows.
        before: of an earlier training that goes on, what this function returned.
        resume: the checkpoint from which this training goes on, after it was cut off; its number is that of the trees
            in which this party took part.

    Returns:
        This party's splits, and in how many trees it took part.

    Raises:
        FileFormatError: the checkpoint is damaged.
        OutputError: a checkpoint cannot be written.
        PeerError: the active party failed, stayed silent or sent something that cannot be.
    """
    rows = len(columns.x) - validation
    with ctx.phase("binning"):
        splitter = Splitter(ctx.party, columns.first(rows), params, ctx.seed)
    book, tree = RecordBook(before[0]), resume or 0
    for records in _kept(ctx, tree):
        book.extend(records)
    own = _Own(ctx, splitter, columns, rows, public, book, before[1])
    while True:
        ctx.progress("trees", tree, 0)
        message = ctx.recv(ctx.active, (TreeStart, TrainingEnd), (tree,))
        if isinstance(message, TreeStart) and tree + message.together > most:
            reason = f"starts {tree + message.together} trees where the job has {most} at most"
            raise PeerError(
                ctx.active,
                reason,
                message="TreeStart",
                step=(tree,),
                code="peer-message",
                value=tree + message.together,
            )
        if isinstance(message, TrainingEnd):
            if message.trees != tree or not 0 <= message.records <= len(own.book):
                reason = f"ends after {message.trees} trees where there were {tree}, or keeps {message.records} splits"
                raise PeerError(
                    ctx.active, reason, message="TrainingEnd", step=(tree,), code="peer-message", value=message.trees
                )
            return own.book.records().first(message.records), before[1] + tree
        last, known = tree, len(book)
        tree += own.take_part(cast("TreeStart", message), tree)
        keep = _KEPT_APART if params.multi_strategy == "one_output_per_tree" else None
        part = msgspec.msgpack.encode(_Part(last, book.since(known)))
        ctx.save(tree, _Standing(tree), blocks={_name(tree): part}, keep=keep)


def most_trees(params: TreeModel, rows: int) -> int:
    """Return how many trees a training may ask of a passive party, whatever the labels are.

    Local trees and early stopping make them fewer. With a tree for each class, of which a passive party is not told how
    many there are, a round has no more trees than the job has rows, since each class is that of some row.

    Args:
        rows: of the job, whatever their side.
    """
    return params.trees * (rows if params.multi_strategy == "one_output_per_tree" else 1)


class _Standing(msgspec.Struct, frozen=True):
    """A passive party's state after so many trees; its splits lie in blocks."""

    trees: int


class _Part(msgspec.Struct, frozen=True):
    """The splits of trees that grew side by side, and how many trees there were before."""

    before: int
    records: Records


def _name(trees: int) -> str:
    return f"trees-{trees}"


def _kept(ctx: Context, trees: int) -> list[Records]:
    """Return the splits of the first trees of this training, as its checkpoint has them."""
    if not trees:
        return []
    state, block = ctx.checkpoints.load(trees, _Standing)
    parts, trees = [], state.trees
    while trees:
        part = msgspec.msgpack.decode(block(_name(trees)), type=_Part)
        parts.append(part.records)
        trees = part.before
    return parts[::-1]


class _Tree:
    """A tree that grows: its rows, and which of them lie in which node."""

    def __init__(self, number: int, splitter: TreeSplitter, counts: NDArray[np.uint8], rows: Arriving) -> None:
        self.number, self.counts, self.rows = number, counts, rows
        self.sample = np.flatnonzero(counts)
        self.partition = Partition(len(counts), self.sample)
        self.splitter = splitter
        self.columns = splitter.sample
        self.level: LevelRequest | None = None
        self.codes: LevelCodes | None = None


class _Own:
    """A passive party's state: its splits so far, and the encrypted rows."""

    def __init__(
        self,
        ctx: Context,
        splitter: Splitter,
        columns: Columns,
        training: int,
        public: PublicKey,
        book: RecordBook,
        grown: int,
    ) -> None:
        self.ctx, self.splitter, self.x, self.public, self.book = ctx, splitter, columns.x, public, book
        self.training, self.grown, self.forest = training, grown, splitter.params.kind == "forest"
        self.all_rows = Arriving(ctx, public, EncryptedForestRows, None, training)

    def take_part(self, start: TreeStart, number: int) -> int:
        """Sum and answer for trees that grow side by side until they are done; return how many they were.

        Args:
            number: that of the first of them.
        """
        ctx, first = self.ctx, len(self.book)
        if not 1 <= start.together <= (self.splitter.params.trees_at_once if self.forest else 1):
            raise PeerError(
                ctx.active,
                f"starts {start.together} trees at once",
                message="TreeStart",
                step=(number,),
                code="peer-message",
                value=start.together,
            )
        trees = [self._begin(start, number)]
        for other in range(number + 1, number + start.together):
            trees.append(self._begin(ctx.recv(ctx.active, TreeStart, (other,)), other))
        growing, depth = trees, 0
        while growing:
            growing = [tree for tree in growing if self._sum(tree, depth)]
            for tree in growing:
                self._answer(tree, depth)
            depth += 1
        if start.route:
            self._route_others(number, first, trees[0])
        return len(trees)

    def _begin(self, start: TreeStart, number: int) -> _Tree:
        ctx, step = self.ctx, (number,)
        if start.tree != number:
            reason = f"starts tree {start.tree} where {number} is due"
            raise PeerError(ctx.active, reason, message="TreeStart", step=step, code="peer-message", value=start.tree)
        counts = np.zeros(self.training, dtype=np.uint8)
        with ctx.blaming(ctx.active, "TreeStart", step):
            sample = np.flatnonzero(start.rows.unpack(self.training))
        repeats = np.frombuffer(start.repeats, dtype=np.uint8) if start.repeats else np.ones(len(sample), np.uint8)
        if start.repeats and not self.splitter.params.replace:
            reason = "sent repeats of rows, which are drawn without replacement"
            raise PeerError(ctx.active, reason, message="TreeStart", step=step, code="peer-message")
        if len(repeats) != len(sample) or not repeats.all() or repeats.sum() > self.training:
            raise PeerError(
                ctx.active,
                "sent repeats of other rows than the tree's",
                message="TreeStart",
                step=step,
                code="peer-message",
            )
        if start.gradients is not None or not len(sample):
            reason = "starts a tree without rows" if start.gradients is None else "sent gradients out of their place"
            raise PeerError(ctx.active, reason, message="TreeStart", step=step, code="peer-message")
        counts[sample] = repeats
        splitter = self.splitter.for_tree(self.grown + number)
        own = self.all_rows if self.forest else Arriving(ctx, self.public, EncryptedTreeRows, number, len(sample))
        return _Tree(number, splitter, counts, own)

    def _sum(self, tree: _Tree, depth: int) -> bool:
        """Take the splits of the last level in, sum the nodes that are to be built, send the sums sealed."""
        ctx, step = self.ctx, (tree.number, depth)
        level = tree.level = ctx.recv(ctx.active, LevelRequest, step)
        for split in level.splits:
            self._split(tree.partition, split, "Level", step, depth - 1)
        if list(level.build) != sorted(set(level.build)):
            raise PeerError(
                ctx.active,
                "asks for sums of nodes out of order",
                message="Level",
                step=step,
                code="peer-message",
                value=level.build,
            )
        for node in level.build:
            if not tree.partition.knows(node) or depth_of(node) != depth:
                reason = f"asks for sums of node {node}, which is no leaf of depth {depth}"
                raise PeerError(ctx.active, reason, message="Level", step=step, code="peer-message", value=node)
        if not level.build:
            return False
        if depth >= self.splitter.params.depth:
            raise PeerError(
                ctx.active,
                f"asks for sums at depth {depth}",
                message="Level",
                step=step,
                code="peer-message",
                value=depth,
            )
        slots = len(level.build)
        with ctx.phase("aggregate"):
            slot = tree.partition.slots(level.build)
            codes = tree.codes = tree.splitter.level(slot, slots)
            divided = parts(codes.sizes, slots, len(tree.sample))
        for part, columns in enumerate(divided):
            sizes = tuple(codes.sizes[columns].tolist())
            with ctx.phase("aggregate"):
                chosen = codes.codes if len(columns) == codes.codes.shape[1] else codes.codes[:, columns]
                told = Told.of(chosen, slot, tree.counts, slots, max(sizes))
                grouped = groups(chosen, slot, max(sizes), told.implied)
            sums = self._grouped(tree, grouped, slots * max(sizes))
            with ctx.phase("seal"):
                sealed = sums.take(told.sent).rerandomize()
            others = told.cells.size - len(told.sent)  # a protocol that packs nothing leaves nothing out either
            self.public.counts.add({"logical_sums": others * sums.layout.logical})
            kinds = codes.kinds[columns].tobytes() if codes.kinds[columns].any() else b""
            cells, implied = told.packed()
            message = LevelHistograms(
                tree.number, depth, part, len(divided), tuple(columns), sizes, sealed, kinds, cells, implied
            )
            ctx.send(ctx.active, message, (*step, part))
        return True

    def _grouped(self, tree: _Tree, grouped: NDArray[np.int32], n_groups: int) -> EncryptedSums:
        """Sum the tree's rows by group, as they come; a row that was drawn several times counts so often."""
        inside, total = tree.counts, None
        if tree.rows.n != len(grouped):
            grouped, inside = np.ascontiguousarray(grouped[tree.sample]), tree.counts[tree.sample]
        for start, stop in tree.rows.stretches():
            with self.ctx.phase("aggregate"):
                sums = _summed(tree.rows.rows, grouped[start:stop], inside[start:stop], n_groups, start)
                total = sums if total is None else total + sums
        assert total is not None
        return total

    def _answer(self, tree: _Tree, depth: int) -> None:
        """Tell the rows of own splits that were chosen, and keep their thresholds."""
        ctx, step, level, codes = self.ctx, (tree.number, depth), tree.level, tree.codes
        assert level is not None
        assert codes is not None
        chosen = ctx.recv(ctx.active, WinningSplits, step)
        nodes = [split.node for split in chosen.splits]
        if nodes != sorted(set(nodes)):
            raise PeerError(
                ctx.active,
                "chose splits of nodes out of order",
                message="ChosenSplits",
                step=step,
                code="peer-message",
                value=tuple(nodes),
            )
        slot_of = {node: position for position, node in enumerate(level.build)}
        answers = []
        for split in chosen.splits:
            slot = slot_of.get(split.node, 0)
            known = tree.partition.knows(split.node) and depth_of(split.node) == depth
            offered = codes.offers(slot, split.column, split.code, split.categories)
            if not known or not offered or split.record != len(self.book):
                raise PeerError(
                    ctx.active,
                    f"chose a split that cannot be: {split}",
                    message="ChosenSplits",
                    step=step,
                    code="peer-message",
                    value=split,
                )
            answers.append(self._own_split(tree, codes, split, slot))
        if not answers:
            return
        for answer in answers:
            self._split(tree.partition, answer, "ChosenSplits", step, depth)
        ctx.send(ctx.active, SplitMasks(tree.number, depth, tuple(answers)), step)

    def _own_split(self, tree: _Tree, codes: LevelCodes, split: WinningSplit, slot: int) -> NodeSplit:
        column, threshold = int(tree.columns[split.column]), codes.threshold(slot, split.column, split.code)
        rows, at = tree.partition.rows(split.node), split.column
        left = RowMask.pack(
            goes_left(codes.codes, rows, at, split.code, missing_left=split.missing_left, categories=split.categories)
        )
        self.book.add(column, threshold, missing_left=split.missing_left, categories=split.categories)
        name = self.splitter.names[column]
        self.ctx.observe(
            OwnSplit(tree.number, split.node, name, threshold, split.record, left, split.missing_left, split.categories)
        )
        return NodeSplit(split.node, left)

    def _route_others(self, number: int, first: int, tree: _Tree) -> None:
        """Answer for the rows that the tree does not grow on, so that the active party can update their margins."""
        others = np.ones(len(self.x), dtype=np.bool_)
        others[tree.sample] = False
        answers = self.book.records().answers(self.x[others], first)
        bits = np.packbits(answers, bitorder="little").tobytes()
        self.ctx.send(self.ctx.active, PredictAnswers(len(answers), int(others.sum()), bits), (number,))

    def _split(self, partition: Partition, split: NodeSplit, name: str, step: tuple[int, int], depth: int) -> None:
        """Split a node as the active party wants it; both sides have rows, so there are no more nodes than rows."""
        active = self.ctx.active
        if not partition.knows(split.node) or depth_of(split.node) != depth:
            reason = f"told a split of node {split.node}, which is no leaf of depth {depth}"
            raise PeerError(active, reason, message=name, step=step, code="peer-message", value=split.node)
        with self.ctx.blaming(active, name, step):
            left = split.left.unpack(partition.size(split.node))
        if left.all() or not left.any():
            raise PeerError(
                active,
                f"leaves a side of node {split.node} without rows",
                message=name,
                step=step,
                code="peer-message",
                value=split.node,
            )
        partition.split(split.node, left, active)


def _summed(
    rows: EncryptedRows, grouped: NDArray[np.int32], times: NDArray[np.uint8], n_groups: int, start: int
) -> EncryptedSums:
    """Sum the rows from ``start`` on by group, each so often."""
    sums = rows.group_sums(grouped, n_groups, start)
    for least in range(2, int(times.max(initial=1)) + 1):
        again = np.where((times >= least)[:, None], grouped, np.int32(-1))
        sums = sums + rows.group_sums(again, n_groups, start)
    return sums
