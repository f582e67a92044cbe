"""How much work a training is: operations with the key, ciphertexts, messages and bytes of each party.

All of it follows from a :class:`~labelward.evaluate.costs.dry.Dry` run and from how numbers lie in ciphertexts. For the
trees of the dry run itself, where all rows were taken, it is exact; further trees are taken to be like them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from labelward.evaluate.costs.dry import Dry, DryLevel, DryTree
from labelward.he.contract import CipherBlock, Layout
from labelward.messages.base import Message, RowMask
from labelward.messages.codec import encode
from labelward.messages.tree import (
    EncryptedForestRows,
    EncryptedTreeRows,
    LevelHistograms,
    LevelRequest,
    NodeSplit,
    PredictAnswers,
    PredictRequest,
    SplitMasks,
    TrainingEnd,
    TreeStart,
    WinningSplit,
    WinningSplits,
)
from labelward.protocols.secureboost.row_encoding import BLOCK_ROWS, block_count

__all__ = ["ROWS", "Flow", "Form", "PartyWork", "Run", "work"]

ROWS = ("TreeRows", "ForestRows")
"""The messages that carry encrypted rows."""
_HELLO = 950
"""Bytes of a job as the parties compare it, about."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """How an engine writes the numbers of a row.

    Attributes:
        engine: its name.
        fits: for each ciphertext of a row, how many sums its like holds.
        size: bytes of a ciphertext.
        layout: of the numbers.
    """

    engine: str
    fits: tuple[int, ...]
    size: int
    layout: Layout

    @classmethod
    def of(cls, engine: str, layout: Layout, bits: int) -> Form:
        """Return the form of an engine by its name, for keys of ``bits`` bits."""
        if engine == "plain":
            return cls(engine=engine, fits=(1,), size=8 * len(layout.bounds), layout=layout)
        from labelward.he.paillier.packing import Packing

        fits = tuple(part.fit for part in Packing.of(layout, bits).parts)
        return cls(engine=engine, fits=fits, size=bits // 4, layout=layout)

    @property
    def parts(self) -> int:
        """Ciphertexts of a row."""
        return len(self.fits)

    def sealed(self, sums: int) -> int:
        """Return the ciphertexts of a message of so many sums."""
        return sum(-(-sums // fit) for fit in self.fits)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run is beside its data.

    Attributes:
        active: name of the party that has the labels.
        kind: of the model.
        mode: who may own the splits of which trees and levels.
        side_by_side: how many trees grow at the same time, on average; their answers are waited for together.
        rows: training rows.
        test: rows that are predicted at the end.
        route: validation rows, whose sides owners tell after each tree.
        takes_part: for each passive party in how many trees.
        federated: trees in which any passive party takes part.
        trees: all of them.
        columns: by party, how many.
        form: of the numbers.
    """

    active: str
    kind: str
    mode: str
    side_by_side: float
    rows: int
    test: int
    route: int
    takes_part: Mapping[str, int]
    federated: int
    trees: int
    columns: Mapping[str, int]
    form: Form


@dataclass(kw_only=True)
class Flow:
    """Messages of one type from one party to another."""

    messages: float = 0.0
    bytes: float = 0.0


@dataclass(kw_only=True)
class PartyWork:
    """What one party does in a run; ciphertexts in all cases.

    Attributes:
        encryptions: made from numbers.
        prepared: received rows that were made ready for sums.
        additions: as the engine counts them; ``effort``: in sums of a row and a cell.
        seals: messages of sums; ``sums`` sums and ``sealed`` ciphertexts in all of them.
        opened: ciphertexts decrypted, in ``openings`` messages.
        own: rows × columns summed in the open, or grouped to be summed.
        turns: of a passive party: how often the active party waits for an answer of it, at trees that grow side by side
            for those of all of them at once.
        flows: what it sends, by receiver and type.
    """

    encryptions: float = 0.0
    prepared: float = 0.0
    additions: float = 0.0
    effort: float = 0.0
    seals: float = 0.0
    sums: float = 0.0
    sealed: float = 0.0
    opened: float = 0.0
    openings: float = 0.0
    own: float = 0.0
    turns: float = 0.0
    flows: dict[tuple[str, str], Flow] = field(default_factory=lambda: defaultdict(Flow))

    @property
    def bytes(self) -> float:
        """All that it sends."""
        return sum(flow.bytes for flow in self.flows.values())

    def sends(self, receiver: str, kind: str, size: float, messages: float = 1.0) -> None:
        """Add messages of ``size`` bytes, all together."""
        flow = self.flows[receiver, kind]
        flow.messages += messages
        flow.bytes += size


def work(dry: Dry, run: Run) -> dict[str, PartyWork]:
    """Return the work of each party, the active one first."""
    found = {run.active: PartyWork(), **{name: PartyWork() for name in run.takes_part}}
    active, form = found[run.active], run.form
    grown = [tree.rows * dry.scale for tree in dry.trees]
    mean_rows = sum(grown) / len(grown)
    each = run.rows if run.kind == "forest" else mean_rows
    asked = [any(tree.levels.values()) for tree in dry.trees if tree.levels]
    active.encryptions = form.parts * each * _sendings(run, run.federated, asked)
    active.own = sum(tree.own for tree in dry.trees) * dry.scale / len(dry.trees) * run.trees
    width = max(1, sum(run.columns.values()))
    for name, trees in run.takes_part.items():
        peer, like = found[name], [tree for tree in dry.trees if name in tree.levels]
        if not trees or not like:
            continue
        times = _sendings(run, trees, [bool(tree.levels[name]) for tree in like])
        peer.prepared = each * times * form.parts
        every = sum(tree.every for tree in like) * dry.scale / len(like) * trees
        peer.own = every * run.columns[name] / width
        if times:
            _rows(active, (name, run), each, times)
        for tree in like:
            _tree(active, peer, (name, run), tree, trees / len(like), dry)
        _end(active, peer, (name, run), round(sum(tree.splits[name] for tree in like) / len(like) * trees))
    active.opened = sum(found[name].sealed for name in run.takes_part)
    active.openings = sum(found[name].seals for name in run.takes_part)
    _greet(found, run)
    return found


def _sendings(run: Run, trees: int, asked: Sequence[bool]) -> float:
    """Return how often rows are encrypted or sent: not for trees that ask for no sums, and once for a forest.

    Args:
        trees: that might ask.
        asked: which of their like did.
    """
    share = sum(asked) / max(1, len(asked))
    return float(bool(trees) and share > 0) if run.kind == "forest" else trees * share


def _end(active: PartyWork, peer: PartyWork, who: tuple[str, Run], splits: int) -> None:
    """Count how training ends and how the test rows are predicted."""
    name, run = who
    active.sends(name, "TrainingEnd", _size(TrainingEnd(run.takes_part[name], splits), (run.takes_part[name],)))
    for start, stop in ((0, run.test), (run.test, run.test)):
        active.sends(name, "PredictRequest", _size(PredictRequest("0" * 16, start, stop), (0,)))
    bits = (splits * run.test + 7) // 8
    peer.sends(run.active, "PredictAnswers", _size(PredictAnswers(splits, run.test, b""), (0,)) + _bin(bits))


def _rows(active: PartyWork, who: tuple[str, Run], rows: float, times: float) -> None:
    """Count the messages of encrypted rows to one party, so often."""
    (peer, run), form = who, who[1].form
    count, forest = round(rows), run.kind == "forest"
    for part in range(block_count(count)):
        block = _block(form, "rows", (min(BLOCK_ROWS, count - part * BLOCK_ROWS),))
        place = (part, block_count(count))
        message = EncryptedForestRows(block, *place) if forest else EncryptedTreeRows(0, *place, block)
        size = _size(message, (part,) if forest else (0, part)) + _bin(block.count * form.size)
        active.sends(peer, type(message).__name__, size * times, times)


def _tree(active: PartyWork, peer: PartyWork, who: tuple[str, Run], tree: DryTree, times: float, dry: Dry) -> None:
    """Count one tree of the dry run as so many trees of the run."""
    (name, run), form = who, who[1].form
    others = run.route + (0 if run.kind == "forest" else run.rows - round(tree.rows * dry.scale))
    repeats = round(tree.rows * dry.scale) if tree.repeated else 0
    empty = RowMask(tree.sample.total, tree.sample.form, b"")
    start = _size(TreeStart(tree=0, rows=empty, route=others > 0), (0,)) + _mask(tree.sample, dry) + _bin(repeats)
    active.sends(name, "TreeStart", times * start, times)
    levels = tree.levels[name]
    for depth, level in enumerate(levels):
        told = LevelRequest(0, depth, _empty(level.told), level.build)
        active.sends(name, "Level", times * (_size(told, (0, depth)) + _masks(level.told, dry)), times)
        for part, sums in enumerate(level.sums):
            message = _sums_message(level, depth, (part, len(level.sums)), form)
            count = form.sealed(sums.sent)
            peer.additions += times * sums.added.number * form.parts * dry.scale
            peer.effort += times * sums.added.effort * form.parts * dry.scale
            peer.seals += times * bool(sums.sent)
            peer.sums += times * sums.sent
            peer.sealed += times * count
            data = count * form.size
            peer.sends(run.active, "LevelSums", times * (_size(message, (0, depth, part)) + _bin(data)), times)
        chosen = WinningSplits(0, depth, tuple(WinningSplit(each.node, 0, 0, 0) for each in level.answered))
        active.sends(name, "ChosenSplits", times * _size(chosen, (0, depth)), times)
        if level.answered:
            answer = SplitMasks(0, depth, _empty(level.answered))
            size = _size(answer, (0, depth)) + _masks(level.answered, dry)
            peer.sends(run.active, "SplitRows", times * size, times)
        peer.turns += times * (1 + bool(level.answered)) / run.side_by_side
    end = LevelRequest(0, len(levels), (), ())
    active.sends(name, "Level", times * _size(end, (0, len(levels))), times)
    if others > 0:
        answers = PredictAnswers(tree.splits[name], others, b"")
        size = _size(answers, (0,)) + _bin((tree.splits[name] * others + 7) // 8)
        peer.sends(run.active, "PredictAnswers", times * size, times)
        peer.turns += times


def _sums_message(level: DryLevel, depth: int, part: tuple[int, int], form: Form) -> LevelHistograms:
    """Return a message of sums without its ciphertexts."""
    sums, slots = level.sums[part[0]], len(level.build)
    cells = len(sums.columns) * slots * max(sums.sizes)
    block = _block(form, "sums", (1, sums.sent))
    implied = bytes(2 * len(sums.columns) * slots)
    return LevelHistograms(
        0, depth, *part, sums.columns, sums.sizes, block, sums.kinds, bytes((cells + 7) // 8), implied
    )


def _block(form: Form, kind: Literal["rows", "sums"], shape: tuple[int, ...]) -> CipherBlock:
    """Return a block without its ciphertexts."""
    count = shape[0] * form.parts if kind == "rows" else form.sealed(shape[1])
    return CipherBlock(form.engine, bytes(16), kind, shape, form.layout, count, b"")


def _greet(found: Mapping[str, PartyWork], run: Run) -> None:
    """Count what is exchanged before and after the trees."""
    active, rows = found[run.active], run.rows + run.test + run.route
    for name in run.takes_part:
        peer = found[name]
        active.sends(name, "greeting", _HELLO + 150 + rows / 8 + run.form.size / 2, 3)
        peer.sends(run.active, "greeting", _HELLO + 75 + 34 * min(max(rows // 64, 1), 256), 2)
        peer.turns += 4


def _empty(splits: Sequence[NodeSplit]) -> tuple[NodeSplit, ...]:
    return tuple(NodeSplit(each.node, RowMask(each.left.total, each.left.form, b"")) for each in splits)


def _masks(splits: Sequence[NodeSplit], dry: Dry) -> float:
    return sum(_mask(each.left, dry) for each in splits)


def _mask(mask: RowMask, dry: Dry) -> float:
    """Return the bytes of a mask of so many more rows."""
    return _bin(int(len(mask.data) * dry.scale))


def _bin(data: int) -> int:
    """Return by how many bytes a message is longer for so much data in place of none."""
    return data + (0 if data < 1 << 8 else 1 if data < 1 << 16 else 3)


def _size(message: Message, step: tuple[int, ...]) -> int:
    return len(encode(message, step))
