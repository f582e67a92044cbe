"""A TCP proxy on loopback that cuts, stalls, delays and throttles connections."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from types import TracebackType

_BLOCK = 64 * 1024


class Proxy:
    """Forwards to a port of this machine.

    Attributes:
        delay: seconds that every byte is under way, in each direction.
        rate: bytes per second in each direction; 0: no limit.
        open: whether new connections are taken.
        stalled: bytes go nowhere, and no connection ends.
    """

    def __init__(self, target: int, *, delay: float = 0.0, rate: float = 0.0) -> None:
        self.target, self.delay, self.rate = target, delay, rate
        self.open, self.stalled, self.cuts = True, False, 0
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Reset all connections."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        self.cuts += 1
        for each in sockets:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        self.cut()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target)) if self.open else None
            except OSError:
                far = None
            if far is None:
                near.close()
                continue
            with self._lock:
                self._sockets |= {near, far}
            for here, there in ((near, far), (far, near)):
                with contextlib.suppress(OSError):  # cut already
                    here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                blocks: queue.Queue[tuple[float, bytes]] = queue.Queue(maxsize=256)
                threading.Thread(target=self._read, args=(here, blocks), daemon=True).start()
                threading.Thread(target=self._write, args=(there, blocks), daemon=True).start()

    def _read(self, here: socket.socket, blocks: queue.Queue[tuple[float, bytes]]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while block := here.recv(_BLOCK):
                blocks.put((time.monotonic() + self.delay, block))
        blocks.put((0.0, b""))

    def _write(self, there: socket.socket, blocks: queue.Queue[tuple[float, bytes]]) -> None:
        free = 0.0
        with contextlib.suppress(OSError, ValueError):
            while True:
                due, block = blocks.get()
                if not block:
                    break
                if self.rate:
                    free = max(free, time.monotonic(), due) + len(block) / self.rate
                    due = free
                time.sleep(max(0.0, due - time.monotonic()))
                while self.stalled:
                    time.sleep(0.01)
                there.sendall(block)
        with contextlib.suppress(OSError):
            there.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._sockets.discard(there)
        there.close()
        while block:  # so that the reader is never left waiting for room
            _, block = blocks.get()
