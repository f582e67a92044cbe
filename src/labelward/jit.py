"""The one way in which kernels are compiled: cached on disk, and free of the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

__all__ = ["jit"]

Kernel = TypeVar("Kernel", bound=Callable[..., object])


def jit(function: Kernel) -> Kernel:
    """Compile ``function`` with numba (``nopython``, ``nogil``, ``cache``); its type stays what it was.

    Where no folder for compiled code can be written (an installed package without a home), each process compiles anew.
    """
    try:
        return cast("Kernel", numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return cast("Kernel", numba.njit(nogil=True)(function))
