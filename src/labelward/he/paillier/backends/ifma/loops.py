"""The loops around ``montgomery_ir``'s products, in numba, free of the interpreter's lock.

Numbers are rows and lanes as in ``limbs``; ``sums`` has
those that sum rows, and tells what it is to split a number.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.paillier.backends.ifma.limbs import (
    Limbs,
    OddModulus,
    carry_lanes,
    carry_row,
    get_lane,
    put_lane,
    reduce_below,
    zero_lanes,
)
from labelward.he.paillier.backends.ifma.montgomery_ir import LANES, gather, multiply, prefetch_words
from labelward.he.paillier.backends.ifma.montgomery_ir import square as square_of
from labelward.jit import compiled as jit

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_TILE = 256  # groups of eight whose accumulators stay in the second-level cache beside two tables
_MANY = 16  # groups for which fetching a whole table is worth it


@jit
def product_chain(start: Limbs, factors: Limbs, m: OddModulus, out: Limbs) -> None:
    """Write start·f_0/R, then that times f_1/R, and so on, to ``out`` [n, k, 8]; ``factors`` are [n, t, 8]."""
    scratch, number = zero_lanes(len(m.limbs) + factors.shape[1]), zero_lanes(len(m.limbs))
    number[:] = start
    for i in range(len(factors)):
        multiply(scratch, number, factors[i], m.limbs, m.inverse, number)
        out[i] = number


@jit
def square_chain(start: Limbs, m: OddModulus, out: Limbs) -> None:
    """Write start²/R, then the square of that over R, and so on, to ``out`` [n, k, 8]; ``start`` is [t, 8]."""
    number, wide = zero_lanes(len(start)), zero_lanes(2 * len(start))
    number[:] = start
    for i in range(len(out)):
        square_of(wide, number, m.limbs, m.inverse, number[: len(m.limbs)])
        out[i] = number[: len(m.limbs)]


@jit
def tabulate_lanes(units: Limbs, start: Limbs, square: OddModulus, width: int, table: Limbs) -> None:
    """Write ``start`` [k, 8] times the powers 0 .. width-1 of eight bases to ``table`` [8, width, k].

    ``units`` [t, 8] are the bases times 2^(52·t).
    """
    k = len(square.limbs)
    scratch, power = zero_lanes(k + len(units)), zero_lanes(k)
    power[:] = start
    for i in range(width):
        for lane in range(LANES):
            get_lane(power, lane, table[lane, i])
            reduce_below(table[lane, i], square.limbs)
        multiply(scratch, power, units, square.limbs, square.inverse, power)


@jit
def cut_digits(numbers: NDArray[np.uint8], width: int, digits: NDArray[np.uint16]) -> None:
    """Cut big-endian numbers [n, size] into ``digits`` [tables, n] of so many bits, ten at most, the lowest first."""
    n, size = numbers.shape
    for d in range(len(digits)):
        byte, shift = width * d // 8, width * d % 8
        for i in range(n):
            found = 0
            for b in range(min(3, size - byte)):
                found |= int(numbers[i, size - 1 - byte - b]) << 8 * b
            digits[d, i] = found >> shift & (1 << width) - 1


@jit
def table_power_lanes(
    table: Limbs, digits: NDArray[np.uint16], square: OddModulus, products: Limbs, totals: Limbs
) -> None:
    """Raise a base by ``table`` [tables, width, 2, t] and ``digits`` [tables, n] to ``products`` [groups, k, 8].

    ``totals`` [groups, 8, t], the sums of the l, are not settled. What lanes beyond n hold means nothing.
    """
    tables, n = digits.shape
    flat, size, t = table.reshape(-1), table.shape[1] * 2 * table.shape[3], table.shape[3]
    starts, y, scratch = np.zeros(LANES, np.int64), zero_lanes(t), zero_lanes(len(square.limbs) + t)
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
                    prefetch_words(flat, (d + 1) * size + part, size // groups + LANES)
                first = group * LANES
                for lane in range(min(LANES, n - first)):
                    starts[lane] = d * size + np.int64(digits[d, first + lane]) * 2 * t
                for lane in range(min(LANES, n - first - LANES)):
                    prefetch_words(flat, d * size + np.int64(digits[d, first + LANES + lane]) * 2 * t, 2 * t)
                for lane in range(min(LANES, n - first)):
                    for j in range(t):
                        totals[group, lane, j] += flat[starts[lane] + t + j]
                gather(y, starts, flat)
                multiply(scratch, products[group], y, square.limbs, square.inverse, products[group])


class CrtFactors(NamedTuple):
    """What one prime's powers are multiplied by, each with the radix that a product divides by; N is the prime."""

    by_total: Limbs  # N modulo N²
    by_plaintext: Limbs  # n modulo N²
    constant: Limbs  # 1 - n·s modulo N² [k], where s was added to the plaintexts
    crt: Limbs  # what is 1 modulo N² and 0 modulo the other prime's square


@jit
def add_prime_share(
    products: Limbs, totals: Limbs, plaintexts: Limbs, factors: CrtFactors, square: OddModulus, whole: OddModulus,
    out: Limbs,
) -> None:  # fmt: skip
    """Add to ``out`` [groups, K, 8] what one prime gives for the ciphertexts."""
    k, t, rows = len(square.limbs), totals.shape[2], plaintexts.shape[1]
    full = k + k % 2
    scratch, y, unit = zero_lanes(len(whole.limbs) + full), zero_lanes(t), zero_lanes(full)
    part, last = zero_lanes(k), zero_lanes(full)
    share = zero_lanes(len(whole.limbs))
    for group in range(len(products)):
        for lane in range(LANES):
            put_lane(y, lane, totals[group, lane])
        carry_lanes(y)
        multiply(scratch[: k + t], factors.by_total, y, square.limbs, square.inverse, unit[:k])
        multiply(scratch[: k + rows], factors.by_plaintext, plaintexts[group], square.limbs, square.inverse, part)
        for j in range(k):
            for lane in range(LANES):
                unit[j, lane] += part[j, lane] + factors.constant[j]
        carry_lanes(unit)
        multiply(scratch[: k + full], products[group], unit, square.limbs, square.inverse, last[:k])
        multiply(scratch, factors.crt, last, whole.limbs, whole.inverse, share)
        for j in range(len(whole.limbs)):
            for lane in range(LANES):
                out[group, j, lane] += share[j, lane]


@jit
def complete_lanes(rows: Limbs, plaintexts: Limbs, by_plaintext: Limbs, constant: Limbs, whole: OddModulus) -> None:
    """Multiply ``rows`` [n, K] by constant + by_plaintext·m for lanes ``plaintexts`` [groups, rows of m, 8].

    Both have the radix of a factor of N besides, and ``by_plaintext`` that of m's limbs, too.
    """
    k, size = len(whole.limbs), plaintexts.shape[1]
    full = k + k % 2
    scratch, unit, number, starts = zero_lanes(k + full), zero_lanes(full), zero_lanes(k), np.empty(LANES, np.int64)
    for group in range(len(plaintexts)):
        for lane in range(LANES):
            starts[lane] = min(group * LANES + lane, len(rows) - 1) * k
        gather(number, starts, rows)
        multiply(scratch[: k + size], by_plaintext, plaintexts[group], whole.limbs, whole.inverse, unit[:k])
        for j in range(k):
            for lane in range(LANES):
                unit[j, lane] += constant[j]
        carry_lanes(unit)
        multiply(scratch, number, unit, whole.limbs, whole.inverse, number)
        for lane in range(min(LANES, len(rows) - group * LANES)):
            row = rows[group * LANES + lane]
            get_lane(number, lane, row)
            reduce_below(row, whole.limbs)


@jit
def to_rows(lanes: Limbs, m: OddModulus, rows: Limbs) -> None:
    """Settle ``lanes`` [groups, k, 8], reduce them below m, and write them to rows."""
    for i in range(len(rows)):
        get_lane(lanes[i // LANES], i % LANES, rows[i])
        carry_row(rows[i])
        reduce_below(rows[i], m.limbs)


@jit
def horner(
    cells: Limbs, fit: int, shift: int, last: Limbs, square: OddModulus, one: Limbs,
    squared: Limbs, rows: Limbs,
) -> None:  # fmt: skip
    """Combine each ``fit`` of the cells [., k], ``shift`` bits apart, times ``last`` [n, k], to ``rows`` [n, k].

    ``one`` [k, 8] and ``squared`` [t, 8] are the powers 1 and 2 of 2^(52·t), where t is k made even.
    """
    k, t = len(square.limbs), len(squared)
    scratch, wide, number, y = zero_lanes(k + t), zero_lanes(2 * t), zero_lanes(t), zero_lanes(t)
    for start in range(0, len(rows), LANES):
        number[:k] = one
        for place in range(fit - 1, -1, -1):
            for _ in range(shift if place < fit - 1 else 0):
                square_of(wide, number, square.limbs, square.inverse, number[:k])
            y[:] = _ZERO
            y[0] = _ONE
            for lane in range(min(LANES, len(rows) - start)):
                cell = (start + lane) * fit + place
                if cell < len(cells):
                    put_lane(y, lane, cells[cell])
            multiply(scratch, y[:k], squared, square.limbs, square.inverse, y[:k])
            multiply(scratch, number[:k], y, square.limbs, square.inverse, number[:k])
        for lane in range(min(LANES, len(rows) - start)):
            put_lane(y, lane, last[start + lane])
        multiply(scratch, number[:k], y, square.limbs, square.inverse, number[:k])
        for lane in range(min(LANES, len(rows) - start)):
            get_lane(number, lane, rows[start + lane])
            reduce_below(rows[start + lane], square.limbs)


@jit
def power_lanes(
    bases: Limbs, digits: NDArray[np.uint8], m: OddModulus, one: Limbs, squared: Limbs, rows: Limbs
) -> None:
    """Raise ``bases`` [n, k] to one exponent, given by digits of five bits, highest first; constants as above."""
    k, t = len(m.limbs), len(squared)
    scratch, wide, number, y = zero_lanes(k + t), zero_lanes(2 * t), zero_lanes(t), zero_lanes(t)
    table = zero_lanes(32 * t).reshape(32, t, LANES)
    for start in range(0, len(rows), LANES):
        for lane in range(LANES):
            put_lane(y, lane, bases[min(start + lane, len(rows) - 1)])
        multiply(scratch, y[:k], squared, m.limbs, m.inverse, y[:k])
        table[0, :k] = one
        for i in range(1, 32):
            multiply(scratch, table[i - 1, :k], y, m.limbs, m.inverse, table[i, :k])
        number[:k] = one
        for digit in digits:
            for _ in range(5):
                square_of(wide, number, m.limbs, m.inverse, number[:k])
            multiply(scratch, number[:k], table[digit], m.limbs, m.inverse, number[:k])
        y[:] = _ZERO
        y[0] = _ONE
        multiply(scratch, number[:k], y, m.limbs, m.inverse, number[:k])
        for lane in range(min(LANES, len(rows) - start)):
            get_lane(number, lane, rows[start + lane])
            reduce_below(rows[start + lane], m.limbs)
