"""Instance threshold: no split leaves a label holder fewer than T of its rows on a side.

The source refuses candidates: it knows who labels which rows and on which side they go, and tells the split client
which candidates are left. What the split client learns by this is a function of the source's columns and of who labels
what, of no label. T stops neither the sums of bins, which the split client opens whatever is refused, nor differences
of two sums that both pass.

Reference: Zhu et al., PIVODL (2023), Algorithm 2, lines 20 to 24: a client with fewer than T rows on the left refuses,
so that an empty set refuses too (``"published"``). ``"both-sides"``: an empty set passes, and both sides are checked.
Categorical columns offer one category against the rest only, since sets depend on sums that the source does not have.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.histogram import level_sums
from labelward.kernels.split_search import CATEGORICAL
from labelward.protocols.common.columns import OwnColumns
from labelward.protocols.pivodl.params import Pivodl

Allowed = NDArray[np.bool_]
Counts = NDArray[np.int64]


def allowed_candidates(
    params: Pivodl, own: OwnColumns, slot: NDArray[np.int32], nodes: int, holders: list[NDArray[np.bool_]]
) -> tuple[Allowed, Allowed]:
    """Return which candidates no holder refuses, and which of all exist.

    Args:
        own: the source's columns.
        slot: int32 [training rows]: the node of each row; -1 for none.
        holders: for each label holder bool [training rows]: its rows.

    Returns:
        Both bool [nodes, columns, 2, bins]: missing values on the right, then on the left.
    """
    least = params.instance_threshold
    left, right = _sides(own, slot, nodes)
    exists = (left > 0) & (right > 0)
    exists[:, :, 1] &= ((left[:, :, 1] - left[:, :, 0]) > 0).any(axis=2, keepdims=True)
    allowed = np.ones(left.shape, dtype=np.bool_)
    for held in holders:
        left, right = _sides(own, np.where(held, slot, np.int32(-1)), nodes)
        if params.threshold == "published":
            allowed &= left >= least
        else:
            allowed &= ((left == 0) | (left >= least)) & ((right == 0) | (right >= least))
    return allowed, exists


def _sides(own: OwnColumns, slot: NDArray[np.int32], nodes: int) -> tuple[Counts, Counts]:
    """Return the rows on each side of every candidate, int64 [nodes, columns, 2, bins]."""
    bins = int(own.sizes.max(initial=1))
    ones = np.ones((len(slot), 1), dtype=np.int64)
    cells = level_sums(own.codes, slot, ones, nodes, bins)[..., 0].transpose(1, 0, 2)
    total = np.bincount(slot[slot >= 0], minlength=nodes)[:, None, None]
    left = np.where((own.kinds == CATEGORICAL)[:, None], cells, cells.cumsum(axis=2))
    missing = total - cells.sum(axis=2, keepdims=True)
    both = np.stack([left, left + missing], axis=2)
    return both, total[..., None] - both
