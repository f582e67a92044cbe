"""Limbs as numba's loops handle them: settling carries, comparing, and reading from bytes and writing to them.

Numbers are *rows* uint64 [n, limbs], one after the other, or *lanes* uint64 [limbs, 8], eight at a time, in limbs of
52 bits, lowest first.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.paillier.backends.ifma.montgomery_ir import LANES, LIMB_BITS, read_word, write_word
from labelward.jit import compiled as jit

Limbs = NDArray[np.uint64]

_MASK, _SHIFT, _ZERO = np.uint64(2**LIMB_BITS - 1), np.uint64(LIMB_BITS), np.uint64(0)
_BYTE = np.uint64(255)
_FURTHER = np.uint64(64 - LIMB_BITS)
_SPARE = np.uint64(2 * LIMB_BITS - 64)  # a word that begins at a higher bit of a limb reaches into the next but one


class OddModulus(NamedTuple):
    """An odd modulus [k] and -1 over it, modulo 2^52."""

    limbs: Limbs
    inverse: np.uint64


@jit
def zero_lanes(limbs: int) -> Limbs:
    """Return zeroed lanes that lie on 64 bytes."""
    raw = np.zeros(limbs * LANES + LANES, np.uint64)
    start = (64 - raw.ctypes.data % 64) % 64 // 8
    return raw[start : start + limbs * LANES].reshape(limbs, LANES)


@jit
def carry_row(limbs: Limbs) -> None:
    """Carry through ``limbs`` [k]."""
    carry = _ZERO
    for j in range(len(limbs)):
        value = limbs[j] + carry
        limbs[j] = value & _MASK
        carry = value >> _SHIFT


@jit
def carry_lanes(lanes: Limbs) -> None:
    """Carry through each lane; the highest limb keeps what is left."""
    for j in range(len(lanes) - 1):
        for lane in range(LANES):
            lanes[j + 1, lane] += lanes[j, lane] >> _SHIFT
            lanes[j, lane] &= _MASK


@jit
def put_lane(lanes: Limbs, lane: int, row: Limbs) -> None:
    """Write a row to a lane."""
    for j in range(len(row)):
        lanes[j, lane] = row[j]


@jit
def get_lane(lanes: Limbs, lane: int, row: Limbs) -> None:
    """Write a lane to a row."""
    for j in range(len(row)):
        row[j] = lanes[j, lane]


@jit
def reduce_below(row: Limbs, m: Limbs) -> None:
    """Subtract ``m`` from a settled row until it is smaller."""
    while True:
        j = len(m) - 1
        while j > 0 and row[j] == m[j]:
            j -= 1
        if row[j] < m[j]:
            return
        borrow = _ZERO
        for i in range(len(m)):
            value = row[i] - m[i] - borrow
            borrow = value >> np.uint64(63)
            row[i] = value & _MASK


@jit
def unpack_rows(data: NDArray[np.uint8], rows: Limbs) -> None:
    """Write big-endian numbers ``data`` [n, size] to rows; limbs beyond them become zero."""
    size, flat = data.shape[1], data.reshape(-1)
    for i in range(len(data)):
        for j in range(rows.shape[1]):
            start, word = LIMB_BITS * j // 8, _ZERO
            if start + 8 <= size:
                word = read_word(flat, (i + 1) * size - start - 8)
            else:
                for b in range(max(0, size - start)):
                    word |= np.uint64(data[i, size - 1 - start - b]) << np.uint64(8 * b)
            rows[i, j] = (word >> np.uint64(LIMB_BITS * j % 8)) & _MASK


@jit
def pack_rows(rows: Limbs, data: NDArray[np.uint8]) -> None:
    """Write rows as big-endian numbers ``data`` [n, size]."""
    size, flat = data.shape[1], data.reshape(-1)
    for i in range(len(data)):
        pack_row(rows[i], flat, (i + 1) * size, size)


@jit
def pack_row(row: Limbs, flat: NDArray[np.uint8], end: int, size: int) -> None:
    """Write one row as a big-endian number of ``size`` bytes that ends before ``flat[end]``."""
    limbs = len(row)
    whole = min(size // 8, (LIMB_BITS * (limbs - 2)) // 64)  # words that three limbs surely hold
    j, bits = 0, _ZERO  # where a word begins
    for word in range(whole):
        value = row[j] >> bits | row[j + 1] << (_SHIFT - bits)
        if bits > _SPARE:
            value |= row[j + 2] << (_SHIFT + _SHIFT - bits)
        write_word(flat, end - 8 * word - 8, value)
        j, bits = j + 1, bits + _FURTHER
        if bits >= _SHIFT:
            j, bits = j + 1, bits - _SHIFT
    for byte in range(8 * whole, size):
        j, bits = 8 * byte // LIMB_BITS, np.uint64(8 * byte % LIMB_BITS)
        value = row[j] >> bits if j < limbs else _ZERO
        if j + 1 < limbs:
            value |= row[j + 1] << (_SHIFT - bits)
        flat[end - 1 - byte] = np.uint8(value & _BYTE)


@jit
def carry_rows(rows: Limbs) -> None:
    """Carry through each of the rows."""
    for i in range(len(rows)):
        carry_row(rows[i])
