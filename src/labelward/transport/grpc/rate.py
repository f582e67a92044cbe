"""Rate: so many events at once, then so many per second."""

from __future__ import annotations

import time


class Rate:
    """Bounded rate of events; not thread-safe.

    Args:
        at_once: events that may happen at once.
        per_second: events that may happen per second in the long run.
    """

    def __init__(self, at_once: float, per_second: float) -> None:
        self._at_once, self._per_second = at_once, per_second
        self._room, self._time = at_once, time.monotonic()

    def take(self, count: float = 1.0) -> bool:
        """Return whether so many more events may happen now, and count them if so."""
        now = time.monotonic()
        self._room = min(self._at_once, self._room + self._per_second * (now - self._time))
        self._time = now
        if self._room < count:
            return False
        self._room -= count
        return True
