"""Sums by group: the histograms from which splits are found; of integers, hence exact in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit
from labelward.kernels.binning import missing_code

Integers = NDArray[np.int64]
Groups = NDArray[np.int32]
Codes = NDArray[np.uint8] | NDArray[np.uint16]


def groups(codes: Codes, slot: Groups, n_bins: int, left_out: Integers | None = None) -> Groups:
    """Return int32 [n, F]: each row's group ``slot * n_bins + code`` in each column; -1 where it has none.

    It has none where the row is absent, where its value is missing, and where its code is left out.

    Args:
        codes: uint8 or uint16 [n, F].
        slot: int32 [n], the row's node, or -1 where the row is absent.
        n_bins: bins of each column; codes are below it, but for that of missing values.
        left_out: int64 [F, nodes]: the code that is left out of each column in each node; -1, or None, for none.

    Raises:
        ValueError: the lengths differ, a code is not below ``n_bins``, or the groups do not fit int32.
    """
    most = int(slot.max(initial=-1))
    if left_out is None:
        left_out = np.full((codes.shape[1], most + 1), -1, dtype=np.int64)
    if left_out.ndim != 2 or left_out.shape[0] != codes.shape[1] or left_out.shape[1] <= most:
        raise ValueError(f"what is left out of {codes.shape[1]} columns and {most + 1} nodes is {left_out.shape}")
    _check_rows(codes, slot, most + 1, n_bins)
    if (most + 1) * n_bins > np.iinfo(np.int32).max:
        raise ValueError(f"{most + 1} nodes of {n_bins} bins do not fit int32")
    missing = np.int32(missing_code(codes.dtype))
    absent = np.ascontiguousarray(np.clip(left_out.T, -1, missing)).astype(np.int32)
    return _groups(_contiguous(codes), np.ascontiguousarray(slot), n_bins, missing, absent)


def level_sums(codes: Codes, slot: Groups, values: Integers | NDArray[np.uint8], n_slots: int, n_bins: int) -> Integers:
    """Sum rows by node and bin: what an engine's grouped sums over :func:`groups` give, unencrypted.

    Rows whose value is missing are in no bin of that column.

    Args:
        codes: uint8 or uint16 [n, F].
        slot: int32 [n], the row's node in ``range(n_slots)``, or -1 where the row is absent.
        values: int64 or uint8 [n, k].
        n_bins: bins of each column; codes are below it, but for that of missing values.

    Returns:
        int64 [F, n_slots, n_bins, k].

    Raises:
        ValueError: the lengths differ, or a slot or a code is out of range.
    """
    _check_rows(codes, slot, n_slots, n_bins)
    if len(values) != len(slot):
        raise ValueError(f"codes of {len(slot)} rows and values of {len(values)} rows")
    shape = (codes.shape[1], n_slots, n_bins, values.shape[1])
    out = np.zeros(shape, dtype=np.int64)
    _level_sums(
        _contiguous(codes),
        np.ascontiguousarray(slot),
        cast("Integers", np.ascontiguousarray(values)),
        out.reshape(-1),
        (n_slots * n_bins, n_bins, missing_code(codes.dtype)),
    )
    return out


@jit
def node_counts(slot: Groups, counts: NDArray[np.uint8], n_slots: int) -> Integers:
    """Return int64 [n_slots]: the rows of each node, each as often as ``counts`` [n] says."""
    found = np.zeros(n_slots, dtype=np.int64)
    for i in range(len(slot)):
        if slot[i] >= 0:
            found[slot[i]] += counts[i]
    return found


@jit
def row_sums(values: Integers, rows: NDArray[np.int32]) -> Integers:
    """Return the sums int64 [k] of some rows of ``values`` [n, k], without a copy of the rows."""
    sums = np.zeros(values.shape[1], dtype=np.int64)
    for row in rows:
        for j in range(len(sums)):
            sums[j] += values[row, j]
    return sums


@jit
def row_range(values: Integers, rows: NDArray[np.int32]) -> tuple[Integers, Integers]:
    """Return the least and the largest of each number, int64 [k], among some rows of ``values`` [n, k]; none is copied.

    Raises:
        ValueError: there are no rows.
    """
    if not len(rows):
        raise ValueError("no rows have no range")
    least, most = values[rows[0]].copy(), values[rows[0]].copy()
    for row in rows:
        for j in range(len(least)):
            least[j], most[j] = min(least[j], values[row, j]), max(most[j], values[row, j])
    return least, most


@jit
def fill_cells(
    cells: NDArray[np.bool_], implied: Integers, values: Integers, totals: Integers, count: int, sums: Integers
) -> tuple[int, int]:
    """Lay out the sums of a level, of which empty cells do not travel, nor implied ones; check their row counts.

    Args:
        cells: bool [F, S, B], by column, node and bin: those that hold rows.
        implied: int64 [F, S]: the bin whose sums are what the others leave of the node's total; -1 for none.
        values: int64 [n, k]: the sums of all other cells that hold rows, in row-major order.
        totals: int64 [S, k] of all rows of each node.
        count: which of the k numbers counts rows.
        sums: int64 [F, S, B, k], zeros; is filled.

    Returns:
        How many values are used, or what is wrong: -1, and the least row count of a cell that holds rows, where it is
        not positive; -2: a column has more rows than its node, or as many without an implied bin, or fewer with one;
        -3: an implied bin is not the fullest, or not the first of these.
    """
    columns, nodes, bins = cells.shape
    k, at, least, uneven, unfilled = values.shape[1], 0, np.int64(1), False, False
    for f in range(columns):
        for s in range(nodes):
            left_out, own = implied[f, s], sums[f, s]
            if left_out >= 0:
                own[left_out] = totals[s]
            for b in range(bins):
                if not cells[f, s, b] or b == left_out:
                    continue
                if at == len(values):
                    return at + 1, 0
                for j in range(k):
                    own[b, j] = values[at, j]
                    if left_out >= 0:
                        own[left_out, j] -= values[at, j]
                at += 1
            rows, fullest = np.int64(0), 0
            for b in range(bins):
                rows += own[b, count]
                if own[b, count] > own[fullest, count]:
                    fullest = b
                if cells[f, s, b]:
                    least = min(least, own[b, count])
            whole = totals[s, count]
            uneven |= (rows == whole and whole > 0) != (left_out >= 0) or rows > whole
            unfilled |= left_out >= 0 and fullest != left_out
    if least < 1:
        return -1, int(least)
    return (-2 if uneven else -3 if unfilled else at), 0


@jit
def impossible_node(sums: Integers, totals: Integers, least: Integers, most: Integers, count: int) -> int:
    """Return the first node with sums that no rows of it have, -1 for none.

    The sums of n rows lie within n of the least and of the largest numbers; what they leave to the others as well.

    Args:
        sums: int64 [F, S, B, k], by column, node and bin.
        totals: int64 [S, k] of all rows of each node.
        least: int64 [S, k]: the least that each number is in a row of the node.
        most: int64 [S, k]: the largest.
        count: which of the k numbers counts rows.
    """
    columns, nodes, bins, k = sums.shape
    first = nodes
    for f in range(columns):
        for s in range(first):
            for b in range(bins):
                rows = sums[f, s, b, count]
                others = totals[s, count] - rows
                for j in range(k):
                    low = max(rows * least[s, j], totals[s, j] - others * most[s, j])
                    high = min(rows * most[s, j], totals[s, j] - others * least[s, j])
                    if not low <= sums[f, s, b, j] <= high:
                        first = min(first, s)
    return first if first < nodes else -1


def goes_left(
    codes: Codes, rows: Groups, column: int, code: int, *, missing_left: bool = False, categories: Sequence[int] = ()
) -> NDArray[np.bool_]:
    """Return bool [m]: whether each of the given rows goes left.

    Args:
        codes: uint8 or uint16 [n, F].
        rows: int32 [m].
        code: left is ``codes[row, column] <= code``; not used where ``categories`` are given.
        missing_left: whether rows go left whose value is missing.
        categories: of a categorical column the codes that go left.

    Raises:
        ValueError: a row or the column is out of range.
    """
    if not 0 <= column < codes.shape[1]:
        raise ValueError(f"column {column} is not one of {codes.shape[1]}")
    sides = np.zeros(missing_code(codes.dtype) + 1, dtype=np.bool_)
    if len(categories):
        sides[[each for each in categories if 0 <= each < len(sides)]] = True
    else:
        sides[: max(0, code + 1)] = True
    sides[-1] = missing_left
    left = np.empty(len(rows), dtype=np.bool_)
    if not _partition(codes, np.ascontiguousarray(rows), column, sides, left):
        raise ValueError(f"rows must be from 0 to {len(codes) - 1} but one is not")
    return left


def _contiguous(codes: Codes) -> Codes:
    return cast("Codes", np.ascontiguousarray(codes))


def _check_rows(codes: Codes, slot: Groups, n_slots: int, n_bins: int) -> None:
    """Refuse what would make a kernel write outside its array."""
    if len(codes) != len(slot):
        raise ValueError(f"codes of {len(codes)} rows and slots of {len(slot)} rows")
    low, high = int(slot.min(initial=0)), int(slot.max(initial=-1))
    if low < -1 or high >= n_slots:
        raise ValueError(f"slots must be from -1 to {n_slots - 1} but one is {low if low < -1 else high}")
    if n_bins < missing_code(codes.dtype):
        most = int((codes + codes.dtype.type(1)).max(initial=0)) - 1  # the missing code wraps around to 0
        if most >= n_bins:
            raise ValueError(f"codes must be below {n_bins} but one is {most}")


@jit
def _groups(codes: Codes, slot: Groups, n_bins: int, missing: np.int32, left_out: Groups) -> Groups:
    n, columns = codes.shape
    out = np.empty((n, columns), dtype=np.int32)
    for i in range(n):
        if slot[i] < 0:
            out[i] = -1
            continue
        base, absent = np.int32(slot[i] * n_bins), left_out[slot[i]]
        for f in range(columns):
            code = np.int32(codes[i, f])
            out[i, f] = -1 if (code == missing) | (code == absent[f]) else base + code
    return out


# A cell's index is unsigned, which spares the test for indexes from the end, and three numbers a row (g, h, count: the
# usual case) or a single one (to count rows) stay in registers, which takes half the time of the loop.


@jit
def _level_sums(
    codes: Codes, slot: Groups, values: Integers | NDArray[np.uint8], out: Integers, sizes: tuple[int, int, int]
) -> None:
    """Add into flat ``out`` [F * n_slots * n_bins * k]; ``sizes``: n_slots * n_bins, n_bins, the missing code."""
    n, columns = codes.shape
    stride, n_bins, missing = sizes
    k = values.shape[1]
    for i in range(n):
        if slot[i] < 0:
            continue
        v0, v1, v2 = (values[i, 0], values[i, k // 2], values[i, k - 1]) if k else (0, 0, 0)
        base = slot[i] * n_bins
        for f in range(columns):
            if codes[i, f] == missing:
                continue
            cell = np.uint64((base + f * stride + codes[i, f]) * k)
            if k == 3:
                out[cell] += v0
                out[cell + np.uint64(1)] += v1
                out[cell + np.uint64(2)] += v2
            elif k == 1:
                out[cell] += v0
            else:
                for j in range(k):
                    out[cell + np.uint64(j)] += values[i, j]


@jit
def _partition(codes: Codes, rows: Groups, column: int, sides: NDArray[np.bool_], left: NDArray[np.bool_]) -> bool:
    for i in range(rows.size):
        if rows[i] < 0 or rows[i] >= codes.shape[0]:
            return False
        left[i] = sides[codes[rows[i], column]]
    return True
