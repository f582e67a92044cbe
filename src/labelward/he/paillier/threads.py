"""Work in threads; compiled loops release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["each"]


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
