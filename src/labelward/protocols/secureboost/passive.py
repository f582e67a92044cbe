"""SecureBoost, a passive party: it has columns and no label.

Setting: semi-honest parties. The passive party sees which rows each node has (the instance spaces, which is what
ID2Graph reads), and ciphertexts; never a label, a gradient or a leaf weight. It returns sealed sums, the kind of each
of its columns and their number of bins, and the rows of its own splits. Of validation rows, and of rows outside a
tree's sample, it learns nothing: it answers for all of them on which side of its splits they lie.

Reference: Cheng et al., SecureBoost (2021); Algorithm 1 of the ID2Graph paper. Differences: one message per level
instead of per node; sums packed and compressed; only the smaller of two siblings is summed; cells that are empty, or
that follow from the others, are left out (:mod:`.histogram_message`); rows arrive in blocks, and are summed meanwhile
(:mod:`.row_blocks`).
"""

from __future__ import annotations

from typing import cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import wrong_message
from labelward.he.base import SPACINGS, EncryptedRows, EncryptedSums, PublicKey
from labelward.kernels.bin_merging import count_bins, merged_codes
from labelward.kernels.histogram import groups
from labelward.kernels.node_rows import NodeRows, ancestors, depth_of, parent, sibling
from labelward.kernels.split_search import CATEGORICAL
from labelward.messages.base import RowMask
from labelward.messages.tree import (
    EncryptedForestRows,
    EncryptedLevelRows,
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
from labelward.party.checkpoint import decode_stored
from labelward.party.context import Context
from labelward.policy.base import BinCounts
from labelward.protocols.secureboost.behavior import Liar, SumLies
from labelward.protocols.secureboost.column_binner import ColumnBinner, LevelBins, SplitLedger, TreeBinner
from labelward.protocols.secureboost.histogram_message import CellMask, pack_starts, split_into_messages
from labelward.protocols.secureboost.inputs import Columns, TrainingTask, TreeInputs
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.policy_hooks import merged_bins, merges_bins, release_own_sides
from labelward.protocols.secureboost.row_blocks import IncomingRows
from labelward.protocols.secureboost.share import Records

_KEPT_CHECKPOINTS = 256  # the active party keeps one per round, of as many trees as there are classes


def train_passive(
    ctx: Context,
    task: TrainingTask,
    inputs: TreeInputs,
    public: PublicKey,
    *,
    before: tuple[Records, int] = (Records(), 0),
    behavior: SumLies | None = None,
) -> tuple[Records, int]:
    """Take part in training until the active party ends it, from the agreed checkpoint if there is one.

    Args:
        inputs: this party's columns, rows in the agreed order.
        public: the active party's key.
        before: the result of this function in an earlier training that continues.
        behavior: how it lies, if it does.

    Returns:
        This party's splits, and in how many trees it took part, which is a checkpoint's number.

    Raises:
        FileFormatError: the checkpoint is damaged.
        OutputError: a checkpoint cannot be written.
        PeerError: the active party failed, stayed silent or sent something impossible.
    """
    params, agreed, columns = task.params, task.agreed, inputs.train
    most = max_trees(params, len(agreed.sides.train), agreed.classes)
    expected = expected_trees(params, agreed.classes)  # if all of them ask this party; for the progress
    rows = len(columns.x) - inputs.validation
    with ctx.phase("binning"):
        binner = ColumnBinner(ctx.party, columns.first(rows), params, ctx.seed)
    ledger, tree = SplitLedger(before[0]), agreed.resume or 0
    for records in _load_splits(ctx, tree):
        ledger.extend(records)
    training = _Training(ctx, binner, columns, rows, public, ledger, before[1])
    if behavior is not None:
        training.liar = Liar(ctx, behavior, rows, len(columns.names))
    while True:
        ctx.progress("trees", tree, expected)
        message = ctx.recv(ctx.active, (TreeStart, TrainingEnd), (tree,))
        if isinstance(message, TrainingEnd):
            if message.trees != tree or not 0 <= message.records <= len(ledger):
                reason = f"ends after {message.trees} trees where there were {tree}, or keeps {message.records} splits"
                raise wrong_message(ctx.active, "TrainingEnd", reason, (tree,), message.trees)
            ctx.progress("trees", tree, tree)
            return ledger.records().first(message.records), before[1] + tree
        start = cast("TreeStart", message)
        if tree + start.together > most:
            reason = f"starts {tree + start.together} trees where the job has {most} at most"
            raise wrong_message(ctx.active, "TreeStart", reason, (tree,), tree + start.together)
        last, known = tree, len(ledger)
        tree += training.grow(start, tree)
        keep = _KEPT_CHECKPOINTS if params.multi_strategy == "one_output_per_tree" else None
        part = msgspec.msgpack.encode(_NewSplits(last, ledger.since(known)))
        ctx.save(tree, _Snapshot(tree), blocks={_name(tree): part}, keep=keep)


def max_trees(params: TreeModel, rows: int, classes: int = 0) -> int:
    """Return how many trees a training may ask of a passive party, whatever the labels are.

    Local trees and early stopping make them fewer. With a tree for each class a round has no more trees than there are
    classes; where their number is not known, no more than the job has rows, since every class occurs in some row.

    Args:
        rows: of the job, in all sides of the split.
        classes: as agreed; 0: not known.
    """
    return params.trees * ((classes or rows) if params.multi_strategy == "one_output_per_tree" else 1)


def expected_trees(params: TreeModel, classes: int) -> int:
    """Return how many trees a training without local trees and early stopping has; 0 where that is not known.

    Args:
        classes: of the label, 1 for a quantity; 0: not known.
    """
    if params.multi_strategy == "multi_output_tree":
        return params.trees
    return params.trees * (classes if classes > 2 else min(classes, 1))


# -- checkpoints -------------------------------------------------------------------------------------------------------


class _Snapshot(msgspec.Struct, frozen=True):
    """A passive party's state after so many trees; its splits lie in blocks."""

    trees: int


class _NewSplits(msgspec.Struct, frozen=True):
    """The splits of trees that grew side by side, and how many trees there were before."""

    before: int
    records: Records


def _name(trees: int) -> str:
    return f"trees-{trees}"


def _load_splits(ctx: Context, trees: int) -> list[Records]:
    """Return the splits of the first trees of this training, from its checkpoint."""
    if not trees:
        return []
    snapshot, block = ctx.checkpoints.load(trees, _Snapshot)
    parts, trees = [], snapshot.trees
    while trees:
        part = decode_stored(block(_name(trees)), _NewSplits, ctx.checkpoints.folder)
        parts.append(part.records)
        trees = part.before
    return parts[::-1]


# -- trees -------------------------------------------------------------------------------------------------------------


class _Tree:
    """A tree that grows: its rows, and which of them lie in which node."""

    def __init__(self, number: int, binner: TreeBinner, counts: NDArray[np.uint8], encrypted: IncomingRows) -> None:
        self.number, self.binner, self.counts, self.encrypted = number, binner, counts, encrypted
        self.sample = np.flatnonzero(counts)
        self.rows = NodeRows(len(counts), self.sample)
        self.nodes: tuple[int, ...] = ()  # those that were summed at this level
        self.bins: LevelBins | None = None
        self.cells: dict[int, NDArray[np.int32]] = {}  # of each node that was summed, and of its sibling, merged bins
        self.split_by: dict[int, int] = {}  # the own column that split a node


class _Training:
    """A passive party's state: its splits so far, and the encrypted rows."""

    def __init__(
        self,
        ctx: Context,
        binner: ColumnBinner,
        columns: Columns,
        training: int,
        public: PublicKey,
        ledger: SplitLedger,
        grown: int,
    ) -> None:
        self.ctx, self.binner, self.x, self.public, self.ledger = ctx, binner, columns.x, public, ledger
        self.training, self.grown, self.forest = training, grown, binner.params.kind == "forest"
        self.merges = merges_bins(ctx)
        self.forest_rows = IncomingRows(ctx, public, EncryptedForestRows, (), training)
        self.liar: Liar | None = None

    def grow(self, start: TreeStart, number: int) -> int:
        """Sum and answer for trees that grow side by side until they are done; return how many they were.

        Args:
            number: that of the first of them.
        """
        first = len(self.ledger)
        if not 1 <= start.together <= (self.binner.params.trees_at_once if self.forest else 1):
            reason = f"starts {start.together} trees at once"
            raise wrong_message(self.ctx.active, "TreeStart", reason, (number,), start.together)
        trees = [self._begin(start, number)]
        for other in range(number + 1, number + start.together):
            trees.append(self._begin(self.ctx.recv(self.ctx.active, TreeStart, (other,)), other))
        growing, depth = trees, 0
        while growing:
            growing = [tree for tree in growing if self._sum(tree, depth)]  # Level, rows; LevelSums
            for tree in growing:
                self._answer(tree, depth)  # ChosenSplits; SplitRows
            depth += 1
        if start.route:
            self._route_other_rows(trees[0], first)  # PredictAnswers
        return len(trees)

    def _begin(self, start: TreeStart, number: int) -> _Tree:
        ctx, name, step = self.ctx, "TreeStart", (number,)
        if start.tree != number:
            raise wrong_message(ctx.active, name, f"starts tree {start.tree} where {number} is due", step, start.tree)
        with ctx.blaming(ctx.active, name, step):
            sample = np.flatnonzero(start.rows.value.unpack(self.training))
        repeats = np.frombuffer(start.repeats, dtype=np.uint8) if start.repeats else np.ones(len(sample), np.uint8)
        if start.repeats and not self.binner.params.replace:
            raise wrong_message(ctx.active, name, "sent repeats of rows, which are drawn without replacement", step)
        if len(repeats) != len(sample) or not repeats.all() or repeats.sum() > self.training:
            raise wrong_message(ctx.active, name, "sent repeats of other rows than the tree's", step)
        if start.gradients is not None or not len(sample):
            reason = "starts a tree without rows" if start.gradients is None else "sent gradients out of place"
            raise wrong_message(ctx.active, name, reason, step)
        counts = np.zeros(self.training, dtype=np.uint8)
        counts[sample] = repeats
        encrypted = self.forest_rows
        if not self.forest:
            encrypted = IncomingRows(ctx, self.public, EncryptedTreeRows, (number,), len(sample))
        binner = self.binner.for_tree(self.grown + number)
        return _Tree(number, self.liar.columns(binner, counts) if self.liar else binner, counts, encrypted)

    def _sum(self, tree: _Tree, depth: int) -> bool:
        """Receive the level and its instance spaces, and send the sums of its nodes; False where the tree is done."""
        ctx, step = self.ctx, (tree.number, depth)
        level = ctx.recv(ctx.active, LevelRequest, step)
        for split in level.splits.value:
            self._split_rows(tree, split, "Level", step, depth - 1)
        self._check_nodes(tree, level.build, step)
        if level.spacing not in (0, *SPACINGS) or (level.spacing and not (level.build and depth)):
            raise wrong_message(ctx.active, "Level", "sends rows of a level again out of place", step, level.spacing)
        if not level.build:
            return False
        slots = len(level.build)
        with ctx.phase("aggregate"):
            slot = tree.rows.slots(level.build)
            bins = tree.binner.level(slot, slots)
            messages = split_into_messages(bins.sizes, slots, len(tree.sample))
            cells = self._merged_cells(tree, level.build, slot, bins)
            all_codes = bins.codes if cells is None else merged_codes(bins.codes, slot, cells)
        tree.nodes, tree.bins = level.build, bins
        encrypted, order = self._rows_to_sum(tree, level)
        for part, columns in enumerate(messages):
            sizes = tuple(bins.sizes[columns].tolist())
            with ctx.phase("aggregate"):
                codes = all_codes if len(columns) == all_codes.shape[1] else all_codes[:, columns]
                mask = CellMask.of(codes, slot, tree.counts, slots, max(sizes))
                grouped = groups(codes, slot, max(sizes), mask.implied)
            sums = self._grouped_sums(encrypted, grouped[order], tree.counts[order], slots * max(sizes))
            if self.liar and not depth:
                sums = self.liar.sums(sums, tree.encrypted.rows, self.public, tree.counts)
            with ctx.phase("seal"):
                sealed = sums.take(mask.sent).rerandomize()
            # Logical sums count every cell: a protocol without packing leaves none out.
            self.public.counts.add({"logical_sums": (mask.cells.size - len(mask.sent)) * sums.layout.logical})
            kinds = bins.kinds[columns].tobytes() if bins.kinds[columns].any() else b""
            filled, implied = mask.packed()
            if cells is not None:
                filled += pack_starts(cells[:, columns], sizes)
            message = LevelHistograms(*step, part, len(messages), tuple(columns), sizes, sealed, kinds, filled, implied)
            ctx.send(ctx.active, message, (*step, part))
        return True

    def _merged_cells(
        self, tree: _Tree, nodes: tuple[int, ...], slot: NDArray[np.int32], bins: LevelBins
    ) -> NDArray[np.int32] | None:
        """Ask the party's policies which bins are summed together: int32 [nodes, columns, bins + 1]; None: each alone.

        A node whose parent was not summed takes the cells of the closest ancestor that was.
        """
        if not self.merges:
            return None
        width = int(bins.sizes.max())
        cells = np.tile(np.arange(width + 1, dtype=np.int32), (len(nodes), len(bins.sizes), 1))
        other = tree.rows.slots([sibling(node) if node else node for node in nodes])
        above = [next((each for each in ancestors(node) if each in tree.cells), -1) for node in nodes]
        for position, node in enumerate(above):
            if node >= 0:
                cells[position] = tree.cells[node]
        rows, beside = (count_bins(bins.codes, each, len(nodes), width) for each in (slot, other))
        merged = merged_bins(self.ctx, BinCounts(rows=rows, sibling=beside, cells=cells))
        for position, node in enumerate(nodes):
            column = tree.split_by.get(parent(node), -1)
            if column >= 0 and above[position] == parent(node):
                merged[position, column] = cells[position, column]
            tree.cells[node] = merged[position]
            if node:
                tree.cells[sibling(node)] = merged[position]
        return merged

    def _check_nodes(self, tree: _Tree, nodes: tuple[int, ...], step: tuple[int, int]) -> None:
        """Refuse to sum anything but leaves of this depth, each once."""
        ctx, depth = self.ctx, step[1]
        if list(nodes) != sorted(set(nodes)):
            raise wrong_message(ctx.active, "Level", "asks for sums of nodes out of order", step, nodes)
        for node in nodes:
            if node not in tree.rows or depth_of(node) != depth:
                reason = f"asks for sums of node {node}, which is no leaf of depth {depth}"
                raise wrong_message(ctx.active, "Level", reason, step, node)
        if nodes and depth >= self.binner.params.depth:
            raise wrong_message(ctx.active, "Level", f"asks for sums at depth {depth}", step, depth)

    def _rows_to_sum(self, tree: _Tree, level: LevelRequest) -> tuple[IncomingRows, NDArray[np.int32] | slice]:
        """Return the encrypted rows of which a level is summed, and which of the training rows they are."""
        if not level.spacing:
            every = tree.encrypted.n == len(tree.counts)
            return tree.encrypted, slice(None) if every else tree.sample.astype(np.int32)
        order = np.concatenate([tree.rows.rows(node) for node in level.build])
        step = (tree.number, level.depth)
        return IncomingRows(self.ctx, self.public, EncryptedLevelRows, step, len(order), level.spacing), order

    def _grouped_sums(
        self, rows: IncomingRows, grouped: NDArray[np.int32], counts: NDArray[np.uint8], n_groups: int
    ) -> EncryptedSums:
        """Sum rows by group, chunk by chunk as they arrive."""
        grouped, total = np.ascontiguousarray(grouped), None
        for start, stop in rows.chunks():
            with self.ctx.phase("aggregate"):
                sums = _repeated_sums(rows.rows, grouped[start:stop], counts[start:stop], n_groups, start)
                total = sums if total is None else total + sums
        assert total is not None
        return total

    def _answer(self, tree: _Tree, depth: int) -> None:
        """Receive which own candidates won, record them, and send which rows go left."""
        ctx, step, bins = self.ctx, (tree.number, depth), tree.bins
        assert bins is not None
        splits = ctx.recv(ctx.active, WinningSplits, step).splits.value
        nodes = [split.node for split in splits]
        if nodes != sorted(set(nodes)):
            raise wrong_message(ctx.active, "ChosenSplits", "chose splits of nodes out of order", step, tuple(nodes))
        slot_of = {node: position for position, node in enumerate(tree.nodes)}
        answers = []
        for split in splits:
            slot = slot_of.get(split.node, 0)
            known = split.node in tree.rows and depth_of(split.node) == depth
            offered = bins.offers(slot, split.column, split.code, split.categories)
            if not known or not offered or split.record != len(self.ledger):
                raise wrong_message(
                    ctx.active, "ChosenSplits", f"chose a split that was not offered: {split}", step, split
                )
            whole = split if split.node not in tree.cells else _whole_cells(split, tree.cells[split.node], bins)
            tree.split_by[split.node] = split.column
            left = RowMask.pack(tree.binner.split(bins, slot, tree.rows.rows(split.node), whole, self.ledger))
            name, threshold = self.binner.names[self.ledger.columns[-1]], self.ledger.thresholds[-1]
            how = (split.record, left, whole.missing_left, whole.categories)
            ctx.observe(OwnSplit(tree.number, split.node, name, threshold, *how))
            answers.append(NodeSplit(split.node, left))
            if self.liar:
                self.liar.told(tree.number, split, tree.rows.rows(split.node), bins, tree.binner)
        for answer in answers:
            self._split_rows(tree, answer, "ChosenSplits", step, depth)
        if answers:
            ctx.send(ctx.active, SplitMasks(*step, release_own_sides(ctx, tuple(answers))), step)

    def _route_other_rows(self, tree: _Tree, first: int) -> None:
        """Send on which side of the tree's splits, from record ``first`` on, the rows lie on which it did not grow."""
        others = np.ones(len(self.x), dtype=np.bool_)
        others[tree.sample] = False
        answers = self.ledger.since(first).answers(self.x[others])
        bits = np.packbits(answers, bitorder="little").tobytes()
        self.ctx.send(self.ctx.active, PredictAnswers(len(answers), int(others.sum()), bits), (tree.number,))

    def _split_rows(self, tree: _Tree, split: NodeSplit, name: str, step: tuple[int, int], depth: int) -> None:
        """Split a leaf of this depth; both sides must have rows, so there are no more nodes than rows."""
        node = split.node
        if node not in tree.rows or depth_of(node) != depth:
            reason = f"sent a split of node {node}, which is no leaf of depth {depth}"
            raise wrong_message(self.ctx.active, name, reason, step, node)
        with self.ctx.blaming(self.ctx.active, name, step):
            left = split.left.unpack(tree.rows.size(node))
        if left.all() or not left.any():
            raise wrong_message(self.ctx.active, name, f"leaves a side of node {node} without rows", step, node)
        tree.rows.split(node, left)


def _repeated_sums(
    rows: EncryptedRows, grouped: NDArray[np.int32], times: NDArray[np.uint8], n_groups: int, start: int
) -> EncryptedSums:
    """Sum the rows from ``start`` on by group, each as often as it was drawn."""
    sums = rows.group_sums(grouped, n_groups, start)
    for least in range(2, int(times.max(initial=1)) + 1):
        again = np.where((times >= least)[:, None], grouped, np.int32(-1))
        sums = sums + rows.group_sums(again, n_groups, start)
    return sums


def _whole_cells(split: WinningSplit, cells: NDArray[np.int32], bins: LevelBins) -> WinningSplit:
    """Return a split of merged bins: a cell goes left whole if its lowest bin does."""
    own, size = cells[split.column], int(bins.sizes[split.column])
    if bins.kinds[split.column] == CATEGORICAL:
        goes = np.isin(own, split.categories)
        chosen = tuple(np.flatnonzero(goes[:size]).tolist())
        whole = msgspec.structs.replace(split, categories=chosen)
    else:
        goes = own <= split.code
        whole = msgspec.structs.replace(split, code=int(np.flatnonzero(goes[:size])[-1]))
    if own[-1] < len(own) - 1:  # rows without a value lie in a cell
        whole = msgspec.structs.replace(whole, missing_left=bool(goes[-1]))
    return whole
