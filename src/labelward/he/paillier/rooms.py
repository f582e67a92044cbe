"""Where prepared rows lie: in memory up to a limit, beyond it in a temporary file without a name."""

from __future__ import annotations

import math
import tempfile
import threading
import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rooms"]

_ALIGNED = 64


class Rooms:
    """Makes arrays and keeps account of those that are still in use.

    Args:
        limit: bytes of all arrays in memory together; None for no limit. What lies in a file is mapped, so that the
            system holds as much of it in memory as it has to spare.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit, self._held, self._lock = limit, 0, threading.Lock()
        self._given_back: deque[int] = deque()

    def make(self, shape: tuple[int, ...]) -> NDArray[np.uint64]:
        """Return an array of undefined content.

        Raises:
            OSError: the temporary file cannot be made.
        """
        size = 8 * math.prod(shape)
        with self._lock:
            while self._given_back:
                self._held -= self._given_back.popleft()
            inside = self._limit is None or self._held + size <= self._limit
            self._held += size if inside else 0
        if inside:
            raw = np.empty(size + _ALIGNED, dtype=np.uint8)
            # a finalizer may run in the midst of anything, so it only takes a note
            weakref.finalize(raw, self._given_back.append, size).atexit = False
            start = -raw.ctypes.data % _ALIGNED
            return raw[start : start + size].view(np.uint64).reshape(shape)
        with tempfile.TemporaryFile(prefix="labelward-") as file:
            file.truncate(max(size, 8))
            mapped: NDArray[np.uint64] = np.memmap(file, dtype=np.uint64, mode="r+", shape=(max(size, 8) // 8,))
        return mapped[: size // 8].reshape(shape)
