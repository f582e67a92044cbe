"""The loops around :mod:`~labelward.he.paillier.ifma_ir`'s products, in numba, free of the interpreter's lock.

Numbers are *rows* uint64 [n, limbs], one after the other, or *lanes* uint64 [limbs, 8], eight at a time, in limbs of
52 bits. In what follows R is 2^(52·t), and N has t limbs; a row c modulo N² is *split* as c·R = a·(1 + N·l), which
makes products half as long (:mod:`~labelward.he.paillier.fixedbase`), and the R makes up for that which a Montgomery
product divides by. Split rows are uint64 [n, 2, t]: a, then l.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from labelward.he.paillier.ifma_ir import (
    LANES,
    LIMB_BITS,
    fetch,
    gather,
    multiply,
    read_word,
    reduce,
    scatter,
    write_word,
)

__all__ = [
    "arrange",
    "chain",
    "finish",
    "horner",
    "join",
    "pack",
    "power",
    "powers",
    "settle_rows",
    "split_back",
    "split_forth",
    "sum_lanes",
    "tabulate",
    "to_rows",
    "unpack",
]

Limbs = NDArray[np.uint64]
Kernel = TypeVar("Kernel", bound=Callable[..., object])

_MASK, _SHIFT, _ZERO, _ONE = np.uint64(2**LIMB_BITS - 1), np.uint64(LIMB_BITS), np.uint64(0), np.uint64(1)
_BYTE = np.uint64(255)
_TILE = 64  # groups of eight whose accumulators stay in the second-level cache beside two tables
_MANY = 16  # groups for which fetching a whole table is worth it
_SETTLE = 2048  # summands below 2^52 that a word can take, with room


def _jit(function: Kernel) -> Kernel:
    return cast("Kernel", numba.njit(cache=True, nogil=True)(function))


@_jit
def _lanes(limbs: int) -> Limbs:
    """Return zeroed lanes that lie on 64 bytes."""
    raw = np.zeros(limbs * LANES + LANES, np.uint64)
    start = (64 - raw.ctypes.data % 64) % 64 // 8
    return raw[start : start + limbs * LANES].reshape(limbs, LANES)


@_jit
def _settle(limbs: Limbs) -> None:
    """Carry through ``limbs`` [k]."""
    carry = _ZERO
    for j in range(len(limbs)):
        value = limbs[j] + carry
        limbs[j] = value & _MASK
        carry = value >> _SHIFT


@_jit
def _settle_lanes(lanes: Limbs) -> None:
    for j in range(len(lanes) - 1):
        for lane in range(LANES):
            lanes[j + 1, lane] += lanes[j, lane] >> _SHIFT
            lanes[j, lane] &= _MASK


@_jit
def _put(lanes: Limbs, lane: int, row: Limbs) -> None:
    for j in range(len(row)):
        lanes[j, lane] = row[j]


@_jit
def _get(lanes: Limbs, lane: int, row: Limbs) -> None:
    for j in range(len(row)):
        row[j] = lanes[j, lane]


@_jit
def _canonical(row: Limbs, m: Limbs) -> None:
    """Subtract ``m`` from a settled row until it is smaller."""
    while True:
        j = len(m) - 1
        while j > 0 and row[j] == m[j]:
            j -= 1
        if row[j] < m[j]:
            return
        borrow = _ZERO
        for i in range(len(m)):
            value = row[i] - m[i] - borrow
            borrow = value >> np.uint64(63)
            row[i] = value & _MASK


@_jit
def unpack(data: NDArray[np.uint8], rows: Limbs) -> None:
    """Write big-endian numbers ``data`` [n, size] to rows; limbs beyond them become zero."""
    size, flat = data.shape[1], data.reshape(-1)
    for i in range(len(data)):
        for j in range(rows.shape[1]):
            start, word = LIMB_BITS * j // 8, _ZERO
            if start + 8 <= size:
                word = read_word(flat, (i + 1) * size - start - 8)
            else:
                for b in range(max(0, size - start)):
                    word |= np.uint64(data[i, size - 1 - start - b]) << np.uint64(8 * b)
            rows[i, j] = (word >> np.uint64(LIMB_BITS * j % 8)) & _MASK


@_jit
def pack(rows: Limbs, data: NDArray[np.uint8]) -> None:
    """Write rows as big-endian numbers ``data`` [n, size]."""
    size, limbs, flat = data.shape[1], rows.shape[1], data.reshape(-1)
    for i in range(len(data)):
        for start in range(0, size, 8):
            j = 8 * start // LIMB_BITS
            word, bits = _ZERO, LIMB_BITS - (8 * start - LIMB_BITS * j)
            if j < limbs:
                word = rows[i, j] >> np.uint64(LIMB_BITS - bits)
            for following in range(j + 1, min(j + 3, limbs)):
                if bits < 64:
                    word |= rows[i, following] << np.uint64(bits)
                bits += LIMB_BITS
            if start + 8 <= size:
                write_word(flat, (i + 1) * size - start - 8, word)
            else:
                for b in range(size - start):
                    data[i, size - 1 - start - b] = np.uint8((word >> np.uint64(8 * b)) & _BYTE)


@_jit
def split_forth(
    rows: Limbs, scale: Limbs, square: Limbs, square_inverse: np.uint64, root: Limbs, inverse: np.uint64,
    one: Limbs, found: Limbs,
) -> Limbs:  # fmt: skip
    """Split rows: from c to a and q, with prefixes of the products of all a of a lane.

    Lane i takes the i-th eighth of the rows. ``scale`` [t, 8] is the a of R³ modulo N², ``one`` [t, 8] is R modulo N.
    ``found`` [steps, 3, t, 8] becomes a, q and the prefix; the result [t, 8] is each lane's full product.
    """
    n, k, t, steps = len(rows), len(square), len(root), len(found)
    scratch, number, wide, total = _lanes(k + t), _lanes(k), _lanes(2 * t), _lanes(t)
    total[:] = one
    starts = np.empty(LANES, np.int64)
    for step in range(steps):
        for lane in range(LANES):  # what a lane has too few of, it does again
            starts[lane] = min(lane * steps + step, n - 1) * k
        gather(number, starts, rows)
        multiply(scratch, number, scale, square, square_inverse, number)
        wide[:k] = number
        wide[k:] = _ZERO
        reduce(wide, root, inverse, t)
        found[step, 0] = wide[t:]
        found[step, 1] = wide[:t]
        found[step, 2] = total
        multiply(scratch[: 2 * t], total, wide[t:], root, inverse, total)
    return total


@_jit
def split_back(found: Limbs, inverted: Limbs, root: Limbs, inverse: np.uint64, offset: Limbs, out: Limbs) -> None:
    """Finish :func:`split_forth`: write ``out`` [n, 2, t]; ``inverted`` [t, 8] is -1 over its result, modulo N.

    ``offset`` [t, 8] is the l of R³: c·R³ = C·R·(1 + N·offset), and C = a·R - q·N, so l = offset - q/(a·R).
    """
    steps, t = len(found), len(root)
    scratch, single, starts = _lanes(2 * t), _lanes(t), np.empty(LANES, np.int64)
    for step in range(steps - 1, -1, -1):
        multiply(scratch, inverted, found[step, 2], root, inverse, single)
        multiply(scratch, single, found[step, 1], root, inverse, single)
        multiply(scratch, inverted, found[step, 0], root, inverse, inverted)
        single += offset
        _settle_lanes(single)
        for lane in range(LANES):
            starts[lane] = min(lane * steps + step, len(out) - 1) * 2 * t
        scatter(found[step, 0], starts, out)
        starts += t
        scatter(single, starts, out)


@_jit
def settle_rows(rows: Limbs) -> None:
    """Carry through each of the rows."""
    for i in range(len(rows)):
        _settle(rows[i])


@_jit
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


@_jit
def sum_lanes(
    rows: Limbs, order: NDArray[np.int32], cells: NDArray[np.int32], first: int, length: int,
    square: Limbs, square_inverse: np.uint64, products: Limbs, totals: Limbs, owners: NDArray[np.int32],
) -> None:  # fmt: skip
    """Multiply split rows cell by cell; eight stretches of the list of entries, one in each lane.

    Entry e is row ``order[e]`` in the cell of rank ``cells[e]``, which rises along the list by steps of one. Stretch
    s holds the entries from s·length, and these lanes take the stretches from ``first``. What a stretch found of a
    cell of rank r goes to place r+s, no other's, of ``products`` [., k] and ``totals`` [., t+2]; ``owners`` says r.
    """
    t, k = rows.shape[2], len(square)
    scratch, acc, y = _lanes(k + t), _lanes(k), _lanes(t)
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
        multiply(scratch, acc, y, square, square_inverse, acc)
        for lane in range(LANES):
            entry = (first + lane) * length + step
            if entry >= len(order):
                continue
            if step % _SETTLE == _SETTLE - 1:
                _settle(sums[lane])
            if step == length - 1 or entry == len(order) - 1 or cells[entry + 1] != cells[entry]:
                place = cells[entry] + first + lane
                _settle(sums[lane])
                _get(acc, lane, products[place])
                totals[place] = sums[lane]
                owners[place] = cells[entry]


@_jit
def chain(start: Limbs, factors: Limbs, m: Limbs, inverse: np.uint64, out: Limbs) -> None:
    """Write start·f_0/R, then that times f_1/R, and so on, to ``out`` [n, k, 8]; ``factors`` are [n, t, 8]."""
    scratch, number = _lanes(len(m) + factors.shape[1]), _lanes(len(m))
    number[:] = start
    for i in range(len(factors)):
        multiply(scratch, number, factors[i], m, inverse, number)
        out[i] = number


@_jit
def tabulate(units: Limbs, square: Limbs, square_inverse: np.uint64, width: int, table: Limbs) -> None:
    """Write the powers 0 .. width-1 of eight bases: ``units`` [t, 8] times 2^(52·t), ``table`` [8, width, k]."""
    k = len(square)
    scratch, power = _lanes(k + len(units)), _lanes(k)
    power[0] = _ONE
    for i in range(width):
        for lane in range(LANES):
            _get(power, lane, table[lane, i])
            _canonical(table[lane, i], square)
        multiply(scratch, power, units, square, square_inverse, power)


@_jit
def powers(
    table: Limbs, digits: NDArray[np.uint8], square: Limbs, square_inverse: np.uint64, products: Limbs, totals: Limbs
) -> None:
    """Raise a base by ``table`` [tables, width, 2, t] and ``digits`` [tables, n] to ``products`` [groups, k, 8].

    ``totals`` [groups, 8, t], the sums of the l, are not settled. Lanes beyond n stay 1.
    """
    tables, n = digits.shape
    flat, size, t = table.reshape(-1), table.shape[1] * 2 * table.shape[3], table.shape[3]
    starts, y, scratch = np.zeros(LANES, np.int64), _lanes(t), _lanes(len(square) + t)
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
                multiply(scratch, products[group], y, square, square_inverse, products[group])


@_jit
def finish(
    products: Limbs, totals: Limbs, plaintexts: Limbs, by_total: Limbs, by_plaintext: Limbs, constant: Limbs,
    square: Limbs, square_inverse: np.uint64, crt: Limbs, whole: Limbs, whole_inverse: np.uint64, out: Limbs,
) -> None:  # fmt: skip
    """Add to ``out`` [groups, K, 8] what one prime gives for the ciphertexts; see the caller for the constants."""
    k, t, rows = len(square), totals.shape[2], plaintexts.shape[1]
    full = k + k % 2
    scratch, y, unit = _lanes(len(whole) + full), _lanes(t), _lanes(full)
    part, last = _lanes(k), _lanes(full)
    share = _lanes(len(whole))
    for group in range(len(products)):
        for lane in range(LANES):
            _put(y, lane, totals[group, lane])
        _settle_lanes(y)
        multiply(scratch[: k + t], by_total, y, square, square_inverse, unit[:k])
        multiply(scratch[: k + rows], by_plaintext, plaintexts[group], square, square_inverse, part)
        for j in range(k):
            for lane in range(LANES):
                unit[j, lane] += part[j, lane] + constant[j]
        _settle_lanes(unit)
        multiply(scratch[: k + full], products[group], unit, square, square_inverse, last[:k])
        multiply(scratch, crt, last, whole, whole_inverse, share)
        for j in range(len(whole)):
            for lane in range(LANES):
                out[group, j, lane] += share[j, lane]


@_jit
def join(
    products: Limbs, totals: Limbs, by_total: Limbs, one: Limbs, square: Limbs, square_inverse: np.uint64, rows: Limbs
) -> None:
    """Write product · (1 + N·total) to ``rows`` [n, k]; ``by_total`` is N, and ``one`` 1, in Montgomery's form.

    ``products`` are [n, k] and ``totals`` [n, u], u even; ``by_total`` has the radix of u limbs besides.
    """
    n, k, u = len(products), len(square), totals.shape[1]
    full = k + k % 2
    scratch, y, unit, number = _lanes(k + full), _lanes(u), _lanes(full), _lanes(k)
    starts = np.empty(LANES, np.int64)
    for start in range(0, n, LANES):
        for lane in range(LANES):
            starts[lane] = min(start + lane, n - 1)
        gather(number, starts * k, products)
        gather(y, starts * u, totals)
        multiply(scratch, by_total, y, square, square_inverse, unit[:k])
        unit[:k] += one
        _settle_lanes(unit)
        multiply(scratch, number, unit, square, square_inverse, number)
        scatter(number, starts * k, rows)
        for row in range(start, min(start + LANES, n)):
            _canonical(rows[row], square)


@_jit
def to_rows(lanes: Limbs, m: Limbs, rows: Limbs) -> None:
    """Settle ``lanes`` [groups, k, 8], reduce them below m, and write them to rows."""
    for i in range(len(rows)):
        _get(lanes[i // LANES], i % LANES, rows[i])
        _settle(rows[i])
        _canonical(rows[i], m)


@_jit
def horner(
    cells: Limbs, fit: int, shift: int, last: Limbs, square: Limbs, square_inverse: np.uint64, one: Limbs,
    squared: Limbs, rows: Limbs,
) -> None:  # fmt: skip
    """Combine each ``fit`` of the cells [., k], ``shift`` bits apart, times ``last`` [n, k], to ``rows`` [n, k].

    ``one`` [k, 8] and ``squared`` [t, 8] are the powers 1 and 2 of 2^(52·t), where t is k made even.
    """
    k, t = len(square), len(squared)
    scratch, number, y = _lanes(k + t), _lanes(t), _lanes(t)
    for start in range(0, len(rows), LANES):
        number[:k] = one
        for place in range(fit - 1, -1, -1):
            for _ in range(shift if place < fit - 1 else 0):
                multiply(scratch, number[:k], number, square, square_inverse, number[:k])
            y[:] = _ZERO
            y[0] = _ONE
            for lane in range(min(LANES, len(rows) - start)):
                cell = (start + lane) * fit + place
                if cell < len(cells):
                    _put(y, lane, cells[cell])
            multiply(scratch, y[:k], squared, square, square_inverse, y[:k])
            multiply(scratch, number[:k], y, square, square_inverse, number[:k])
        for lane in range(min(LANES, len(rows) - start)):
            _put(y, lane, last[start + lane])
        multiply(scratch, number[:k], y, square, square_inverse, number[:k])
        for lane in range(min(LANES, len(rows) - start)):
            _get(number, lane, rows[start + lane])
            _canonical(rows[start + lane], square)


@_jit
def power(
    bases: Limbs, digits: NDArray[np.uint8], m: Limbs, inverse: np.uint64, one: Limbs, squared: Limbs, rows: Limbs
) -> None:
    """Raise ``bases`` [n, k] to one exponent, given by digits of five bits, highest first; constants as above."""
    k, t = len(m), len(squared)
    scratch, number, y = _lanes(k + t), _lanes(t), _lanes(t)
    table = _lanes(32 * t).reshape(32, t, LANES)
    for start in range(0, len(rows), LANES):
        for lane in range(LANES):
            _put(y, lane, bases[min(start + lane, len(rows) - 1)])
        multiply(scratch, y[:k], squared, m, inverse, y[:k])
        table[0, :k] = one
        for i in range(1, 32):
            multiply(scratch, table[i - 1, :k], y, m, inverse, table[i, :k])
        number[:k] = one
        for digit in digits:
            for _ in range(5):
                multiply(scratch, number[:k], number, m, inverse, number[:k])
            multiply(scratch, number[:k], table[digit], m, inverse, number[:k])
        y[:] = _ZERO
        y[0] = _ONE
        multiply(scratch, number[:k], y, m, inverse, number[:k])
        for lane in range(min(LANES, len(rows) - start)):
            _get(number, lane, rows[start + lane])
            _canonical(rows[start + lane], m)
