"""Powers of one base by tables: a product for each digit of the exponent, and no squaring.

The method is that of E. Brickell, D. Gordon, K. McCurley and D. Wilson, *Fast Exponentiation with Precomputation*,
EUROCRYPT 1992, in its plainest form: table d holds base^(i · 2^(w·d)) for each digit i of w bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gmpy2 import mpz

__all__ = ["FixedBase"]

_CHUNK = 512


class FixedBase:
    """Tables for exponents of at most ``bits`` bits.

    Args:
        base: what is raised.
        modulus: of all products.
        bits: of the longest exponent.
        uses: how many powers are expected; more of them pay for wider digits.
        widest: the widest digit allowed, which bounds the memory: bits/w · 2^w numbers.
    """

    def __init__(self, base: mpz, modulus: mpz, bits: int, *, uses: int, widest: int) -> None:
        self._modulus = modulus
        self._window = min(range(2, widest + 1), key=lambda w: -(-bits // w) * (2**w + uses))
        self._tables: list[list[mpz]] = []
        for _ in range(-(-bits // self._window)):
            table = [mpz(1)]
            for _ in range(2**self._window - 1):
                table.append(table[-1] * base % modulus)
            self._tables.append(table)
            base = table[-1] * base % modulus

    def powers(self, exponents: bytes, size: int) -> Iterator[mpz]:
        """Yield base^x for each x of ``exponents``, big-endian numbers of ``size`` bytes."""
        modulus = self._modulus
        rows = np.frombuffer(exponents, dtype=np.uint8).reshape(-1, size)[:, ::-1]
        for start in range(0, len(rows), _CHUNK):
            for digits in self._digits(rows[start : start + _CHUNK]):
                power = mpz(1)
                for table, digit in zip(self._tables, digits, strict=True):
                    power = power * table[digit] % modulus
                yield power

    def _digits(self, rows: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[list[int]]:
        """Split little-endian byte rows into as many digits as there are tables."""
        wanted = len(self._tables) * self._window
        bits = np.unpackbits(rows, axis=1, bitorder="little")[:, :wanted]
        bits = np.pad(bits, ((0, 0), (0, wanted - bits.shape[1])))
        weights = (1 << np.arange(self._window)).astype(np.int32)
        digits: list[list[int]] = (
            bits.reshape(len(rows), len(self._tables), self._window).astype(np.int32) @ weights
        ).tolist()
        return digits
