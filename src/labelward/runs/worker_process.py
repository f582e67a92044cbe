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
from labelward.parameters import PositiveInt, check_value

_NATIVE_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables from which torch, numpy and scipy take their number of threads when they are loaded."""


def check_jobs(jobs: int) -> None:
    """Refuse fewer than one process.

    Raises:
        InputError: with their number.
    """
    check_value("jobs", jobs, PositiveInt)


@contextlib.contextmanager
def worker_pool(
    jobs: int, initializer: Callable[..., None] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Open worker processes, which are ended where the block raises, and waited for in any case.

    Each has an equal part of the cores for the threads of linear algebra, unless the user chose their number: threads
    of several processes on one core wait for each other, busily (Gaussian processes in two workers on two cores: three
    times the seconds).

    Args:
        jobs: number of processes.
        initializer: called once in each process, with ``initargs``; None: nothing is.

    Raises:
        OutputError: a process was killed.
    """
    others = set(multiprocessing.active_children())
    start = (jobs, initializer, initargs)
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


def _start(jobs: int, initializer: Callable[..., None] | None, initargs: tuple[Any, ...]) -> None:
    """Leave interrupts to the parent process, and end when it ends, however it does: it holds the folder's lock."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _share_cores(jobs)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


def _share_cores(jobs: int) -> None:
    """Take this worker's part of the cores for the threads of native libraries."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    if any(name in os.environ for name in _NATIVE_THREADS):
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    os.environ.update(dict.fromkeys(_NATIVE_THREADS, str(threads)))  # for libraries that are loaded later
    threadpool_limits(threads)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
