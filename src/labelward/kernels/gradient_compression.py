"""Filters of a batch's gradient: which numbers are the largest, and which step of a ladder is nearest."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDED = 1e-9  # a share times a size that falls short of a whole number by less was meant to be it


def top_k_count(share: float, size: int) -> int:
    """Return how many of ``size`` numbers a share below 1 is: rounded down, hence fewer than all."""
    return min(int(share * size + _ROUNDED), size - 1)


def keep_largest(values: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Return which ``count`` numbers of an array have the largest absolute values, of its shape.

    Of equal ones those that come first in the array are taken.
    """
    taken = np.zeros(values.size, dtype=np.bool_)
    taken[np.argsort(-np.abs(values.ravel()), kind="stable")[:count]] = True
    return taken.reshape(values.shape)


def nearest_level(values: NDArray[Any], origin: float, step: float) -> NDArray[np.float64]:
    """Return the nearest of the numbers ``origin + k * step`` (k whole) to each value; of two the one of even k."""
    nearest: NDArray[np.float64] = origin + np.round((values.astype(np.float64) - origin) / step) * step
    return nearest
