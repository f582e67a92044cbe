"""The loops around :mod:`~labelward.he.paillier.ifma_ir`'s products, in numba, free of the interpreter's lock.

Numbers are rows and lanes as in :mod:`~labelward.he.paillier.ifma_limbs`. In what follows R is 2^(52·t), and N has t
limbs; a row c modulo N² is *split* as c·R = a·(1 + N·l), which makes products half as long
(:mod:`~labelward.he.paillier.fixedbase`), and the R makes up for that which a Montgomery product divides by. Split
rows are uint64 [n, 2, t]: a, then l.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.paillier.ifma_ir import LANES, fetch, gather, multiply, reduce, scatter
from labelward.he.paillier.ifma_limbs import Limbs, Odd, canonical, get, jit, new_lanes, put, settle, settle_lanes

__all__ = [
    "Factors",
    "arrange",
    "chain",
    "finish",
    "horner",
    "join",
    "power",
    "powers",
    "split_back",
    "split_forth",
    "sum_lanes",
    "tabulate",
    "to_rows",
]

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_TILE = 64  # groups of eight whose accumulators stay in the second-level cache beside two tables
_MANY = 16  # groups for which fetching a whole table is worth it
_SETTLE = 2048  # summands below 2^52 that a word can take, with room


@jit
def split_forth(
    rows: Limbs, scale: Limbs, square: Odd, root: Odd,
    one: Limbs, found: Limbs,
) -> Limbs:  # fmt: skip
    """Split rows: from c to a and q, with prefixes of the products of all a of a lane.

    Lane i takes the i-th eighth of the rows. ``scale`` [t, 8] is the a of R³ modulo N², ``one`` [t, 8] is R modulo N.
    ``found`` [steps, 3, t, 8] becomes a, q and the prefix; the result [t, 8] is each lane's full product.
    """
    n, k, t, steps = len(rows), len(square.limbs), len(root.limbs), len(found)
    scratch, number, wide, total = new_lanes(k + t), new_lanes(k), new_lanes(2 * t), new_lanes(t)
    total[:] = one
    starts = np.empty(LANES, np.int64)
    for step in range(steps):
        for lane in range(LANES):  # what a lane has too few of, it does again
            starts[lane] = min(lane * steps + step, n - 1) * k
        gather(number, starts, rows)
        multiply(scratch, number, scale, square.limbs, square.inverse, number)
        wide[:k] = number
        wide[k:] = _ZERO
        reduce(wide, root.limbs, root.inverse, t)
        found[step, 0] = wide[t:]
        found[step, 1] = wide[:t]
        found[step, 2] = total
        multiply(scratch[: 2 * t], total, wide[t:], root.limbs, root.inverse, total)
    return total


@jit
def split_back(found: Limbs, inverted: Limbs, root: Odd, offset: Limbs, out: Limbs) -> None:
    """Finish :func:`split_forth`: write ``out`` [n, 2, t]; ``inverted`` [t, 8] is -1 over its result, modulo N.

    ``offset`` [t, 8] is the l of R³: c·R³ = C·R·(1 + N·offset), and C = a·R - q·N, so l = offset - q/(a·R).
    """
    steps, t = len(found), len(root.limbs)
    scratch, single, starts = new_lanes(2 * t), new_lanes(t), np.empty(LANES, np.int64)
    for step in range(steps - 1, -1, -1):
        multiply(scratch, inverted, found[step, 2], root.limbs, root.inverse, single)
        multiply(scratch, single, found[step, 1], root.limbs, root.inverse, single)
        multiply(scratch, inverted, found[step, 0], root.limbs, root.inverse, inverted)
        single += offset
        settle_lanes(single)
        for lane in range(LANES):
            starts[lane] = min(lane * steps + step, len(out) - 1) * 2 * t
        scatter(found[step, 0], starts, out)
        starts += t
        scatter(single, starts, out)


@jit
def arrange(groups: NDArray[np.int32], n_groups: int, held: NDArray[np.int64], order: NDArray[np.int32]) -> int:
    """Sort the entries of ``groups`` [n, F] by column and group; return how many are not -1.

    ``held`` [F · n_groups], zeros, becomes the number of entries of each cell, and ``order`` their rows.
    """
    n, columns = groups.shape
    for row in range(n):
        for column in range(columns):
            if groups[row, column] >= 0:
                held[column * n_groups + groups[row, column]] += 1
    following = np.cumsum(held) - held
    for row in range(n):
        for column in range(columns):
            if groups[row, column] >= 0:
                cell = column * n_groups + groups[row, column]
                order[following[cell]] = row
                following[cell] += 1
    return int(held.sum())


@jit
def sum_lanes(
    rows: Limbs, order: NDArray[np.int32], cells: NDArray[np.int32], stretch: tuple[int, int],
    square: Odd, products: Limbs, totals: Limbs, owners: NDArray[np.int32],
) -> None:  # fmt: skip
    """Multiply split rows cell by cell; eight stretches of the list of entries, one in each lane.

    Entry e is row ``order[e]`` in the cell of rank ``cells[e]``, which rises along the list by steps of one. Stretch
    s holds the entries from s·length; with ``stretch`` = (first, length) these lanes take the stretches from
    ``first``. What a stretch found of a cell of rank r goes to place r+s, no other's, of ``products`` [., k] and
    ``totals`` [., t+2]; ``owners`` says r.
    """
    t, k = rows.shape[2], len(square.limbs)
    first, length = stretch
    scratch, acc, y = new_lanes(k + t), new_lanes(k), new_lanes(t)
    sums, starts = np.zeros((LANES, t + 2), np.uint64), np.zeros(LANES, np.int64)
    for step in range(length):
        for lane in range(LANES):
            entry = (first + lane) * length + step
            if entry >= len(order):
                continue
            if step == 0 or cells[entry] != cells[entry - 1]:
                acc[:, lane] = _ZERO
                acc[0, lane] = _ONE
                sums[lane] = _ZERO
            starts[lane] = np.int64(order[entry]) * 2 * t
            if entry + 1 < len(order):
                fetch(rows, np.int64(order[entry + 1]) * 2 * t, 2 * t)
            row = rows[order[entry]]
            for j in range(t):
                sums[lane, j] += row[1, j]
        gather(y, starts, rows)
        multiply(scratch, acc, y, square.limbs, square.inverse, acc)
        for lane in range(LANES):
            entry = (first + lane) * length + step
            if entry >= len(order):
                continue
            if step % _SETTLE == _SETTLE - 1:
                settle(sums[lane])
            if step == length - 1 or entry == len(order) - 1 or cells[entry + 1] != cells[entry]:
                place = cells[entry] + first + lane
                settle(sums[lane])
                get(acc, lane, products[place])
                totals[place] = sums[lane]
                owners[place] = cells[entry]


@jit
def chain(start: Limbs, factors: Limbs, m: Odd, out: Limbs) -> None:
    """Write start·f_0/R, then that times f_1/R, and so on, to ``out`` [n, k, 8]; ``factors`` are [n, t, 8]."""
    scratch, number = new_lanes(len(m.limbs) + factors.shape[1]), new_lanes(len(m.limbs))
    number[:] = start
    for i in range(len(factors)):
        multiply(scratch, number, factors[i], m.limbs, m.inverse, number)
        out[i] = number


@jit
def tabulate(units: Limbs, square: Odd, width: int, table: Limbs) -> None:
    """Write the powers 0 .. width-1 of eight bases: ``units`` [t, 8] times 2^(52·t), ``table`` [8, width, k]."""
    k = len(square.limbs)
    scratch, power = new_lanes(k + len(units)), new_lanes(k)
    power[0] = _ONE
    for i in range(width):
        for lane in range(LANES):
            get(power, lane, table[lane, i])
            canonical(table[lane, i], square.limbs)
        multiply(scratch, power, units, square.limbs, square.inverse, power)


@jit
def powers(table: Limbs, digits: NDArray[np.uint8], square: Odd, products: Limbs, totals: Limbs) -> None:
    """Raise a base by ``table`` [tables, width, 2, t] and ``digits`` [tables, n] to ``products`` [groups, k, 8].

    ``totals`` [groups, 8, t], the sums of the l, are not settled. Lanes beyond n stay 1.
    """
    tables, n = digits.shape
    flat, size, t = table.reshape(-1), table.shape[1] * 2 * table.shape[3], table.shape[3]
    starts, y, scratch = np.zeros(LANES, np.int64), new_lanes(t), new_lanes(len(square.limbs) + t)
    for tile in range(0, len(products), _TILE):
        groups = min(_TILE, len(products) - tile)
        for group in range(tile, tile + groups):
            products[group] = _ZERO
            products[group, 0] = _ONE
            totals[group] = _ZERO
        for d in range(tables):
            for group in range(tile, tile + groups):
                if d + 1 < tables and groups >= _MANY:
                    part = (group - tile) * size // groups
                    fetch(flat, (d + 1) * size + part, size // groups + LANES)
                first = group * LANES
                for lane in range(min(LANES, n - first)):
                    starts[lane] = d * size + np.int64(digits[d, first + lane]) * 2 * t
                for lane in range(min(LANES, n - first - LANES)):
                    fetch(flat, d * size + np.int64(digits[d, first + LANES + lane]) * 2 * t, 2 * t)
                for lane in range(min(LANES, n - first)):
                    for j in range(t):
                        totals[group, lane, j] += flat[starts[lane] + t + j]
                gather(y, starts, flat)
                multiply(scratch, products[group], y, square.limbs, square.inverse, products[group])


class Factors(NamedTuple):
    """What one prime's powers are multiplied by, each with the radix that a product divides by; N is the prime.

    Attributes:
        by_total: N modulo N².
        by_plaintext: n modulo N².
        constant: 1 - n·s modulo N² [k], where s was added to the plaintexts.
        crt: what is 1 modulo N² and 0 modulo the other prime's square.
    """

    by_total: Limbs
    by_plaintext: Limbs
    constant: Limbs
    crt: Limbs


@jit
def finish(
    products: Limbs, totals: Limbs, plaintexts: Limbs, factors: Factors, square: Odd, whole: Odd, out: Limbs
) -> None:  # fmt: skip
    """Add to ``out`` [groups, K, 8] what one prime gives for the ciphertexts."""
    k, t, rows = len(square.limbs), totals.shape[2], plaintexts.shape[1]
    full = k + k % 2
    scratch, y, unit = new_lanes(len(whole.limbs) + full), new_lanes(t), new_lanes(full)
    part, last = new_lanes(k), new_lanes(full)
    share = new_lanes(len(whole.limbs))
    for group in range(len(products)):
        for lane in range(LANES):
            put(y, lane, totals[group, lane])
        settle_lanes(y)
        multiply(scratch[: k + t], factors.by_total, y, square.limbs, square.inverse, unit[:k])
        multiply(scratch[: k + rows], factors.by_plaintext, plaintexts[group], square.limbs, square.inverse, part)
        for j in range(k):
            for lane in range(LANES):
                unit[j, lane] += part[j, lane] + factors.constant[j]
        settle_lanes(unit)
        multiply(scratch[: k + full], products[group], unit, square.limbs, square.inverse, last[:k])
        multiply(scratch, factors.crt, last, whole.limbs, whole.inverse, share)
        for j in range(len(whole.limbs)):
            for lane in range(LANES):
                out[group, j, lane] += share[j, lane]


@jit
def join(products: Limbs, totals: Limbs, by_total: Limbs, one: Limbs, square: Odd, rows: Limbs) -> None:
    """Write product · (1 + N·total) to ``rows`` [n, k]; ``by_total`` is N, and ``one`` 1, in Montgomery's form.

    ``products`` are [n, k] and ``totals`` [n, u], u even; ``by_total`` has the radix of u limbs besides.
    """
    n, k, u = len(products), len(square.limbs), totals.shape[1]
    full = k + k % 2
    scratch, y, unit, number = new_lanes(k + full), new_lanes(u), new_lanes(full), new_lanes(k)
    starts = np.empty(LANES, np.int64)
    for start in range(0, n, LANES):
        for lane in range(LANES):
            starts[lane] = min(start + lane, n - 1)
        gather(number, starts * k, products)
        gather(y, starts * u, totals)
        multiply(scratch, by_total, y, square.limbs, square.inverse, unit[:k])
        unit[:k] += one
        settle_lanes(unit)
        multiply(scratch, number, unit, square.limbs, square.inverse, number)
        scatter(number, starts * k, rows)
        for row in range(start, min(start + LANES, n)):
            canonical(rows[row], square.limbs)


@jit
def to_rows(lanes: Limbs, m: Odd, rows: Limbs) -> None:
    """Settle ``lanes`` [groups, k, 8], reduce them below m, and write them to rows."""
    for i in range(len(rows)):
        get(lanes[i // LANES], i % LANES, rows[i])
        settle(rows[i])
        canonical(rows[i], m.limbs)


@jit
def horner(
    cells: Limbs, fit: int, shift: int, last: Limbs, square: Odd, one: Limbs,
    squared: Limbs, rows: Limbs,
) -> None:  # fmt: skip
    """Combine each ``fit`` of the cells [., k], ``shift`` bits apart, times ``last`` [n, k], to ``rows`` [n, k].

    ``one`` [k, 8] and ``squared`` [t, 8] are the powers 1 and 2 of 2^(52·t), where t is k made even.
    """
    k, t = len(square.limbs), len(squared)
    scratch, number, y = new_lanes(k + t), new_lanes(t), new_lanes(t)
    for start in range(0, len(rows), LANES):
        number[:k] = one
        for place in range(fit - 1, -1, -1):
            for _ in range(shift if place < fit - 1 else 0):
                multiply(scratch, number[:k], number, square.limbs, square.inverse, number[:k])
            y[:] = _ZERO
            y[0] = _ONE
            for lane in range(min(LANES, len(rows) - start)):
                cell = (start + lane) * fit + place
                if cell < len(cells):
                    put(y, lane, cells[cell])
            multiply(scratch, y[:k], squared, square.limbs, square.inverse, y[:k])
            multiply(scratch, number[:k], y, square.limbs, square.inverse, number[:k])
        for lane in range(min(LANES, len(rows) - start)):
            put(y, lane, last[start + lane])
        multiply(scratch, number[:k], y, square.limbs, square.inverse, number[:k])
        for lane in range(min(LANES, len(rows) - start)):
            get(number, lane, rows[start + lane])
            canonical(rows[start + lane], square.limbs)


@jit
def power(bases: Limbs, digits: NDArray[np.uint8], m: Odd, one: Limbs, squared: Limbs, rows: Limbs) -> None:
    """Raise ``bases`` [n, k] to one exponent, given by digits of five bits, highest first; constants as above."""
    k, t = len(m.limbs), len(squared)
    scratch, number, y = new_lanes(k + t), new_lanes(t), new_lanes(t)
    table = new_lanes(32 * t).reshape(32, t, LANES)
    for start in range(0, len(rows), LANES):
        for lane in range(LANES):
            put(y, lane, bases[min(start + lane, len(rows) - 1)])
        multiply(scratch, y[:k], squared, m.limbs, m.inverse, y[:k])
        table[0, :k] = one
        for i in range(1, 32):
            multiply(scratch, table[i - 1, :k], y, m.limbs, m.inverse, table[i, :k])
        number[:k] = one
        for digit in digits:
            for _ in range(5):
                multiply(scratch, number[:k], number, m.limbs, m.inverse, number[:k])
            multiply(scratch, number[:k], table[digit], m.limbs, m.inverse, number[:k])
        y[:] = _ZERO
        y[0] = _ONE
        multiply(scratch, number[:k], y, m.limbs, m.inverse, number[:k])
        for lane in range(min(LANES, len(rows) - start)):
            get(number, lane, rows[start + lane])
            canonical(rows[start + lane], m.limbs)
