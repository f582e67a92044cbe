"""Where tasks run: in this process, or in worker processes.

A kernel whose threads use all cores (:attr:`Kernel.shared`) runs here and needs no other process.

Workers are programs of their own (``labelward.he.paillier.worker``) at the end of two pipes, not children of
:mod:`multiprocessing`: that would import the user's script again in each of them, which a script without a
``__main__`` guard does not survive, or fork a process full of threads. They get their secrets over the pipe and
nowhere else, run in a session of their own (Ctrl-C is for this process, which then stops them), and end by themselves
when the pipe does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from labelward.errors import EncryptionError
from labelward.he.paillier.kernel import Kernel
from labelward.he.paillier.prepared import Prepared
from labelward.he.paillier.rooms import Rooms
from labelward.he.paillier.tasks import Forget, State, Task, run
from labelward.he.paillier.worker import Reply, receive, send

__all__ = ["Executor", "Executors", "Inline", "Kept", "Pool"]

_PROGRAM = "from labelward.he.paillier.worker import main; main()"


class Kept:
    """Something that executors keep a copy of, such as a key; its ``handle`` is unique in this process."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.handle = next(Kept._numbers)


class Executor(ABC):
    """Runs tasks, ``size`` of them at a time. Safe to use from several threads."""

    size: int

    def __init__(self) -> None:
        self._loaded: set[int] = set()
        self._dropped: deque[int] = deque()

    @abstractmethod
    def run(self, tasks: Sequence[Task]) -> list[bytes]:
        """Run at most ``size`` tasks, the i-th always on the i-th process; return their results in order."""

    def load(self, kept: Kept, make: Callable[[int], Task]) -> bool:
        """Run ``make(i)`` on each process i, once for each ``kept``; forgotten when that is garbage.

        Returns:
            Whether it was run now: for the first time, or because the processes are new.
        """
        self.forget()
        if kept.handle in self._loaded:
            return False
        self.run([make(index) for index in range(self.size)])
        self._loaded.add(kept.handle)
        # a finalizer may run in the midst of anything, so it only takes a note
        weakref.finalize(kept, self._dropped.append, kept.handle).atexit = False
        return True

    def forget(self) -> None:
        """Drop the copies of what has become garbage."""
        handles = []
        with contextlib.suppress(IndexError):
            while True:
                handles.append(self._dropped.popleft())
        known = [handle for handle in handles if handle in self._loaded]
        if known:
            self._loaded.difference_update(known)
            self.run([Forget(known)] * self.size)


class Inline(Executor):
    """Runs tasks here and now."""

    size = 1

    def __init__(self, kernel: Kernel, memory_limit: int | None = None) -> None:
        super().__init__()
        self._state = State(kernel, Rooms(memory_limit).make)

    def run(self, tasks: Sequence[Task]) -> list[bytes]:
        """Run them one after the other."""
        return [run(task, self._state) for task in tasks]


class Pool(Executor):
    """Runs tasks in worker processes, started by the first of them.

    One call has all workers to itself; a second thread waits. If a worker dies, or the caller is interrupted, the call
    raises, all workers are stopped, and the next call starts new ones.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self._lock = threading.Lock()
        self._closed = False
        self._workers: list[subprocess.Popen[bytes]] = []
        weakref.finalize(self, _stop, self._workers)

    def run(self, tasks: Sequence[Task]) -> list[bytes]:
        """Send every task, then collect.

        Raises:
            EncryptionError: a worker ended or failed, or the pool was closed.
        """
        with self._lock:
            if self._closed:
                raise EncryptionError("the encryption engine was closed", code="failed")
            if not self._workers:
                self._workers.extend(_start() for _ in range(self.size))
            try:
                return self._converse(tasks)
            except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
                raise EncryptionError(f"an encryption worker ended: {self._reset()}", code="failed") from error
            except BaseException:
                self._reset()
                raise

    def close(self) -> None:
        """Stop the workers for good; a thread that waits for them gets an :class:`EncryptionError`."""
        self._closed = True
        _stop(self._workers)
        with self._lock:  # it may have been starting them just now
            _stop(self._workers)

    def _converse(self, tasks: Sequence[Task]) -> list[bytes]:
        workers = self._workers[: len(tasks)]
        for worker, task in zip(workers, tasks, strict=True):
            assert worker.stdin is not None
            send(worker.stdin, msgspec.msgpack.encode(task))
        replies = []
        for worker in workers:
            assert worker.stdout is not None
            replies.append(msgspec.msgpack.decode(receive(worker.stdout), type=Reply))
        failed = [reply.error for reply in replies if reply.error]
        if failed:
            raise EncryptionError(f"an encryption worker failed: {failed[0]}", code="failed")
        return [reply.data for reply in replies]

    def _reset(self) -> str:
        """Stop all workers and return how they had ended; what they kept is to be loaded again."""
        codes = [worker.poll() for worker in self._workers]
        _stop(self._workers)
        self._loaded.clear()
        return "the engine was closed" if self._closed else f"exit codes {codes}"


class Executors:
    """Small work runs here, the rest in the pool.

    Args:
        workers: processes of the pool; with 1 there is none.
        inline_below: work that is not worth sending, in products modulo n² (about 5 µs each at 2048 bits).
        kernel: what does the arithmetic.
        memory_limit: bytes of prepared rows that this process holds in memory.
    """

    def __init__(self, workers: int, inline_below: int, kernel: Kernel, memory_limit: int | None = None) -> None:
        self._inline, self._inline_below, self.merge = Inline(kernel, memory_limit), inline_below, kernel.merge
        self.threads = workers
        self._pool = Pool(workers) if workers > 1 and not kernel.shared else None
        self.prepared: weakref.WeakSet[Prepared] = weakref.WeakSet()

    def pick(self, products: int) -> Executor:
        """Return the executor for work of about so many products."""
        return self._inline if self._pool is None or products < self._inline_below else self._pool

    def close(self) -> None:
        """Stop the worker processes, and the threads that prepare encryptions."""
        for prepared in list(self.prepared):
            prepared.stop()
        if self._pool is not None:
            self._pool.close()
        for prepared in list(self.prepared):
            prepared.join()


def _start() -> subprocess.Popen[bytes]:
    # the worker finds the package where this process found it, whatever the current folder holds
    package = str(Path(__file__).resolve().parents[3])
    paths = [package, *filter(None, sys.path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )


def _stop(workers: list[subprocess.Popen[bytes]]) -> None:
    while True:
        try:
            worker = workers.pop()
        except IndexError:
            return
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
