"""Bins of a node merged into cells of enough rows, in the node and in its sibling.

Bins are merged with the next ones; rows without a value come before bin 0. A cell is named by its lowest bin. The cells
of a node are unions of its parent's, and siblings have the same, so that sums of one follow from the other's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit
from labelward.kernels.binning import missing_code

Codes = NDArray[np.uint8] | NDArray[np.uint16]
Cells = NDArray[np.int32]
Integers = NDArray[np.int64]


def count_bins(codes: Codes, slot: NDArray[np.int32], slots: int, bins: int) -> Integers:
    """Return int64 [slots, columns, bins + 1]: rows of each bin; those without a value last.

    Args:
        codes: uint8 or uint16 [rows, columns].
        slot: int32 [rows]: each row's node; -1: in none.
        slots: number of nodes.
        bins: of the widest column.
    """
    counts = np.zeros((slots, codes.shape[1], bins + 1), dtype=np.int64)
    _count(codes, slot, missing_code(codes.dtype), counts)
    return counts


def merge_bins(rows: Integers, sibling: Integers, cells: Cells, least: int, bins: int = 1) -> Cells:
    """Return int32 [nodes, columns, bins + 1]: the cell of each bin, with so many rows in the node and its sibling.

    A node without so many rows, or a column with fewer than twice as many bins, has one cell.

    Args:
        rows: int64 [nodes, columns, bins + 1], of the node.
        sibling: the same of its sibling; of the root, ``rows``.
        cells: int32 [nodes, columns, bins + 1]: the parent's. The last entry, of rows without a value, is ``bins``
            where these are a cell of their own.
        least: number of rows.
        bins: number of bins that have rows in the tree, those without a value counted as one.
    """
    merged = np.empty_like(cells)
    _merge(rows, sibling, cells, least, bins, merged)
    return merged


def merged_codes(codes: Codes, slot: NDArray[np.int32], cells: Cells) -> Codes:
    """Return the codes with each bin replaced by its cell, in the row's node; rows in no node keep theirs."""
    found = codes.copy()
    _replace(codes, slot, cells, missing_code(codes.dtype), found)
    return found


@jit
def _count(codes: Codes, slot: NDArray[np.int32], missing: int, counts: Integers) -> None:
    last = counts.shape[2] - 1
    for row in range(len(slot)):
        if slot[row] >= 0:
            for column in range(codes.shape[1]):
                code = codes[row, column]
                counts[slot[row], column, last if code == missing else code] += 1


@jit
def _replace(codes: Codes, slot: NDArray[np.int32], cells: Cells, missing: int, found: Codes) -> None:
    last = cells.shape[2] - 1
    for row in range(len(slot)):
        if slot[row] >= 0:
            for column in range(codes.shape[1]):
                code = codes[row, column]
                cell = cells[slot[row], column, last if code == missing else code]
                found[row, column] = missing if cell == last else cell


@jit
def _merge(rows: Integers, sibling: Integers, cells: Cells, least: int, bins: int, merged: Cells) -> None:
    nodes, columns, width = cells.shape
    last = width - 1
    for node in range(nodes):
        for column in range(columns):
            above, mine = cells[node, column], merged[node, column]
            inside, beside = np.zeros(width, np.int64), np.zeros(width, np.int64)
            members = np.zeros(width, np.int64)
            for bin_ in range(width):
                inside[above[bin_]] += rows[node, column, bin_]
                beside[above[bin_]] += sibling[node, column, bin_]
                members[above[bin_]] += 1
            begin, before = -1, -1  # of the cell that is open, and of the one that was closed last
            a, b, held = np.int64(0), np.int64(0), np.int64(0)
            name = np.full(width, -1, np.int32)  # of each cell of the parent
            for position in range(width):
                cell = last if position == 0 else position - 1
                if above[cell] != cell:
                    continue
                if cell == last and not inside[cell] + beside[cell]:
                    name[cell] = cell
                    continue
                if begin < 0:
                    begin = cell
                elif begin == last:
                    begin = cell  # rows without a value join the first bin
                    name[last] = cell
                name[cell] = begin
                a, b = a + inside[cell], b + beside[cell]
                # a cell of several bins was made at the root, of enough that had rows there
                held += members[cell] if members[cell] > 1 else min(1, inside[cell] + beside[cell])
                if a >= least and b >= least and held >= bins:
                    before, begin = begin, -1
                    a, b, held = np.int64(0), np.int64(0), np.int64(0)
            if begin >= 0 and before >= 0 and (a > 0 or b > 0):
                for cell in range(width):  # what is left over joins the cell before
                    if name[cell] == begin:
                        name[cell] = before
                if before == last:
                    for cell in range(width):
                        if name[cell] == last:
                            name[cell] = begin
            for bin_ in range(width):
                mine[bin_] = name[above[bin_]]
