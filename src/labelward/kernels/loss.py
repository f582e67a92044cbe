"""The logistic loss of binary labels: probabilities, first and second derivatives, mean loss."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

__all__ = ["logistic_gradients", "sigmoid"]

Floats = NDArray[np.float64]


def sigmoid(margin: Floats) -> Floats:
    """Return ``1 / (1 + exp(-margin))`` for float64 of any shape; never overflows."""
    margin = np.ascontiguousarray(margin, dtype=np.float64)
    return _sigmoid(margin.reshape(-1)).reshape(margin.shape)


def logistic_gradients(margin: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return first and second derivatives of each row's loss with respect to its margin.

    Args:
        margin: float64 [n], log-odds.
        y: float64 [n], labels 0 or 1 (or probabilities between them).

    Returns:
        ``g = p - y`` in [-1, 1] and ``h = p (1 - p)`` in [0, 1/4], each float64 [n], with ``p =
        sigmoid(margin)``.

    Raises:
        ValueError: the lengths differ.
    """
    margin, y = _pair(margin, y)
    return _gradients(margin, y)


def _pair(margin: Floats, y: Floats) -> tuple[Floats, Floats]:
    margin = np.ascontiguousarray(margin, dtype=np.float64)
    y = np.ascontiguousarray(y, dtype=np.float64)
    if margin.ndim != 1 or margin.shape != y.shape:
        raise ValueError(f"margin and y must be of one length but have shapes {margin.shape} and {y.shape}")
    return margin, y


@jit
def _sigmoid(margin: Floats) -> Floats:
    out = np.empty(margin.size)
    for i in range(margin.size):
        e = math.exp(-abs(margin[i]))
        out[i] = 1.0 / (1.0 + e) if margin[i] >= 0 else e / (1.0 + e)
    return out


@jit
def _gradients(margin: Floats, y: Floats) -> tuple[Floats, Floats]:
    g, h = np.empty(margin.size), np.empty(margin.size)
    for i in range(margin.size):
        e = math.exp(-abs(margin[i]))
        inverse = 1.0 / (1.0 + e)
        g[i] = (inverse if margin[i] >= 0 else e * inverse) - y[i]
        h[i] = min(e * inverse * inverse, 0.25)  # rounding may exceed it
    return g, h
