"""Availability and speed of the backends on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from gmpy2 import mpz

from labelward.he.base import KernelBenchmark
from labelward.he.paillier.backends.base import (
    BACKENDS,
    VARIABLE,
    Backend,
    PreparedRows,
    select_backend,
    unavailable_reason,
)
from labelward.he.paillier.column_merging import present_rows
from labelward.he.paillier.int_bytes import write_ints
from labelward.he.paillier.primes import Prime, generate_primes, subgroup_generator
from labelward.he.paillier.scheme import PublicEncryptor, public_bases, random_exponents
from labelward.he.row_store import RowStore
from labelward.rng import SecureRandom

Result = TypeVar("Result")

_ROWS, _COLUMNS, _GROUPS, _FIT, _SHIFT, _PLAINTEXT = 1024, 8, 16, 16, 104, 14


def benchmark_backends(bits: int, chosen: str) -> list[KernelBenchmark]:
    """Measure each backend with a key of ``bits`` bits, the fastest first; takes a few seconds.

    The operations are ``encrypt`` (a row, with the secret), ``split`` (a row, once before its first sum), ``add`` (a
    product), ``seal`` (a sum, compressed and re-randomized) and ``decrypt`` (a ciphertext).

    Args:
        chosen: name of the backend that the engine uses.
    """
    asked, protection = os.environ.get(VARIABLE), SecureRandom()
    primes, results = generate_primes(bits, protection), []
    for name in BACKENDS:
        missing = unavailable_reason(name)
        if missing:
            why = missing
        elif name == chosen:
            why = f"{VARIABLE} asks for it" if name == asked else "the fastest that runs here"
        else:
            why = f"{VARIABLE} asks for another" if asked == chosen else "slower"
        results.append(
            KernelBenchmark(
                kernel=name,
                available=not missing,
                chosen=name == chosen,
                why=why,
                microseconds={} if missing else _measure(select_backend(name), primes, protection),
            )
        )
    return results


def _measure(backend: Backend, primes: tuple[Prime, Prime], protection: SecureRandom) -> dict[str, float]:
    """Return microseconds of each operation; tables are built, and loops compiled, beforehand."""
    first, second = primes
    n, taus = first.p * second.p, [subgroup_generator(prime, protection) for prime in primes]
    private = backend.private_ops(first.p, second.p, taus[0], taus[1], _ROWS)
    public = backend.public_ops(n, *public_bases(n, protection), _FIT)
    x, y = (random_exponents(int(prime.p) - 1, _ROWS, protection) for prime in primes)
    plaintexts = write_ints(range(_ROWS), _PLAINTEXT, signed=True)
    groups = np.arange(_ROWS * _COLUMNS, dtype=np.int32).reshape(_ROWS, _COLUMNS) * 7 % _GROUPS
    random = protection.bytes(_COLUMNS * _GROUPS // _FIT * PublicEncryptor.random_size(n)[1])
    encrypted, encrypt = _timed(lambda: private.encrypt(plaintexts, _PLAINTEXT, x, y), _ROWS)
    rows, split = _timed(lambda: _prepare(backend, n, encrypted), _ROWS)
    alone = tuple((column,) for column in range(_COLUMNS))
    present = present_rows(groups, _GROUPS)
    sums, add = _timed(lambda: rows.sums(present, _GROUPS, alone), groups.size)
    sealed, seal = _timed(lambda: public.rerandomize(sums, _FIT, _SHIFT, random), _COLUMNS * _GROUPS)
    _, decrypt = _timed(lambda: private.decrypt(sealed), _COLUMNS * _GROUPS // _FIT)
    return {"encrypt": encrypt, "split": split, "add": add, "seal": seal, "decrypt": decrypt}


def _prepare(backend: Backend, n: mpz, ciphertexts: bytes) -> PreparedRows:
    rows = backend.prepared_rows(n, _ROWS, RowStore().allocate)
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
