"""From real columns to small codes: which thresholds a column offers, and on which side each row lies.

Code ``c`` of a value is the number of edges below it, so candidate ``c`` of a column sends the rows with
``x <= edges[c]``, which are those with ``code <= c``, to the left. Edges are values of the column; each
leaves rows on both sides. A missing value (NaN) has the largest code of its type, which is no bin. The codes of a
categorical column are its categories, and it has no edges.

One rule picks the edges, for a whole column (``global`` candidates) and within a node (``node``
candidates): with at most ``bins`` distinct values, all of them but the largest; otherwise bins are closed
one after the other at the end of the run of equal values that is nearest to an even share of the rows still
left. Without ties these are the quantiles ``j / bins``; with ties a heavy value takes one bin, and the
others share what remains. Missing values have no part in it.

ID2Graph (Section 5) takes 32 in-node percentiles, and all values in a node of 32 rows or fewer; this rule
gives the same without ties, and more candidates where many rows share few values.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import cast

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

Floats = NDArray[np.float64]
Slots = NDArray[np.int32]
Codes = NDArray[np.uint8] | NDArray[np.uint16]

EVERYTHING = sys.float_info.max
"""Threshold of a split that sends every known value left; JSON, in which models are stored, has no infinite numbers."""

_LEAST_BINS, _MOST_BINS = 2, 1024
_MOST_SIZE = 65_535  # one code of uint16 is that of missing values
_COLUMNS_AT_ONCE = 8  # one cache line of a row, so that a strided column is read once
_ROWS_AT_ONCE = 256  # a block of rows that stays in the first-level caches while its columns are coded
_COMPARED = 64  # edges that are compared one after the other, in a fourth of the time of a search among 32
_NONE: Mapping[int, int] = MappingProxyType({})
_NO_EDGES: Mapping[int, Sequence[float]] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Binned:
    """Columns as codes.

    Attributes:
        codes: uint8 [n, F] (uint16 where a column has more than 255 bins): the number of the column's edges below
            the value, or its category; :func:`missing_code` where it is missing.
        edges: for each column its strictly increasing thresholds; at most ``bins - 1``, none for a constant
            column and for a categorical one; or those that were stated.
        sizes: int32 [F]: bins of each column, at least 1; codes are below it.
    """

    codes: Codes
    edges: tuple[Floats, ...]
    sizes: NDArray[np.int32]

    def wide_codes(self) -> NDArray[np.uint16]:
        """Return the codes as uint16, with the largest one where a value is missing, whatever their type is."""
        wide = self.codes.astype(np.uint16)
        wide[self.codes == missing_code(self.codes.dtype)] = missing_code(wide.dtype)
        return wide


def threshold_of(edges: Floats, code: int) -> float:
    """Return the value up to which rows of a column's codes until ``code`` go left; :data:`EVERYTHING` where all do."""
    return float(edges[code]) if code < len(edges) else EVERYTHING


@cache
def missing_code(dtype: np.dtype[np.uint8] | np.dtype[np.uint16]) -> int:
    """Return the code of missing values: the largest of the type."""
    return int(np.iinfo(dtype).max)


def bin_columns(
    x: Floats,
    bins: int | None,
    categories: Mapping[int, int] = _NONE,
    stated: Mapping[int, Sequence[float]] = _NO_EDGES,
) -> Binned:
    """Choose each column's candidates from all rows and code the rows.

    Args:
        x: float64 [n, F]; NaN is a missing value, infinite values are refused. A categorical column holds the
            numbers of categories; -1 is one that is not known, which counts as missing.
        bins: from 2 to 1024; None for every distinct value.
        categories: for each categorical column (by position) how many categories it has.
        stated: edges of some other columns, in place of those that follow from the rows: any number, increasing.

    Raises:
        ValueError: ``bins`` is out of range, ``x`` is not a matrix or infinite somewhere, a categorical column holds
            something else, or a column has more than 65,535 distinct values where all are asked for.
    """
    x = _matrix(x)
    if bins is not None:
        _check_bins(bins)
    _check_categories(x, categories)
    n, columns = x.shape
    edges: list[Floats] = []
    buffer = np.empty((min(_COLUMNS_AT_ONCE, columns), n))
    for first in range(0, columns, _COLUMNS_AT_ONCE):
        block = buffer[: columns - first]
        known = _gather_columns(x, first, block)
        for f, column in enumerate(block):
            if first + f in categories:
                edges.append(np.empty(0))
                continue
            if first + f in stated:
                edges.append(np.array(stated[first + f], dtype=np.float64))
                continue
            values = column[: known[f]]
            values.sort()
            if bins is None and _distinct(values) > _MOST_SIZE:
                raise ValueError(f"column {first + f} has more than {_MOST_SIZE:,} distinct values")
            edges.append(_edges_of_sorted(values, _MOST_SIZE if bins is None else bins))
    del buffer
    return Binned(_code(x, edges, categories), tuple(edges), _sizes(edges, categories))


def bin_codes(x: Floats, edges: tuple[Floats, ...], categories: Mapping[int, int] = _NONE) -> Codes:
    """Code new rows [n, F] with the edges of :func:`bin_columns`, and with its categories.

    Raises:
        ValueError: ``x`` is not a matrix or infinite somewhere, has not one column for each entry of ``edges``, or
            a categorical column holds something else than its categories.
    """
    x = _matrix(x)
    if x.shape[1] != len(edges):
        raise ValueError(f"x has {x.shape[1]} columns but there are edges for {len(edges)}")
    _check_categories(x, categories)
    return _code(x, list(edges), categories)


def presort(x: Floats) -> NDArray[np.int32]:
    """Return int32 [F, n]: for each column of ``x`` the row numbers in increasing order of its values, NaN last."""
    x = _matrix(x)
    order = np.empty(x.shape[::-1], dtype=np.int32)
    for f in range(len(order)):
        order[f] = np.argsort(x[:, f])
    return order


def node_candidates(
    x: Floats,
    slot: Slots,
    n_slots: int,
    bins: int,
    order: NDArray[np.int32] | None = None,
    categories: Mapping[int, int] = _NONE,
) -> tuple[Codes, Floats]:
    """Choose candidates within each node and code the rows by their own node's candidates.

    Args:
        x: float64 [n, F], as for :func:`bin_columns`.
        slot: int32 [n], each row's node in ``range(n_slots)``, or -1 where the row is absent (its codes are
            0).
        bins: from 2 to 1024.
        order: :func:`presort` of ``x``, to be given when several levels share it; linear in n from there on.
        categories: for each categorical column how many categories it has; its codes are the same in all nodes.

    Returns:
        codes uint8 or uint16 [n, F], and edges float64 [n_slots, F, bins - 1], padded with NaN at the end.

    Raises:
        ValueError: ``bins``, a slot or a shape is out of range, or ``x`` is not a matrix of finite and missing values.
    """
    x = np.ascontiguousarray(x, dtype=np.float64)
    _check_bins(bins)
    order = presort(x) if order is None else np.ascontiguousarray(order, dtype=np.int32)
    slot = np.ascontiguousarray(slot, dtype=np.int32)
    if order.shape != x.shape[::-1] or slot.shape != x.shape[:1]:
        raise ValueError(f"order {order.shape} and slot {slot.shape} do not fit x of shape {x.shape}")
    if slot.size and not -1 <= slot.min() <= slot.max() < n_slots:
        raise ValueError(f"slots must be from -1 to {n_slots - 1} but one is {slot.min()} or {slot.max()}")
    _check_categories(x, categories)
    codes = cast("Codes", np.zeros(x.shape, dtype=_code_type(max((bins, *categories.values())))))
    edges = np.full((n_slots, x.shape[1], bins - 1), np.nan)
    missing = missing_code(codes.dtype)
    ordered = np.array([f for f in range(x.shape[1]) if f not in categories], dtype=np.int64)
    _node_candidates(x, slot, order, ordered, missing, codes, edges)
    for f in categories:
        _code_category(x, f, missing, codes)
        codes[slot < 0, f] = 0
    return codes, edges


def _matrix(x: Floats) -> Floats:
    x = np.ascontiguousarray(x, dtype=np.float64)
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix but has shape {x.shape}")
    bad = _first_infinite(x.reshape(-1))
    if bad >= 0:
        raise ValueError(f"x is infinite at row {bad // x.shape[1]}, column {bad % x.shape[1]}")
    return x


def _check_bins(bins: int) -> None:
    if not _LEAST_BINS <= bins <= _MOST_BINS:
        raise ValueError(f"bins must be from {_LEAST_BINS} to {_MOST_BINS} but got {bins}")


def _check_categories(x: Floats, categories: Mapping[int, int]) -> None:
    for column, size in categories.items():
        if not 0 <= column < x.shape[1]:
            raise ValueError(f"categorical column {column} is not one of {x.shape[1]}")
        if not 0 <= size <= _MOST_SIZE:
            raise ValueError(f"column {column} has {size} categories but may have at most {_MOST_SIZE:,}")
        values = x[:, column]
        bad = ~(np.isnan(values) | ((values >= -1) & (values < size) & (values == np.floor(values))))
        if bad.any():
            raise ValueError(f"column {column} must hold categories 0 to {size - 1} or -1 but row {np.argmax(bad)} not")


def _sizes(edges: list[Floats], categories: Mapping[int, int]) -> NDArray[np.int32]:
    return np.array([max(1, categories.get(f, len(own) + 1)) for f, own in enumerate(edges)], dtype=np.int32)


def _code_type(bins: int) -> type[np.uint8] | type[np.uint16]:
    return np.uint8 if bins <= 255 else np.uint16


def _code(x: Floats, edges: list[Floats], categories: Mapping[int, int]) -> Codes:
    """Code ``x``; edges are padded with +inf to a power of two, so that the search has no branch."""
    width = 1 << max((len(e) for e in edges), default=0).bit_length()
    padded = np.full((len(edges), width), np.inf)
    for f, own in enumerate(edges):
        padded[f, : len(own)] = own
    codes = cast("Codes", np.empty(x.shape, dtype=_code_type(int(_sizes(edges, categories).max(initial=1)))))
    missing = missing_code(codes.dtype)
    _search(x, padded, missing, codes)
    for f in categories:
        _code_category(x, f, missing, codes)
    return codes


@jit
def _first_infinite(values: Floats) -> int:
    block = 4096
    for start in range(0, values.size, block):
        part = values[start : start + block]
        bad = 0
        for value in part:
            bad += abs(value) == np.inf
        if bad:
            for i in range(part.size):
                if abs(part[i]) == np.inf:
                    return start + i
    return -1


@jit
def _gather_columns(x: Floats, first: int, out: Floats) -> NDArray[np.int64]:
    """Copy the known values of some columns to the front of the rows of ``out``; return how many each has."""
    known = np.zeros(out.shape[0], dtype=np.int64)
    for i in range(x.shape[0]):
        for f in range(out.shape[0]):
            out[f, known[f]] = x[i, first + f]
            known[f] += x[i, first + f] == x[i, first + f]
    return known


@jit
def _distinct(values: Floats) -> int:
    count = 1
    for i in range(1, values.size):
        count += values[i - 1] < values[i]
    return count


@jit
def _code_category(x: Floats, column: int, missing: int, codes: Codes) -> None:
    for i in range(x.shape[0]):
        codes[i, column] = x[i, column] if x[i, column] >= 0 else missing


@jit
def _edges_of_sorted(values: Floats, bins: int) -> Floats:
    """Return the edges of sorted values; see the module's text for the rule."""
    n = values.size
    edges = np.empty(bins)  # one more than may be returned, to see that there are too many distinct values
    count = 0
    for i in range(1, n):
        if values[i - 1] < values[i]:
            edges[count] = values[i - 1] + 0.0  # never -0.0, which a sort leaves before 0.0 or after it
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
        edges[count] = values[end - 1] + 0.0
        count, start = count + 1, end
    return edges[:count].copy()


@jit
def _search(x: Floats, edges: Floats, missing: int, codes: Codes) -> None:
    """Code a block of rows column by column; all rows take a step together, so that steps are vector instructions."""
    n, columns = x.shape
    values, position = np.empty(_ROWS_AT_ONCE), np.empty(_ROWS_AT_ONCE, dtype=np.uint64)
    for top in range(0, n, _ROWS_AT_ONCE):
        rows = min(n - top, _ROWS_AT_ONCE)
        own, below = values[:rows], position[:rows]
        for f in range(columns):
            for i in range(rows):
                own[i] = x[top + i, f]
            if edges.shape[1] <= _COMPARED:
                _count_below(own, edges[f], below)
            else:
                _search_below(own, edges[f], below)
            for i in range(rows):
                codes[top + i, f] = below[i] if own[i] == own[i] else np.uint64(missing)


@jit
def _count_below(values: Floats, edges: Floats, below: NDArray[np.uint64]) -> None:
    """Write how many edges are below each value, edge by edge."""
    below[:] = 0
    for edge in edges:
        for i in range(values.size):
            below[i] += np.uint64(edge < values[i])


@jit
def _search_below(values: Floats, edges: Floats, below: NDArray[np.uint64]) -> None:
    """Write how many of 2^k sorted edges are below each value, by k halvings."""
    below[:] = 0
    nothing, one, step = np.uint64(0), np.uint64(1), np.uint64(edges.size >> 1)
    while step > nothing:
        last = edges[step - one :]
        for i in range(values.size):
            below[i] += step if last[below[i]] < values[i] else nothing
        step >>= one


@jit
def _node_candidates(
    x: Floats,
    slot: Slots,
    order: NDArray[np.int32],
    columns: NDArray[np.int64],
    missing: int,
    codes: Codes,
    edges: Floats,
) -> None:
    """Distribute each column's sorted rows to their nodes, then choose and code within each node."""
    n_slots, bins = edges.shape[0], edges.shape[2] + 1
    starts = np.zeros(n_slots + 1, dtype=np.int64)
    for s in slot:
        if s >= 0:
            starts[s + 1] += 1
    starts = np.cumsum(starts)
    rows, values = np.empty(starts[-1], dtype=np.int32), np.empty(starts[-1])
    for f in columns:
        free = starts[:-1].copy()
        for row in order[f]:
            s = slot[row]
            if s < 0:
                continue
            if x[row, f] != x[row, f]:
                codes[row, f] = missing
                continue
            rows[free[s]], values[free[s]] = row, x[row, f]
            free[s] += 1
        for s in range(n_slots):
            own = _edges_of_sorted(values[starts[s] : free[s]], bins)
            edges[s, f, : own.size] = own
            code = 0
            for j in range(starts[s], free[s]):
                while code < own.size and values[j] > own[code]:
                    code += 1
                codes[rows[j], f] = code
