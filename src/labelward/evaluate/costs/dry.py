"""A dry run: a few rounds of a job grown in the open, on some of its rows, for the work that each level makes.

How many nodes a level has, how many rows the smaller of two siblings, how many cells hold rows and how many products
sums by joint columns take: all of that follows from the data, and growing a first tree without encryption tells it at
the price of a moment. What the trees are is thrown away; what is kept are counts, of the whole run one of all parties
together, so that only a rehearsal can do this. The first tree of a model is that of the run itself, as long as all rows
are taken and no policy acts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelward.evaluate.costs.units import Adding, Additions
from labelward.kernels.binning import bin_columns
from labelward.kernels.histogram import groups
from labelward.kernels.node_rows import NodeRows, children, parent
from labelward.messages.base import RowMask
from labelward.messages.tree import NodeSplit
from labelward.party.in_process import standalone_context
from labelward.protocols.secureboost.active import train_active
from labelward.protocols.secureboost.column_binner import ColumnBinner, TreeBinner
from labelward.protocols.secureboost.histogram_message import CellMask, nodes_to_sum, split_into_messages
from labelward.protocols.secureboost.inputs import Columns, LabelVector
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.row_blocks import CHUNK_ROWS, chunks
from labelward.protocols.secureboost.row_encoding import sample_rows
from labelward.protocols.secureboost.share import Records, TrainingResult, TreeShape
from labelward.protocols.secureboost.targets import class_weighted, fitted_objective
from labelward.rng import PrivateSeed, learning

__all__ = ["ANY_SEED", "Dry", "DryLevel", "DryTree", "Subject", "Sums", "dry_run", "may_own", "trees_of_a_round"]

Integers = NDArray[np.int64]
_ROUNDS, _MOST_ROUNDS = 3, 8
_CELLS = 6_000_000
"""Rows times columns times rounds that a dry run looks at, at most."""
_LEAST_ROWS = 2_000

ANY_SEED = PrivateSeed(bytes(PrivateSeed.SIZE))
"""Stands for the private seeds of all parties in a plan, which trains nothing that is kept."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What is trained on: columns of each party, the active one first, and labels; of training rows only."""

    columns: Mapping[str, Columns]
    labels: LabelVector

    @property
    def rows(self) -> int:
        """Number of training rows."""
        return len(self.labels.values)

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the active one first."""
        return tuple(self.columns)

    def some(self, rows: int, seed: int) -> Subject:
        """Return a draw of so many rows; all of them, where there are no more."""
        if rows >= self.rows:
            return self
        chosen = np.sort(learning(seed, self.parties[0], 0, "dry run").choice(self.rows, rows, replace=False))
        columns = {name: replace(own, x=own.x[chosen]) for name, own in self.columns.items()}
        labels = self.labels
        return Subject(
            columns=columns,
            labels=replace(labels, values=labels.values[chosen], weights=labels.weights[chosen]),
        )


@dataclass(frozen=True, kw_only=True)
class Sums:
    """One message of sums.

    Attributes:
        columns: positions of its columns.
        sizes: bins of each of them.
        kinds: as the message has them.
        sent: cells that are sealed and travel.
        added: what the engine does, for one ciphertext a row.
    """

    columns: tuple[int, ...]
    sizes: tuple[int, ...]
    kinds: bytes
    sent: int
    added: Additions


@dataclass(frozen=True, kw_only=True)
class DryLevel:
    """What one passive party does for one level of one tree.

    Attributes:
        build: the nodes that are summed.
        sums: the messages that go out.
        told: splits of others that the party is told at the beginning of the level.
        answered: its own splits.
    """

    build: tuple[int, ...]
    sums: tuple[Sums, ...]
    told: tuple[NodeSplit, ...]
    answered: tuple[NodeSplit, ...]


@dataclass(frozen=True, kw_only=True)
class DryTree:
    """A tree of the dry run.

    Attributes:
        rows: on which it grew.
        sample: which they are.
        repeated: whether some were drawn several times.
        levels: of each passive party that took part.
        splits: by owner, the active party among them.
        own: rows × columns that the active party summed itself, over all levels.
        every: as many for the columns of all parties.
        leaves: int32 [rows of the dry run]: each row's leaf.
    """

    rows: int
    sample: RowMask
    repeated: bool
    levels: Mapping[str, tuple[DryLevel, ...]]
    splits: Mapping[str, int]
    own: int
    every: int
    leaves: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Dry:
    """What a dry run found.

    Attributes:
        scale: training rows of the job, in rows of the dry run.
        rows: of the dry run.
        trees: grown.
        seconds: by phase, of all trees and all parties' columns together; ``binning`` is of all columns once, and
            ``rest`` what is in no phase.
    """

    scale: float
    rows: int
    trees: tuple[DryTree, ...]
    seconds: Mapping[str, float]


def trees_of_a_round(params: TreeModel, classes: int) -> int:
    """Return how many trees a round has: one for each class, where they grow apart."""
    apart = params.kind != "forest" and params.multi_strategy == "one_output_per_tree"
    return fitted_objective(params, classes).outputs if apart else 1


def may_own(params: TreeModel, outputs: int, able: Sequence[str], owner: str, tree: int, depth: int) -> bool:
    """Return whether a party's columns may split the nodes of a level, as long as no policy keeps it out.

    Args:
        outputs: trees of a round, where there is one for each class; else 1.
        able: all parties that have columns, the active one first.
    """
    if params.mode == "mixed":
        return owner == able[tree // outputs % len(able)]
    if params.mode == "layered":
        return (owner == able[0]) == (depth >= params.passive_depth)
    return True


def dry_run(params: TreeModel, subject: Subject, adding: Adding, *, seed: int, precision: int) -> Dry:
    """Grow the first rounds in the open and count what each level would take under encryption.

    Args:
        subject: all parties' columns of the training rows.
        adding: of the engine.
        seed: of the job's run.
        precision: bits behind the binary point.

    Raises:
        LabelwardError: as training would: the labels do not fit the objective, or the data cannot be used.
    """
    width = max(1, sum(len(own.names) for own in subject.columns.values()))
    together = trees_of_a_round(params, len(subject.labels.classes))
    affordable = max(_ROUNDS, min(_MOST_ROUNDS, _CELLS // (width * subject.rows * together)))
    several = max(len(subject.columns), affordable) if params.mode == "mixed" else affordable
    rounds = min(params.trees, 1 if _draws(params) else several)
    seen = subject.some(max(_LEAST_ROWS, _CELLS // (width * rounds * together)), seed)
    short = replace(params, trees=rounds, early_stopping_rounds=0, eval_metric="auto")
    ctx = standalone_context(seen.parties[0], seed=seed, rows=seen.rows, private=ANY_SEED)
    bin_columns(np.zeros((2, 1)), 2)  # compiled code is read once in a process, at the first use
    start = time.perf_counter()
    trained = train_active(ctx, short, seen.columns, seen.labels, None, precision=precision)
    taken = time.perf_counter() - start
    seconds = dict(ctx.meter.seconds)
    seconds["rest"] = max(0.0, taken - sum(seconds.values()))
    replay = _Replay(params, seen, adding, seed)
    trees = tuple(replay.tree(number, shape, trained) for number, shape in enumerate(trained.trees))
    return Dry(scale=subject.rows / seen.rows, rows=seen.rows, trees=trees, seconds=seconds)


def _draws(params: TreeModel) -> bool:
    """Whether the rows of a tree follow from gradients, which only its training knows."""
    return params.sampling == "goss"


class _Replay:
    """Goes through grown trees level by level, as the parties would."""

    def __init__(self, params: TreeModel, subject: Subject, adding: Adding, seed: int) -> None:
        self.params, self.subject, self.adding, self.seed = params, subject, adding, seed
        self.active, *self.passive = subject.parties
        self.together = trees_of_a_round(params, len(subject.labels.classes))
        self.able = [name for name in subject.parties if name != self.active or subject.columns[name].names]
        self.splitters = {name: ColumnBinner(name, subject.columns[name], params, seed) for name in self.passive}
        self.taken_part = dict.fromkeys(self.passive, 0)

    def tree(self, number: int, shape: TreeShape, trained: TrainingResult) -> DryTree:
        """Count the work of one tree; trees are to be asked for in order."""
        counts = self._counts(number)
        partition = NodeRows(self.subject.rows, np.flatnonzero(counts))
        owners = [trained.owners[owner] for owner in shape.owners]
        sides = _sides(shape, trained, self.subject)
        numbers = {}
        for name in self.passive:
            if any(self.may_own(name, number, depth) for depth in range(self.params.depth)):
                numbers[name] = self.taken_part[name]
                self.taken_part[name] += 1
        growing = _Growing(self, number, counts, partition, dict(zip(shape.nodes, owners, strict=True)), sides)
        levels = growing.levels(numbers)
        leaves = partition.slots(sorted(shape.leaves))
        return DryTree(
            rows=int(np.count_nonzero(counts)),
            sample=RowMask.pack(counts > 0),
            repeated=bool(counts.max(initial=0) > 1),
            levels=levels,
            splits={name: owners.count(name) for name in self.subject.parties},
            own=growing.own,
            every=growing.every,
            leaves=leaves,
        )

    def may_own(self, owner: str, tree: int, depth: int) -> bool:
        return may_own(self.params, self.together, self.able, owner, tree, depth)

    def _counts(self, tree: int) -> Integers:
        """Draw the rows of a tree as its training does."""
        params, labels = self.params, self.subject.labels
        sizes = np.ones(self.subject.rows)
        if _draws(params):
            objective = fitted_objective(params, len(labels.classes))
            weights = class_weighted(params, labels.weights, labels.values, len(labels.classes))
            base = objective.start(labels.values, weights, params.base_score)
            g, _ = objective.gradients(np.tile(base, (len(sizes), 1)), labels.values)
            sizes, tree = np.abs(g).max(axis=1, initial=0.0) * weights, 0
        return sample_rows(params, sizes, seed=self.seed, party=self.active, tree=tree, private=ANY_SEED).counts


def _sides(shape: TreeShape, trained: TrainingResult, subject: Subject) -> dict[int, NDArray[np.bool_]]:
    """Return for each split of a tree bool [rows]: who goes left."""
    found = {}
    for node, owner, record in zip(shape.nodes, shape.owners, shape.records, strict=True):
        own = trained.own[trained.owners[owner]]
        codes = {0: own.categories[record]} if record in own.categories else {}
        missing = (0,) * (record in own.missing_left)
        alone = Records((own.columns[record],), (own.thresholds[record],), missing, codes)
        found[node] = alone.answers(subject.columns[trained.owners[owner]].x)[0]
    return found


class _Growing:
    """One tree, from its root to its leaves."""

    def __init__(
        self,
        replay: _Replay,
        number: int,
        counts: Integers,
        partition: NodeRows,
        owners: Mapping[int, str],
        sides: Mapping[int, NDArray[np.bool_]],
    ) -> None:
        self.replay, self.number, self.counts, self.partition = replay, number, counts, partition
        self.owners, self.sides = owners, sides
        self.own = self.every = 0

    def levels(self, numbers: Mapping[str, int]) -> dict[str, tuple[DryLevel, ...]]:
        """Return each party's levels; ``numbers``: of the tree at each party that takes part."""
        replay, found = self.replay, {name: list[DryLevel]() for name in numbers}
        splitters = {name: replay.splitters[name].for_tree(at) for name, at in numbers.items()}
        told: dict[int, NodeSplit] = {}
        nodes = [0]
        for depth in range(replay.params.depth):
            level = self._splittable(nodes, depth)
            split = [node for node in level if node in self.owners]
            built = {name: self._builds(name, level, depth) for name in numbers}
            sums = {name: tuple(self._sums(splitters[name], build)) for name, build in built.items() if build}
            own = sum(map(self.partition.size, self._builds(replay.active, level, depth)))
            self.own += own * len(replay.subject.columns[replay.active].names)
            self.every += sum(
                sum(map(self.partition.size, self._builds(name, level, depth))) * len(columns.names)
                for name, columns in replay.subject.columns.items()
            )
            before, told = told, {node: self._split(node) for node in split}
            for name, mine in sums.items():
                news = sorted({parent(node) for node in built[name]} & before.keys())
                found[name].append(
                    DryLevel(
                        build=built[name],
                        sums=mine,
                        told=tuple(before[node] for node in news if self.owners[node] != name),
                        answered=tuple(told[node] for node in split if self.owners[node] == name),
                    )
                )
            nodes = [child for node in split for child in children(node)]
        return {name: tuple(levels) for name, levels in found.items()}

    def _splittable(self, nodes: Sequence[int], depth: int) -> list[int]:
        params, labels = self.replay.params, self.replay.subject.labels
        inner = [node for node in self.owners if (node + 1).bit_length() - 1 < depth]
        if params.max_leaves and len(inner) >= params.max_leaves - 1:
            return []
        found = []
        for node in nodes:
            rows = self.partition.rows(node)
            values = labels.values[rows]
            several = not labels.classes or bool(values.min() != values.max())
            if several and int(self.counts[rows].sum()) >= 2 * params.min_rows:
                found.append(node)
        return found

    def _builds(self, name: str, level: Sequence[int], depth: int) -> tuple[int, ...]:
        """Return the nodes that a party sums; the larger of two siblings only where it did not sum their parent."""
        may, params = self.replay.may_own, self.replay.params
        wanted = level if may(name, self.number, depth) else []
        above = {parent(node) for node in wanted if node}
        size = {node: self.partition.size(node) for each in above for node in children(each)}
        before = depth > 0 and may(name, self.number, depth - 1)
        return nodes_to_sum(wanted, size, subtract=params.candidates != "node" and before)

    def _split(self, node: int) -> NodeSplit:
        """Split a node, and return what tells it."""
        left = self.sides[node][self.partition.rows(node)]
        self.partition.split(node, left)
        return NodeSplit(node, RowMask.pack(left))

    def _sums(self, splitter: TreeBinner, build: tuple[int, ...]) -> Iterator[Sums]:
        slot, slots = self.partition.slots(build), len(build)
        codes, counts = splitter.level(slot, slots), self.counts.astype(np.uint8)
        for part, columns in enumerate(split_into_messages(codes.sizes, slots, int(np.count_nonzero(counts)))):
            chosen, sizes = codes.codes[:, columns], tuple(codes.sizes[columns].tolist())
            told = CellMask.of(chosen, slot, counts, slots, max(sizes))
            grouped, drawn = groups(chosen, slot, max(sizes), told.implied), self.counts
            if self.replay.params.kind != "forest":  # whose parties have all rows, not those of the tree alone
                grouped, drawn = grouped[drawn > 0], drawn[drawn > 0]
            stretch = CHUNK_ROWS if build == (0,) and part == 0 and self._arriving() else len(grouped)
            added = self._added(grouped, drawn, slots * max(sizes), stretch)
            kinds = codes.kinds[columns].tobytes() if codes.kinds[columns].any() else b""
            yield Sums(columns=tuple(columns), sizes=sizes, kinds=kinds, sent=len(told.sent), added=added)

    def _arriving(self) -> bool:
        """Whether the rows of the tree come while its root is summed."""
        return self.replay.params.kind != "forest" or self.number == 0

    def _added(self, grouped: NDArray[np.int32], drawn: Integers, n_groups: int, stretch: int) -> Additions:
        """Return the additions of a message; rows that were drawn several times are summed as often."""
        adding, total, summed = self.replay.adding, Additions(0, 0.0), None
        for start, stop in chunks(len(grouped), stretch):
            often, held = drawn[start:stop], None
            for times in range(1, int(often.max(initial=1)) + 1):
                again = np.where((often >= times)[:, None], grouped[start:stop], np.int32(-1))
                more, held = adding.merged(held, _filled(again, n_groups))
                total = total.plus(adding.summed(again, n_groups)).plus(more)
            assert held is not None
            more, summed = adding.merged(summed, held)
            total = total.plus(more)
        return total


def _filled(grouped: NDArray[np.int32], n_groups: int) -> NDArray[np.bool_]:
    """Return bool [columns × groups]: which cells hold rows."""
    cells = grouped + np.arange(grouped.shape[1], dtype=np.int64) * n_groups
    return np.bincount(cells[grouped >= 0], minlength=grouped.shape[1] * n_groups) > 0
