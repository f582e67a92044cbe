"""How kernels' loops are compiled, and run in threads.

They are cached on disk, or not compiled at all: what takes each new process many seconds is no faster than gmpy2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

import numba

__all__ = ["each", "jit"]

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def jit(function: Kernel) -> Kernel:
    """Compile with numba, free of the interpreter's lock; :class:`RuntimeError` where no folder can hold the code."""
    return cast("Kernel", numba.njit(cache=True, nogil=True)(function))


def each(threads: int, work: Iterable[Callable[[], object]]) -> None:
    """Do all pieces of work in threads; kernels release the interpreter's lock."""
    pieces = list(work)
    if threads == 1 or len(pieces) == 1:
        for piece in pieces:
            piece()
        return
    with ThreadPoolExecutor(threads) as pool:
        try:
            for future in [pool.submit(piece) for piece in pieces]:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # nobody waits for pieces that have not begun
            raise
