"""From real columns to small codes: which thresholds a column offers, and on which side each row lies.

Code ``c`` of a value is the number of edges below it, so candidate ``c`` of a column sends the rows with
``x <= edges[c]``, which are those with ``code <= c``, to the left. Edges are values of the column; each
leaves rows on both sides.

One rule picks the edges, for a whole column (``global`` candidates) and within a node (``node``
candidates): with at most ``bins`` distinct values, all of them but the largest; otherwise bins are closed
one after the other at the end of the run of equal values that is nearest to an even share of the rows still
left. Without ties these are the quantiles ``j / bins``; with ties a heavy value takes one bin, and the
others share what remains.

ID2Graph (Section 5) takes 32 in-node percentiles, and all values in a node of 32 rows or fewer; this rule
gives the same without ties, and more candidates where many rows share few values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit
from labelward.kernels.sorting import sort_floats

__all__ = ["Binned", "bin_columns", "code_columns", "node_candidates", "presort"]

Floats = NDArray[np.float64]
Slots = NDArray[np.int32]
Codes = NDArray[np.uint8] | NDArray[np.uint16]

_LEAST_BINS, _MOST_BINS = 2, 1024
_COLUMNS_AT_ONCE = 8  # one cache line of a row, so that a strided column is read once
_ROWS_AT_ONCE = 256  # a block of rows that stays in the first-level caches while its columns are coded


@dataclass(frozen=True, eq=False)
class Binned:
    """Columns as codes.

    Attributes:
        codes: uint8 [n, F] (uint16 above 256 bins): the number of the column's edges below the value.
        edges: for each column its strictly increasing thresholds; at most ``bins - 1``, none for a constant
            column.
    """

    codes: Codes
    edges: tuple[Floats, ...]


def bin_columns(x: Floats, bins: int) -> Binned:
    """Choose each column's candidates from all rows and code the rows.

    Args:
        x: float64 [n, F], finite.
        bins: from 2 to 1024.

    Raises:
        ValueError: ``bins`` is out of range, or ``x`` is not a finite matrix.
    """
    x = _finite_matrix(x)
    _check_bins(bins)
    n, columns = x.shape
    edges: list[Floats] = []
    buffer = np.empty((min(_COLUMNS_AT_ONCE, columns), n))
    spare = np.empty((2, n), dtype=np.uint64)
    for first in range(0, columns, _COLUMNS_AT_ONCE):
        block = buffer[: columns - first]
        _gather_columns(x, first, block)
        for column in block:
            sort_floats(column, spare)
            edges.append(_edges_of_sorted(column, bins))
    del buffer, spare
    return Binned(_code(x, edges, _code_type(bins)), tuple(edges))


def code_columns(x: Floats, edges: tuple[Floats, ...]) -> Codes:
    """Code new rows [n, F] with the edges of :func:`bin_columns`; uint16 where a column has over 255, else uint8.

    Raises:
        ValueError: ``x`` is not a finite matrix, or has not one column for each entry of ``edges``.
    """
    x = _finite_matrix(x)
    if x.shape[1] != len(edges):
        raise ValueError(f"x has {x.shape[1]} columns but there are edges for {len(edges)}")
    return _code(x, list(edges), _code_type(max((len(e) + 1 for e in edges), default=_LEAST_BINS)))


def presort(x: Floats) -> NDArray[np.int32]:
    """Return int32 [F, n]: for each column of ``x`` the row numbers in increasing order of its values."""
    x = _finite_matrix(x)
    order = np.empty(x.shape[::-1], dtype=np.int32)
    for f in range(len(order)):
        order[f] = np.argsort(x[:, f])
    return order


def node_candidates(
    x: Floats, slot: Slots, n_slots: int, bins: int, order: NDArray[np.int32] | None = None
) -> tuple[Codes, Floats]:
    """Choose candidates within each node and code the rows by their own node's candidates.

    Args:
        x: float64 [n, F], finite.
        slot: int32 [n], each row's node in ``range(n_slots)``, or -1 where the row is absent (its codes are
            0).
        n_slots: number of nodes.
        bins: from 2 to 1024.
        order: :func:`presort` of ``x``, to be given when several levels share it; linear in n from there on.

    Returns:
        codes uint8 or uint16 [n, F], and edges float64 [n_slots, F, bins - 1], padded with NaN at the end.

    Raises:
        ValueError: ``bins``, a slot or a shape is out of range, or ``x`` is not a finite matrix.
    """
    x = np.ascontiguousarray(x, dtype=np.float64)
    _check_bins(bins)
    order = presort(x) if order is None else np.ascontiguousarray(order, dtype=np.int32)
    slot = np.ascontiguousarray(slot, dtype=np.int32)
    if order.shape != x.shape[::-1] or slot.shape != x.shape[:1]:
        raise ValueError(f"order {order.shape} and slot {slot.shape} do not fit x of shape {x.shape}")
    if slot.size and not -1 <= slot.min() <= slot.max() < n_slots:
        raise ValueError(f"slots must be from -1 to {n_slots - 1} but one is {slot.min()} or {slot.max()}")
    codes = cast("Codes", np.zeros(x.shape, dtype=_code_type(bins)))
    edges = np.full((n_slots, x.shape[1], bins - 1), np.nan)
    _node_candidates(x, slot, order, codes, edges)
    return codes, edges


def _finite_matrix(x: Floats) -> Floats:
    x = np.ascontiguousarray(x, dtype=np.float64)
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix but has shape {x.shape}")
    bad = _first_not_finite(x.reshape(-1))
    if bad >= 0:
        raise ValueError(f"x is not finite at row {bad // x.shape[1]}, column {bad % x.shape[1]}")
    return x


def _check_bins(bins: int) -> None:
    if not _LEAST_BINS <= bins <= _MOST_BINS:
        raise ValueError(f"bins must be from {_LEAST_BINS} to {_MOST_BINS} but got {bins}")


def _code_type(bins: int) -> type[np.uint8] | type[np.uint16]:
    return np.uint8 if bins <= 256 else np.uint16


def _code(x: Floats, edges: list[Floats], code_type: type[np.uint8] | type[np.uint16]) -> Codes:
    """Code ``x``; edges are padded with +inf to a power of two, so that the search has no branch."""
    width = 1 << max((len(e) for e in edges), default=0).bit_length()
    padded = np.full((len(edges), width), np.inf)
    for f, own in enumerate(edges):
        padded[f, : len(own)] = own
    codes = cast("Codes", np.empty(x.shape, dtype=code_type))
    _search(x, padded, codes)
    return codes


@jit
def _first_not_finite(values: Floats) -> int:
    block = 4096
    for start in range(0, values.size, block):
        part = values[start : start + block]
        bad = 0
        for value in part:
            bad += not abs(value) < np.inf
        if bad:
            for i in range(part.size):
                if not abs(part[i]) < np.inf:
                    return start + i
    return -1


@jit
def _gather_columns(x: Floats, first: int, out: Floats) -> None:
    for i in range(x.shape[0]):
        for f in range(out.shape[0]):
            out[f, i] = x[i, first + f]


@jit
def _edges_of_sorted(values: Floats, bins: int) -> Floats:
    """Return the edges of sorted values; see the module's text for the rule."""
    n = values.size
    edges = np.empty(bins)  # one more than may be returned, to see that there are too many distinct values
    count = 0
    for i in range(1, n):
        if values[i - 1] < values[i]:
            edges[count] = values[i - 1]
            count += 1
            if count == bins:
                break
    if count < bins:
        return edges[:count].copy()
    count, start = 0, 0
    while count < bins - 1:
        share = (n - start) / (bins - count)
        target = start + max(1, int(share + 0.5))
        value = values[min(target, n) - 1]
        end = np.searchsorted(values, value, side="right")
        begin = np.searchsorted(values, value, side="left")
        if begin > start and target - begin < end - target:
            end = begin
        if end >= n:
            break
        edges[count] = values[end - 1]
        count, start = count + 1, end
    return edges[:count].copy()


@jit
def _search(x: Floats, edges: Floats, codes: Codes) -> None:
    """Search all rows of a block together, step by step, so that the steps run as vector instructions."""
    n, columns = x.shape
    values, position = np.empty(_ROWS_AT_ONCE), np.empty(_ROWS_AT_ONCE, dtype=np.int64)
    for top in range(0, n, _ROWS_AT_ONCE):
        rows = min(n - top, _ROWS_AT_ONCE)
        for f in range(columns):
            own = edges[f]
            for i in range(rows):
                values[i], position[i] = x[top + i, f], 0
            step = edges.shape[1] >> 1
            while step > 0:
                for i in range(rows):
                    position[i] += step if own[position[i] + step - 1] < values[i] else 0
                step >>= 1
            for i in range(rows):
                codes[top + i, f] = position[i]


@jit
def _node_candidates(x: Floats, slot: Slots, order: NDArray[np.int32], codes: Codes, edges: Floats) -> None:
    """Distribute each column's sorted rows to their nodes, then choose and code within each node."""
    n, columns = x.shape
    n_slots, bins = edges.shape[0], edges.shape[2] + 1
    starts = np.zeros(n_slots + 1, dtype=np.int64)
    for i in range(n):
        if slot[i] >= 0:
            starts[slot[i] + 1] += 1
    starts = np.cumsum(starts)
    rows, values = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1])
    for f in range(columns):
        free = starts[:-1].copy()
        for row in order[f]:
            s = slot[row]
            if s >= 0:
                rows[free[s]], values[free[s]] = row, x[row, f]
                free[s] += 1
        for s in range(n_slots):
            own = _edges_of_sorted(values[starts[s] : starts[s + 1]], bins)
            edges[s, f, : own.size] = own
            code = 0
            for j in range(starts[s], starts[s + 1]):
                while code < own.size and values[j] > own[code]:
                    code += 1
                codes[rows[j], f] = code
