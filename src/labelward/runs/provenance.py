"""Provenance of results: library versions and the processor."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from labelward.installation import version


def library_versions(more: Sequence[str] = ()) -> dict[str, str]:
    """Return the library versions that results depend on; ``more``: libraries that only some models use."""
    libraries = ("labelward", "numpy", "scipy", "scikit-learn", "numba", "gmpy2", "pyarrow", "msgspec", *more)
    return {"python": platform.python_version(), **{name: version(name) for name in libraries}}


def processor() -> str:
    """Return the name of the processor, with the number of cores that this process may use."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), name)
    except OSError:  # not Linux
        pass
    cores = len(os.sched_getaffinity(0))
    return f"{name}, {cores} {'core' if cores == 1 else 'cores'}"
