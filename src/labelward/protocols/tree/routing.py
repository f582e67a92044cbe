"""Where all rows of a run end in a tree that has just grown, those that it did not grow on included."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
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
        answers[name] = ensemble.own[name].records().answers(columns.x[others], before[name])
    for peer, number in growth.plan.seen_as.items():
        new = ensemble.records[peer] - before[peer]
        answers[peer] = unpack_answers(peer, ctx.recv(peer, PredictAnswers, (number,)), new, rows)
    reached[others] = leaves_reached(_from_zero(shape, ensemble.owners, before), ensemble.owners, answers, rows)
    return reached


def _from_zero(shape: TreeShape, owners: tuple[str, ...], before: Mapping[str, int]) -> TreeShape:
    """Return the tree with each owner's records counted from its first new one."""
    own = zip(shape.owners, shape.records, strict=True)
    return msgspec.structs.replace(shape, records=tuple(record - before[owners[owner]] for owner, record in own))
