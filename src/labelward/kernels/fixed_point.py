"""Real numbers as integers with a fixed binary point: sums are exact, and the same under every engine."""

import math

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

_LIMIT = 2.0**63


def to_fixed_point(values: NDArray[np.float64], scale: float) -> NDArray[np.int64]:
    """Return ``values * scale`` rounded half to even; int64 of the same shape.

    Args:
        values: float64 of any shape.
        scale: what stands for 1: a power of two, so that nothing is rounded but the last step. The error of one
            value is at most ``1 / (2 scale)``.

    Raises:
        ValueError: the scale is not a power of two, or a value is not finite or does not fit 63 bits and a
            sign; the message says where the value stands, not what it is, since it may be private.
    """
    if not (math.isfinite(scale) and scale > 0 and math.frexp(scale)[0] == 0.5):
        raise ValueError(f"scale must be a power of two but got {scale}")
    values = np.ascontiguousarray(values, dtype=np.float64)
    out = np.empty(values.shape, dtype=np.int64)
    bad = _encode(values.reshape(-1), float(scale), out.reshape(-1))
    if bad >= 0:
        problem = "does not fit 64 bits" if np.isfinite(values.reshape(-1)[bad]) else "is not finite (NaN or infinite)"
        raise ValueError(f"value at position {bad} {problem} at scale {scale:g}")
    return out


@jit
def _encode(values: NDArray[np.float64], scale: float, out: NDArray[np.int64]) -> int:
    """Fill ``out``; return the first position that cannot be encoded, or -1."""
    for i in range(values.size):
        scaled = np.rint(values[i] * scale)
        if not abs(scaled) < _LIMIT:  # also true of NaN
            return i
        out[i] = np.int64(scaled)
    return -1
