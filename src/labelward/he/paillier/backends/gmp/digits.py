"""Arithmetic modulo N², with N odd, in digits to the base N, by libgmp's functions.

A *cell* stands for P = A + N·X/R modulo N², times 1 + N·L; R is 2^(64·k), k the limbs of N. It is 3k + 1 limbs: A ≤ N,
X < R, and L, a sum of numbers below R. Cells are in Montgomery's form: that of a number c has P = c·R.

**A product with one digit.** Let b < N, and q = A·b/N modulo R. Then A·b = q·N + R·r with -N < r ≤ N, and

    P·b/R = r + N·(X·b/R + q)/R,

so the new digits are r and X·b/R + q, where r and X·b/R are two Montgomery products modulo N (P. Montgomery, *Modular
Multiplication Without Trial Division*, 1985), the first of which also gives q. With b/N modulo R stored beside b, q is
the low half of one product. As A·b - q·N is R·r, it is r modulo R - 1 too: products modulo 2^(64·k) - 1 suffice, which
cost two thirds of whole ones, and r is known but for a multiple of R - 1, which the highest words tell. In all this
takes three quarters of the time of a product and a division by N².

**A product of two cells** needs A·A', A·X' + A'·X, and no X·X', for N² vanishes: five products instead of eight.

Numbers are little-endian limbs of 64 bits, given by address (``calls``).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.paillier.backends.gmp.calls import call_3, call_4, call_5, call_7, carry_of, load_word, store_word
from labelward.he.paillier.backends.gmp.load import WRAPPED_FROM, Mpn
from labelward.jit import compiled as jit

Limbs = NDArray[np.uint64]

_UNIT = 2.0**-64
_ONE, _ZERO = np.uint64(1), np.uint64(0)


class CellModulus(NamedTuple):
    """An odd modulus N with its constants, by address, each of ``limbs`` limbs.

    Attributes:
        limbs: k.
        n, inverse: N, and 1/N modulo R.
        minus: -R modulo N.
        cube, cube_inverse: R³ modulo N, and that over N, modulo R.
        top: the highest limb of N, as a fraction of 2^64.
    """

    limbs: int
    n: int
    inverse: int
    minus: int
    one: int
    cube: int
    cube_inverse: int
    top: float


def scratch_for(limbs: int) -> Limbs:
    """Return room for what the functions here do in between."""
    return np.empty(16 * limbs + 128, dtype=np.uint64)


@jit
def copy_words(to: int, source: int, words: int) -> None:
    """Copy words."""
    for j in range(words):
        store_word(to + 8 * j, load_word(source + 8 * j))


@jit
def add_words(number: int, word: int | np.int64, words: int) -> int:
    """Add one word to a number; returns what is carried."""
    added = np.uint64(word)
    for j in range(words):
        value = load_word(number + 8 * j) + added
        store_word(number + 8 * j, value)
        if value >= added:
            return 0
        added = _ONE
    return 1


@jit
def _less_one(number: int, words: int) -> None:
    for j in range(words):
        value = load_word(number + 8 * j)
        store_word(number + 8 * j, value - _ONE)
        if value != _ZERO:
            return


@jit
def less_than(a: int, b: int, words: int) -> bool:
    """Tell whether a < b."""
    for j in range(words - 1, -1, -1):
        x, y = load_word(a + 8 * j), load_word(b + 8 * j)
        if x != y:
            return bool(x < y)
    return False


@jit
def _full(number: int, words: int) -> bool:
    """Tell whether all bits are set."""
    j = 0
    while j < words and load_word(number + 8 * j) + _ONE == _ZERO:
        j += 1
    return j == words


@jit
def montgomery_product(mpn: Mpn, m: CellModulus, work: int, q: int, x: int, y: int, y_inverse: int, out: int) -> bool:
    """Write x·y/R modulo N, from 0 to N, to ``out``, for x < R and y ≤ N, given y/N modulo R.

    ``q`` becomes x·y/N modulo R; the result is whether x·y = q·N + R·(out - N), and not R·out. ``out`` may be x.
    """
    k = m.limbs
    call_4(mpn.low, q, x, y_inverse, k)
    if k < WRAPPED_FROM:
        second = work + 16 * k
        call_5(mpn.multiply, work, x, k, y, k)
        call_5(mpn.multiply, second, q, k, m.n, k)
        negative = bool(carry_of(mpn.subtract, out, work + 8 * k, second + 8 * k, k) != 0)
        if negative:
            carry_of(mpn.add, out, out, m.n, k)
        return negative
    second, scratch, top = work + 8 * k, work + 16 * k, 8 * k - 8
    expected = _UNIT * load_word(x + top) * (_UNIT * load_word(y + top)) - _UNIT * load_word(q + top) * m.top
    call_7(mpn.wrapped, work, k, x, k, y, k, scratch)
    call_7(mpn.wrapped, second, k, q, k, m.n, k, scratch)
    borrowed = carry_of(mpn.subtract, out, work, second, k) != 0
    # modulo R - 1, one that is borrowed weighs R, that is 1
    negative = bool(expected < _UNIT * load_word(out + top) - 0.5)
    if negative:
        carry_of(mpn.add, out, out, m.n, k)
    if negative and not borrowed:
        add_words(out, 1, k)
    if borrowed and not negative:
        _less_one(out, k)
    return negative


@jit
def subtract_carry(mpn: Mpn, m: CellModulus, number: int, carry: int) -> None:
    """Subtract N until nothing is carried."""
    while carry > 0:
        carry -= carry_of(mpn.subtract, number, number, m.n, m.limbs)


@jit
def _second(mpn: Mpn, m: CellModulus, x: int, q: int, negative: bool) -> None:
    """Add q, the quotient that the lower digit left, to the second digit x."""
    carry = carry_of(mpn.add, x, x, q, m.limbs)
    if negative:
        carry += carry_of(mpn.add, x, x, m.minus, m.limbs)
    subtract_carry(mpn, m, x, carry)


@jit
def multiply_digit(mpn: Mpn, m: CellModulus, work: int, cell: int, y: int, y_inverse: int) -> None:
    """Multiply a cell by y/R, for y ≤ N given with y/N modulo R."""
    size = 8 * m.limbs
    q, other, rest = work, work + size, work + 2 * size
    negative = montgomery_product(mpn, m, rest, q, cell, y, y_inverse, cell)
    montgomery_product(mpn, m, rest, other, cell + size, y, y_inverse, cell + size)
    _second(mpn, m, cell + size, q, negative)


@jit
def montgomery_reduce(mpn: Mpn, m: CellModulus, work: int, q: int, t: int, out: int) -> bool:
    """Write t/R modulo N to ``out``, for t < R², given in 2k limbs: below N if t < N·R, and else below R.

    As :func:`montgomery_product` otherwise.
    """
    k = m.limbs
    call_4(mpn.low, q, t, m.inverse, k)
    if k < WRAPPED_FROM:
        call_5(mpn.multiply, work, q, k, m.n, k)
        high = work + 8 * k
    else:
        high = work
        call_7(mpn.wrapped, work, k, q, k, m.n, k, work + 8 * k)
        # q·N ends like t, so that modulo R - 1 its upper half is left
        if carry_of(mpn.subtract, work, work, t, k) != 0:
            _less_one(work, k)
        if _full(work, k):
            add_words(work, 1, k)
    negative = bool(carry_of(mpn.subtract, out, t + 8 * k, high, k) != 0)
    if negative:
        carry_of(mpn.add, out, out, m.n, k)
    return negative


@jit
def cell_from_number(mpn: Mpn, m: CellModulus, work: int, number: int, cell: int) -> None:
    """Make the cell of c/R² from a number c < N² of 2k limbs."""
    k = m.limbs
    negative = montgomery_reduce(mpn, m, work, cell + 8 * k, number, cell)
    if negative:
        subtract_carry(mpn, m, cell + 8 * k, carry_of(mpn.add, cell + 8 * k, cell + 8 * k, m.minus, k))
    for j in range(k + 1):
        store_word(cell + 16 * k + 8 * j, _ZERO)


@jit
def _finish(mpn: Mpn, m: CellModulus, work: int, cell: int, low: int, cross: int, carry: int) -> None:
    """Write the digits of a product of cells, from A·A' and A·X' + A'·X, of which ``carry`` is what 2k limbs lack."""
    size = 8 * m.limbs
    q, other, rest = work, work + size, work + 2 * size
    negative = montgomery_reduce(mpn, m, rest, q, low, cell)
    while carry > 0:  # the sum is less than 2·N·R
        carry -= carry_of(mpn.subtract, cross + size, cross + size, m.n, m.limbs)
    montgomery_reduce(mpn, m, rest, other, cross, cell + size)
    _second(mpn, m, cell + size, q, negative)


@jit
def multiply_cell(mpn: Mpn, m: CellModulus, work: int, cell: int, factor: int) -> None:
    """Multiply a cell by another one, over R."""
    k, size = m.limbs, 8 * m.limbs
    low, cross, other, rest = work, work + 2 * size, work + 4 * size, work + 6 * size
    call_5(mpn.multiply, low, cell, k, factor, k)
    call_5(mpn.multiply, cross, cell, k, factor + size, k)
    call_5(mpn.multiply, other, cell + size, k, factor, k)
    carry = carry_of(mpn.add, cross, cross, other, 2 * k)
    _finish(mpn, m, rest, cell, low, cross, carry)
    total = cell + 2 * size
    carried = carry_of(mpn.add, total, total, factor + 2 * size, k)
    store_word(total + size, load_word(total + size) + load_word(factor + 3 * size) + np.uint64(carried))


@jit
def square_cell(mpn: Mpn, m: CellModulus, work: int, cell: int) -> None:
    """Square a cell whose L is 0, over R."""
    k, size = m.limbs, 8 * m.limbs
    low, cross, rest = work, work + 2 * size, work + 4 * size
    call_3(mpn.square, low, cell, k)
    call_5(mpn.multiply, cross, cell, k, cell + size, k)
    carry = carry_of(mpn.add, cross, cross, cross, 2 * k)
    _finish(mpn, m, rest, cell, low, cross, carry)


@jit
def cell_value(mpn: Mpn, m: CellModulus, work: int, cell: int, out: int) -> None:
    """Write the number that a cell stands for, P·(1 + N·L)/R modulo N², in 2k limbs; the cell is lost."""
    k, size = m.limbs, 8 * m.limbs
    x, total = cell + size, cell + 2 * size
    t, q, wide, rest = work, work + size, work + 2 * size, work + 4 * size
    multiply_digit(mpn, m, rest, cell, m.one, m.inverse)
    if not less_than(cell, m.n, k):
        carry_of(mpn.subtract, cell, cell, m.n, k)
    montgomery_product(mpn, m, rest, q, x, m.one, m.inverse, x)
    # L = low + high·R becomes low/R + high, and times R³/R is L·R
    montgomery_product(mpn, m, rest, q, total, m.one, m.inverse, t)
    subtract_carry(mpn, m, t, add_words(t, np.int64(load_word(total + size)), k))
    montgomery_product(mpn, m, rest, q, t, m.cube, m.cube_inverse, t)
    call_5(mpn.multiply, wide, cell, k, t, k)
    montgomery_reduce(mpn, m, rest, q, wide, t)
    subtract_carry(mpn, m, x, carry_of(mpn.add, x, x, t, k))
    while not less_than(x, m.n, k):
        carry_of(mpn.subtract, x, x, m.n, k)
    call_5(mpn.multiply, out, x, k, m.n, k)
    if carry_of(mpn.add, out, out, cell, k) != 0:
        add_words(out + size, 1, k)
