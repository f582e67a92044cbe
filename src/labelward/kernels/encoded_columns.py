"""Columns of numbers as logistic regression reads them: standardized, without gaps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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
