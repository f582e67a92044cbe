"""Loops over rows and cells (``digits``), compiled; no Python integers.

A *row* is a number c as b, b/N modulo R, and l, with c·R = b·(1 + N·l) modulo N²: k limbs each. Multiplying a cell by a
row takes a product with the digit b, and l is added to L.
"""

import numpy as np
from numpy.typing import NDArray

from labelward.he.paillier.backends.gmp.calls import at, call_4, call_5, carry_of, prefetch_line
from labelward.he.paillier.backends.gmp.digits import (
    CellModulus,
    Limbs,
    add_words,
    cell_from_number,
    cell_value,
    copy_words,
    less_than,
    montgomery_product,
    montgomery_reduce,
    multiply_cell,
    multiply_digit,
    square_cell,
    subtract_carry,
)
from labelward.he.paillier.backends.gmp.load import Mpn
from labelward.jit import compiled as jit

_LINE = 8  # words that a cache moves at a time
_TILE = 512  # cells that share a table while it is in the second-level cache


@jit
def _add_total(mpn: Mpn, total: int, number: int, words: int) -> None:
    if carry_of(mpn.add, total, total, number, words) != 0:
        add_words(total + 8 * words, 1, 1)


@jit
def _fetch(start: int, words: int) -> None:
    for j in range(0, words, _LINE):
        prefetch_line(start + 8 * j)


@jit
def enter_cells(mpn: Mpn, m: CellModulus, work: Limbs, numbers: Limbs, cube: Limbs, cells: Limbs) -> None:
    """Write ``numbers`` [n, 2k] below N² as ``cells`` [n, 3k+1]; ``cube`` is the cell of R²."""
    for i in range(len(cells)):
        cell = at(cells) + 8 * i * cells.shape[1]
        cell_from_number(mpn, m, at(work), at(numbers) + 8 * i * numbers.shape[1], cell)
        multiply_cell(mpn, m, at(work), cell, at(cube))


@jit
def cell_values(mpn: Mpn, m: CellModulus, work: Limbs, cells: Limbs, out: Limbs) -> None:
    """Write what cells stand for, modulo N², to ``out`` [n, 2k]; the cells are lost."""
    for i in range(len(cells)):
        cell_value(mpn, m, at(work), at(cells) + 8 * i * cells.shape[1], at(out) + 8 * i * out.shape[1])


@jit
def begin_split_cells(
    mpn: Mpn, m: CellModulus, work: Limbs, cells: Limbs, rows: Limbs, prefixes: Limbs, running: Limbs
) -> None:
    """Begin to write ``cells`` [n, 3k+1] with L = 0 as ``rows`` [n, 3, k], which hold X in the place of l.

    ``running`` [k], R modulo N, becomes b_1 ··· b_n / R^(n-1), and ``prefixes`` [n, k] what it was before each of them.
    """
    size = 8 * m.limbs
    for i in range(len(cells)):
        cell, row = at(cells) + 8 * i * cells.shape[1], at(rows) + 3 * size * i
        copy_words(row, cell, m.limbs)
        call_4(mpn.low, row + size, row, m.inverse, m.limbs)
        copy_words(row + 2 * size, cell + size, m.limbs)
        copy_words(at(prefixes) + size * i, at(running), m.limbs)
        montgomery_product(mpn, m, at(work) + size, at(work), at(running), row, row + size, at(running))


@jit
def finish_split_cells(mpn: Mpn, m: CellModulus, work: Limbs, rows: Limbs, prefixes: Limbs, inverse: Limbs) -> None:
    """Finish :func:`begin_split_cells`, given 1 over its product; l = X/(R·b)."""
    size = 8 * m.limbs
    q, wide, single, rest = at(work), at(work) + size, at(work) + 3 * size, at(work) + 4 * size
    for i in range(len(rows) - 1, -1, -1):
        row = at(rows) + 3 * size * i
        call_5(mpn.multiply, wide, at(inverse), m.limbs, at(prefixes) + size * i, m.limbs)
        montgomery_reduce(mpn, m, rest, q, wide, single)
        call_5(mpn.multiply, wide, row + 2 * size, m.limbs, single, m.limbs)
        montgomery_reduce(mpn, m, rest, q, wide, row + 2 * size)
        montgomery_product(mpn, m, rest, q, at(inverse), row, row + size, at(inverse))


@jit
def sort_by_cell(
    numbers: NDArray[np.int32], held: NDArray[np.int64], order: NDArray[np.int64], ranks: NDArray[np.int64]
) -> int:  # fmt: skip
    """Sort those of ``numbers`` that are not -1, into ``ranks``, with their places in ``order``; return how many."""
    for number in numbers:
        if number >= 0:
            held[number + 1] += 1
    following = np.cumsum(held)
    for i in range(len(numbers)):
        if numbers[i] >= 0:
            place = following[numbers[i]]
            following[numbers[i]] += 1
            order[place] = i
            ranks[place] = numbers[i]
    return int(held.sum())


@jit
def multiply_by_group(
    mpn: Mpn, m: CellModulus, work: Limbs, items: Limbs, whole: bool,
    order: NDArray[np.int64], ranks: NDArray[np.int64], part: tuple[int, int, int], places: Limbs,
    owners: NDArray[np.int64],
) -> None:  # fmt: skip
    """Multiply items cell by cell: entry e is item ``order[e]`` in the cell of rank ``ranks[e]``, which never falls.

    Items are rows or, if ``whole``, cells. Of ``part`` = (first, stop, number) come the entries, and what this part
    finds of the cell of rank r goes to place r + number, no other's; ``owners`` says r.
    """
    k, size = m.limbs, 8 * m.limbs
    first, stop, number = part
    length = 3 * k + 1 if whole else 3 * k
    for e in range(first, stop):
        item, place = at(items) + 8 * length * order[e], ranks[e] + number
        cell = at(places) + 8 * (3 * k + 1) * place
        if e + 1 < stop:
            _fetch(at(items) + 8 * length * order[e + 1], length)
        if e > first and ranks[e] == ranks[e - 1]:
            if whole:
                multiply_cell(mpn, m, at(work), cell, item)
            else:
                multiply_digit(mpn, m, at(work), cell, item, item + size)
                _add_total(mpn, cell + 2 * size, item + 2 * size, k)
            continue
        owners[place] = ranks[e]
        if whole:
            copy_words(cell, item, length)
        else:
            copy_words(cell, item, k)
            places[place, k : 2 * k] = np.uint64(0)
            copy_words(cell + 2 * size, item + 2 * size, k)
            places[place, 3 * k] = np.uint64(0)


@jit
def multiply_cells(
    mpn: Mpn, m: CellModulus, work: Limbs, cells: Limbs, factors: Limbs, which: NDArray[np.int64]
) -> None:  # fmt: skip
    """Multiply each of ``cells`` by the cell ``factors[which]``."""
    length = cells.shape[1]
    for i in range(len(cells)):
        multiply_cell(mpn, m, at(work), at(cells) + 8 * length * i, at(factors) + 8 * length * which[i])


@jit
def tabulate_cells(mpn: Mpn, m: CellModulus, work: Limbs, unit: Limbs, cells: Limbs) -> None:
    """Write the powers 1, 2, ... of the cell ``unit`` after ``cells[0]``; the unit becomes the power after the last."""
    length, last = cells.shape[1], len(cells) - 1
    for i in range(last):
        cell = at(cells) + 8 * length * (i + 1)
        copy_words(cell, cell - 8 * length, length)
        multiply_cell(mpn, m, at(work), cell, at(unit))
    multiply_cell(mpn, m, at(work), at(unit), at(cells) + 8 * length * last)


@jit
def table_power_cells(
    mpn: Mpn, m: CellModulus, work: Limbs, table: Limbs, digits: NDArray[np.uint16], start: Limbs, cells: Limbs
) -> None:  # fmt: skip
    """Write to ``cells`` the cell ``start`` times the powers that ``digits`` [tables, n] tell.

    ``table`` [tables, width, 3, k] has the powers of the base as rows.
    """
    k, size, length = m.limbs, 8 * m.limbs, 3 * m.limbs + 1
    width = table.shape[1]
    for tile in range(0, len(cells), _TILE):
        stop = min(tile + _TILE, len(cells))
        for i in range(tile, stop):
            copy_words(at(cells) + 8 * length * i, at(start), length)
        for d in range(len(table)):
            for i in range(tile, stop):
                row = at(table) + 3 * size * (d * width + np.int64(digits[d, i]))
                if i + 1 < stop:
                    _fetch(at(table) + 3 * size * (d * width + np.int64(digits[d, i + 1])), 3 * k)
                cell = at(cells) + 8 * length * i
                multiply_digit(mpn, m, at(work), cell, row, row + size)
                _add_total(mpn, cell + 2 * size, row + 2 * size, k)


@jit
def add_plaintexts(
    mpn: Mpn, m: CellModulus, work: Limbs, plaintexts: Limbs, factors: Limbs, offset: Limbs, cells: Limbs
) -> None:
    """Multiply ``cells`` by 1 + N·(f·m + offset), for each m of ``plaintexts`` [n, s·k].

    ``factors`` [s, 2, k] are f·R, f·R², ... modulo N, each with itself over N, modulo R.
    """
    k, size = m.limbs, 8 * m.limbs
    t, q, rest = at(work), at(work) + size, at(work) + 2 * size
    for i in range(len(cells)):
        total = at(cells) + 8 * i * cells.shape[1] + 2 * size
        for j in range(len(factors)):
            factor = at(factors) + 2 * size * j
            montgomery_product(
                mpn, m, rest, q, at(plaintexts) + 8 * i * plaintexts.shape[1] + size * j, factor, factor + size, t
            )
            _add_total(mpn, total, t, k)
        _add_total(mpn, total, at(offset), k)


@jit
def complete_ciphertexts(
    mpn: Mpn, m: CellModulus, work: Limbs, plaintexts: Limbs, factors: Limbs, offset: Limbs, whole: Limbs,
    numbers: Limbs,
) -> None:  # fmt: skip
    """Multiply ``numbers`` [n, 2k] below N² by 1 + N·m; ``whole`` [2k] is N².

    ``plaintexts``, ``factors`` and ``offset`` are as in :func:`add_plaintexts`, with f = R². What is added to a number
    is N times it times m, of which the number modulo N is enough.
    """
    k, size = m.limbs, 8 * m.limbs
    t, other, q, wide, rest = at(work), at(work) + size, at(work) + 2 * size, at(work) + 3 * size, at(work) + 5 * size
    for i in range(len(numbers)):
        number = at(numbers) + 16 * k * i
        copy_words(t, at(offset), k)
        for j in range(len(factors)):
            factor = at(factors) + 2 * size * j
            plain = at(plaintexts) + 8 * i * plaintexts.shape[1] + size * j
            montgomery_product(mpn, m, rest, q, plain, factor, factor + size, other)
            subtract_carry(mpn, m, t, carry_of(mpn.add, t, t, other, k))
        montgomery_reduce(mpn, m, rest, q, number, other)
        call_5(mpn.multiply, wide, other, k, t, k)
        montgomery_reduce(mpn, m, rest, q, wide, other)
        call_5(mpn.multiply, wide, other, k, m.n, k)
        carry = carry_of(mpn.add, number, number, wide, 2 * k)
        if carry != 0 or not less_than(number, at(whole), 2 * k):
            carry_of(mpn.subtract, number, number, at(whole), 2 * k)


@jit
def join_residues(
    mpn: Mpn, first: Limbs, second: Limbs, weights: Limbs, whole: Limbs, other: Limbs, out: Limbs
) -> None:
    """Write first·weights[0] + second·weights[1] to ``out`` [n, 2s], less ``whole`` if it is not smaller.

    The factors have s limbs each, and ``other`` [2s] is room for a product.
    """
    s = first.shape[1]
    for i in range(len(out)):
        number = at(out) + 16 * s * i
        call_5(mpn.multiply, number, at(first) + 8 * s * i, s, at(weights), s)
        call_5(mpn.multiply, at(other), at(second) + 8 * s * i, s, at(weights) + 8 * s, s)
        carry = carry_of(mpn.add, number, number, at(other), 2 * s)
        if carry != 0 or not less_than(number, at(whole), 2 * s):
            carry_of(mpn.subtract, number, number, at(whole), 2 * s)


@jit
def combine_cells(mpn: Mpn, m: CellModulus, work: Limbs, cells: Limbs, fit: int, shift: int, into: Limbs) -> None:
    """Multiply ``into`` [n, 3k+1] by each ``fit`` of the cells, ``shift`` bits apart; what they hold is lost."""
    length = cells.shape[1]
    for i in range(len(into)):
        last = min((i + 1) * fit, len(cells)) - 1
        total = at(cells) + 8 * length * last
        for place in range(last - 1, i * fit - 1, -1):
            for _ in range(shift):
                square_cell(mpn, m, at(work), total)
            multiply_cell(mpn, m, at(work), total, at(cells) + 8 * length * place)
        multiply_cell(mpn, m, at(work), at(into) + 8 * length * i, total)


@jit
def power_cells(mpn: Mpn, m: CellModulus, work: Limbs, cells: Limbs, digits: NDArray[np.uint8], table: Limbs) -> None:
    """Raise ``cells`` with L = 0 to one exponent, given by digits of five bits, highest first.

    ``table`` [32, 3k+1], whose first cell is 1, is room for powers.
    """
    length = cells.shape[1]
    for i in range(len(cells)):
        cell = at(cells) + 8 * length * i
        for j in range(1, len(table)):
            entry = at(table) + 8 * length * j
            copy_words(entry, entry - 8 * length, length)
            multiply_cell(mpn, m, at(work), entry, cell)
        copy_words(cell, at(table) + 8 * length * np.int64(digits[0]), length)
        for digit in digits[1:]:
            for _ in range(5):
                square_cell(mpn, m, at(work), cell)
            multiply_cell(mpn, m, at(work), cell, at(table) + 8 * length * np.int64(digit))
