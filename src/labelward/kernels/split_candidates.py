"""Sums of the left side of every candidate split, from sums by bin.

There are ``B`` candidates for a column of ``B`` bins, each with missing values on the right, and ``B`` more with
missing values on the left where any row of any node has a missing value.

- An ordered column: candidate ``a`` sends bins 0 to ``a`` to the left.
- A categorical column of few categories: candidate ``a`` sends category ``a`` alone to the left.
- One of more: the node's categories are put in the order of the weights that they would have as leaves, and
  candidate ``a`` sends the first ``a + 1`` of them to the left. With one output and λ = 0 no set of categories gains
  more than the best of these (Fisher 1958; Breiman et al. 1984, Section 4.2.2). With several outputs the weights are
  projected on the direction in which they vary most, as Coppersmith et al. 1999 do for classes; the best set may then
  be missed.

A candidate that does not exist (such as a set of more categories than the node has) has all rows on the left, so that
the rule against empty sides refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit
from labelward.kernels.gain import GainRule
from labelward.kernels.row_layout import FixedPointScales, RowLayout
from labelward.kernels.split_search import CATEGORICAL

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The candidates of S nodes and F columns.

    Attributes:
        left: int64 [S, F, A, k]: sums of the rows that each sends to the left. A is B, or 2 B: candidate ``a`` of
            B or more is ``a - B`` with missing values on the left.
        bins: B.
        one_hot: bool [F]: categorical columns that are split one category against the rest.
        orders: for each column that is split by sets int32 [S, B]: the categories of each node, in the order in which
            they join the left side.
    """

    left: Integers
    bins: int
    one_hot: NDArray[np.bool_]
    orders: dict[int, NDArray[np.int32]]

    def chosen(self, node: int, column: int, candidate: int) -> tuple[int, bool, tuple[int, ...]]:
        """Return a candidate's code, whether missing values go left, and the categories that go left, ascending.

        For an ordered column there are no categories, and codes up to the first entry go left. For a categorical one
        the first entry is 0 and means nothing.
        """
        missing_left, place = divmod(candidate, self.bins)
        if self.one_hot[column]:
            return 0, bool(missing_left), (place,)
        if column in self.orders:
            merged = self.orders[column][node, : place + 1]
            return 0, bool(missing_left), tuple(sorted(merged.tolist()))
        return place, bool(missing_left), ()


def candidates(
    sums: Integers,
    totals: Integers,
    numbers: RowLayout,
    scales: FixedPointScales,
    rule: GainRule,
    *,
    kinds: NDArray[np.int8],
    sizes: NDArray[np.int32] | None = None,
    onehot: int = 4,
    threshold: int = 64,
) -> Candidates:
    """Return all candidates; a pure function of the integers.

    Args:
        sums: int64 [F, S, B, k], by column, node and bin.
        totals: int64 [S, k]: sums of all rows of each node; what they have more than the bins of a column is that of
            the rows whose value is missing there.
        rule: its λ has a part in the order of categories.
        kinds: int8 [F], see :mod:`labelward.kernels.split_search`.
        sizes: int32 [F]: number of bins or categories of each column; None: B for all.
        onehot: columns of fewer categories than this are split one against the rest.
        threshold: of the two sides of a set the smaller has at most so many categories.

    Raises:
        ValueError: shapes do not fit.
    """
    if sums.ndim != 4 or sums.shape[3] != numbers.k or not sums.shape[2]:
        raise ValueError(f"sums must be [F, S, B, {numbers.k}] but have shape {sums.shape}")
    columns, nodes, bins, k = sums.shape
    sizes = np.full(columns, bins, dtype=np.int32) if sizes is None else sizes
    if totals.shape != (nodes, k) or kinds.shape != (columns,) or sizes.shape != (columns,):
        raise ValueError(f"totals {totals.shape}, kinds {kinds.shape}, sizes {sizes.shape} do not fit {sums.shape}")
    sums, totals = np.ascontiguousarray(sums), np.ascontiguousarray(totals)
    categorical = kinds == CATEGORICAL
    ordered = np.flatnonzero(~categorical)
    left = np.empty((nodes, columns, bins, k), dtype=np.int64)
    missing = any(
        bool((sums[f, ..., numbers.count].sum(axis=1) != totals[:, numbers.count]).any())
        for f in np.flatnonzero(categorical)
    )
    if missing or _ordered(sums, totals, ordered, numbers.count, left):
        left = np.empty((nodes, columns, 2 * bins, k), dtype=np.int64)
        _ordered(sums, totals, ordered, numbers.count, left)
    one_hot = categorical & (sizes < onehot)
    for f in np.flatnonzero(one_hot):
        each = np.tile(np.arange(bins, dtype=np.int32), (nodes, 1))
        size = np.full(nodes, min(int(sizes[f]), bins), dtype=np.int64)
        _joining(sums[f], totals, each, size, (1, bins), left, int(f))
    orders = {}
    for f in np.flatnonzero(categorical & ~one_hot):
        order, size = _order(sums[f], numbers, scales, rule.reg_lambda)
        _joining(sums[f], totals, order, size, (0, threshold), left, int(f))
        orders[int(f)] = order
    return Candidates(left, bins, one_hot, orders)


def _order(
    cells: Integers, numbers: RowLayout, scales: FixedPointScales, reg_lambda: float
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return int32 [S, B]: each node's categories by weight, those without rows last; and how many have rows.

    Args:
        cells: int64 [S, B, k].
    """
    g, h = numbers.full(cells)
    gradients, hessians = g / scales.g, h / (scales.h if numbers.hessians else 1.0)
    size = np.broadcast_to(hessians + reg_lambda, gradients.shape)
    weights = -np.divide(gradients, size, out=np.zeros(gradients.shape), where=size > 0)
    present = cells[..., numbers.count] > 0
    key = weights[..., 0] if numbers.outputs == 1 else _project(weights, hessians.mean(axis=-1) * present)
    order = np.argsort(np.where(present, _lowest_first(key, present), np.inf), axis=-1, kind="stable")
    return order.astype(np.int32), np.count_nonzero(present, axis=-1)


def _project(weights: Floats, masses: Floats) -> Floats:
    """Return float64 [S, B]: weights [S, B, K] along the first principal direction of their covariance by mass [S, B].

    The sign means nothing.
    """
    total = masses.sum(axis=1)
    mean = (masses[..., None] * weights).sum(axis=1) / np.where(total > 0, total, 1.0)[:, None]
    centered = weights - mean[:, None]
    covariance = (masses[..., None] * centered).transpose(0, 2, 1) @ centered
    direction = np.linalg.eigh(covariance)[1][..., -1]
    key: Floats = (weights * direction[:, None]).sum(axis=-1)
    return key


def _lowest_first(key: Floats, present: NDArray[np.bool_]) -> Floats:
    """Return keys [S, B] of the sign by which the lowest category precedes the next one with another key."""
    each = np.arange(len(key))
    apart = np.where(present, key - key[each, present.argmax(axis=1)][:, None], 0.0)
    falls = apart[each, (apart != 0).argmax(axis=1)] < 0
    turned: Floats = np.where(falls[:, None], -key, key)
    return turned


@jit
def _ordered(sums: Integers, totals: Integers, columns: NDArray[np.int64], count: int, left: Integers) -> bool:
    """Fill ``left`` of ordered columns; stop where rows are missing that it has no place for, and return True."""
    nodes, bins, k = sums.shape[1:]
    both = left.shape[2] > bins
    for s in range(nodes):
        for f in columns:
            cells, out = sums[f, s], left[s, f]
            if k == 3:
                v0, v1, v2 = np.int64(0), np.int64(0), np.int64(0)
                for c in range(bins):
                    v0, v1, v2 = v0 + cells[c, 0], v1 + cells[c, 1], v2 + cells[c, 2]
                    out[c, 0], out[c, 1], out[c, 2] = v0, v1, v2
            else:
                out[0] = cells[0]
                for c in range(1, bins):
                    for j in range(k):
                        out[c, j] = out[c - 1, j] + cells[c, j]
            if both:
                for c in range(bins):
                    for j in range(k):
                        out[bins + c, j] = out[c, j] + totals[s, j] - out[bins - 1, j]
            elif out[bins - 1, count] != totals[s, count]:
                return True
    return False


@jit
def _joining(
    cells: Integers,
    totals: Integers,
    order: NDArray[np.int32],
    sizes: NDArray[np.int64],
    limits: tuple[int, int],
    left: Integers,
    column: int,
) -> None:
    """Fill ``left`` [S, F, A, k] of a categorical column.

    ``limits``: whether each category is alone on the left (else the earlier ones stay), and the most categories of the
    smaller side.
    """
    alone, threshold = limits
    nodes, bins, k = cells.shape
    both = left.shape[2] > bins
    side, known = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int64)
    for s in range(nodes):
        side[:], known[:] = 0, 0
        for c in range(bins):
            for v in range(k):
                known[v] += cells[s, c, v]
        for a in range(bins):
            found = a < sizes[s]
            if found:
                for v in range(k):
                    side[v] = cells[s, order[s, a], v] + (0 if alone else side[v])
            found = found and (alone or a + 1 <= threshold or sizes[s] - a - 1 <= threshold)
            for v in range(k):
                left[s, column, a, v] = side[v] if found else totals[s, v]
                if both:
                    left[s, column, bins + a, v] = side[v] + totals[s, v] - known[v] if found else totals[s, v]
