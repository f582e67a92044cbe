"""Columns of numbers as logistic regression reads them: standardized, without gaps, in fixed point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int32]

BITS, FRACTION = 20, 15
"""Bits of a number, and those behind the point."""
LIMIT = ((1 << BITS - 1) - 1) / (1 << FRACTION)
"""Largest absolute value of an encoded column; standardized values beyond it are cut."""


def mean_and_deviation(values: Floats) -> tuple[float, float]:
    """Return mean and standard deviation of the values that are not missing; equal values have a deviation of 1."""
    known = values[~np.isnan(values)]
    if not len(known):
        return 0.0, 1.0
    deviation = float(known.std())
    return float(known.mean()), deviation if deviation > 0 else 1.0


def standardized(values: Floats, mean: float, deviation: float) -> Floats:
    """Return values less the mean, divided by the deviation; a missing value becomes 0."""
    scaled = (values - mean) / deviation
    return np.where(np.isnan(scaled), 0.0, scaled)


def column_codes(values: Floats) -> Codes:
    """Return encoded columns as integers, int32, of the same shape; values beyond :data:`LIMIT` are cut."""
    return np.rint(np.clip(values, -LIMIT, LIMIT) * (1 << FRACTION)).astype(np.int32)


def column_values(codes: Codes) -> Floats:
    """Return the numbers that :func:`column_codes` encoded."""
    return codes / np.float64(1 << FRACTION)
