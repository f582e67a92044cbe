"""Limbs as numba's loops handle them: settling carries, comparing, and reading from bytes and writing to them.

Numbers are *rows* uint64 [n, limbs], one after the other, or *lanes* uint64 [limbs, 8], eight at a time, in limbs of
52 bits, lowest first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from labelward.he.paillier.ifma_ir import LANES, LIMB_BITS
from labelward.he.paillier.ifma_moves import read_word, write_word

__all__ = [
    "Limbs",
    "Odd",
    "canonical",
    "get",
    "jit",
    "new_lanes",
    "pack",
    "put",
    "settle",
    "settle_lanes",
    "settle_rows",
    "unpack",
]

Limbs = NDArray[np.uint64]
Kernel = TypeVar("Kernel", bound=Callable[..., object])

_MASK, _SHIFT, _ZERO = np.uint64(2**LIMB_BITS - 1), np.uint64(LIMB_BITS), np.uint64(0)
_BYTE = np.uint64(255)


class Odd(NamedTuple):
    """An odd modulus [k] and -1 over it, modulo 2^52."""

    limbs: Limbs
    inverse: np.uint64


def jit(function: Kernel) -> Kernel:
    """Compile with numba, cached on disk, free of the interpreter's lock."""
    return cast("Kernel", numba.njit(cache=True, nogil=True)(function))


@jit
def new_lanes(limbs: int) -> Limbs:
    """Return zeroed lanes that lie on 64 bytes."""
    raw = np.zeros(limbs * LANES + LANES, np.uint64)
    start = (64 - raw.ctypes.data % 64) % 64 // 8
    return raw[start : start + limbs * LANES].reshape(limbs, LANES)


@jit
def settle(limbs: Limbs) -> None:
    """Carry through ``limbs`` [k]."""
    carry = _ZERO
    for j in range(len(limbs)):
        value = limbs[j] + carry
        limbs[j] = value & _MASK
        carry = value >> _SHIFT


@jit
def settle_lanes(lanes: Limbs) -> None:
    """Carry through each lane; the highest limb keeps what is left."""
    for j in range(len(lanes) - 1):
        for lane in range(LANES):
            lanes[j + 1, lane] += lanes[j, lane] >> _SHIFT
            lanes[j, lane] &= _MASK


@jit
def put(lanes: Limbs, lane: int, row: Limbs) -> None:
    """Write a row to a lane."""
    for j in range(len(row)):
        lanes[j, lane] = row[j]


@jit
def get(lanes: Limbs, lane: int, row: Limbs) -> None:
    """Write a lane to a row."""
    for j in range(len(row)):
        row[j] = lanes[j, lane]


@jit
def canonical(row: Limbs, m: Limbs) -> None:
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
def unpack(data: NDArray[np.uint8], rows: Limbs) -> None:
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
def pack(rows: Limbs, data: NDArray[np.uint8]) -> None:
    """Write rows as big-endian numbers ``data`` [n, size]."""
    size, limbs, flat = data.shape[1], rows.shape[1], data.reshape(-1)
    for i in range(len(data)):
        for start in range(0, size, 8):
            j = 8 * start // LIMB_BITS
            word, bits = _ZERO, LIMB_BITS - (8 * start - LIMB_BITS * j)
            if j < limbs:
                word = rows[i, j] >> np.uint64(LIMB_BITS - bits)
            for following in range(j + 1, min(j + 3, limbs)):
                if bits < 64:
                    word |= rows[i, following] << np.uint64(bits)
                bits += LIMB_BITS
            if start + 8 <= size:
                write_word(flat, (i + 1) * size - start - 8, word)
            else:
                for b in range(size - start):
                    data[i, size - 1 - start - b] = np.uint8((word >> np.uint64(8 * b)) & _BYTE)


@jit
def settle_rows(rows: Limbs) -> None:
    """Carry through each of the rows."""
    for i in range(len(rows)):
        settle(rows[i])
