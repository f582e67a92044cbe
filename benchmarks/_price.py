"""What a product costs while other work is measured: on one core, and on all cores at once."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

PRODUCTS = 2048
_PART = 0.05  # of the time of what is measured, where a chain takes a millisecond, as IFMA's


def chained(kernel: str, bits: int) -> Callable[[], object]:
    """Return what makes PRODUCTS products of a number below n² and one below n, each of the one before."""
    n = mpz(secrets.randbits(bits) | 1 | 1 << (bits - 1))
    if kernel == "ifma":
        from labelward.he.paillier.backends.ifma import loops as ifma_loops
        from labelward.he.paillier.backends.ifma.arithmetic import LaneArithmetic, aligned

        root = LaneArithmetic(n)
        square, count = root.square, PRODUCTS // 8
        factors, out, start = aligned(count, root.rows, 8), aligned(count, square.limbs, 8), aligned(square.limbs, 8)
        factors[:] = start[:] = 1
        return partial(ifma_loops.product_chain, start, factors, square.odd, out)
    digits = [mpz(secrets.randbelow(int(n))) for _ in range(PRODUCTS)]
    if kernel == "gmpy2":
        return partial(_chain, digits, n * n)
    from libgmp import chain, prepared

    from labelward.he.paillier.backends.gmp.arithmetic import CellArithmetic

    halves = CellArithmetic(n)
    made = np.empty((PRODUCTS, 3 * halves.limbs + 1), dtype=np.uint64)
    given, start, work = prepared(halves, digits), halves.cell(digits[0]), halves.work()
    return lambda: chain(halves.mpn, halves.odd, work, start, given, made)  # which keeps the modulus


def _chain(digits: list[mpz], n2: mpz) -> None:
    product = mpz(1)
    for digit in digits:
        product = product * digit % n2


class Price:
    """Measures milliseconds of a product again and again: the speed of a shared machine changes all the time.

    Args:
        kernel: whose product.
        bits: of n.
        threads: as many as the machine has cores for; 1 where the kernel cannot work in threads.
    """

    def __init__(self, kernel: str, bits: int, threads: int) -> None:
        self._chains = [chained(kernel, bits) for _ in range(threads)]
        self._threads = ThreadPoolExecutor(threads)

    def now(self, seconds: float) -> NDArray[np.float64]:
        """Return the price on one core, and then on all at once, after something that took so many seconds."""
        runs = 2 + int(_PART * seconds / 0.001)
        one = _timed(self._chains[0], runs)
        return np.array([one, np.mean(list(self._threads.map(partial(_timed, runs=runs), self._chains)))])

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def _timed(chain: Callable[[], object], runs: int) -> float:
    chain()  # what others left in the caches leaves them now
    started = time.perf_counter()
    for _ in range(runs):
        chain()
    return (time.perf_counter() - started) / runs / PRODUCTS * 1000
