"""Integers as bytes."""

from __future__ import annotations

from collections.abc import Iterable

from gmpy2 import mpz

__all__ = ["read", "size_of", "write"]


def read(data: bytes, size: int, *, signed: bool = False) -> list[mpz]:
    """Split big-endian numbers of ``size`` bytes."""
    return [mpz.from_bytes(data[i : i + size], "big", signed=signed) for i in range(0, len(data), size)]


def write(numbers: Iterable[mpz] | Iterable[int], size: int, *, signed: bool = False) -> bytes:
    """Join big-endian numbers of ``size`` bytes."""
    return b"".join([number.to_bytes(size, "big", signed=signed) for number in numbers])


def size_of(number: mpz) -> int:
    """How many bytes a number has."""
    return int(number.bit_length() + 7) // 8
