"""The one way in which kernels are compiled: cached on disk, and free of the interpreter's lock.

Compiled code holds that of the functions it calls, in other modules too, but numba lets it go stale with its own file
only. So here it goes stale with any module of its folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def jit(function: Kernel) -> Kernel:
    """Compile ``function`` with numba (``nopython``, ``nogil``, ``cache``); its type stays what it was.

    Where no folder for compiled code can be written (an installed package without a home), each process compiles anew.
    """
    try:
        return compiled(function)
    except RuntimeError:
        return cast("Kernel", numba.njit(nogil=True)(function))


def compiled(function: Kernel) -> Kernel:
    """As :func:`jit`, but :class:`RuntimeError` where no folder for compiled code can be written.

    For what takes long to compile: a process that had to do so would be better off without.
    """
    made = numba.njit(cache=True, nogil=True)(function)
    index: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, _stamp(Path(function.__code__.co_filename).parent))
    return cast("Kernel", made)


@cache
def _stamp(folder: Path) -> str:
    """Return a digest of names, sizes and times of a folder's modules."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        status = path.stat()
        found.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return found.hexdigest()
