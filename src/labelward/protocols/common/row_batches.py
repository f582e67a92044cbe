"""Training rows in the order of an epoch, in batches: all parties draw the same."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from labelward.rng import learning


def epoch_order(seed: int, epoch: int, rows: int) -> NDArray[np.int32]:
    """Return the training rows in the order of an epoch; all parties draw the same."""
    return learning(seed, "", epoch, "batch order").permutation(rows).astype(np.int32)


def order_digest(order: NDArray[np.int32]) -> bytes:
    """Return the SHA-256 of an order of rows."""
    return hashlib.sha256(order.astype("<i4", copy=False).data).digest()


def batches(rows: int, size: int) -> list[slice]:
    """Return the batches as pieces of an epoch's order; a last one of a single row joins the one before it."""
    starts = list(range(0, rows, size))
    if len(starts) > 1 and rows - starts[-1] == 1:
        starts.pop()
    return [slice(start, stop) for start, stop in zip(starts, [*starts[1:], rows], strict=True)]
