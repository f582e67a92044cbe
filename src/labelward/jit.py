"""The one way in which kernels are compiled: cached on disk, and free of the interpreter's lock.

Compiled code holds that of the functions it calls, in other modules too, but numba lets it go stale with its own file
only. So here it goes stale with any module of its folder.

Compiled code is read with pickle, so whoever can write it decides what this process does. Files are written such that
their owner alone can change them, whatever the umask, and neither a folder nor a file of others is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import uuid
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import numba
import numpy as np
from numba.core import event

from labelward.errors import LabelwardWarning

Kernel = TypeVar("Kernel", bound=Callable[..., object])
Whole = int | np.int64
"""A number of a kernel's callee, np.int64 where it is constant: numba compiles anew for each literal number."""


def jit(function: Kernel) -> Kernel:
    """Compile ``function`` with numba (``nopython``, ``nogil``, ``cache``); its type stays what it was.

    Where no folder for compiled code can be written (an installed package without a home), or others can write to it,
    each process compiles anew.
    """
    try:
        return compiled(function)
    except RuntimeError:
        return cast("Kernel", numba.njit(nogil=True)(function))


def compiled(function: Kernel) -> Kernel:
    """As :func:`jit`, but :class:`RuntimeError` where there is no folder for compiled code.

    For what takes long to compile: a process that had to do so would be better off without.
    """
    made = numba.njit(cache=True, nogil=True)(function)
    kept: Any = getattr(made, "_cache", None)
    index: Any = getattr(kept, "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, _stamp(Path(function.__code__.co_filename).parent))
        index._open_for_write = _private_write
        if not _is_own(Path(kept.cache_path)):
            raise RuntimeError(f"others may write to the cache of compiled code in {kept.cache_path}")
    return cast("Kernel", made)


@contextlib.contextmanager
def watching_compilation(told: Callable[[int, bool], None]) -> Iterator[None]:
    """Call a function whenever this process begins or ends to compile a kernel that is not kept yet.

    Args:
        told: called with the number of kernels compiled before, and whether one is being compiled; from any thread.
    """
    watch = _Watch(told)
    with event.install_listener("numba:compile", watch):
        yield


class _Watch(event.Listener):
    """Counts the kernels that are compiled; those that a kernel calls are compiled within."""

    def __init__(self, told: Callable[[int, bool], None]) -> None:
        self._told, self._done, self._depth = told, 0, 0

    def on_start(self, _: Any) -> None:
        self._depth += 1
        self._told(self._done, True)

    def on_end(self, _: Any) -> None:
        self._depth -= 1
        self._done += 1
        self._told(self._done, self._depth > 0)


@cache
def _is_own(folder: Path) -> bool:
    """Return whether nobody but this user and root can have written what is in a folder of compiled code.

    What others could have written is removed, where the folder is this user's own; else a warning says that every
    process compiles anew.
    """
    trusted = (0, os.geteuid())
    try:
        status = folder.stat()
        own = status.st_uid in trusted
        if own and status.st_mode & 0o022:
            folder.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
        for path in folder.glob("*.nb[ci]") if own else ():
            status = path.lstat()
            if status.st_uid not in trusted or not stat.S_ISREG(status.st_mode) or status.st_mode & 0o022:
                path.unlink()
    except OSError:
        own = False
    if not own:
        warnings.warn(
            f"others may write to {folder}, so compiled code is not kept there and every process compiles anew; "
            "set NUMBA_CACHE_DIR to a folder of your own",
            LabelwardWarning,
            stacklevel=2,
        )
    return own


@contextlib.contextmanager
def _private_write(path: str) -> Iterator[BinaryIO]:
    """Yield a file that only its owner can write, and that replaces another one at the end."""
    partial = Path(f"{path}.tmp.{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            yield file
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@cache
def _stamp(folder: Path) -> str:
    """Return a digest of names, sizes and times of a folder's modules."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        status = path.stat()
        found.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return found.hexdigest()
