"""The ring Z[X]/(X^N + 1) modulo q0·q1: constants, and tables of its number-theoretic transforms.

A residue is a *balanced* integer in a double, |x| ≤ q/2 up to rounding, and a product is
h = x·w, l = fma(x, w, -h), k ≈ x·w/q, fma(-k, q, h) + l, where k is fma(x, w/q, c) - c with c = 3·2^51: the sum has
no digits behind the point. With |x| = B·q and |w| ≤ q/2 the quotient is wrong by B/32 at most before it is rounded,
since q < 2^49 and 1/q is a double almost exactly, so that the result is at most (1/2 + B/31)·q. Every intermediate is
an integer below 2^53, hence exact, and the quotient at most 2^51, hence rounded to an integer, as long as B < 8.

*Transform.* N = 8^p. Three levels of X^n - c = (X^(n/2) - r)(X^(n/2) + r), r² = c, split the ring into eight of degree
N/8, which become the eight lanes of a vector; all further levels work on whole vectors. A transformed polynomial is
float64 [N/8, 8], a plain one float64 [N] of coefficients. From |x| ≤ q/2 twelve levels lead to B < 8, without any
correction in between; the inverse reduces three of eight values every three levels, and all stay below 1.4·q. Of 0/1
coefficients five levels are sums of table entries, since a byte of eight of them has 256 values: where few are 1, as
in the indicator of a group, those that are read stay in the nearest cache.

Reference: J. Cooley, J. Tukey (1965); the product with a fused multiply-add is as in J. van der Hoeven, G. Lecerf,
G. Quintin, *Modular SIMD arithmetic in Mathemagix*, ACM TOMS 43 (2016), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Int64s = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Int8s = NDArray[np.int8]
Objects = NDArray[np.object_]

LANES, WORD_BITS = 8, 49
#: Degrees by whether they need ``insecure``; powers of eight, so that three levels are one pass.
SECURE_DEGREE, SMALL_DEGREE = 4096, 512
#: The two largest primes below 2^49 that are 1 modulo 8192.
PRIMES = ((1 << 49) - 204799, (1 << 49) - 434175)
Q0, Q1 = PRIMES
#: Variance of an error (21 + 21 fair bits) and of a coefficient of a secret (uniform in -1, 0, 1).
ERROR_BITS = 21
ERROR_VARIANCE, SECRET_VARIANCE = ERROR_BITS / 2, 2 / 3
#: log2(q0·q1), which the Homomorphic Encryption Standard bounds by 109 at degree 4096 for 128 bits.
LOG_MODULUS = math.log2(Q0) + math.log2(Q1)

assert all(q < 1 << WORD_BITS and q % (2 * SECURE_DEGREE) == 1 for q in PRIMES)
assert Q0 != Q1
assert LOG_MODULUS <= 109
assert all(abs(Fraction(1 / q) * q - 1) < Fraction(1, 1 << 60) for q in PRIMES)  # as if no digit were lost
assert all(8 ** round(math.log(n, 8)) == n for n in (SECURE_DEGREE, SMALL_DEGREE))


class Transform(NamedTuple):
    """Constants of one prime at one degree; ``n`` is the degree.

    Attributes:
        constants: float64 [4]: q, 1/q, 1/n modulo q, and nothing.
        first, first_back: float64 [7]: factors of the first three levels, and their inverses, of which the
            first one is times 1/n.
        later, later_back: float64 [blocks, 7, 8]: those of each further pass, one block after the other.
        bits: float64 [6 * 256, 8]: the first three levels of Σ X^(i·n/8) over the set bits i of a byte, times 1, r, s,
            s·r, t and t·r of the first three factors r, s, t of the next levels.
    """

    constants: Reals
    first: Reals
    first_back: Reals
    later: Reals
    later_back: Reals
    bits: Reals


class Ring(NamedTuple):
    """A ring of degree ``n``: its transforms modulo q0 and q1."""

    n: int
    transforms: tuple[Transform, Transform]


def vectors(*shape: int) -> Reals:
    """Return zeros that begin with a line of the cache; else each vector would lie in two lines."""
    size = math.prod(shape)
    room = np.zeros(size + LANES)
    start = -room.ctypes.data // room.itemsize % LANES
    return room[start : start + size].reshape(shape)


def balanced(number: int, q: int) -> int:
    """Return the residue of least absolute value."""
    return (number + q // 2) % q - q // 2


@cache
def ring(n: int) -> Ring:
    """Return the ring of a degree that is a power of eight."""
    first, second = (_transform(n, q) for q in PRIMES)
    return Ring(n, (first, second))


def _root(n: int, q: int) -> int:
    """Return an element of order 2n."""
    found = next(x for x in range(2, q) if pow(x, (q - 1) // 2, q) == q - 1)
    return pow(found, (q - 1) // (2 * n), q)


def _transform(n: int, q: int) -> Transform:
    """Tabulate the factors.

    A node of the tree stands for X^m - psi^e; its factor is psi^(e/2), and its children have the exponents e/2 and
    e/2 + n.
    """
    psi, passes = _root(n, q), round(math.log(n, 8))
    powers = [1]
    for _ in range(2 * n - 1):
        powers.append(powers[-1] * psi % q)
    nodes = [[n]]  # of a level, from the left
    for _ in range(3 * passes):
        nodes.append([child for e in nodes[-1] for child in (e // 2, e // 2 + n)])
    assert all(e % 2 for e in nodes[-1])

    def factors(level: int, node: int, sign: int) -> list[int]:
        """Return the seven factors of three levels below one node."""
        found = []
        for down in range(3):
            for child in range(1 << down):
                e = nodes[level + down][(node << down) + child] // 2
                found.append(balanced(powers[sign * e % (2 * n)], q))
        return found

    later: dict[int, list[list[list[int]]]] = {1: [], -1: []}
    for sign, blocks in later.items():
        for step in range(1, passes):
            below = 8 ** (step - 1)  # nodes of one lane at that level
            for block in range(below):
                lanes = [factors(3 * step, lane * below + block, sign) for lane in range(LANES)]
                blocks.append(np.array(lanes, dtype=object).T.tolist())
    first, first_back, share = factors(0, 0, 1), factors(0, 0, -1), pow(n, -1, q)
    r, s, t = (np.array(each, dtype=object) for each in later[1][0][:3])
    first_back[0] = balanced(first_back[0] * share, q)
    return Transform(
        constants=np.array([q, 1 / q, balanced(share, q), 0.0], dtype=np.float64),
        first=np.array(first, dtype=np.float64),
        first_back=np.array(first_back, dtype=np.float64),
        later=_table(later[1]),
        later_back=_table(later[-1]),
        bits=_bit_tables(first, [np.ones(LANES, dtype=object), r, s, s * r, t, t * r], q),
    )


def _table(factors: list[list[list[int]]]) -> Reals:
    table = vectors(len(factors), 7, LANES)
    table[:] = np.array(factors, dtype=np.float64).reshape(table.shape)
    return table


def _bit_tables(first: list[int], products: Sequence[Objects], q: int) -> Reals:
    """Return what the first three levels make of each byte of 0/1 coefficients at distance n/8, times the products."""
    tables = vectors(len(products), 256, LANES)
    for byte in range(256):
        values, used = [byte >> i & 1 for i in range(LANES)], 0
        for down in range(3):
            half = 4 >> down
            for node in range(1 << down):
                for i in range(node * 2 * half, node * 2 * half + half):
                    low, high = values[i], values[i + half] * first[used]
                    values[i], values[i + half] = (low + high) % q, (low - high) % q
                used += 1
        for table, product in zip(tables, products, strict=True):
            table[byte] = [balanced(value, q) for value in product * values]
    return tables.reshape(-1, LANES)
