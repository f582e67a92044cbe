"""Unit costs of Paillier as a textbook has it: one number a ciphertext, no tables, no Chinese remainders.

What Equation 5 of the CMOSB paper counts; :mod:`~labelward.planning.unit_costs` measures the job's own engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import gmpy2

from labelward.rng import SecureRandom

_TIMES = 5
_ADDITIONS = 1_000


@cache
def textbook_units(bits: int) -> dict[str, float]:
    """Return seconds of ``encrypt``, ``decrypt`` and ``add`` with a modulus of so many bits, measured here."""
    protection = SecureRandom()

    def drawn(size: int) -> gmpy2.mpz:
        return gmpy2.mpz(int.from_bytes(protection.bytes(size // 8), "big"))

    half = bits // 2
    p, q = (gmpy2.next_prime(drawn(half) | gmpy2.mpz(1) << (half - 1)) for _ in range(2))
    n, order = p * q, (p - 1) * (q - 1)
    square, message = n * n, drawn(64)
    blind = drawn(bits) % n
    cipher = (1 + message * n) * gmpy2.powmod(blind, n, square) % square

    def sums() -> None:
        total = cipher
        for _ in range(_ADDITIONS):
            total = total * cipher % square

    return {
        "encrypt": _least(lambda: (1 + message * n) * gmpy2.powmod(blind, n, square) % square),
        "decrypt": _least(lambda: (gmpy2.powmod(cipher, order, square) - 1) // n),
        "add": _least(sums) / _ADDITIONS,
    }


def _least(action: Callable[[], object]) -> float:
    """Return the least seconds of a few runs."""
    found = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return min(found)
