"""Worker processes that make results of one folder side by side."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from labelward.errors import OutputError


@contextlib.contextmanager
def worker_pool(
    jobs: int, initializer: Callable[..., None] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Open worker processes, which are ended where the block raises, and waited for in any case.

    Args:
        jobs: number of processes.
        initializer: called once in each process, with ``initargs``; None: nothing is.

    Raises:
        OutputError: a process was killed.
    """
    others = set(multiprocessing.active_children())
    start = (initializer, initargs)
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_start, initargs=start)
    try:
        yield pool
    except BrokenProcessPool as error:
        reason = "a worker process was killed, perhaps for lack of memory; run the same command again to resume"
        raise OutputError(reason, code="incomplete") from error
    except BaseException:
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start(initializer: Callable[..., None] | None, initargs: tuple[Any, ...]) -> None:
    """Leave interrupts to the parent process, and end when it ends, however it does: it holds the folder's lock."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
