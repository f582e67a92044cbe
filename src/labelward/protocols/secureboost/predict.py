"""Prediction with shares, in one round per batch of rows or level by level.

Setting: each party has its columns of the rows to predict and its share of the model. The active party knows each
tree's shape and who owns which split; the owner alone knows its column and threshold.

- ``"one-round"``: each passive party answers, for all of its splits and each row, whether the row goes left; the active
  party routes the rows. A passive party learns which rows are predicted, and nothing of their paths. The active party
  learns on which side of each split every row lies, even of splits that the row never meets.
- ``"levels"``: for each depth the active party asks an owner only for the rows that reach its splits. The active party
  learns nothing but the answers along each row's own paths. A passive party learns which rows reach each of its splits.
  A batch takes as many rounds as the trees are deep.

A passive party serves both: the request says which it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from labelward.errors import InputError, PolicyError, unknown_name, wrong_message
from labelward.kernels.node_rows import depth_of, route_rows
from labelward.kernels.objectives import margins_of_output, objective
from labelward.messages.base import RowMask, wire_name
from labelward.messages.explain import PathAnswers, PathRequest
from labelward.messages.tree import PredictAnswers, PredictRequest
from labelward.party.context import HEAD, Context
from labelward.protocols.secureboost.policy_hooks import release_paths
from labelward.protocols.secureboost.share import ModelShare, Records, TreeShape

BATCH = 1 << 16
ANSWERS = 1 << 27
"""Most answers (one for each row and split) in memory at a time, whatever the size of the model."""

_DESCRIBED = 64
"""Bytes of the description of the rows at one split."""

Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]
Leaves = NDArray[np.int32]
Own = Mapping[str, tuple[Records, Floats]]
Mode = Literal["one-round", "levels"]


def predict_active(ctx: Context, share: ModelShare, own: Own, rows: int, *, mode: Mode = "one-round") -> Floats:
    """Return the margins: float64 [rows, outputs].

    Boosted trees add to the base; a forest adds the mean over its trees.

    Args:
        share: the active party's share.
        own: for each party whose columns are here its records, and its columns of the rows: float64 [rows, columns].
        rows: how many rows the parties agreed on.
        mode: who learns what, as above; the margins are the same.

    Raises:
        InputError: an unknown mode.
        PeerError: a peer failed, or its answers do not fit.
        PolicyError: ``"levels"`` for a model that was repaired on true labels.
    """
    margins = np.empty((rows, share.outputs))
    for start, stop, leaves in _routes(ctx, share, own, rows, mode):
        margins[start:stop] = margins_of(share, leaves)
    return margins


def to_predictions(share: ModelShare, margins: Floats) -> Floats:
    """Return predictions from margins [rows, outputs]: probabilities [rows, classes], or means [rows]."""
    return objective(share.objective, classes=len(share.classes)).predicted(margins)


def predict_leaves(ctx: Context, share: ModelShare, own: Own, rows: int, *, mode: Mode = "one-round") -> Leaves:
    """Return int32 [rows, trees]: the position in ``TreeShape.leaves`` of the leaf that each row reaches.

    Arguments and errors as for :func:`predict_active`.
    """
    reached = np.empty((rows, len(share.trees)), dtype=np.int32)
    for start, stop, leaves in _routes(ctx, share, own, rows, mode):
        reached[start:stop] = leaves.T
    return reached


def predict_passive(ctx: Context, share: ModelShare, x: Floats) -> None:
    """Answer until the active party asks for no more rows.

    Args:
        x: its columns of the agreed rows: float64 [rows, columns].

    Raises:
        PeerError: the active party failed, holds a share of another model, or asks for rows or splits that are not
            there, or for more rows at once than :func:`row_batches` has with this party's splits.
    """
    number, most = 0, _batch(len(share.own.columns))
    missing_left = frozenset(share.own.missing_left)
    while True:
        request = ctx.recv(ctx.active, (PredictRequest, PathRequest), (number,))
        assert isinstance(request, PredictRequest | PathRequest)
        name = wire_name(type(request))
        if request.model != share.model:
            reason = f"predicts with model {request.model!r}; the share here is of {share.model!r}"
            raise wrong_message(ctx.active, name, reason, (number,), request.model)
        if request.start == request.stop and isinstance(request, PredictRequest):
            return
        rows = request.stop - request.start
        if not 0 <= request.start < request.stop <= len(x):
            reason = f"asks for rows {request.start} to {request.stop} of {len(x)}"
            raise wrong_message(ctx.active, name, reason, (number,), (request.start, request.stop))
        if rows > most:
            reason = f"asks for {rows} rows at once, which are more than {most}"
            raise wrong_message(ctx.active, name, reason, (number,), rows)
        here = x[request.start : request.stop]
        if isinstance(request, PredictRequest):
            answers = _all_sides(share.own, here)
            ctx.send(ctx.active, PredictAnswers(len(answers), len(here), _packed(answers)), (number,))
        else:
            bits = _path_sides(ctx, share.own, missing_left, request, here, number)
            ctx.send(ctx.active, PathAnswers(len(bits), _packed(bits)), (number,))
        number += 1


def unpack_answers(peer: str, answers: PredictAnswers, records: int, rows: int) -> Bits:
    """Return bool [records, rows]; :class:`PeerError` where the answer is for other splits or rows."""
    size = records * rows
    if (answers.records, answers.rows) != (records, rows) or len(answers.bits) != (size + 7) // 8:
        reason = f"answered for {answers.records} splits and {answers.rows} rows where it has {records} and {rows}"
        raise wrong_message(peer, "PredictAnswers", reason, value=(answers.records, answers.rows))
    bits = np.unpackbits(np.frombuffer(answers.bits, np.uint8), count=size, bitorder="little")
    return bits.view(np.bool_).reshape(records, rows)


def leaves_reached(tree: TreeShape, parties: tuple[str, ...], answers: Mapping[str, Bits], rows: int) -> Leaves:
    """Return int32 [rows]: the position in ``tree.leaves`` of the leaf that each row reaches.

    Args:
        parties: in party order, as ``TreeShape.owners`` counts them.
        answers: for each owner bool [records, rows]: whether the row goes left.

    Raises:
        PeerError: an owner has answered for fewer splits than the tree has of it, or for other rows.
    """
    left, right = tree.branches()
    return route_rows(left, right, sides_of(tree, parties, answers, rows))


def sides_of(tree: TreeShape, parties: tuple[str, ...], answers: Mapping[str, Bits], rows: int) -> Bits:
    """Return bool [splits of the tree, rows]: whether each row goes left; see :func:`leaves_reached`."""
    sides = np.empty((len(tree.nodes), rows), dtype=np.bool_)
    for split, (owner, record) in enumerate(zip(tree.owners, tree.records, strict=True)):
        bits = answers[parties[owner]]
        if record >= len(bits) or bits.shape[1] != rows:
            reason = (
                f"answered for {len(bits)} splits and {bits.shape[1]} rows; record {record} of {rows} rows is asked"
            )
            raise wrong_message(parties[owner], "PredictAnswers", reason)
        sides[split] = bits[record]
    return sides


def leaves_of(share: ModelShare, answers: Mapping[str, Bits], rows: int) -> Leaves:
    """Return int32 [trees, rows]: the leaf that each row reaches in each tree; see :func:`leaves_reached`."""
    reached = np.empty((len(share.trees), rows), dtype=np.int32)
    for number, tree in enumerate(share.trees):
        reached[number] = leaves_reached(tree, share.parties, answers, rows)
    return reached


def margins_of(share: ModelShare, leaves: Leaves) -> Floats:
    """Return the margins of rows that reach these leaves, int32 [trees, rows]: float64 [rows, outputs]."""
    forest, base = share.kind == "forest", np.asarray(share.base, dtype=np.float64)
    margins = np.zeros((leaves.shape[1], share.outputs)) if forest else np.tile(base, (leaves.shape[1], 1))
    for tree, reached in zip(share.trees, leaves, strict=True):
        margins[:, margins_of_output(tree.output)] += tree.leaf_values()[reached]
    return margins / max(1, len(share.trees)) + base if forest else margins


def row_batches(share: ModelShare, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each batch of rows, so that the answers of all parties fit in bounded memory."""
    splits = sum(map(share.records_of, share.parties))
    size = _batch(splits)
    for first in range(start, stop, size):
        yield first, min(first + size, stop)


def _batch(splits: int) -> int:
    """Return how many rows a batch may have at so many splits; at fewer splits no fewer.

    A power of two: every party sees it, and it would tell the number of splits that all parties own together.
    """
    most = max(8, min(BATCH, ANSWERS // max(1, splits)))
    return 1 << (most.bit_length() - 1)


def ask_answers(ctx: Context, share: ModelShare, own: Own, span: tuple[int, int], number: int) -> dict[str, Bits]:
    """Return every party's answers for the rows of a batch: one round.

    Args:
        span: start and stop of the batch.
        number: of the request, counted from 0 since the conversation began.
    """
    start, stop = span
    for peer in ctx.peers:
        ctx.expect(peer, answer_bytes(share.records_of(peer), stop - start))
        ctx.send(peer, PredictRequest(share.model, start, stop), (number,))
    answers = {name: _all_sides(records, x[start:stop]) for name, (records, x) in own.items()}
    for peer in ctx.peers:
        message = ctx.recv(peer, PredictAnswers, (number,))
        answers[peer] = unpack_answers(peer, message, share.records_of(peer), stop - start)
    return answers


def answer_bytes(splits: int, rows: int) -> int:
    """Return the most bytes of a question, or an answer, about so many rows at so many splits."""
    return splits * (rows // 8 + _DESCRIBED) + HEAD


def largest_question(share: ModelShare, rows: int) -> int:
    """Return the most bytes of a message that asks a party about some of so many rows at its splits."""
    splits = len(share.own.columns)
    return answer_bytes(splits, min(rows, _batch(splits)))


def end_requests(ctx: Context, share: ModelShare, rows: int, numbers: Mapping[str, int]) -> None:
    """Send each peer the request that ends the conversation; ``numbers``: how many requests it has had."""
    for peer in ctx.peers:
        ctx.send(peer, PredictRequest(share.model, rows, rows), (numbers[peer],))


def _routes(ctx: Context, share: ModelShare, own: Own, rows: int, mode: Mode) -> Iterator[tuple[int, int, Leaves]]:
    """Yield start, stop and the leaves that the rows reach, int32 [trees, rows], batch by batch."""
    if mode not in get_args(Mode):
        raise InputError(unknown_name("mode of prediction", mode, get_args(Mode)), code="choice", value=mode)
    if mode == "levels" and share.records:
        reason = (
            "a repaired model predicts in one round only: level by level its passive parties would learn which of "
            "their splits are still in use, and that depends on true labels"
        )
        raise PolicyError(reason, code="inapplicable", value=mode)
    numbers = dict.fromkeys(ctx.peers, 0)
    for number, (start, stop) in enumerate(row_batches(share, 0, rows)):
        if mode == "one-round":
            answers = ask_answers(ctx, share, own, (start, stop), number)
            numbers = dict.fromkeys(ctx.peers, number + 1)
            yield start, stop, leaves_of(share, answers, stop - start)
        else:
            yield start, stop, _Descent(ctx, share, own, (start, stop), numbers).leaves()
    end_requests(ctx, share, rows, numbers)


class _Descent:
    """A batch of rows that descends all trees at once, level by level."""

    def __init__(
        self, ctx: Context, share: ModelShare, own: Own, span: tuple[int, int], numbers: dict[str, int]
    ) -> None:
        self.ctx, self.share, self.span, self.numbers = ctx, share, span, numbers
        self.own = {name: _all_sides(records, x[span[0] : span[1]]) for name, (records, x) in own.items()}
        self.branches = [tree.branches() for tree in share.trees]
        self.reached = np.zeros((len(share.trees), span[1] - span[0]), dtype=np.int32)
        everyone = np.arange(span[1] - span[0], dtype=np.int32)
        self.rows = [{0: everyone} for _ in share.trees]  # that have reached a split and not passed it

    def leaves(self) -> Leaves:
        """Return int32 [trees, rows]: the leaves reached."""
        deepest = max((depth_of(node) for tree in self.share.trees for node in tree.nodes), default=-1)
        for level in range(deepest + 1):
            self._descend(level)
        return self.reached

    def _descend(self, level: int) -> None:
        """Move the rows over the splits of one level; each owner is asked at most once."""
        asked: dict[str, dict[int, tuple[int, int]]] = {peer: {} for peer in self.ctx.peers}
        for number, tree in enumerate(self.share.trees):
            for split, (node, owner, record) in enumerate(zip(tree.nodes, tree.owners, tree.records, strict=True)):
                if depth_of(node) != level or not len(self.rows[number].get(split, ())):
                    continue
                name = self.share.parties[owner]
                if name in self.own:
                    self._move(number, split, self.own[name][record][self.rows[number][split]])
                else:
                    asked[name][record] = (number, split)
        wanted = {peer: dict(sorted(splits.items())) for peer, splits in asked.items() if splits}
        for peer, splits in wanted.items():
            self.ctx.expect(peer, answer_bytes(len(splits), self.span[1] - self.span[0]))
            masks = tuple(self._mask(number, split) for number, split in splits.values())
            self.ctx.send(
                peer,
                PathRequest(self.share.model, *self.span, tuple(splits), release_paths(self.ctx, masks)),
                (self.numbers[peer],),
            )
        for peer, splits in wanted.items():
            self._receive(peer, [*splits.values()])

    def _mask(self, number: int, split: int) -> RowMask:
        mask = np.zeros(self.reached.shape[1], dtype=np.bool_)
        mask[self.rows[number][split]] = True
        return RowMask.pack(mask)

    def _receive(self, peer: str, splits: Sequence[tuple[int, int]]) -> None:
        """Receive a peer's answers for these splits and move the rows on."""
        step = (self.numbers[peer],)
        answers = self.ctx.recv(peer, PathAnswers, step)
        self.numbers[peer] += 1
        counts = [len(self.rows[number][split]) for number, split in splits]
        total = sum(counts)
        if answers.count != total or len(answers.bits) != (total + 7) // 8:
            reason = f"answered for {answers.count} rows at its splits where {total} were asked"
            raise wrong_message(peer, "PathAnswers", reason, step, answers.count)
        bits = np.unpackbits(np.frombuffer(answers.bits, np.uint8), count=total, bitorder="little").view(np.bool_)
        for (number, split), sides in zip(splits, np.split(bits, np.cumsum(counts)[:-1]), strict=True):
            self._move(number, split, sides)

    def _move(self, number: int, split: int, goes_left: Bits) -> None:
        """Move a split's rows on to its successors: further splits, or leaves, where their path ends."""
        here = self.rows[number].pop(split)
        for links, side in zip(self.branches[number], (goes_left, ~goes_left), strict=True):
            target, rows = int(links[split]), here[side]
            if target < 0:
                self.reached[number, rows] = -1 - target
            else:
                self.rows[number][target] = rows


def _all_sides(records: Records, x: Floats) -> Bits:
    """Return bool [records, rows]; columns are made contiguous first, since each is read many times."""
    return records.answers(np.asfortranarray(x))


def _path_sides(
    ctx: Context, own: Records, missing_left: frozenset[int], request: PathRequest, x: Floats, number: int
) -> Bits:
    """Return for each record of the request and each of its rows whether the row goes left, one after the other."""
    name, step, asked = "PathRequest", (number,), request.records
    if list(asked) != sorted(set(asked)):
        raise wrong_message(ctx.active, name, "asks for splits out of order", step, asked)
    if len(request.rows.value) != len(asked):
        reason = f"asks for {len(asked)} splits and the rows of {len(request.rows.value)}"
        raise wrong_message(ctx.active, name, reason, step, len(asked))
    sides = [np.zeros(0, np.bool_)]
    for record, rows in zip(asked, request.rows.value, strict=True):
        if not 0 <= record < len(own.columns):
            raise wrong_message(ctx.active, name, f"asks for split {record} of {len(own.columns)}", step, record)
        with ctx.blaming(ctx.active, name, step):
            mask = rows.unpack(len(x))
        codes = own.categories.get(record)
        one = Records(
            (0,), (own.thresholds[record],), (0,) if record in missing_left else (), {} if codes is None else {0: codes}
        )
        sides.append(one.answers(x[mask, own.columns[record]][:, None])[0])
    return np.concatenate(sides)


def _packed(bits: Bits) -> bytes:
    return np.packbits(bits, bitorder="little").tobytes()
