"""The loops that split encrypted rows and sum them, in numba, free of the interpreter's lock.

Numbers are rows and lanes as in ``limbs``. In what follows R is 2^(52·t), and N has t
limbs; a row c modulo N² is *split* as c = R·a·(1 + N·l), which makes products half as long
(``fixed_base``). Split rows are uint64 [n, 2, t]: a, then l.

Sums stay in *pieces* until the end: a product of the a, the total of the l, and a power e of R that is yet to be
multiplied. From each row R was split off, and each Montgomery product by a row's a divides by R, so both count one;
the product of two pieces, with 2·t limbs, divides by R², so their e add up and two are added.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.paillier.backends.ifma.limbs import (
    Limbs,
    OddModulus,
    carry_lanes,
    carry_row,
    pack_row,
    reduce_below,
    zero_lanes,
)
from labelward.he.paillier.backends.ifma.montgomery_ir import (
    LANES,
    LINE,
    gather,
    multiply,
    multiply_ahead,
    reduce,
    scatter,
)
from labelward.he.paillier.backends.ifma.work_lists import ListParts
from labelward.jit import compiled as jit

_ZERO = np.uint64(0)
_WORDS = LINE // 8
_SETTLE = 128  # words below 2^56 of which a word can take the sum, with room
_LOOSE = 8  # totals, of which each word of the sum has four bits more at most

#: Bits of a digit of e.
DIGIT = 10


class SplitFactors(NamedTuple):
    """What is multiplied, and what comes of it: split rows, or pieces.

    Attributes:
        numbers: [n, width]: a product below 2·N² in the first ``limbs``, then a total, in words below 2^56 where it is
            multiplied further, and below 2^60 where it is only closed.
    """

    numbers: Limbs
    exponents: NDArray[np.int64]  # int64 [n], of R; none where each is 1, as of rows
    limbs: int  # of a product; even, and t for rows
    power: int  # of R, by which one divides who multiplies by such a product: ``limbs`` over t


@jit
def begin_split_rows(rows: Limbs, root: OddModulus, one: Limbs, found: Limbs) -> Limbs:
    """Split rows [n, k]: from c to a and q, with prefixes of the products of all a of a lane.

    Lane i takes the i-th eighth of the rows. ``one`` [t, 8] is R modulo N. ``found`` [steps, 3, t, 8] becomes a, q and
    the prefix; the result [t, 8] is each lane's full product.
    """
    n, k, t, steps = len(rows), rows.shape[1], len(root.limbs), len(found)
    scratch, wide, total = zero_lanes(2 * t), zero_lanes(2 * t), zero_lanes(t)
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
def finish_split_rows(found: Limbs, inverted: Limbs, root: OddModulus, out: Limbs) -> None:
    """Finish :func:`begin_split_rows`: write ``out`` [n, 2, t]; ``inverted`` [t, 8] is -1 over its result, modulo N.

    c = a·R - q·N, so l = -q/(a·R).
    """
    steps, t = len(found), len(root.limbs)
    scratch, single, starts = zero_lanes(2 * t), zero_lanes(t), np.empty(LANES, np.int64)
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
def multiply_lists(
    source: SplitFactors,
    items: NDArray[np.int32],
    parts: ListParts,
    share: tuple[int, int],
    square: OddModulus,
    out: SplitFactors,
) -> None:
    """Multiply the factors of each part of a list: of part i to place i of ``out``, eight parts at a time.

    A block is eight consecutive parts, one in each lane; ``share`` = (first, step) selects the blocks first,
    first + step, and so on, so that threads share the work without a lock. The last factor of ``source`` is the number
    1, which fills lanes whose part is shorter than the longest one of the block: it only divides by R.

    Shapes: ``source.numbers`` [n + 1, width], a product of ``limbs`` limbs and then its total; ``out.numbers`` has a
    row for each part, and their number is made a multiple of eight.
    """
    # scratch and acc are the operands of the product; y holds the next factor, whose limbs beyond k stay zero
    k, width, limbs, neutral = len(square.limbs), source.numbers.shape[1], source.limbs, len(source.numbers) - 1
    scratch, acc, y = zero_lanes(k + limbs), zero_lanes(k), zero_lanes(limbs)
    low, factor = acc[: min(k, limbs)], y[: min(k, limbs)]
    sums = np.empty((LANES, out.numbers.shape[1] - out.limbs), np.uint64)
    places, exponents, ahead = np.empty(LANES, np.int64), np.empty(LANES, np.int64), np.empty((2 * LANES, 2), np.int64)
    base, lines = source.numbers.ctypes.data, -(-width // _WORDS) + (width % _WORDS > 0)
    starts, stops = np.empty(2 * LANES, np.int64), np.empty(2 * LANES, np.int64)  # of this block, and of the next
    for begin in range(share[0] * LANES, len(parts.starts), share[1] * LANES):
        # 1. stretches of the eight lists of this block, then of the next block, whose first factors are prefetched
        for lane in range(2 * LANES):
            part = begin + lane if lane < LANES else begin + lane - LANES + share[1] * LANES
            starts[lane] = parts.starts[part] if part < len(parts.starts) else 0
            stops[lane] = parts.stops[part] if part < len(parts.starts) else 0
        longest = stops[0] - starts[0]  # parts are sorted, the longest first
        # each Montgomery product divides by R^power; the factors' own exponents are added below
        exponents[:] = (longest - 1) * source.power
        sums[:] = _ZERO
        for position in range(longest):
            last = position == longest - 1
            # 2. per lane: add the factor's total and exponent, note where its product begins and what comes next
            for lane in range(LANES):
                at = starts[lane] + position
                item = np.int64(items[at]) if at < stops[lane] else neutral
                total = source.numbers[item, limbs:]
                for j in range(len(total)):
                    sums[lane, j] += total[j]
                exponents[lane] += source.exponents[item] if len(source.exponents) else item != neutral
                places[lane] = item * width
                # prefetch meanwhile: the next factor, or the first two factors of the next block
                part, at = (LANES + lane, starts[LANES + lane]) if last else (lane, at + 1)
                item = np.int64(items[at]) if at < stops[part] else neutral
                ahead[lane, 0], ahead[lane, 1] = base + item * width * 8, lines
                item = np.int64(items[at + 1]) if last and at + 1 < stops[part] else neutral
                ahead[LANES + lane, 0], ahead[LANES + lane, 1] = base + item * width * 8, lines if last else 0
            # 3. the first factors are only transposed into lanes; each further one is a product in all eight lanes
            if position == 0:
                acc[len(low) :] = _ZERO
                gather(low, places, source.numbers)
            else:
                gather(factor, places, source.numbers)
                multiply_ahead(scratch, acc, y, square.limbs, square.inverse, acc, ahead)
            if position % _SETTLE == _SETTLE - 1:  # before a word of a total overflows
                for lane in range(LANES):
                    carry_row(sums[lane])
        # 4. write product, total and exponent of each part; limbs of a product beyond those of N² are zero
        for lane in range(LANES):
            if longest > _LOOSE:
                carry_row(sums[lane])
            product, total = out.numbers[begin + lane], out.numbers[begin + lane, out.limbs :]
            for j in range(k, out.limbs):
                product[j] = _ZERO
            for j in range(len(total)):
                total[j] = sums[lane, j]
            out.exponents[begin + lane] = exponents[lane]
            places[lane] = (begin + lane) * len(product)
        scatter(acc, places, out.numbers)


@jit
def finalize(
    factors: SplitFactors, cells: NDArray[np.int64], share: tuple[int, int], table: Limbs, by_total: Limbs,
    root: OddModulus, square: OddModulus, made: NDArray[np.uint8],
) -> None:  # fmt: skip
    """Write the number that factor i stands for, big-endian, to row ``cells[i]`` of ``made``.

    Of the blocks of eight factors it takes those of ``share``, as :func:`multiply_lists` does. ``table``
    [digits, 2^DIGIT, 2, t] holds R^(i·2^(DIGIT·d)) times R², split. A product a with the total l stands for
    a·(1 + N·l) = a + N·(a·l modulo N), and so only N times that takes a product modulo N²: by ``by_total``, which is N
    and the powers of R that are lost on the way.
    """
    k, t, u, limbs = len(square.limbs), len(root.limbs), len(root.limbs) + 2, factors.limbs
    width, size, flat = factors.numbers.shape[1], made.shape[1], made.reshape(-1)
    scratch, acc, y, found, wide = zero_lanes(k + u), zero_lanes(k), zero_lanes(u), zero_lanes(k), zero_lanes(2 * t)
    digit, low = y[:t], found[:t]
    starts, sums, rows = np.empty(LANES, np.int64), np.empty((LANES, u), np.uint64), np.empty((LANES, k), np.uint64)
    for begin in range(share[0] * LANES, len(cells), share[1] * LANES):
        most = 0
        for lane in range(LANES):
            starts[lane] = (begin + lane) * width
            total = factors.numbers[begin + lane, limbs:]
            for j in range(u):
                sums[lane, j] = total[j]
            most = max(most, factors.exponents[begin + lane])
        gather(acc, starts, factors.numbers)
        # multiply by R^exponent, digit by digit, from the table; what the entries have as totals is added to the totals
        for d in range(len(table)):
            if most >> DIGIT * d == 0:
                break
            for lane in range(LANES):
                entry = factors.exponents[begin + lane] >> DIGIT * d & (1 << DIGIT) - 1
                starts[lane] = (d << DIGIT | entry) * 2 * t
                total = table[d, entry, 1]
                for j in range(t):
                    sums[lane, j] += total[j]
            gather(digit, starts, table)
            multiply(scratch, acc, digit, square.limbs, square.inverse, acc)
        for lane in range(LANES):
            starts[lane] = lane * u
        gather(y, starts, sums)
        carry_lanes(y)
        # found = N · (a · total modulo N): a is first reduced modulo N, so both products have t limbs
        wide[:k] = acc
        wide[k:] = _ZERO
        reduce(wide, root.limbs, root.inverse, t)
        multiply(scratch, wide[t:], y, root.limbs, root.inverse, low)
        multiply(scratch, by_total, low, square.limbs, square.inverse, found)
        acc += found
        carry_lanes(acc)
        for lane in range(LANES):
            starts[lane] = lane * k
        scatter(acc, starts, rows)
        for lane in range(min(LANES, len(cells) - begin)):
            reduce_below(rows[lane], square.limbs)
            pack_row(rows[lane], flat, (cells[begin + lane] + 1) * size, size)
