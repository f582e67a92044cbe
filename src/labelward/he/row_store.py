"""Where prepared rows lie: in memory up to a limit, beyond it in a temporary file without a name."""

from __future__ import annotations

import math
import os
import tempfile
import threading
import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

from labelward.errors import OutputError

_ALIGNED = 64


class RowStore:
    """Makes arrays and keeps account of those that are still in use.

    Args:
        limit: bytes of all arrays in memory together; None for no limit. What lies in a file is mapped, so that the
            system holds as much of it in memory as it has to spare.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit, self._held, self._lock = limit, 0, threading.Lock()
        self._given_back: deque[int] = deque()

    def allocate(self, shape: tuple[int, ...]) -> NDArray[np.uint64]:
        """Return an array of undefined content.

        Raises:
            OutputError: the temporary file cannot be made, or the disk has no room for it.
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
        try:
            mapped = _mapped(size)
        except OSError as error:
            reason = (
                f"no room for {size} bytes of rows beyond [encryption] memory_limit in {tempfile.gettempdir()} "
                f"(TMPDIR names another folder): {error.strerror}"
            )
            raise OutputError(reason, code="unwritable", value=size) from error
        return mapped[: size // 8].reshape(shape)


def _mapped(size: int) -> NDArray[np.uint64]:
    """Map a temporary file of so many bytes, which ends with the array."""
    with tempfile.TemporaryFile(prefix="labelward-") as file:
        file.truncate(max(size, 8))
        if hasattr(os, "posix_fallocate"):  # else a full disk ends the process when a page is first written
            os.posix_fallocate(file.fileno(), 0, max(size, 8))
        return np.memmap(file, dtype=np.uint64, mode="r+", shape=(max(size, 8) // 8,))
