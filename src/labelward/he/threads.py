"""Work in threads; compiled loops release the interpreter's lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Piece = TypeVar("Piece")

_ENTRIES = 1 << 18  # that one thread has counted or sorted before another one is awake

#: They only ever help: whoever has work does it too, so that nobody waits for one of them to be free.
_HELPERS = ThreadPoolExecutor(4 * (os.cpu_count() or 1), "kernel")


def worthwhile_threads(threads: int, entries: int) -> int:
    """Return how many threads counting or sorting so many entries is worth."""
    return threads if entries > _ENTRIES else 1


def even_chunks(count: int, threads: int, most: int = 1 << 30) -> list[slice]:
    """Cut range(count) into stretches of nearly equal length for threads, none longer than ``most``."""
    pieces = max(min(threads, count), -(-count // most))
    pieces = -(-pieces // threads) * threads if pieces > threads else pieces
    return [slice(count * i // pieces, count * (i + 1) // pieces) for i in range(pieces)]


def threads_each(threads: int, pieces: int) -> int:
    """Return how many threads each of so many pieces of work may use."""
    return max(1, threads // max(1, pieces))


def run_in_threads(threads: int, work: Callable[[Piece], object], pieces: Iterable[Piece]) -> None:
    """Do ``work`` on all pieces, in this thread and others; an error is raised, and no further piece begins."""
    left, errors = deque(pieces), list[BaseException]()

    def go() -> None:
        while True:
            try:
                piece = left.popleft()
            except IndexError:
                return
            try:
                work(piece)
            except BaseException as error:
                left.clear()
                errors.append(error)

    helpers = [_HELPERS.submit(go) for _ in range(min(threads, len(left)) - 1)]
    try:
        go()
    finally:
        left.clear()
        wait([helper for helper in helpers if not helper.cancel()])
    if errors:
        raise errors[0]


def fill_in_threads(
    threads: int, work: Callable[[slice, NDArray[np.uint8]], object], parts: Sequence[slice], size: int
) -> NDArray[np.uint8]:
    """Return numbers of ``size`` bytes: ``work`` is called with each of the consecutive parts, and the room for it."""
    made = np.empty((parts[-1].stop if parts else 0, size), dtype=np.uint8)
    run_in_threads(threads, lambda part: work(part, made[part]), parts)
    return made
