"""Compiled loops over rows at every R-th coefficient; see :mod:`.spaced` and, for conventions, :mod:`.loops`."""

from __future__ import annotations

import numpy as np

from labelward.he.lattice.loops import Int32s, divided, product, reduced, residue
from labelward.he.lattice.ring import PRIMES, Int64s, Reals, Ring
from labelward.he.lattice.transform_ir import add_product, forward_signs, inverse
from labelward.jit import jit

_Q0, _Q1 = PRIMES


@jit
def encrypt(
    ring: Ring, product_of: Reals, errors: Int64s, digits: Int64s, step: float, spacing: int, out: Int64s
) -> None:
    """Write the coefficients ``out`` [k, count, 2] of one block, as they travel (:class:`~.spaced.SpacedData`).

    ``product_of`` [k, 2, n] are a·s_k, destroyed; ``errors`` [k, n]; ``digits`` [rows, k]; ``step`` is step·q1 mod q0.
    """
    n, count = ring.n, out.shape[1]
    coefficients, values = np.empty(n), np.empty((n // 8, 8))
    last = spacing * len(digits) - 1  # where coefficient 0 travels
    for k in range(digits.shape[1]):
        for prime in range(2):
            t = ring.transforms[prime]
            q, back = t.constants[0], t.constants[1]
            values.reshape(-1)[:] = product_of[k, prime]
            inverse(n, values, coefficients, t.constants, t.first_back, t.later_back)
            whole = np.int64(q)
            for j in range(count):
                i = j - last if j >= last else j - last + n
                out[k, j, prime] = residue(coefficients[i] + errors[k, i], whole)
            if prime == 0:
                for row in range(len(digits)):
                    message = product(np.float64(digits[row, k]), step, q, back)
                    at = last - row * spacing
                    out[k, at, 0] = residue(np.float64(out[k, at, 0]) + (-message if row else message), whole)


@jit
def lay_out(words: Int64s, last: int, out: Reals) -> None:
    """Write balanced coefficients ``out`` [k, 2, n] of words [k, count, 2] as they travel; 0 for all others."""
    count, n = words.shape[1], out.shape[2]
    for k in range(len(words)):
        for prime in range(2):
            q = _Q0 if prime == 0 else _Q1
            if count < n:
                out[k, prime, :] = 0.0
            for j in range(count):
                value = words[k, j, prime]
                at = j - last if j >= last else j - last + n
                out[k, prime, at] = np.float64(value - q if value > q // 2 else value)


@jit
def add_windows(
    ring: Ring, order: Int32s, lists: Int64s, bounds: Int64s, spacing: int, a: Reals, b: Reals, total_a: Reals,
    total_b: Reals,
) -> None:  # fmt: skip
    """Add the rows of the cells of a few windows in consecutive blocks.

    A block is read once for all windows, and one prime after the other, so that totals stay in the second-level cache.

    Args:
        order, lists: rows of each cell, as :func:`~labelward.he.lattice.loops.list_by_cell` writes them; R cells are a
            window, the last of which may have fewer.
        bounds: first row of each block, and the end.
        a, b: polynomials [blocks, sets or k, 2, n] as values; ``total_a``, ``total_b``: sums of each window, [windows,
            sets or k, 2, n].
    """
    n, sets, k = ring.n, a.shape[1], b.shape[1]
    low, high = n // 8 - 1, 0
    while (n // 8) >> high > 1:
        high += 1
    scratch, bits, nothing = np.empty((n // 8, 8)), np.empty(n // 8, np.uint8), np.zeros(n // 8, np.uint8)
    progress = np.empty(len(lists), np.int64)
    for prime in range(2):
        t = ring.transforms[prime]
        for cell in range(len(lists)):  # rows of earlier blocks are passed over
            first, stop = lists[cell]
            progress[cell] = first + np.searchsorted(order[first:stop], bounds[0])
        for block in range(len(bounds) - 1):
            begin, end = bounds[block], bounds[block + 1]
            for window in range(len(total_a)):
                some = False
                for cell in range(window * spacing, min((window + 1) * spacing, len(lists))):
                    at = progress[cell]
                    while at < lists[cell, 1] and order[at] < end:
                        if not some:
                            some = True
                            bits[:] = 0
                        place = (order[at] - begin) * spacing + cell - window * spacing
                        bits[place & low] |= np.uint8(1 << (place >> high))
                        at += 1
                    progress[cell] = at
                if not some:
                    continue
                forward_signs(n, bits, nothing, scratch, t.constants, t.bits, t.later)
                for each in range(sets):
                    add_product(n, scratch, a[block, each, prime], total_a[window, each, prime], t.constants)
                for each in range(k):
                    add_product(n, scratch, b[block, each, prime], total_b[window, each, prime], t.constants)


@jit
def seal_coefficients(ring: Ring, values: Reals, mask: Reals, bodies: Reals, flood: Int64s, out: Int64s) -> None:
    """Mask the first R coefficients of polynomials [k, 2, n], flood them, and divide by q1; ``out`` [k, R] modulo q0.

    ``values`` are destroyed; ``mask`` [2, n] is u and ``bodies`` [k, 2, n] the p0_k, as values.
    """
    n, spacing = ring.n, flood.shape[1]
    plain = np.empty((2, n))
    for k in range(len(values)):
        for prime in range(2):
            t = ring.transforms[prime]
            add_product(n, mask[prime], bodies[k, prime], values[k, prime], t.constants)
            inverse(n, values[k, prime], plain[prime], t.constants, t.first_back, t.later_back)
        for v in range(spacing):
            first = reduced(plain[0, v] + np.float64(flood[k, v] % _Q0), float(_Q0), 1.0 / _Q0)
            second = reduced(plain[1, v] + np.float64(flood[k, v] % _Q1), float(_Q1), 1.0 / _Q1)
            out[k, v] = residue(divided(first, second), _Q0)


@jit
def place(sealed: Reals, base: int, spacing: int, chunks: Reals) -> None:
    """Lay the chunks of one sealed polynomial [n] at its window of ``chunks`` [r, n].

    Coefficient v of its product with a secret is Σ A[v - i]·s[i]; chunk j, of length c = n/r, lies at the coefficients
    base + t, -c < t < R, so that its product with chunk j of s has that part of the sum at base + v.
    """
    r, n = chunks.shape
    size = n // r
    for j in range(r):
        for t in range(1 - size, spacing):
            i, at = t - j * size, base + t
            value = sealed[i] if i >= 0 else -sealed[n + i]
            if at >= 0:
                chunks[j, at] = value
            else:
                chunks[j, at + n] = -value
