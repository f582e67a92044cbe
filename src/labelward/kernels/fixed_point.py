"""Real numbers as integers with a fixed binary point: sums are exact, and the same under every engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

__all__ = ["encode"]

_PRECISIONS = range(63)
_LIMIT = 2.0**63


def encode(values: NDArray[np.float64], precision: int) -> NDArray[np.int64]:
    """Return ``values * 2**precision`` rounded half to even.

    Args:
        values: float64 [n].
        precision: bits after the binary point, 0 to 62. The error of one value is at most ``2**-(precision
            + 1)``.

    Raises:
        ValueError: the precision is out of range, or a value is not finite or does not fit 63 bits and a
            sign; the message says where the value stands, not what it is, since it may be private.
    """
    _check_precision(precision)
    values = np.ascontiguousarray(values, dtype=np.float64)
    out = np.empty(values.shape, dtype=np.int64)
    bad = _encode(values.reshape(-1), 2.0**precision, out.reshape(-1))
    if bad >= 0:
        problem = "does not fit 64 bits" if np.isfinite(values.reshape(-1)[bad]) else "is not finite (NaN or infinite)"
        raise ValueError(f"value at position {bad} {problem} at precision {precision}")
    return out


def _check_precision(precision: int) -> None:
    if precision not in _PRECISIONS:
        raise ValueError(f"precision must be from 0 to 62 but got {precision}")


@jit
def _encode(values: NDArray[np.float64], factor: float, out: NDArray[np.int64]) -> int:
    """Fill ``out``; return the first position that cannot be encoded, or -1."""
    for i in range(values.size):
        scaled = np.rint(values[i] * factor)
        if not abs(scaled) < _LIMIT:  # also true of NaN
            return i
        out[i] = np.int64(scaled)
    return -1
