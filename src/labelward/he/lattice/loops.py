"""Compiled loops over polynomials and rows; ``ring.py`` has the representation of residues.

``ring`` is a :class:`~labelward.he.lattice.ring.Ring`. The axis of length 2 of an array is the prime.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.he.lattice.digits import PACKED
from labelward.he.lattice.ring import LANES, PRIMES, Bytes, Int8s, Int64s, Reals, Ring, balanced
from labelward.he.lattice.transform_ir import (
    add_four,
    add_integers,
    add_product,
    divide,
    divide_noisy,
    fma,
    forward,
    forward_add,
    forward_signs,
    inverse,
    multiply_values,
    rint,
    sum_signed,
)
from labelward.jit import jit

Int32s = NDArray[np.int32]

_Q0, _Q1 = PRIMES
#: 1/q1 modulo q0, balanced.
_BACK = float(balanced(pow(_Q1, -1, _Q0), _Q0))
#: Rows of a sum in one block from which on a transform is cheaper than shifted additions.
DENSE = 13
_PART = 512  # residues of a polynomial that are multiplied by all keys before the next ones
SETTLE = 1 << 13  # residues below 2^49 that may be added up before 2^63


@jit
def scratch(count: int) -> Any:
    """Return undefined reals that begin with a line of the cache, as :func:`~labelward.he.lattice.ring.vectors` do."""
    room = np.empty(count + LANES)
    start = -(room.ctypes.data // 8) % LANES
    return room[start : start + count]


@jit
def reduced(x: float, q: float, back: float) -> Any:
    """Return an integer |x| < 2^53 modulo q, balanced."""
    return fma(-rint(x * back), q, x)


@jit
def product(x: float, w: float, q: float, back: float) -> Any:
    """Return x·w modulo q."""
    high = x * w
    return fma(-rint(high * back), q, high) + fma(x, w, -high)


@jit
def multiply_all(ring: Ring, x: Reals, w: Reals, out: Reals) -> None:
    """Write x·w for arrays [..., 2, n] of one shape."""
    n = ring.n
    left, right, target = x.reshape(-1, 2, n), w.reshape(-1, 2, n), out.reshape(-1, 2, n)
    for i in range(len(left)):
        for prime in range(2):
            multiply_values(n, left[i, prime], right[i, prime], target[i, prime], ring.transforms[prime].constants)


@jit
def add_products(ring: Ring, x: Reals, w: Reals, total: Reals) -> None:
    """Add x·w for arrays [..., 2, n] of one shape to ``total``, which stays below 1.3·q."""
    n = ring.n
    left, right, target = x.reshape(-1, 2, n), w.reshape(-1, 2, n), total.reshape(-1, 2, n)
    for i in range(len(left)):
        for prime in range(2):
            add_product(n, left[i, prime], right[i, prime], target[i, prime], ring.transforms[prime].constants)


@jit
def to_values(ring: Ring, x: Reals) -> None:
    """Transform each polynomial [..., 2, n] in place; the result is [n/8, 8], flat, and balanced."""
    n = ring.n
    flat, out = x.reshape(-1, 2, n), scratch(n).reshape(n // 8, 8)
    for i in range(len(flat)):
        for prime in range(2):
            t = ring.transforms[prime]
            forward(n, flat[i, prime], out, t.constants, t.first, t.later)
            values = out.reshape(-1)
            for j in range(n):
                flat[i, prime, j] = reduced(values[j], t.constants[0], t.constants[1])


@jit
def to_coefficients(ring: Ring, x: Reals, out: Reals) -> None:
    """Transform values [..., 2, n], at most 1.3·q, to balanced coefficients; ``x`` stays, unless it is ``out``."""
    n = ring.n
    flat, target, values = x.reshape(-1, 2, n), out.reshape(-1, 2, n), scratch(n)
    for i in range(len(flat)):
        for prime in range(2):
            t = ring.transforms[prime]
            values[:] = flat[i, prime]
            inverse(n, values.reshape(n // 8, 8), target[i, prime], t.constants, t.first_back, t.later_back)


@jit
def doubled(coefficients: Reals, out: Int64s) -> None:
    """Write [-a | a] for each polynomial [..., n], so that X^r·a starts at n - r."""
    n = coefficients.shape[-1]
    flat, target = coefficients.reshape(-1, n), out.reshape(-1, 2 * n)
    for i in range(len(flat)):
        for j in range(n):
            value = np.int64(flat[i, j])
            target[i, j], target[i, n + j] = -value, value


@jit
def residue(x: float, q: Any) -> Any:
    """Return a balanced residue as one that is not negative; |x| < 2·q."""
    value = np.int64(x)
    value += q if value < 0 else 0
    value += q if value < 0 else 0
    return value - (q if value >= q else 0)


@jit
def encrypt_rows(ring: Ring, product_of: Reals, errors: Int64s, digits: Int64s, step: float, out: Int64s) -> None:
    """Write the words ``out`` [rows, k, 2] of the rows of one block.

    ``product_of`` [k, 2, n] are a·s_k, destroyed; ``errors`` [k, n]; ``digits`` [rows, k]; ``step`` is step·q1 mod q0.
    Row r gets [X^r·(a·s_k + e_k)]_0 + digit·step·q1.
    """
    n = ring.n
    to_coefficients(ring, product_of, product_of)
    for k in range(digits.shape[1]):
        for prime in range(2):
            q, back = ring.transforms[prime].constants[:2]
            coefficients, own, whole = product_of[k, prime], errors[k], np.int64(q)
            for i in range(n):  # row r takes number -r, and X^n is -1
                coefficients[i] = -(coefficients[i] + own[i])
            coefficients[0] *= -1.0
            for r in range(len(digits)):
                found = coefficients[0 if r == 0 else n - r]
                if prime == 0:
                    found += product(np.float64(digits[r, k]), step, q, back)
                out[r, k, prime] = residue(found, whole)


@jit
def add_scalars(words: Int64s, groups: Int32s, sums: Int64s) -> None:
    """Add ``words`` [m, k, 2] to ``sums`` [columns, n_groups, k, 2] by ``groups`` [m, columns]; -1 is none."""
    (m, columns), k = groups.shape, 2 * words.shape[1]
    rows, cells = words.reshape(m, k), sums.reshape(*sums.shape[:2], k)
    for row in range(m):
        own = rows[row]
        for column in range(columns):
            group = groups[row, column]
            if group < 0:
                continue
            total = cells[column, group]
            for j in range(k):
                total[j] += own[j]
        if (row + 1) % SETTLE == 0 or row == m - 1:
            settle(sums)


@jit
def settle(sums: Int64s) -> None:
    """Reduce residues [..., 2]."""
    flat = sums.reshape(-1, 2)
    for i in range(len(flat)):
        flat[i, 0] %= _Q0
        flat[i, 1] %= _Q1


@jit
def settle_first(words: Int64s) -> None:
    """Reduce residues modulo q0."""
    flat = words.reshape(-1)
    for i in range(len(flat)):
        flat[i] %= _Q0


@jit
def count_by_cell(groups: Int32s, counts: Int64s) -> bool:
    """Count the rows of each cell in ``counts`` [columns, n_groups]; False where a group is none of them and not -1."""
    for row in range(len(groups)):
        for column in range(groups.shape[1]):
            group = groups[row, column]
            if group < -1 or group >= counts.shape[1]:
                return False
            if group >= 0:
                counts[column, group] += 1
    return True


@jit
def list_by_cell(groups: Int32s, start: int, free: Int64s, order: Int32s) -> None:
    """Write the rows of each cell, in order, to ``order`` from ``free`` [columns, n_groups] on, which moves along."""
    for row in range(len(groups)):
        for column in range(groups.shape[1]):
            group = groups[row, column]
            if group >= 0:
                order[free[column, group]] = start + row
                free[column, group] += 1


@jit
def _shift_add(source: Int64s, starts: Int64s, count: int, total: Int64s) -> None:
    """Add ``source[start : start + n]`` for each start, up to four at a time."""
    n, at = len(total), 0
    while at + 4 <= count:
        a, b = source[starts[at] : starts[at] + n], source[starts[at + 1] : starts[at + 1] + n]
        c, d = source[starts[at + 2] : starts[at + 2] + n], source[starts[at + 3] : starts[at + 3] + n]
        for i in range(n):
            total[i] += (a[i] + b[i]) + (c[i] + d[i])
        at += 4
    if at + 2 <= count:
        a, b = source[starts[at] : starts[at] + n], source[starts[at + 1] : starts[at + 1] + n]
        for i in range(n):
            total[i] += a[i] + b[i]
        at += 2
    if at < count:
        a = source[starts[at] : starts[at] + n]
        for i in range(n):
            total[i] += a[i]


@jit
def sum_blocks(
    ring: Ring, order: Int32s, lists: Int64s, progress: Int64s, bounds: Int64s, a: Reals, shifted: Int64s,
    dense: int, values: Reals, coefficients: Int64s, added: Int64s,
) -> None:  # fmt: skip
    """Add the rows of some cells in consecutive blocks, block by block.

    Args:
        order, lists: rows of each cell, as :func:`~labelward.he.lattice.ciphertexts.rows_by_cell` gives them;
            ``progress`` [cells] is where to go on.
        bounds: first row of each block, and the end.
        a: the blocks' polynomials [blocks, sets, 2, n] as values; ``shifted``: see :func:`doubled`.
        dense: rows of a cell in one block from which on they are transformed.
        values, coefficients: the sums [cells, sets, 2, n], in two parts; ``added`` [cells] counts the
            shifted additions whose sum is not reduced, and is 0 where the second part is undefined yet.
    """
    n, sets = ring.n, a.shape[1]
    eighth, indicator = n // 8, scratch(n).reshape(n // 8, 8)
    low, high = eighth - 1, 0  # the degree is a power of two
    while eighth >> high > 1:
        high += 1
    bits, nothing, starts = np.empty(n // 8, np.uint8), np.zeros(n // 8, np.uint8), np.empty(dense + 1, np.int64)
    for block in range(len(bounds) - 1):
        begin, end = bounds[block], bounds[block + 1]
        for cell in range(len(lists)):
            at = progress[cell]
            last, stop = at, lists[cell, 1]
            while last < stop and order[last] < end:
                last += 1
            progress[cell] = last
            if last - at >= dense:
                bits[:] = 0
                for i in range(at, last):
                    row = order[i] - begin
                    bits[row & low] |= np.uint8(1 << (row >> high))
                for prime in range(2):
                    t = ring.transforms[prime]
                    if sets == 1:
                        factor = a[block, 0, prime].reshape(eighth, 8)
                        total = values[cell, 0, prime].reshape(eighth, 8)
                        forward_add(n, bits, indicator, factor, total, t.constants, t.bits, t.later)
                        continue
                    forward_signs(n, bits, nothing, indicator, t.constants, t.bits, t.later)
                    for each in range(sets):
                        add_product(n, indicator, a[block, each, prime], values[cell, each, prime], t.constants)
            elif last > at:
                if not added[cell]:
                    coefficients[cell] = 0
                for i in range(last - at):
                    starts[i] = n - (order[at + i] - begin)
                for each in range(sets):
                    for prime in range(2):
                        _shift_add(shifted[block, each, prime], starts, last - at, coefficients[cell, each, prime])
                added[cell] += last - at
                if added[cell] > SETTLE:
                    added[cell] = 1  # a residue is left
                    for each in range(sets):
                        for i in range(n):
                            coefficients[cell, each, 0, i] %= _Q0
                            coefficients[cell, each, 1, i] %= _Q1


@jit
def mask_values(ring: Ring, bits: Bytes, out: Reals) -> None:
    """Transform ternary polynomials, given as ``bits`` [count, 2, n/8], to ``out`` [count, 2, n]."""
    n = ring.n
    for i in range(len(bits)):
        for prime in range(2):
            t = ring.transforms[prime]
            forward_signs(n, bits[i, 0], bits[i, 1], out[i, prime].reshape(n // 8, 8), t.constants, t.bits, t.later)


@jit
def divided(x0: float, x1: float) -> Any:
    """Return (x - [x]_q1) / q1 modulo q0, balanced, of x given by balanced residues."""
    back = 1.0 / _Q0
    return reduced(product(reduced(x0 - x1, float(_Q0), back), _BACK, float(_Q0), back), float(_Q0), back)


@jit
def seal_polynomial(ring: Ring, values: Reals, mask: Reals, public: Reals, errors: Int8s, out: Reals) -> None:
    """Mask a polynomial and divide it by q1; ``out`` [n] are balanced coefficients modulo q0.

    ``values`` [2, n] are destroyed, ``mask`` [2, n] are the values of u, ``public`` [2, n] those of p1, ``errors`` [n]
    is e1.
    """
    sums = scratch(2 * ring.n).reshape(2, ring.n)
    _mask(ring, values, mask, public, sums)
    _divide_masked(ring, sums, errors, out)


@jit
def seal_sums(
    ring: Ring, first: int, values: Reals, coefficients: Int64s, added: Int64s, words: Int64s, pairs: Int64s,
    masks: Bytes, masked: Reals, elements: Reals, rotated: Int64s, errors: Int8s, flood: Int64s, polynomials: Reals,
    sealed: Int64s,
) -> None:  # fmt: skip
    """Seal a few sums.

    Args:
        first: number of the first of them, by which words, pairs, errors, flooding and ``sealed`` are counted.
        values, coefficients: their polynomials [sums, sets, 2, n] in two parts, the second of which is undefined where
            ``added`` [sums] is 0; the first is destroyed.
        words: of all sums [.., K, 2]; sets have as many of the K as ``rotated`` has secrets, the last one the rest.
        pairs: [.., sets, 2], the numbers of u and p1 that each takes.
        masks, masked: the u, as bits [.., 2, n/8] of coefficients that are 1, -1, and as values [.., 2, n].
        elements, rotated: the p1 [M, 2, n], and the p0 [M, secrets, 2, n] of :func:`rotate`.
        errors, flood: the e1 [.., sets, n] and f [.., K].
        polynomials: out [sets, .., n], balanced coefficients modulo q0.
        sealed: out [.., K], modulo q0.
    """
    n, total = ring.n, words.shape[1]
    sums, secrets = scratch(2 * n).reshape(2, n), rotated.shape[1]
    for i in range(len(values)):
        at = first + i
        for each in range(values.shape[1]):
            mask, which = pairs[at, each]
            _mask(ring, values[i, each], masked[mask], elements[which], sums)
            if added[i]:
                for prime in range(2):
                    add_integers(n, sums[prime], coefficients[i, each, prime], ring.transforms[prime].constants)
            _divide_masked(ring, sums, errors[at, each], polynomials[each, at])
    hidden, lanes = np.empty((len(values), total, 2), dtype=np.int64), np.empty(LANES, dtype=np.int64)
    for which in range(len(rotated)):
        for k in range(total):
            for prime in range(2):
                body, each = rotated[which, k % secrets, prime], k // secrets  # stays near for all sums that take it
                for i in range(len(values)):
                    mask, own = pairs[first + i, each]
                    if own == which:
                        sum_signed(n, masks[mask, 0], masks[mask, 1], body, lanes)
                        hidden[i, k, prime] = lanes.sum()
    for i in range(len(values)):
        for k in range(total):
            sealed[first + i, k] = _seal_word(words[first + i, k], hidden[i, k], flood[first + i, k])


@jit
def _mask(ring: Ring, values: Reals, mask: Reals, public: Reals, out: Reals) -> None:
    """Write balanced coefficients ``out`` [2, n] of values + mask·public."""
    for prime in range(2):
        t = ring.transforms[prime]
        add_product(ring.n, mask[prime], public[prime], values[prime], t.constants)
        inverse(ring.n, values[prime], out[prime], t.constants, t.first_back, t.later_back)


@jit
def _divide_masked(ring: Ring, sums: Reals, errors: Int8s, out: Reals) -> None:
    """Add e1 to coefficients [2, n] and divide by q1."""
    first, second = ring.transforms[0].constants, ring.transforms[1].constants
    divide_noisy(ring.n, sums[0], sums[1], errors, np.array([_BACK]), out, first, second)


@jit
def _seal_word(word: Int64s, hidden: Int64s, flood: int) -> Any:
    """Return a word [2] that is masked by [p0·u]_0 [2] and flooding, and divided by q1, modulo q0."""
    first = (hidden[0] % _Q0 + word[0] + flood % _Q0) % _Q0
    second = (hidden[1] % _Q1 + word[1] + flood % _Q1) % _Q1
    high, low = first - _Q0 if first > _Q0 // 2 else first, second - _Q1 if second > _Q1 // 2 else second
    return residue(divided(np.float64(high), np.float64(low)), _Q0)


@jit
def rotate(coefficients: Reals, out: Int64s) -> None:
    """Write for polynomials [..., n] the factors of [p·u]_0 = Σ out·u, [n/8, 8] as the bits of u lie."""
    n = coefficients.shape[-1]
    flat, target = coefficients.reshape(-1, n), out.reshape(-1, n // LANES, LANES)
    for i in range(len(flat)):
        for lane in range(LANES):
            for place in range(n // LANES):
                j = lane * (n // LANES) + place
                target[i, place, lane] = np.int64(-flat[i, n - j] if j else flat[i, 0])


@jit
def lay_chunk(j: int, sealed: Reals, base: int, spacing: int, chunk: Reals) -> None:
    """Lay chunk j of a sealed polynomial [n] at its window of ``chunk`` [n]; spacing 1: it serves one sum.

    Coefficient v < R of its product with a secret is Σ A[v - i]·s[i]; chunk j, of length c = n/r, lies at the
    coefficients base + t, -c < t < R, so that its product with chunk j of s has that part of the sum at base + v.
    """
    n, size = len(chunk), len(chunk) // PACKED
    end = n - j * size
    before = sealed[end - size + 1 : end]  # t < 0
    if base == 0:  # comes round; X^n is -1, here and below
        chunk[n - size + 1 :] = before
    else:
        target = chunk[base - size + 1 : base]
        for i in range(size - 1):
            target[i] = -before[i]
    for t in range(spacing):
        chunk[base + t] = -sealed[end + t] if j else sealed[t]


@jit
def pack_polynomials(
    ring: Ring, sealed: Reals, spacing: int, keys: Reals, places: Int64s, packed: Int64s, taken: Int64s
) -> None:
    """Switch sealed polynomials to the packing key, 32 at most in one, and divide by q1.

    Args:
        sealed: [count, n], each of which serves R sums.
        keys: [r, 1 + secrets, 2, n]: the shared elements, and the one of each secret, as values. They are read once
            for all that is packed, since they do not fit any cache.
        places: of the sums in a packed polynomial.
        packed: out [few, n]: the shared polynomials modulo q0.
        taken: out [sums, k]: what each sum's words lose, modulo q0; k ≤ secrets.
    """
    n, few, k, each_takes = ring.n, len(packed), taken.shape[1], len(places) // spacing
    plain = scratch(2 * few * (1 + k) * n).reshape(2, few, 1 + k, n)
    totals, chunk = scratch(2 * few * (1 + k) * n).reshape(2, few, 1 + k, n), scratch(n)
    values, apart, part = scratch(2 * few * 4 * n).reshape(2, few, 4, n), keys.shape[1] * 2 * n, min(n, _PART)
    totals[:], chunk[:] = 0.0, 0.0
    for j in range(0, PACKED, 4):
        for i in range(few):
            own = sealed[i * each_takes : (i + 1) * each_takes]
            for near in range(4):
                if len(own) < each_takes:
                    chunk[:] = 0.0  # as the windows are that no chunk of these sums takes
                for at in range(len(own)):
                    lay_chunk(j + near, own[at], places[at * spacing], spacing, chunk)
                for prime in range(2):
                    t = ring.transforms[prime]
                    forward(n, chunk, values[prime, i, near].reshape(n // 8, 8), t.constants, t.first, t.later)
        for prime in range(2):
            t = ring.transforms[prime]
            for at in range(0, n, part):
                for each in range(1 + k):
                    key = keys[j, each, prime, at:]
                    for i in range(few):
                        add_four(
                            part, values[prime, i, 0, at:], n, key, apart, totals[prime, i, each, at:], t.constants
                        )
    for prime in range(2):
        t = ring.transforms[prime]
        for i in range(few):
            for each in range(1 + k):
                target = plain[prime, i, each]
                inverse(n, totals[prime, i, each].reshape(n // 8, 8), target, t.constants, t.first_back, t.later_back)
    back = np.array([_BACK])
    for i in range(few):
        divide(n, plain[0, i, 0], plain[1, i, 0], back, plain[0, i, 0], ring.transforms[0].constants)
        for x in range(n):
            packed[i, x] = residue(plain[0, i, 0, x], _Q0)
        first = i * len(places)
        for u in range(min(len(places), len(taken) - first)):
            for each in range(k):
                pair = plain[0, i, 1 + each, places[u]], plain[1, i, 1 + each, places[u]]
                taken[first + u, each] = residue(divided(pair[0], pair[1]), _Q0)


@jit
def open_packed(
    ring: Ring, packed: Int64s, words: Int64s, secrets: Reals, places: Int64s, step: float, out: Int64s
) -> None:
    """Decrypt the digit sums [count, k] of one packed polynomial [n], whose sums are its coefficients ``places``.

    ``words`` [count, k] modulo q0; ``secrets`` [k, n] are the values of z_k modulo q0.
    """
    n, t = ring.n, ring.transforms[0]
    q, back = t.constants[0], t.constants[1]
    x, plain = scratch(n), scratch(n)
    values, found_values = scratch(n).reshape(n // 8, 8), scratch(n).reshape(n // 8, 8)
    for i in range(n):
        x[i] = reduced(np.float64(packed[i]), q, back)
    forward(n, x, values, t.constants, t.first, t.later)
    for k in range(words.shape[1]):
        multiply_values(n, values, secrets[k], found_values, t.constants)
        inverse(n, found_values, plain, t.constants, t.first_back, t.later_back)
        for u in range(len(words)):
            found = reduced(np.float64(words[u, k]) + plain[places[u]], q, back)
            out[u, k] = np.int64(rint(found / step))


@jit
def divide_all(x: Reals, out: Int64s) -> None:
    """Divide polynomials [..., 2, n] of residues below 2^53 by q1; ``out`` [..., n] modulo q0."""
    n = x.shape[-1]
    flat, target = x.reshape(-1, 2, n), out.reshape(-1, n)
    for i in range(len(flat)):
        for j in range(n):
            first = reduced(flat[i, 0, j], float(_Q0), 1.0 / _Q0)
            second = reduced(flat[i, 1, j], float(_Q1), 1.0 / _Q1)
            target[i, j] = residue(divided(first, second), _Q0)


@jit
def reduce_all(x: Reals) -> None:
    """Balance residues [..., 2, n] in place."""
    n = x.shape[-1]
    flat = x.reshape(-1, 2, n)
    for i in range(len(flat)):
        for j in range(n):
            flat[i, 0, j] = reduced(flat[i, 0, j], float(_Q0), 1.0 / _Q0)
            flat[i, 1, j] = reduced(flat[i, 1, j], float(_Q1), 1.0 / _Q1)


@jit
def decrypt_rows(products: Reals, words: Int64s, spacing: int, step: float, out: Int64s) -> None:
    """Decrypt the digits ``out`` [rows, k] of ``words`` [rows, k, 2]; ``products`` [blocks, k, 2, n] are the a·s_k."""
    n, back = products.shape[-1], 1.0 / _Q0
    pair = np.empty(2)
    for r in range(len(words)):
        block, place = r * spacing // n, r * spacing % n
        for k in range(words.shape[1]):
            for prime in range(2):
                q = float(_Q0 if prime == 0 else _Q1)
                hidden = products[block, k, prime, 0] if place == 0 else -products[block, k, prime, n - place]
                pair[prime] = reduced(np.float64(words[r, k, prime]) - hidden, q, 1.0 / q)
            out[r, k] = np.int64(rint(reduced(divided(pair[0], pair[1]), float(_Q0), back) / step))


@jit
def add_scaled(x: Reals, factor: float, total: Reals) -> None:
    """Add x·factor modulo q0, for arrays [count, n]."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total[i, j] += product(x[i, j], factor, float(_Q0), 1.0 / _Q0)
