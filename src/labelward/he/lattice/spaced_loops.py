"""Compiled loops over rows at every R-th coefficient; see :mod:`.spaced` and, for conventions, :mod:`.loops`."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelward.he.lattice.loops import (
    SETTLE,
    Int32s,
    divided,
    product,
    reduced,
    residue,
    scratch,
    seal_polynomial,
    settle,
    to_coefficients,
)
from labelward.he.lattice.ring import PRIMES, Int8s, Int64s, Reals, Ring
from labelward.he.lattice.transform_ir import (
    add_product,
    forward_add,
    forward_signs,
    inverse,
    inverse_few,
    multiply_values,
)
from labelward.jit import jit

_Q0, _Q1 = PRIMES


@jit
def encrypt(
    ring: Ring, product_of: Reals, errors: Int64s, digits: Int64s, step: float, spacing: int, out: Int64s
) -> None:
    """Write the coefficients ``out`` [k, count, 2] of one block, as they travel (:class:`~.spaced.SpacedData`).

    ``product_of`` [k, 2, n] are a·s_k, destroyed; ``errors`` [k, n]; ``digits`` [rows, k]; ``step`` is step·q1 mod q0.
    """
    n = ring.n
    to_coefficients(ring, product_of, product_of)
    last = spacing * len(digits) - 1  # where coefficient 0 travels
    for k in range(digits.shape[1]):
        for prime in range(2):
            q, back = ring.transforms[prime].constants[:2]
            coefficients, own, words, whole = product_of[k, prime], errors[k], out[k, :, prime], np.int64(q)
            _write_words(coefficients[n - last :], own[n - last :], whole, words[:last])
            _write_words(coefficients, own, whole, words[last:])
            if prime == 0:
                for row in range(len(digits)):
                    message = product(np.float64(digits[row, k]), step, q, back)
                    at = last - row * spacing
                    out[k, at, 0] = residue(np.float64(out[k, at, 0]) + (-message if row else message), whole)


@jit
def _write_words(coefficients: Reals, errors: Int64s, q: Any, words: Int64s) -> None:
    for i in range(len(words)):
        words[i] = residue(coefficients[i] + errors[i], q)


@jit
def add_windows(
    ring: Ring, order: Int32s, lists: Int64s, bounds: Int64s, spacing: int, a: Reals, words: Int64s, total: Reals,
    sums: Int64s,
) -> None:  # fmt: skip
    """Add the rows of the cells of a few windows in consecutive blocks; a block is read once for all windows.

    Polynomials a are multiplied by the indicator of a window's rows. Of X^place·b_k, the product of one row, its sum
    needs the first R coefficients: numbers -place to R - 1 - place of b_k, which lie one after the other. So they are
    added up as they are; below 0 they come round, and X^n is -1.

    Args:
        order, lists: rows of each cell, as :func:`~labelward.he.lattice.ciphertexts.rows_by_cell` gives them; R cells
            are a window, the last of which may have fewer.
        bounds: first row of each block, and the end.
        a: polynomials [blocks, sets, 2, n] as values; ``words`` [blocks, count, k, 2]: coefficients of the b_k
            as they travel, from number -(R·rows - 1).
        total: sums of the products of a, [windows, sets, 2, n]; ``sums`` [windows, R, k, 2]: those of the words,
            reduced.
    """
    n, sets = ring.n, a.shape[1]
    eighth, low, high = n // 8, n // 8 - 1, 0
    while eighth >> high > 1:
        high += 1
    indicator, bits, nothing = scratch(n).reshape(eighth, 8), np.empty(eighth, np.uint8), np.zeros(eighth, np.uint8)
    progress, added, width = np.empty(len(lists), np.int64), np.zeros(len(total), np.int64), 2 * words.shape[2]
    for cell in range(len(lists)):  # rows of earlier blocks are passed over
        first, stop = lists[cell]
        progress[cell] = first + np.searchsorted(order[first:stop], bounds[0])
    for block in range(len(bounds) - 1):
        begin, end = bounds[block], bounds[block + 1]
        last, source = spacing * (end - begin) - 1, words[block].reshape(-1)
        for window in range(len(total)):
            some, target = False, sums[window].reshape(-1)
            for cell in range(window * spacing, min((window + 1) * spacing, len(lists))):
                at, v = progress[cell], cell - window * spacing
                while at < lists[cell, 1] and order[at] < end:
                    if not some:
                        some = True
                        bits[:] = 0
                    place = (order[at] - begin) * spacing + v
                    bits[place & low] |= np.uint8(1 << (place >> high))
                    if place >= spacing:
                        start = (last - place) * width
                        row = source[start : start + spacing * width]
                        for x in range(len(row)):
                            target[x] -= row[x]
                    else:
                        _add_first(source, place, last, n, sums[window])
                    added[window] += 1
                    if added[window] == SETTLE:
                        added[window] = 0
                        settle(sums[window])
                    at += 1
                progress[cell] = at
            if not some:
                continue
            for prime in range(2):
                t = ring.transforms[prime]
                if sets == 1:
                    factor, out = a[block, 0, prime].reshape(eighth, 8), total[window, 0, prime].reshape(eighth, 8)
                    forward_add(n, bits, indicator, factor, out, t.constants, t.bits, t.later)
                    continue
                forward_signs(n, bits, nothing, indicator, t.constants, t.bits, t.later)
                for each in range(sets):
                    add_product(n, indicator, a[block, each, prime], total[window, each, prime], t.constants)
    settle(sums)


@jit
def _add_first(source: Int64s, place: int, last: int, n: int, sums: Int64s) -> None:
    """Add the first R coefficients of X^place·b_k, of the first row of a block, to ``sums`` [R, k, 2]."""
    width, target = 2 * sums.shape[1], sums.reshape(-1)
    count = len(source) // width
    for v in range(len(sums)):
        at = last + v - place
        if at >= count:
            at -= n
        for x in range(width):
            if v < place:  # it comes round, and X^n is -1
                target[v * width + x] -= source[at * width + x]
            else:
                target[v * width + x] += source[at * width + x]


@jit
def seal_polynomials(
    ring: Ring, first: int, values: Reals, masked: Reals, elements: Reals, errors: Int8s, polynomials: Reals
) -> None:
    """Mask the polynomials ``values`` [few, sets, 2, n] of a few windows, which are destroyed, and divide them by q1.

    Args:
        first: number of the first of them, by which errors and polynomials are counted.
        masked, elements: the u [.., 2, n] and p1 [M, 2, n], as values; each polynomial takes the next one of all pairs.
        errors: the e1 [windows, sets, n].
        polynomials: out [sets, windows, n], balanced coefficients modulo q0.
    """
    sets = values.shape[1]
    for i in range(len(values)):
        for each in range(sets):
            mask, which = divmod((first + i) * sets + each, len(elements))
            e1, out = errors[first + i, each], polynomials[each, first + i]
            seal_polynomial(ring, values[i, each], masked[mask], elements[which], e1, out)


@jit
def seal_coefficients(ring: Ring, sums: Int64s, masked: Reals, bodies: Reals, flood: Int64s, sealed: Int64s) -> None:
    """Mask the words [windows, R, K, 2] by [p0_k·u]_v and flooding, and divide by q1; ``sealed`` [sums, K] modulo q0.

    ``masked`` are the u and ``bodies`` [M, secrets, 2, n] the p0, as values, those of one of the M for all windows that
    take it, since they fill a cache; ``flood`` [windows, K, R].
    """
    n, (windows, spacing, total, _), (elements, secrets, _, _) = ring.n, sums.shape, bodies.shape
    sets = -(-total // secrets)
    values, masks = scratch(n).reshape(n // 8, 8), scratch(2 * n).reshape(2, n)
    for which in range(elements):
        for number in range(which, windows * sets, elements):
            mask, (window, each) = masked[number // elements], divmod(number, sets)
            for k in range(each * secrets, min((each + 1) * secrets, total)):
                for prime in range(2):
                    t, body = ring.transforms[prime], bodies[which, k - each * secrets, prime]
                    multiply_values(n, mask[prime], body, values, t.constants)
                    if spacing <= 8:
                        inverse_few(n, values, masks[prime], t.constants, t.later_back)
                    else:
                        inverse(n, values, masks[prime], t.constants, t.first_back, t.later_back)
                for v in range(min(spacing, len(sealed) - window * spacing)):
                    word, noise = sums[window, v, k], flood[window, k, v]
                    high = reduced(masks[0, v] + np.float64((word[0] + noise) % _Q0), float(_Q0), 1.0 / _Q0)
                    low = reduced(masks[1, v] + np.float64((word[1] + noise) % _Q1), float(_Q1), 1.0 / _Q1)
                    sealed[window * spacing + v, k] = residue(divided(high, low), _Q0)
