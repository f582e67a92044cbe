"""Prediction: every party adds its part of the scores, under pairwise masks where several others do.

Setting: as in training. The active party learns the sum of the other parties' parts of the score of each row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.errors import wrong_message
from labelward.messages.base import Array
from labelward.messages.logistic import PredictionScores
from labelward.party.context import HEAD, Context
from labelward.party.roles import ACTIVE, PASSIVE
from labelward.protocols.logistic.fixed_point import fixed_scores, unfixed_scores
from labelward.protocols.logistic.share import LogisticShare
from labelward.protocols.logistic.training import score_masks

Floats = NDArray[np.float64]

_PIECE = 1 << 16


def predict_scores(ctx: Context, share: LogisticShare, x: Floats) -> Floats:
    """Return the scores of rows, float64 [rows, 1], at the active party; at others send their parts.

    Raises:
        DataError: rows of another number of columns.
        PeerError: a peer failed, or holds a share of another model.
    """
    own = fixed_scores(share.scores(x))
    for peer in ctx.peers:
        ctx.expect(peer, 8 * min(len(x), _PIECE) + HEAD)
    pieces = [slice(start, start + _PIECE) for start in range(0, len(x), _PIECE)]
    if ctx.role == PASSIVE:
        masks, passive = score_masks(ctx, (1,)), ctx.topology.parties(PASSIVE)
        for number, piece in enumerate(pieces):
            masked = masks.masked(own[piece], passive, f"prediction {number}")
            scores = ctx.policies.release_unguarded(Array.pack(masked))
            ctx.send(ctx.active, PredictionScores(share.model, scores), (number,))
        return np.empty((0, 0))
    assert ctx.role == ACTIVE
    for number, piece in enumerate(pieces):
        for peer in ctx.peers:
            own[piece] += _received(ctx, peer, share.model, number, len(own[piece]))
    return np.asarray(unfixed_scores(own) + share.intercept)[:, None]


def _received(ctx: Context, peer: str, model: str, number: int, rows: int) -> NDArray[np.int64]:
    message = ctx.recv(peer, PredictionScores, (number,))
    if message.model != model:
        reason = f"predicts with model {message.model!r}; the share here is of {model!r}"
        raise wrong_message(peer, "PredictionScores", reason, (number,))
    with ctx.blaming(peer, "PredictionScores", (number,)):
        return message.scores.value.unpack_as("int64", rows)
