"""Integers as bytes."""

from collections.abc import Iterable

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray


def read_ints(data: bytes, size: int, *, signed: bool = False) -> list[mpz]:
    """Split big-endian numbers of ``size`` bytes."""
    return [mpz.from_bytes(data[i : i + size], "big", signed=signed) for i in range(0, len(data), size)]


def write_ints(numbers: Iterable[mpz] | Iterable[int], size: int, *, signed: bool = False) -> bytes:
    """Join big-endian numbers of ``size`` bytes."""
    return b"".join([number.to_bytes(size, "big", signed=signed) for number in numbers])


def to_offset(data: bytes, size: int) -> NDArray[np.uint8]:
    """Return big-endian numbers in two's complement [n, size], with 2^(8·size-1) added, which makes none negative."""
    array = np.frombuffer(data, dtype=np.uint8).reshape(-1, size).copy()
    array[:, 0] ^= 0x80
    return array


def byte_length(number: mpz) -> int:
    """How many bytes a number has."""
    return int(number.bit_length() + 7) // 8


def in_range(data: bytes, size: int, limit: bytes) -> bool:
    """Whether all big-endian numbers of ``size`` bytes lie strictly between zero and ``limit``."""
    array = np.frombuffer(data, dtype=np.uint8).reshape(-1, size)
    # almost always the highest bytes tell
    head = min(4, size)
    highest: NDArray[np.uint32] = np.zeros(len(array), dtype=np.uint32)
    for byte in range(head):
        highest = (highest << 8 | array[:, byte]).astype(np.uint32)
    unsure = np.flatnonzero((highest == 0) | (highest >= int.from_bytes(limit[:head], "big")))
    return all(bytes(size) < array[i].tobytes() < limit for i in unsure.tolist())
