"""Prediction with shares: one round per batch of rows.

Setting: each passive party answers, for all of its splits and each row, whether the row goes left; the active party
walks. A passive party learns which rows are predicted, and nothing of their way; the active party learns on which
side of each split every row lies, also for splits that the row never meets.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PeerError
from labelward.messages.tree import PredictAnswers, PredictRequest
from labelward.party.context import Context
from labelward.protocols.tree.partition import children
from labelward.protocols.tree.share import ModelShare, Records, TreeShape

__all__ = ["predict_active", "predict_passive", "unpack_answers", "walk"]

BATCH = 1 << 16
Bits = NDArray[np.bool_]


def predict_active(
    ctx: Context, share: ModelShare, own: Mapping[str, tuple[Records, NDArray[np.float64]]], rows: int
) -> NDArray[np.float64]:
    """Return the margin of each row.

    Args:
        share: the active party's share.
        own: for each party whose columns are at hand its records, and its columns of the rows: float64 [rows, columns].
        rows: how many rows the parties agreed on.

    Raises:
        PeerError: a peer failed, or its answers do not fit.
    """
    margins = np.zeros(rows, dtype=np.float64)
    owned = {peer: share.records_of(peer) for peer in ctx.peers}
    for batch, start in enumerate(range(0, rows, BATCH)):
        stop = min(start + BATCH, rows)
        for peer in ctx.peers:
            ctx.send(peer, PredictRequest(share.model, start, stop), (batch,))
        answers = {name: records.answers(x[start:stop]) for name, (records, x) in own.items()}
        for peer in ctx.peers:
            answers[peer] = unpack_answers(peer, ctx.recv(peer, PredictAnswers, (batch,)), owned[peer], stop - start)
        for tree in share.trees:
            margins[start:stop] += walk(tree, share.parties, answers, stop - start)
    for peer in ctx.peers:
        ctx.send(peer, PredictRequest(share.model, rows, rows), (-(-rows // BATCH),))
    return margins


def predict_passive(ctx: Context, share: ModelShare, x: NDArray[np.float64]) -> None:
    """Answer until the active party asks for no more rows.

    Args:
        share: this party's share.
        x: its columns of the agreed rows: float64 [rows, columns].

    Raises:
        PeerError: the active party failed, holds a share of another model, or asks for rows that are not there.
    """
    batch = 0
    while True:
        request = ctx.recv(ctx.active, PredictRequest, (batch,))
        if request.model != share.model:
            reason = f"predicts with model {request.model!r}; the share here is of {share.model!r}"
            raise PeerError(ctx.active, reason, message="PredictRequest", step=(batch,))
        if request.start == request.stop:
            return
        if not 0 <= request.start < request.stop <= len(x):
            raise PeerError(ctx.active, f"asks for rows {request.start} to {request.stop} of {len(x)}")
        answers = share.own.answers(x[request.start : request.stop])
        bits = np.packbits(answers, bitorder="little").tobytes()
        ctx.send(ctx.active, PredictAnswers(len(answers), request.stop - request.start, bits), (batch,))
        batch += 1


def unpack_answers(peer: str, answers: PredictAnswers, records: int, rows: int) -> Bits:
    """Return bool [records, rows]; :class:`PeerError` where the answer is for other splits or rows."""
    size = records * rows
    if (answers.records, answers.rows) != (records, rows) or len(answers.bits) != (size + 7) // 8:
        reason = f"answered for {answers.records} splits and {answers.rows} rows where it has {records} and {rows}"
        raise PeerError(peer, reason, message="PredictAnswers")
    bits = np.unpackbits(np.frombuffer(answers.bits, np.uint8), bitorder="little")[:size]
    return bits.astype(np.bool_).reshape(answers.records, rows)


def walk(tree: TreeShape, parties: tuple[str, ...], answers: Mapping[str, Bits], rows: int) -> NDArray[np.float64]:
    """Return the weight of the leaf that each row reaches."""
    rows_of = {0: np.arange(rows)}
    for node, owner, record in zip(tree.nodes, tree.owners, tree.records, strict=True):
        bits = answers[parties[owner]]
        here = rows_of.pop(node)
        left = bits[record, here]
        for child, mask in zip(children(node), (left, ~left), strict=True):
            rows_of[child] = here[mask]
    margins = np.zeros(rows, dtype=np.float64)
    for leaf, weight in zip(tree.leaves, tree.weights, strict=True):
        margins[rows_of[leaf]] = weight
    return margins
