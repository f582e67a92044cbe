"""Outbox: a bounded queue of envelopes for one connection."""

import threading
from collections import deque
from collections.abc import Iterator


class Outbox:
    """Queue with a non-blocking :meth:`put`; iteration blocks while it is empty, and ends after :meth:`close`.

    Args:
        limit: maximum size of the waiting envelopes, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, raw: bytes) -> bool:
        """Append an envelope; return False if the queue is full or closed."""
        with self._changed:
            if self._closed or self._size + len(raw) > self._limit:
                return False
            self._waiting.append(raw)
            self._size += len(raw)
            self._changed.notify()
            return True

    def close(self, *, drain: bool = False) -> None:
        """End the iteration; with ``drain`` after the waiting envelopes."""
        with self._changed:
            self._closed = True
            if not drain:
                self._waiting.clear()
                self._size = 0
            self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closed:
                        return
                    self._changed.wait()
                raw = self._waiting.popleft()
                self._size -= len(raw)
            yield raw
