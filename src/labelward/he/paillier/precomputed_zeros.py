"""Encryptions of zero that a thread makes beside other work, and that each serve once.

What is left to do when the plaintext is known is a multiplication by 1 + n·m. The distribution of a ciphertext is that
of one that is made at once: a fresh encryption of zero, from randomness of the operating system, times 1 + n·m.
"""

import threading
from collections.abc import Callable

_CHUNK = 512


class ZeroPool:
    """Encryptions of zero of one key.

    Args:
        size: bytes of a ciphertext.
        make: returns so many of them, one after the other, from its own source of randomness.
    """

    def __init__(self, size: int, make: Callable[[int], bytes]) -> None:
        self._size, self._make = size, make
        self._lock, self._stopped = threading.Lock(), False
        self._zeros, self._wanted = bytearray(), 0
        self._thread: threading.Thread | None = None

    def start(self, count: int) -> None:
        """See to it that up to ``count`` encryptions are there some time, unless :meth:`stop` was called."""
        with self._lock:
            self._wanted = count
            if self._stopped or self._thread is not None:
                return
            self._thread = threading.Thread(target=self._work, name="labelward-prepare", daemon=True)
            self._thread.start()

    def take(self, count: int) -> bytes:
        """Return at most ``count`` encryptions, one after the other; nobody gets them again."""
        with self._lock:
            taken = bytes(self._zeros[: count * self._size])
            del self._zeros[: len(taken)]
            self._wanted -= min(self._wanted, len(taken) // self._size)
        return taken

    def stop(self) -> None:
        """Make no more than are being made now."""
        with self._lock:
            self._stopped = True

    def join(self) -> None:
        """Wait for the thread."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        try:
            while count := self._missing():
                made = self._make(count)
                with self._lock:
                    self._zeros += made
        except Exception:  # encrypting does the same work itself, and tells what is wrong
            with self._lock:
                self._thread = None

    def _missing(self) -> int:
        with self._lock:
            missing = 0 if self._stopped else max(0, min(_CHUNK, self._wanted - len(self._zeros) // self._size))
            if not missing:
                self._thread = None
            return missing
