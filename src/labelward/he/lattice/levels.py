"""Which rows are summed at a level of a tree: those that the peer has, or those of the nodes, encrypted again.

Encrypting a row takes a third of a microsecond. Encrypted again in the order of the nodes, the rows of a sum lie in one
block or two in place of all; at every R-th coefficient one product and one mask serve R sums, for R times the bytes a
row. :func:`best_spacing` compares what each way takes: work of both parties, and bytes at the rate of the line.

The times are microseconds of one core of a Zen 4 EPYC. Only their ratios, and that to the line, matter.
"""

from __future__ import annotations

from typing import NamedTuple

from labelward.he.base import SPACINGS, Layout, LevelWork
from labelward.he.lattice.digits import digits_of, sums_together
from labelward.he.lattice.loops import DENSE
from labelward.he.lattice.ring import WORD_BITS
from labelward.he.lattice.row_data import set_count

#: A transform, its first eight coefficients, a product of values, and all that is done to the words of fresh rows until
#: they are ready for sums: of a polynomial of 4096 coefficients and one prime.
_TRANSFORM, _FEW, _PRODUCT, _WORDS = 5.0, 2.5, 0.9, 98.0
#: Adding a word of a spaced row to its sum.
_ADD = 0.0002
#: Masking, packing and opening of a window besides what grows with the digits; and for each digit of a single sum.
_SEAL, _WORD = 75.0, 4.0
_MOST_COEFFICIENTS = 1 << 20  # of the rows of a level: 100 bytes each in memory, for five digits


class LevelChoice(NamedTuple):
    """How levels are summed: ``reencrypt`` as in the engine's parameters, ``bandwidth`` in million bits a second."""

    reencrypt: str
    bandwidth: float


class _Shape(NamedTuple):
    n: int
    digits: int
    sets: int

    def product(self, factors: int) -> float:
        """Return the time of one transform of an indicator, times so many polynomials, for both primes."""
        return 2 * (_TRANSFORM + factors * _PRODUCT) * self.n / 4096


def best_spacing(layout: Layout, work: LevelWork, n: int, secrets: int, choice: LevelChoice) -> int:
    """Return the spacing of the cheapest way; 0 for rows that the peer has."""
    if choice.reencrypt == "never":
        return 0
    if choice.reencrypt != "auto":
        return int(choice.reencrypt)
    built = sum(work.nodes)
    ways = [0, *(each for each in SPACINGS if each * built <= _MOST_COEFFICIENTS or each == 1)]
    return min(ways, key=lambda each: (level_cost(each, layout, work, n, secrets, choice.bandwidth), each))


def level_cost(spacing: int, layout: Layout, work: LevelWork, n: int, secrets: int, bandwidth: float) -> float:
    """Return the microseconds of one way: both parties one after the other, and the line."""
    found = digits_of(layout, n)
    shape = _Shape(n, found.total, set_count(found, secrets))
    apart = max(1, spacing)
    sums = len(work.nodes) * sum(work.bins)
    sent = sums * (WORD_BITS / 8) * (n * shape.sets / sums_together(n, apart) + shape.digits)
    spent = _sum_time(spacing, shape, work) + seal_time(apart, n, shape.digits) * sums
    if spacing:
        rows = sum(work.nodes)
        sent += rows * spacing * shape.digits * 2 * WORD_BITS / 8
        spent += rows * spacing * shape.digits * 2 * _WORDS / 4096
    return spent + sent * 8 / bandwidth


def seal_time(spacing: int, n: int, digits: int) -> float:
    """Return the time of sealing and decrypting a sum."""
    if spacing == 1:
        return (_SEAL + digits * _WORD) * n / 4096
    masks = digits * 2 * ((_FEW if spacing <= 8 else _TRANSFORM) + _PRODUCT)
    together = (1 + (spacing - 1) / 128) * _SEAL + masks
    return together / spacing * n / 4096


def spaced_effort(products: float, rows: int, spacing: int, digits: int) -> float:
    """Return what windows of spaced rows of one set take, in single rows that are added to sums.

    Args:
        products: of a window and a block; ``rows``: in all cells.
    """
    one = _Shape(4096, digits, 1).product(1)
    return DENSE * (products + rows * spacing * digits * 2 * _ADD / one)


def _sum_time(spacing: int, shape: _Shape, work: LevelWork) -> float:
    """Return the time of adding rows to all cells of the level."""
    if spacing > 1:
        one, total = shape.product(shape.sets), 0.0
        for rows in work.nodes:
            blocks = 1 + (rows - 1) * spacing / shape.n
            # a window may begin with the last cells of another node or column
            total += sum(bins / spacing + 1 - 1 / spacing for bins in work.bins) * blocks * one
            total += rows * len(work.bins) * spacing * shape.digits * 2 * _ADD
        return total
    one, total = shape.product(shape.sets), 0.0
    for rows in work.nodes:
        blocks = -(-work.rows // shape.n) if not spacing else 1 + (rows - 1) / shape.n
        total += sum(bins * blocks * min(1.0, rows / (bins * blocks * DENSE)) for bins in work.bins) * one
    return total
