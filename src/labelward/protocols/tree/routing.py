"""Where all rows of a run end in a tree that has just grown, those that it did not grow on included."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from labelward.messages.tree import PredictAnswers
from labelward.protocols.tree.columns import Columns
from labelward.protocols.tree.growth import Growth
from labelward.protocols.tree.predict import leaves_reached, unpack_answers
from labelward.protocols.tree.share import TreeShape

__all__ = ["reached_leaves"]


def reached_leaves(
    growth: Growth, shape: TreeShape, before: Mapping[str, int], blocks: Mapping[str, Columns]
) -> NDArray[np.int32]:
    """Return int32 [rows]: the position of each row's leaf, validation rows last.

    The rows that the tree did not grow on are routed by every owner at its own new splits.

    Args:
        before: how many splits each owner had before the tree.
        blocks: own columns of all rows.

    Raises:
        PeerError: a peer failed, or answered for other splits or rows.
    """
    ensemble, ctx = growth.ensemble, growth.ctx
    reached = np.zeros(len(next(iter(blocks.values())).x), dtype=np.int32)
    for position, leaf in enumerate(shape.leaves):
        reached[growth.partition.rows(leaf)] = position
    others = np.ones(len(reached), dtype=np.bool_)
    others[: len(growth.plan.counts)] = growth.plan.counts == 0
    rows = int(others.sum())
    if not rows:
        return reached
    answers = {}
    for name, columns in blocks.items():
        bits = ensemble.own[name].records().answers(columns.x[others], before[name])
        answers[name] = _behind(before[name], bits)
    for peer, number in growth.plan.seen_as.items():
        new = ensemble.records[peer] - before[peer]
        bits = unpack_answers(peer, ctx.recv(peer, PredictAnswers, (number,)), new, rows)
        answers[peer] = _behind(before[peer], bits)
    reached[others] = leaves_reached(shape, ensemble.owners, answers, rows)
    return reached


def _behind(before: int, bits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the answers for new records at their record numbers."""
    return np.concatenate([np.zeros((before, bits.shape[1]), dtype=np.bool_), bits])
