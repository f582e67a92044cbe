"""The loops that split encrypted rows and sum them, in numba, free of the interpreter's lock.

Numbers are rows and lanes as in :mod:`~labelward.he.paillier.ifma_limbs`. In what follows R is 2^(52·t), and N has t
limbs; a row c modulo N² is *split* as c = R·a·(1 + N·l), which makes products half as long
(:mod:`~labelward.he.paillier.fixedbase`). Split rows are uint64 [n, 2, t]: a, then l.

Sums stay in *pieces* until the end: a product of the a, the total of the l, and a power e of R that is yet to be
multiplied. From each row R was split off, and each Montgomery product by a row's a divides by R, so both count one;
the product of two pieces, with 2·t limbs, divides by R², so their e add up and two are added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.paillier.ifma_ir import LANES, LINE, multiply, multiply_ahead, reduce
from labelward.he.paillier.ifma_limbs import Limbs, Odd, canonical, get, new_lanes, settle, settle_lanes
from labelward.he.paillier.ifma_moves import gather, scatter
from labelward.jit import compiled as jit

__all__ = ["DIGIT", "Pieces", "close", "merge", "split_back", "split_forth", "sum_lanes"]

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_WORDS = LINE // 8
_SETTLE = 2048  # summands below 2^52 that a word can take, with room

#: Bits of a digit of e.
DIGIT = 8


class Pieces(NamedTuple):
    """Products [p, k] below 2·N², totals [p, t+2], and exponents int64 [p] of R."""

    products: Limbs
    totals: Limbs
    exponents: NDArray[np.int64]


@jit
def split_forth(rows: Limbs, root: Odd, one: Limbs, found: Limbs) -> Limbs:
    """Split rows [n, k]: from c to a and q, with prefixes of the products of all a of a lane.

    Lane i takes the i-th eighth of the rows. ``one`` [t, 8] is R modulo N. ``found`` [steps, 3, t, 8] becomes a, q and
    the prefix; the result [t, 8] is each lane's full product.
    """
    n, k, t, steps = len(rows), rows.shape[1], len(root.limbs), len(found)
    scratch, wide, total = new_lanes(2 * t), new_lanes(2 * t), new_lanes(t)
    total[:] = one
    starts = np.empty(LANES, np.int64)
    for step in range(steps):
        for lane in range(LANES):  # what a lane has too few of, it does again
            starts[lane] = min(lane * steps + step, n - 1) * k
        gather(wide[:k], starts, rows)
        wide[k:] = _ZERO
        reduce(wide, root.limbs, root.inverse, t)
        found[step, 0] = wide[t:]
        found[step, 1] = wide[:t]
        found[step, 2] = total
        multiply(scratch, total, wide[t:], root.limbs, root.inverse, total)
    return total


@jit
def split_back(found: Limbs, inverted: Limbs, root: Odd, out: Limbs) -> None:
    """Finish :func:`split_forth`: write ``out`` [n, 2, t]; ``inverted`` [t, 8] is -1 over its result, modulo N.

    c = a·R - q·N, so l = -q/(a·R).
    """
    steps, t = len(found), len(root.limbs)
    scratch, single, starts = new_lanes(2 * t), new_lanes(t), np.empty(LANES, np.int64)
    for step in range(steps - 1, -1, -1):
        multiply(scratch, inverted, found[step, 2], root.limbs, root.inverse, single)
        multiply(scratch, single, found[step, 1], root.limbs, root.inverse, single)
        multiply(scratch, inverted, found[step, 0], root.limbs, root.inverse, inverted)
        for lane in range(LANES):
            starts[lane] = min(lane * steps + step, len(out) - 1) * 2 * t
        scatter(found[step, 0], starts, out)
        starts += t
        scatter(single, starts, out)


@jit
def sum_lanes(
    rows: Limbs, leads: NDArray[np.int32], order: NDArray[np.int32], cells: NDArray[np.int32],
    stretch: tuple[int, int], square: Odd, pieces: Pieces, owners: NDArray[np.int32],
) -> None:  # fmt: skip
    """Multiply split rows cell by cell; eight stretches of the list of entries, one in each lane.

    Cell c begins with row ``leads[c]``, by which nothing is multiplied yet. Entry e is row ``order[e]`` in the cell
    ``cells[e]``, which rises along the list by steps of one; the last of ``rows`` is 1 and no row, for a cell that
    has no other. Stretch s holds the entries from s·length; with ``stretch`` = (first, length) these lanes take the
    stretches from ``first``. What a stretch found of a cell r goes to place r+s of ``pieces``, no other's; ``owners``
    says r.
    """
    t, k = rows.shape[2], len(square.limbs)
    first, length = stretch
    scratch, acc, y = new_lanes(k + t), new_lanes(k), new_lanes(t)
    sums, starts = np.zeros((LANES, t + 2), np.uint64), np.zeros(LANES, np.int64)
    exponents, no_row = np.zeros(LANES, np.int64), len(rows) - 1
    ahead, base, size, lines = np.zeros((2 * LANES, 2), np.int64), rows.ctypes.data, 2 * t * 8, -(-2 * t // _WORDS)
    for step in range(length):
        for lane in range(LANES):
            entry = (first + lane) * length + step
            if entry >= len(order):
                continue
            if entry == 0 or cells[entry] != cells[entry - 1]:
                lead = rows[leads[cells[entry]]]
                acc[t:, lane] = _ZERO
                sums[lane, t:] = _ZERO
                for j in range(t):
                    acc[j, lane] = lead[0, j]
                    sums[lane, j] = lead[1, j]
                exponents[lane] = 1
            elif step == 0:
                acc[:, lane] = _ZERO
                acc[0, lane] = _ONE
                sums[lane] = _ZERO
                exponents[lane] = 0
            exponents[lane] += 1 if order[entry] == no_row else 2
            starts[lane] = np.int64(order[entry]) * 2 * t
            ahead[lane, 1], ahead[LANES + lane, 1] = 0, 0
            if entry + 1 < len(order):
                ahead[lane, 0], ahead[lane, 1] = base + np.int64(order[entry + 1]) * size, lines
                if cells[entry + 1] != cells[entry]:
                    following = np.int64(leads[cells[entry + 1]])
                    ahead[LANES + lane, 0], ahead[LANES + lane, 1] = base + following * size, lines
            row = rows[order[entry]]
            for j in range(t):
                sums[lane, j] += row[1, j]
        gather(y, starts, rows)
        multiply_ahead(scratch, acc, y, square.limbs, square.inverse, acc, ahead)
        for lane in range(LANES):
            entry = (first + lane) * length + step
            if entry >= len(order):
                continue
            if step % _SETTLE == _SETTLE - 1:
                settle(sums[lane])
            if step == length - 1 or entry == len(order) - 1 or cells[entry + 1] != cells[entry]:
                place = cells[entry] + first + lane
                settle(sums[lane])
                get(acc, lane, pieces.products[place])
                pieces.totals[place] = sums[lane]
                pieces.exponents[place] = exponents[lane]
                owners[place] = cells[entry]


@jit
def merge(
    pieces: Pieces, members: NDArray[np.int64], bounds: NDArray[np.int64], chosen: NDArray[np.int64],
    square: Odd, out: Pieces,
) -> None:  # fmt: skip
    """Multiply pieces to cells, eight cells at a time: those of ``chosen``, best of like sizes.

    Cell c has the pieces ``members[bounds[c]:bounds[c+1]]``, one at least. The last one of ``pieces`` is R² with
    nothing else: a factor that changes nothing, for lanes that are done.
    """
    k, u = pieces.products.shape[1], pieces.totals.shape[1]
    full, idle = 2 * (u - 2), len(pieces.products) - 1
    scratch, acc, y = new_lanes(k + full), new_lanes(k), new_lanes(full)
    sums, starts = np.zeros((LANES, u), np.uint64), np.empty(LANES, np.int64)
    ahead = np.zeros((2 * LANES, 2), np.int64)
    for block in range(0, len(chosen), LANES):
        size = min(LANES, len(chosen) - block)
        longest = 0
        for lane in range(size):
            cell = chosen[block + lane]
            longest = max(longest, bounds[cell + 1] - bounds[cell])
            out.exponents[cell] = 2 * (bounds[cell + 1] - bounds[cell] - 1)
        sums[:] = _ZERO
        for step in range(longest):
            for lane in range(LANES):
                cell = chosen[block + min(lane, size - 1)]
                at = bounds[cell] + step
                piece = members[at] if at < bounds[cell + 1] else idle
                starts[lane] = piece * k
                ahead[lane, 1], ahead[LANES + lane, 1] = 0, 0
                if at + 1 < bounds[cell + 1]:
                    ahead[lane] = pieces.products.ctypes.data + members[at + 1] * k * 8, -(-k // _WORDS) + 1
                    ahead[LANES + lane] = pieces.totals.ctypes.data + members[at + 1] * u * 8, -(-u // _WORDS) + 1
                if lane < size and piece != idle:
                    for j in range(u):
                        sums[lane, j] += pieces.totals[piece, j]
                    out.exponents[cell] += pieces.exponents[piece]
            if step == 0:
                gather(acc, starts, pieces.products)
            else:
                gather(y[:k], starts, pieces.products)
                multiply_ahead(scratch, acc, y, square.limbs, square.inverse, acc, ahead)
            if step % _SETTLE == _SETTLE - 1:
                for lane in range(LANES):
                    settle(sums[lane])
        for lane in range(size):
            cell = chosen[block + lane]
            settle(sums[lane])
            get(acc, lane, out.products[cell])
            out.totals[cell] = sums[lane]


@jit
def close(
    pieces: Pieces, part: tuple[int, int], table: Limbs, by_total: Limbs, one: Limbs, square: Odd, rows: Limbs
) -> None:  # fmt: skip
    """Write the numbers that pieces [part) stand for to ``rows`` [n, k].

    ``table`` [digits, 2^DIGIT, 2, t] holds R^(i·2^(DIGIT·d)) times R², split. ``by_total`` is N in Montgomery's
    form, with the radix of t+2 limbs besides, and ``one`` is 1.
    """
    k, u, t = rows.shape[1], pieces.totals.shape[1], table.shape[3]
    full = k + k % 2
    scratch, y, unit, acc = new_lanes(k + full), new_lanes(u), new_lanes(full), new_lanes(k)
    starts, sums = np.empty(LANES, np.int64), np.zeros((LANES, u), np.uint64)
    for start in range(part[0], part[1], LANES):
        for lane in range(LANES):
            starts[lane] = min(start + lane, part[1] - 1) * k
            sums[lane] = pieces.totals[min(start + lane, part[1] - 1)]
        gather(acc, starts, pieces.products)
        for d in range(len(table)):
            for lane in range(LANES):
                exponent = pieces.exponents[min(start + lane, part[1] - 1)]
                entry = d << DIGIT | (exponent >> DIGIT * d & (1 << DIGIT) - 1)
                starts[lane] = entry * 2 * t
                for j in range(t):
                    sums[lane, j] += table[d, entry & (1 << DIGIT) - 1, 1, j]
            gather(y[:t], starts, table)
            multiply(scratch[: k + t], acc, y[:t], square.limbs, square.inverse, acc)
        for lane in range(LANES):
            settle(sums[lane])
            y[:, lane] = sums[lane]
        multiply(scratch[: k + u], by_total, y, square.limbs, square.inverse, unit[:k])
        unit[:k] += one
        settle_lanes(unit)
        multiply(scratch, acc, unit, square.limbs, square.inverse, acc)
        for lane in range(min(LANES, part[1] - start)):
            get(acc, lane, rows[start + lane])
            canonical(rows[start + lane], square.limbs)
