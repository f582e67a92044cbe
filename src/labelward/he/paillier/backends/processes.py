"""gmpy2 in worker processes: the backend for gmpy2 with several workers.

gmpy2 keeps the interpreter's lock during a product, and giving it up for each product of a few microseconds gains
nothing, so threads do not help; the other backends compile their loops and use threads.

Workers are programs of their own at the end of two pipes, not children of :mod:`multiprocessing`: that would import the
user's script again in each worker, which a script without a ``__main__`` guard does not survive, or fork a process full
of threads. They receive secrets over the pipe and nowhere else, run in a session of their own (Ctrl-C is for this
process, which then stops them), and exit when the pipe ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
from gmpy2 import mpz

from labelward.errors import EncryptionError
from labelward.he.paillier.backends.base import Allocator, Backend, PreparedRows
from labelward.he.paillier.backends.gmpy2 import backend
from labelward.he.paillier.column_merging import PresentRows
from labelward.he.paillier.int_bytes import byte_length, write_ints
from labelward.he.paillier.scheme import multiply_sums
from labelward.he.row_store import RowStore

_PROGRAM = "from labelward.he.paillier.backends.processes import serve; serve()"
_COLUMNS = 10  # products of each row, about
_CREATE = ("private_ops", "public_ops", "prepared_rows")


class ProcessBackend(Backend):
    """The gmpy2 backend in ``workers`` processes, which the first large task starts.

    Args:
        inline_below: work that stays in this process, in products modulo n² (about 5 µs each at 2048 bits).
    """

    def __init__(self, workers: int, inline_below: int = 20_000) -> None:
        self.pool, self._inline_below, self._here = WorkerPool(workers), inline_below, backend(1)
        super().__init__(
            name=self._here.name,
            merge_cost=self._here.merge_cost,
            private_ops=lambda p, q, *more: _SharedPrivateOps(self._shared("private_ops", p, q, *more), p * q),
            public_ops=lambda n, *more: _SharedPublicOps(self._shared("public_ops", n, *more), n),
            prepared_rows=self._rows,
            close=self.pool.close,
        )

    def _shared(self, method: str, *arguments: Any) -> _Split:
        *numbers, uses = arguments
        copies = _Copies(self.pool, method, *numbers, uses // self.pool.size)
        return _Split(copies, getattr(self._here, method)(*arguments), self._inline_below)

    def _rows(self, n: mpz, count: int, allocate: Allocator) -> PreparedRows:
        if count * _COLUMNS < self._inline_below:
            return self._here.prepared_rows(n, count, allocate)
        return _SharedRows(self.pool, n, count)


class _Split(NamedTuple):
    """Calls a method of an object here or, where that is much work, of its copies on stretches of the data."""

    copies: _Copies
    here: Any
    inline_below: int

    def call(self, method: str, products: int, count: int, *arguments: int | tuple[bytes, int]) -> bytes:
        """Call a method; of (data, unit) the i-th of ``count`` results depends on the i-th unit of bytes alone."""
        if products < self.inline_below:
            result: bytes = getattr(self.here, method)(
                *(each if isinstance(each, int) else each[0] for each in arguments)
            )
            return result

        def part(start: int, stop: int) -> tuple[Any, ...]:
            return tuple(
                each if isinstance(each, int) else each[0][start * each[1] : stop * each[1]] for each in arguments
            )

        return self.copies.split(method, count, part)


class _SharedPrivateOps:
    def __init__(self, split: _Split, n: mpz) -> None:
        self._split, self._bits = split, int(n.bit_length())

    def encrypt(self, plaintexts: bytes, size: int, x: bytes, y: bytes) -> bytes:
        count = len(plaintexts) // size
        half = len(x) // max(1, count)
        products = count * self._bits // 20
        return self._split.call("encrypt", products, count, (plaintexts, size), size, (x, half), (y, half))

    def complete(self, zeros: bytes, plaintexts: bytes, size: int) -> bytes:
        count = len(plaintexts) // size
        return self._split.call("complete", count, count, (zeros, self._bits // 4), (plaintexts, size), size)

    def decrypt(self, ciphertexts: bytes) -> bytes:
        count = len(ciphertexts) // (self._bits // 4)
        return self._split.call("decrypt", count * self._bits // 4, count, (ciphertexts, self._bits // 4))


class _SharedPublicOps:
    def __init__(self, split: _Split, n: mpz) -> None:
        self._split, self._obfuscator, self._size = split, int(n.bit_length()) // 7, byte_length(n * n)

    def encrypt(self, plaintexts: bytes, size: int, random: bytes) -> bytes:
        count = len(plaintexts) // size
        step = len(random) // max(1, count)
        products = count * self._obfuscator
        return self._split.call("encrypt", products, count, (plaintexts, size), size, (random, step))

    def rerandomize(self, cells: bytes, fit: int, shift: int, random: bytes) -> bytes:
        n_cells = len(cells) // self._size
        count = -(-n_cells // fit)
        products, step = n_cells * shift + count * self._obfuscator, len(random) // max(1, count)
        return self._split.call("rerandomize", products, count, (cells, fit * self._size), fit, shift, (random, step))


class _SharedRows:
    """Rows dealt to the workers: of w workers the i-th has every w-th row from i on.

    A worker that ends loses its rows, so the ciphertexts are kept here and sent again to the next workers.
    """

    def __init__(self, pool: WorkerPool, n: mpz, count: int) -> None:
        self._pool, self._n2, self._size, self._have = pool, n * n, byte_length(n * n), 0
        self._copies = _Copies(pool, "prepared_rows", n, -(-count // pool.size))
        self._blocks: list[tuple[int, bytes]] = []
        self._sent = 0

    def add(self, data: bytes) -> None:
        self._blocks.append((self._have, data))
        self._send()
        self._have += len(data) // self._size

    def sums(self, present: PresentRows, n_groups: int, joined: tuple[tuple[int, ...], ...]) -> bytes:
        self._send()
        size, arguments = self._pool.size, list[tuple[Any, ...]]()
        for i in range(size):
            own = present.rows % size == i
            which, groups = present.rows[own] // size, present.groups[:, own]
            arguments.append((_int32_bytes(which), _int32_bytes(groups), len(groups), n_groups, joined))
        partial = [
            np.frombuffer(part, dtype=np.uint8).reshape(-1, self._size) for part in self._copies.call("sums", arguments)
        ]
        return reduce(lambda first, second: multiply_sums(first, second, self._n2)[0], partial).tobytes()

    def _send(self) -> None:
        """Send the blocks that the workers do not have."""
        if self._copies.create():
            self._sent = 0
        size = self._pool.size
        for start, data in self._blocks[self._sent :]:
            rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, self._size)
            self._copies.call("add", [(rows[(i - start) % size :: size].tobytes(),) for i in range(size)])
            self._sent += 1


class _Copies:
    """An object of the gmpy2 backend, created in every worker under the same handle."""

    _handles = itertools.count()

    def __init__(self, pool: WorkerPool, method: str, *arguments: mpz | int) -> None:
        self._pool, self.handle = pool, next(_Copies._handles)
        told = tuple(write_ints([each], byte_length(mpz(each)) or 1) for each in arguments)
        self._creation = _Call(self.handle, method, told)

    def create(self) -> bool:
        """Create the copies unless the workers have them; returns whether they were created now."""
        return self._pool.create(self, self._creation)

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[bytes]:
        """Call a method of each copy with arguments of its own."""
        self.create()
        return self._pool.run([_Call(self.handle, method, each) for each in arguments])

    def split(self, method: str, count: int, part: Callable[[int, int], tuple[Any, ...]]) -> bytes:
        """Split range(count) evenly, call a method with ``part(start, stop)`` on each copy, and join the results."""
        size = self._pool.size
        slices = [(count * i // size, count * (i + 1) // size) for i in range(size)]
        return b"".join(self.call(method, [part(start, stop) for start, stop in slices]))


class _Call(msgspec.Struct, frozen=True):
    """A call of a method of the object under a handle, or of what creates it; numbers are big-endian bytes there."""

    handle: int
    method: str
    arguments: tuple[Any, ...] = ()


class _Reply(msgspec.Struct, frozen=True):
    data: bytes = b""
    error: str = ""


class WorkerPool:
    """Worker processes, started by the first call. Safe to use from several threads.

    One call has all workers to itself; a second thread waits. If a worker ends, or the caller is interrupted, the call
    raises, all workers are stopped, and the next call starts new ones.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.workers: list[subprocess.Popen[bytes]] = []
        self.loaded: set[int] = set()
        self._dropped: deque[int] = deque()
        self._lock, self._closed = threading.Lock(), False
        weakref.finalize(self, _stop, self.workers)

    def create(self, copies: _Copies, creation: _Call) -> bool:
        """Run a creation on each worker unless it was run there; its object is dropped when ``copies`` is garbage."""
        self.forget()
        if copies.handle in self.loaded:
            return False
        self.run([creation] * self.size)
        self.loaded.add(copies.handle)
        # a finalizer may run in the midst of anything, so it only takes a note
        weakref.finalize(copies, self._dropped.append, copies.handle).atexit = False
        return True

    def forget(self) -> None:
        """Drop the objects whose :class:`_Copies` are garbage."""
        handles = []
        with contextlib.suppress(IndexError):
            while True:
                handles.append(self._dropped.popleft())
        if known := self.loaded.intersection(handles):
            self.loaded -= known
            for handle in known:
                self.run([_Call(handle, "forget")] * self.size)

    def run(self, calls: Sequence[_Call]) -> list[bytes]:
        """Send the i-th call to the i-th worker, then collect the results.

        Raises:
            EncryptionError: a worker ended or failed, or the pool was closed.
        """
        with self._lock:
            if self._closed:
                raise EncryptionError("the encryption engine was closed", code="failed")
            if not self.workers:
                self.workers.extend(_start() for _ in range(self.size))
            try:
                return self._exchange(calls)
            except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
                raise EncryptionError(f"an encryption worker ended: {self._reset()}", code="failed") from error
            except BaseException:
                self._reset()
                raise

    def close(self) -> None:
        """Stop the workers for good; a thread that waits for them gets an :class:`EncryptionError`."""
        self._closed = True
        _stop(self.workers)
        with self._lock:  # it may have been starting them just now
            _stop(self.workers)

    def _exchange(self, calls: Sequence[_Call]) -> list[bytes]:
        for worker, call in zip(self.workers, calls, strict=True):
            assert worker.stdin is not None
            _write_frame(worker.stdin, msgspec.msgpack.encode(call))
        replies = []
        for worker in self.workers:
            assert worker.stdout is not None
            replies.append(msgspec.msgpack.decode(_read_frame(worker.stdout), type=_Reply))
        failed = [reply.error for reply in replies if reply.error]
        if failed:
            raise EncryptionError(f"an encryption worker failed: {failed[0]}", code="failed")
        return [reply.data for reply in replies]

    def _reset(self) -> str:
        """Stop all workers and return how they had ended; what they held must be created again."""
        codes = [worker.poll() for worker in self.workers]
        _stop(self.workers)
        self.loaded.clear()
        return "the engine was closed" if self._closed else f"exit codes {codes}"


def serve() -> None:
    """Run a worker: answer the calls on standard input until it ends.

    Anything printed goes to the error stream, so it does not mix with the results.
    """
    calls, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    objects, decoder = dict[int, Any](), msgspec.msgpack.Decoder(_Call)
    try:
        while True:
            call = decoder.decode(_read_frame(calls))
            try:
                reply = _Reply(data=_answer(call, objects))
            except Exception as error:
                reply = _Reply(error=f"{type(error).__name__}: {error}")
            _write_frame(replies, msgspec.msgpack.encode(reply))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the engine is gone; nothing is left to flush or to report


def _answer(call: _Call, objects: dict[int, Any]) -> bytes:
    """Carry out a call; those that only create, add or drop return nothing."""
    if call.method in _CREATE:
        *numbers, last = (mpz.from_bytes(each, "big") for each in call.arguments)
        more = (RowStore().allocate,) if call.method == "prepared_rows" else ()
        objects[call.handle] = getattr(backend(1), call.method)(*numbers, int(last), *more)
    elif call.method == "forget":
        objects.pop(call.handle, None)
    elif call.method == "sums":
        which, groups, columns, n_groups, joined = call.arguments
        rows = np.frombuffer(which, dtype="<i4").astype(np.int32, copy=False)
        grouped = np.frombuffer(groups, dtype="<i4").astype(np.int32, copy=False).reshape(columns, len(rows))
        result: bytes = objects[call.handle].sums(PresentRows(rows, grouped), n_groups, joined)
        return result
    else:
        return getattr(objects[call.handle], call.method)(*call.arguments) or b""
    return b""


def _int32_bytes(numbers: np.ndarray[Any, np.dtype[np.int32]]) -> memoryview:
    return np.ascontiguousarray(numbers, "<i4").reshape(-1).view(np.uint8).data


def _write_frame(pipe: IO[bytes], frame: bytes) -> None:
    """Write eight bytes of length, then the frame."""
    pipe.write(len(frame).to_bytes(8, "big"))
    pipe.write(frame)
    pipe.flush()


def _read_frame(pipe: IO[bytes]) -> bytes:
    """Read a frame; :class:`EOFError` where the pipe ends."""
    header = pipe.read(8)
    size = int.from_bytes(header, "big")
    frame = pipe.read(size) if len(header) == 8 else b""
    if len(header) < 8 or len(frame) < size:
        raise EOFError("the pipe ended")
    return frame


def _start() -> subprocess.Popen[bytes]:
    # the worker finds the package where this process found it, whatever the current folder holds
    package = str(Path(__file__).resolve().parents[4])
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
