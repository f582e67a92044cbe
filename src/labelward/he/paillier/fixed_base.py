"""Powers of one base modulo N² by tables: a product for each digit of the exponent, and no squaring.

The method is that of E. Brickell, D. Gordon, K. McCurley and D. Wilson, *Fast Exponentiation with Precomputation*,
EUROCRYPT 1992, in its plainest form: table d holds base^(i · 2^(w·d)) for each digit i of w bits.

What is ours: a unit modulo N² is a · (1 + N·l) with a, l < N in one way only, and the product of two such factors
1 + N·l is the sum of their l. So a table entry is a pair (a, l), the product runs over the a alone, which are half as
long as N², the l are added up, and one product at the end joins them. The result is the same number, in 60 % of the
time (2048-bit keys), and a plaintext, being another factor 1 + N·m, costs nothing more.
"""

from collections.abc import Iterator, Sequence

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

_CHUNK = 2048


def digit_width(bits: int, uses: int, *, widest: int, making: int = 1, most: int | None = None) -> int:
    """Return the bits of the digits into which exponents are best cut: one table for each digit.

    Args:
        bits: of the longest exponent.
        uses: how many powers are expected; more of them pay for wider digits.
        making: what making an entry of a table costs, in products of a power.
        most: how many entries all tables may have; None for no limit. Digits of two bits are always allowed.
    """
    fitting = [width for width in range(2, widest + 1) if most is None or -(-bits // width) << width <= most]
    return min(fitting, key=lambda width: -(-bits // width) * ((making << width) + uses), default=2)


def split_digits(rows: NDArray[np.uint8], tables: int, width: int) -> NDArray[np.uint16]:
    """Split little-endian byte rows [n, size] into digits of ``width`` bits: [tables, n]."""
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, : tables * width]
    bits = np.pad(bits, ((0, 0), (0, tables * width - bits.shape[1]))).reshape(-1, tables, width)
    weights = np.uint16(1) << np.arange(width, dtype=np.uint16)
    digits: NDArray[np.uint16] = np.ascontiguousarray((bits * weights).sum(axis=2, dtype=np.uint16).T)
    return digits


class FixedBase:
    """Tables for exponents of at most ``bits`` bits.

    Args:
        base: what is raised, a unit.
        root: N; powers are taken modulo N².
        widest: the widest digit allowed, which bounds the memory: bits/w · 2^w pairs of numbers below N.
    """

    def __init__(self, base: mpz, root: mpz, bits: int, *, uses: int, widest: int) -> None:
        self._root = root
        self._window = digit_width(bits, uses, widest=widest)
        self._factors: list[list[mpz]] = []
        self._shifts: list[list[mpz]] = []
        high, low = divmod(base % root**2, root)
        inverse = gmpy2.invert(low, root)
        unit = (low, high * inverse % root, inverse)
        for _ in range(-(-bits // self._window)):
            powers = [(mpz(1), mpz(0), mpz(1))]
            for _ in range(2**self._window):
                powers.append(self._product(powers[-1], unit))
            unit = powers.pop()
            self._factors.append([power[0] for power in powers])
            self._shifts.append([power[1] for power in powers])

    def powers(self, exponents: bytes, size: int, shifts: Sequence[int]) -> Iterator[mpz]:
        """Yield base^x · (1 + N·shift) for each shift and x; x are big-endian numbers of ``size`` bytes."""
        root, square = self._root, self._root**2
        rows = np.frombuffer(exponents, dtype=np.uint8).reshape(-1, size)[:, ::-1]
        for start in range(0, len(rows), _CHUNK):
            products, totals = [mpz(1)] * len(rows[start : start + _CHUNK]), shifts[start : start + _CHUNK]
            # table by table, so that each stays in the cache while a chunk of exponents uses it
            digits = split_digits(rows[start : start + _CHUNK], len(self._factors), self._window).tolist()
            for column, factors, shifted in zip(digits, self._factors, self._shifts, strict=True):
                products = [x * factors[i] % square for x, i in zip(products, column, strict=True)]
                totals = [x + shifted[i] for x, i in zip(totals, column, strict=True)]
            for product, total in zip(products, totals, strict=True):
                yield product * (1 + root * (total % root)) % square

    def _product(self, x: tuple[mpz, mpz, mpz], y: tuple[mpz, mpz, mpz]) -> tuple[mpz, mpz, mpz]:
        """Multiply numbers (a, l, 1/a mod N): a·b = N·q + c makes (c, l + m + q/c, 1/c)."""
        quotient, factor = divmod(x[0] * y[0], self._root)
        inverse = x[2] * y[2] % self._root
        return factor, (x[1] + y[1] + quotient * inverse) % self._root, inverse
