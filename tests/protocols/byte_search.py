"""Looking for numbers in bytes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def floats_of(values: np.ndarray) -> np.ndarray:
    """Return the eight bytes of each number as float64, in both byte orders."""
    values = values[(values != 0.0) & (np.abs(values) != 1.0)]  # 0 and 1 are no secret
    return np.unique(np.concatenate([values.astype(order).view("<u8") for order in ("<f8", ">f8")]))


def patterns(values: np.ndarray) -> np.ndarray:
    """Return the eight bytes of each number: as float64, and in fixed point as a round may have it, in both orders."""
    found = [floats_of(values)]
    for precision in range(24, 33):
        numbers = np.rint(values * 2.0**precision)
        numbers = numbers[(np.abs(numbers) > 2**20) & (np.abs(numbers) < 2.0**62)].astype(np.int64)
        numbers = numbers[(np.abs(numbers) & (np.abs(numbers) - 1)) != 0]  # powers of two stand in layouts, too
        found += [numbers.astype("<i8").view("<u8"), numbers.astype(">i8").view("<u8")]
    return np.unique(np.concatenate(found))


def windows(chunks: Iterable[bytes]) -> np.ndarray:
    """Return all runs of eight bytes."""
    arrays = [np.frombuffer(chunk, np.uint8) for chunk in chunks if len(chunk) >= 8]
    views = [np.lib.stride_tricks.sliding_window_view(each, 8) for each in arrays]
    return np.ascontiguousarray(np.concatenate(views)).view("<u8").ravel()


def occurrences(wanted: np.ndarray, data: np.ndarray) -> int:
    return int(np.isin(data, wanted).sum())
