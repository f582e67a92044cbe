"""Which kernels of the Paillier engine run on this machine, why, and how fast.

::

    for found in examine():
        print(found.kernel, found.chosen, found.why, found.microseconds)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from gmpy2 import mpz

from labelward.he.paillier.joint import present
from labelward.he.paillier.kernel import KERNELS, VARIABLE, Kernel, Rows, choose, obstacle
from labelward.he.paillier.kernels import PublicKernel, exponents_below, public_bases
from labelward.he.paillier.numbers import write
from labelward.he.paillier.primes import Prime, draw_pair, generator
from labelward.he.paillier.rooms import Rooms
from labelward.rng import SecureRandom

__all__ = ["Examination", "examine"]

Result = TypeVar("Result")

_ROWS, _COLUMNS, _GROUPS, _FIT, _SHIFT, _PLAINTEXT = 1024, 8, 16, 16, 104, 14


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found of one kernel.

    Attributes:
        kernel: a name of :data:`~labelward.he.paillier.kernel.KERNELS`.
        available: whether it runs here.
        chosen: whether an engine made now would use it.
        why: what is in its way, or why it is or is not chosen.
        microseconds: processor time of one core for one operation: ``encrypt`` (a row, with the secret), ``split``
            (a row, once before its first sum), ``add`` (a product), ``seal`` (a sum, compressed and re-randomized),
            ``decrypt`` (a ciphertext); empty where the kernel does not run.
    """

    kernel: str
    available: bool
    chosen: bool
    why: str
    microseconds: Mapping[str, float] = field(default_factory=dict)


def examine(bits: int = 2048) -> list[Examination]:
    """Measure each kernel with a key of ``bits`` bits, the fastest first; takes a few seconds.

    Raises:
        InputError: ``LABELWARD_KERNEL`` names no kernel.
    """
    chosen, asked, protection = choose().name, os.environ.get(VARIABLE), SecureRandom()
    primes, examined = draw_pair(bits, protection), []
    for name in KERNELS:
        missing = obstacle(name)
        if missing:
            why = missing
        elif name == chosen:
            why = f"{VARIABLE} asks for it" if name == asked else "the fastest that runs here"
        else:
            why = f"{VARIABLE} asks for another" if asked == chosen else "slower"
        examined.append(
            Examination(
                kernel=name,
                available=not missing,
                chosen=name == chosen,
                why=why,
                microseconds={} if missing else _measure(choose(name), primes, protection),
            )
        )
    return examined


def _measure(kernel: Kernel, primes: tuple[Prime, Prime], protection: SecureRandom) -> dict[str, float]:
    """Return microseconds of each operation; tables are built, and loops compiled, beforehand."""
    first, second = primes
    n = first.p * second.p
    owner = kernel.owner(first.p, second.p, generator(first, protection), generator(second, protection), _ROWS)
    public = kernel.public(n, *public_bases(n, protection), _FIT)
    x, y = (exponents_below(int(prime.p) - 1, _ROWS, protection) for prime in primes)
    plaintexts = write(range(_ROWS), _PLAINTEXT, signed=True)
    groups = np.arange(_ROWS * _COLUMNS, dtype=np.int32).reshape(_ROWS, _COLUMNS) * 7 % _GROUPS
    random = protection.bytes(_COLUMNS * _GROUPS // _FIT * PublicKernel.random_size(n)[1])
    encrypted, encrypt = _timed(lambda: owner.encrypt(plaintexts, _PLAINTEXT, x, y), _ROWS)
    rows, split = _timed(lambda: _rows(kernel, n, encrypted), _ROWS)
    alone = tuple((column,) for column in range(_COLUMNS))
    inside = present(groups, _GROUPS)
    sums, add = _timed(lambda: rows.sums(inside, _GROUPS, alone), groups.size)
    sealed, seal = _timed(lambda: public.seal(sums, _FIT, _SHIFT, random), _COLUMNS * _GROUPS)
    _, decrypt = _timed(lambda: owner.decrypt(sealed), _COLUMNS * _GROUPS // _FIT)
    return {"encrypt": encrypt, "split": split, "add": add, "seal": seal, "decrypt": decrypt}


def _rows(kernel: Kernel, n: mpz, ciphertexts: bytes) -> Rows:
    rows = kernel.rows(n, _ROWS, Rooms().make)
    rows.add(ciphertexts)
    return rows


def _timed(action: Callable[[], Result], operations: int) -> tuple[Result, float]:
    action()
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        result = action()
        best = min(best, time.process_time() - start)
    return result, best / operations * 1e6
