"""Residues of 49 bits, one after the other, as they travel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.errors import Code, EncryptionError
from labelward.he.lattice.ring import PRIMES, WORD_BITS, Bytes, Int64s
from labelward.jit import jit


def packed_size(count: int) -> int:
    """Return the bytes of so many words."""
    return (count * WORD_BITS + 7) // 8


def pack(residues: Int64s) -> bytes:
    """Return non-negative residues as bytes, the lowest bit first; unused bits are zero."""
    out = np.zeros(packed_size(residues.size) + 8, dtype=np.uint8)
    _pack(np.ascontiguousarray(residues).reshape(-1), out)
    return out[: packed_size(residues.size)].tobytes()


def unpack(data: bytes | memoryview, shape: tuple[int, ...], *, key: bool = False) -> Int64s:
    """Return residues int64 [..., 2] modulo q0 and q1, or [...] modulo q0 where the last axis is not 2.

    Raises:
        EncryptionError: a wrong length, a word that is not below its prime, or unused bits that are set.
    """
    out = np.empty(shape, dtype=np.int64)
    code: Code = "key" if key else "ciphertext"
    if len(data) != packed_size(out.size):
        raise EncryptionError(
            f"{out.size} words need {packed_size(out.size)} bytes, not {len(data)}", code=code, value=len(data)
        )
    padded = np.zeros(len(data) + 8, dtype=np.uint8)
    padded[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    pair = len(shape) > 1 and shape[-1] == 2
    limits = np.array(PRIMES if pair else PRIMES[:1], dtype=np.int64)
    if not _unpack(padded, out.reshape(-1), limits):
        raise EncryptionError("a word is not below its prime, or unused bits are set", code=code)
    return out


@jit
def _pack(residues: Int64s, out: Bytes) -> None:
    held, bits, at = np.uint64(0), 0, 0
    for i in range(len(residues)):
        value = np.uint64(residues[i])
        held |= value << np.uint64(bits)
        room = 64 - bits
        bits += WORD_BITS
        if bits >= 64:
            for byte in range(8):
                out[at + byte] = np.uint8(held >> np.uint64(8 * byte) & np.uint64(255))
            at += 8
            bits -= 64
            held = value >> np.uint64(room) if room < 64 else np.uint64(0)
    for byte in range((bits + 7) // 8):
        out[at + byte] = np.uint8(held >> np.uint64(8 * byte) & np.uint64(255))


@jit
def _unpack(data: Bytes, out: Int64s, limits: NDArray[np.int64]) -> bool:
    mask, right = np.uint64((1 << WORD_BITS) - 1), True
    for i in range(len(out)):
        bit = i * WORD_BITS
        start, shift = bit >> 3, np.uint64(bit & 7)
        word = np.uint64(0)
        for byte in range(8):
            word |= np.uint64(data[start + byte]) << np.uint64(8 * byte)
        value = np.int64(word >> shift & mask)
        right &= value < limits[i % len(limits)]
        out[i] = value
    used = len(out) * WORD_BITS
    if used & 7:
        right &= data[used >> 3] >> np.uint8(used & 7) == 0
    return right
