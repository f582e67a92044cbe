"""Work in threads; compiled loops release the interpreter's lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait

_ENTRIES = 1 << 18  # that one thread has counted or sorted before another one is awake

#: They only ever help: whoever has work does it too, so that nobody waits for one of them to be free.
_HELPERS = ThreadPoolExecutor(4 * (os.cpu_count() or 1), "kernel")


def worthwhile_threads(threads: int, entries: int) -> int:
    """Return how many threads counting or sorting so many entries is worth."""
    return threads if entries > _ENTRIES else 1


def run_in_threads(threads: int, work: Iterable[Callable[[], object]]) -> None:
    """Do all pieces of work, in this thread and others; after an error no further piece begins, and it is raised."""
    pieces, errors = deque(work), list[BaseException]()

    def go() -> None:
        while True:
            try:
                piece = pieces.popleft()
            except IndexError:
                return
            try:
                piece()
            except BaseException as error:
                pieces.clear()
                errors.append(error)

    helpers = [_HELPERS.submit(go) for _ in range(min(threads, len(pieces)) - 1)]
    try:
        go()
    finally:
        pieces.clear()
        wait([helper for helper in helpers if not helper.cancel()])
    if errors:
        raise errors[0]
