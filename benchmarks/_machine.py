"""What a benchmark tells of this process and of the machine beside its figures."""

from __future__ import annotations

import os
import resource


def peak() -> int:
    """Return the largest memory that this process had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def gigabytes() -> float:
    """Return the same in gigabytes, as it is reported."""
    return round(peak() / 1e9, 2)


def load() -> float:
    """Return the load of the machine in the last minute."""
    return round(os.getloadavg()[0], 1)


def children_seconds() -> float:
    """Return the processor seconds of the processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
