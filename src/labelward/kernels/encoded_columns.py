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
LEAST_IN_BATCH = 10
"""Rows of a batch, on average, that a column must tell from the others. The sum over a single row is its label."""


def least_rows(rows: int, in_batch: int) -> int:
    """Return how many of so many training rows a column must tell from the others, at most so many in a batch."""
    return -(-LEAST_IN_BATCH * rows // in_batch)


def mean_and_deviation(values: Floats, least: int = 0) -> tuple[float, float]:
    """Return mean and standard deviation of the values that are not missing; equal values have a deviation of 1.

    Fewer than ``least`` values that lie beyond :data:`LIMIT` deviations are left out: with them the deviation would be
    so large that all other rows hardly differ, and the sum over the column would be that over these few.
    """
    kept = values[~np.isnan(values)]
    known, mean, deviation = len(kept), 0.0, 1.0
    while len(kept) and known - len(kept) < max(least, 1):
        mean, deviation = float(kept.mean()), float(kept.std()) or 1.0
        within = np.abs(kept - mean) <= LIMIT * deviation
        if within.all():
            break
        kept = kept[within]
    return mean, deviation


def scale_of_numbers(values: Floats, least: int) -> tuple[float, float] | None:
    """Return mean and deviation; None if a column, as encoded, tells some but fewer than ``least`` rows from most."""
    scale = mean_and_deviation(values, least)
    codes = column_codes(standardized(values, *scale))
    apart = len(codes) - int(np.unique(codes, return_counts=True)[1].max(initial=0))
    return None if 0 < apart < least and 2 * apart < len(codes) else scale


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
