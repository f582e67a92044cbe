"""Sums that a party computed itself, encrypted for the key owner, many in one ciphertext, and added by a third party.

Digits are coefficients of a plaintext polynomial m: (c1, c0) = (p1·u + e1, p0·u + e0 + step·q1·m) under s_0. Whoever
adds such blocks masks the total once more, floods every coefficient, and divides by q1. Reference: J. Fan, F.
Vercauteren, *Somewhat Practical Fully Homomorphic Encryption* (2012), sections 3 and 4, without products.

The encoding is another one than that of rows, since here whole sums are split: digits of :data:`WIDTH` bits, of which
up to :data:`MOST` blocks may be added.
"""

from __future__ import annotations

import math

import numpy as np

from labelward.he.base import Layout
from labelward.he.lattice import loops
from labelward.he.lattice.digits import DEVIATIONS, LEAST_FLOOD, Digits
from labelward.he.lattice.draws import Stream
from labelward.he.lattice.key_material import PublicElements, Secrets, balanced_residues, transformed, unsigned
from labelward.he.lattice.ring import ERROR_VARIANCE, PRIMES, Q0, Q1, SECRET_VARIANCE, Int64s, Reals, Ring
from labelward.he.lattice.row_data import FORMAT, HEAD_BYTES, OWN_SEALED, OWN_SUMS
from labelward.he.lattice.words import pack, packed_size, unpack

WIDTH, MOST = 22, 256
_STEP = Q0 // ((MOST << WIDTH) + 3)


def own_digits(layout: Layout, n: int) -> Digits:
    """Return the encoding of whole sums of a layout."""
    widths = [max(1, (bound * max(1, layout.rows)).bit_length() + 1) for bound in layout.bounds]
    counts = tuple(-(-(width + 1) // WIDTH) for width in widths)
    return Digits(width=WIDTH, counts=counts, step=_STEP, most=MOST << (WIDTH - 1), flood=_flood_bits(n))


def _flood_bits(n: int) -> int:
    """Return the bits of the range of the flooding of a total of :data:`MOST` ciphertexts, by their worst noise."""
    one = DEVIATIONS * math.sqrt(ERROR_VARIANCE * (2 * n * SECRET_VARIANCE + 1))
    return math.ceil(math.log2((MOST + 1) * one)) + LEAST_FLOOD


for _n in (512, 4096):
    _noise = (1 << _flood_bits(_n)) / 2 / Q1 + DEVIATIONS * math.sqrt((_n * SECRET_VARIANCE + 1) / 12)
    assert _flood_bits(_n) <= 63
    assert 2 * _noise < _STEP


def polynomial_count(entries: int, digits: Digits, n: int) -> int:
    """Return how many plaintexts so many sums take."""
    return -(-entries * digits.total // n)


def own_bytes(entries: int, digits: Digits, n: int, *, sealed: bool) -> int:
    """Return the bytes of a block of so many sums."""
    return HEAD_BYTES + packed_size(polynomial_count(entries, digits, n) * 2 * n * (1 if sealed else 2))


def encrypt_own(elements: PublicElements, digits: Digits, sums: Int64s, stream: Stream) -> bytes:
    """Return the data of a block of sums int64 [entries, k]."""
    n = elements.ring.n
    count = polynomial_count(len(sums), digits, n)
    plain = np.zeros(count * n, dtype=np.int64)
    flat = digits.split(sums).reshape(-1)
    plain[: len(flat)] = flat
    found = zeros(elements, count, stream)
    # the message is a multiple of q1, so that it is 0 modulo q1, and the division by q1 is exact
    message = plain.reshape(count, n).astype(np.float64)
    loops.add_scaled(message, float(_STEP * Q1 % Q0), found[:, 1, 0])
    return bytes([FORMAT, OWN_SUMS]) + pack(unsigned(found))


def zeros(elements: PublicElements, count: int, stream: Stream, *, secret: int = 0) -> Reals:
    """Return fresh encryptions of zero under s_0 [count, (c1, c0), 2, n], as coefficients below 2^52."""
    ring = elements.ring
    bits = stream.ternary(count, ring.n)
    masks = np.empty((count, 2, ring.n))
    loops.mask_values(ring, bits, masks)
    found = np.empty((count, 2, 2, ring.n))
    for i in range(count):
        for each, element in enumerate((elements.masks[0], elements.bodies[0, secret])):
            values = np.empty((2, ring.n))
            loops.multiply_all(ring, masks[i], element, values)
            loops.to_coefficients(ring, values, found[i, each])
    return found + stream.errors((count, 2, ring.n))[:, :, None]


def open_own(data: bytes, entries: int, digits: Digits, n: int) -> Int64s:
    """Return the polynomials int64 [count, (c1, c0), n, 2] of a block that is not sealed yet."""
    return unpack(memoryview(data)[HEAD_BYTES:], (polynomial_count(entries, digits, n), 2, n, 2))


def seal_own(elements: PublicElements, digits: Digits, total: Int64s, stream: Stream) -> bytes:
    """Mask and flood totals [count, 2, n, 2], and divide them by q1."""
    count, n = len(total), elements.ring.n
    found = balanced_residues(total) + zeros(elements, count, stream)
    flood = stream.flood(digits.flood, count * n).reshape(count, n)
    for prime, q in enumerate(PRIMES):
        found[:, 1, prime] += flood % q  # below 2^53 still
    out = np.empty((count, 2, n), dtype=np.int64)
    loops.divide_all(found, out)
    return bytes([FORMAT, OWN_SEALED]) + pack(out)


def decrypt_own(ring: Ring, secrets: Secrets, digits: Digits, data: bytes, entries: int, *, sealed: bool) -> Int64s:
    """Return the sums int64 [entries, k] of a block."""
    n, count = ring.n, polynomial_count(entries, digits, ring.n)
    if sealed:
        single = unpack(memoryview(data)[HEAD_BYTES:], (count * 2 * n,)).reshape(count, 2, n)
    else:
        single = np.empty((count, 2, n), dtype=np.int64)
        loops.divide_all(balanced_residues(open_own(data, entries, digits, n)), single)
    plain = np.empty((count, n))
    for i in range(count):
        values = transformed(ring, np.where(single[i, 0] > Q0 // 2, single[i, 0] - Q0, single[i, 0]))
        product = np.empty((2, n))
        loops.multiply_all(ring, values, secrets.rows[0], product)
        loops.to_coefficients(ring, product, product)
        noisy = (single[i, 1] - product[0].astype(np.int64)) % Q0
        plain[i] = np.rint(np.where(noisy > Q0 // 2, noisy - Q0, noisy) / digits.step)
    flat = plain.reshape(-1)[: entries * digits.total].astype(np.int64)
    return digits.join(flat.reshape(entries, digits.total))
