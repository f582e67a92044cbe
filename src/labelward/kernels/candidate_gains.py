"""Gains of candidate splits under soft labels, and their derivatives by these, in one pass over sorted rows.

A candidate sends the first rows of a block to the left. With G the sums of p - q over rows and H those of h, it gains
Σ_classes G_L² / (H_L + λ) + G_R² / (H_R + λ) - G² / (H + λ). That is the gain of boosted trees with predictions p and
hessians h, held constant; and with p = 0 and h = 1 the decrease of the Gini impurity, times the rows of the node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Blocks(NamedTuple):
    """Rows of nodes, each block in the order of one column.

    Attributes:
        rows: int32 [cells], block after block.
        start: int64 [B + 1]: where each block begins among the cells.
        plane: int64 [B]: the p and h of the block's tree.
        cut: bool [cells]: whether a candidate sends the block's rows up to this one to the left; never its last.
        node: int64 [candidates], in the order of the cuts.
    """

    rows: NDArray[np.int32]
    start: Integers
    plane: Integers
    cut: NDArray[np.bool_]
    node: Integers


@jit
def candidate_gains(blocks: Blocks, q: Floats, p: Floats, h: Floats, reg_lambda: float) -> Floats:
    """Return float64 [candidates].

    Args:
        q: float64 [n, classes].
        p: float64 [planes, n, classes].
        h: of the same shape; the sum over each side of a candidate plus ``reg_lambda`` is above 0.
        reg_lambda: λ.
    """
    classes, at = q.shape[1], 0
    gains = np.zeros(len(blocks.node))
    for block in range(len(blocks.plane)):
        plane, begin, end = blocks.plane[block], blocks.start[block], blocks.start[block + 1]
        g, size = _sums(blocks.rows[begin:end], q, p[plane], h[plane])
        g_left, size_left = np.zeros(classes), np.zeros(classes)
        for cell in range(begin, end):
            row = blocks.rows[cell]
            for c in range(classes):
                g_left[c] += p[plane, row, c] - q[row, c]
                size_left[c] += h[plane, row, c]
            if not blocks.cut[cell]:
                continue
            for c in range(classes):
                g_right, size_right = g[c] - g_left[c], size[c] - size_left[c]
                gains[at] += g_left[c] ** 2 / (size_left[c] + reg_lambda)
                gains[at] += g_right**2 / (size_right + reg_lambda) - g[c] ** 2 / (size[c] + reg_lambda)
            at += 1
    return gains


@jit
def add_gradients(
    blocks: Blocks, factors: Floats, q: Floats, p: Floats, h: Floats, reg_lambda: float, out: Floats
) -> None:
    """Add to ``out``, float64 [n, classes], the derivatives of the sum of factors × gains by ``q``; see above."""
    classes, at = q.shape[1], len(blocks.node)
    for block in range(len(blocks.plane) - 1, -1, -1):
        plane, begin, end = blocks.plane[block], blocks.start[block], blocks.start[block + 1]
        g, size = _sums(blocks.rows[begin:end], q, p[plane], h[plane])
        g_left, size_left = g.copy(), size.copy()
        by_left, by_all = np.zeros(classes), np.zeros(classes)
        for cell in range(end - 1, begin - 1, -1):
            row = blocks.rows[cell]
            if blocks.cut[cell]:
                at -= 1
                for c in range(classes):
                    right = (g[c] - g_left[c]) / (size[c] - size_left[c] + reg_lambda)
                    by_left[c] += 2 * factors[at] * (g_left[c] / (size_left[c] + reg_lambda) - right)
                    by_all[c] += 2 * factors[at] * (right - g[c] / (size[c] + reg_lambda))
            for c in range(classes):
                out[row, c] -= by_left[c]
                g_left[c] -= p[plane, row, c] - q[row, c]
                size_left[c] -= h[plane, row, c]
        for cell in range(begin, end):
            for c in range(classes):
                out[blocks.rows[cell], c] -= by_all[c]


@jit
def _sums(rows: NDArray[np.int32], q: Floats, p: Floats, h: Floats) -> tuple[Floats, Floats]:
    """Return float64 [classes]: the sums of p - q, and of h, over rows."""
    classes = q.shape[1]
    g, size = np.zeros(classes), np.zeros(classes)
    for row in rows:
        for c in range(classes):
            g[c] += p[row, c] - q[row, c]
            size[c] += h[row, c]
    return g, size
