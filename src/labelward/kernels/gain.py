"""Which split of each node gains most, and what a leaf weighs, from sums of integers.

The gain is that of XGBoost (Chen and Guestrin 2016, Eq. 7) and SecureBoost: with G and H the sums of first
and second derivatives, ``gain = 1/2 [GL²/(HL+λ) + GR²/(HR+λ) − G²/(H+λ)] − γ``; a leaf weighs
``−learning_rate · G/(H+λ)`` (Eq. 5).

It is computed in a form in which nearly equal terms are not subtracted. With ``a = HL+λ``, ``b = HR+λ`` and
``D = GL·b − GR·a``::

    GL²/a + GR²/b − G²/(H+λ) = D² / (a·b·(a+b)) − λ·G² / ((H+λ)·(a+b))

If all rows of a node have the same g/h, D is λ·(GL − GR): exactly 0 for λ = 0, since both products are the
same real number before they are rounded. What remains of rounding is cut off: D is taken as 0 where it is
below 2**-50 of its two products, and a gain must exceed the same share of the two terms that it is the
difference of. The form is symmetric, so two candidates that swap left and right tie exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

__all__ = ["Best", "GainRule", "best_splits", "leaf_weights"]

Integers = NDArray[np.int64]

_NOISE = 2.0**-50  # 8 roundings: each of the two products carries at most 6


@dataclass(frozen=True, kw_only=True)
class GainRule:
    """Which candidates are valid, and what their gain is.

    Attributes:
        reg_lambda: λ, added to each sum of second derivatives; at least 0.
        gamma: γ, what a split costs; at least 0.
        min_rows: least rows on each side; 0 means 1, as no split has an empty side.
        min_child_weight: least sum of second derivatives on each side; at least 0.

    Raises:
        ValueError: a value is negative or not finite; the message names it.
    """

    reg_lambda: float = 1.0
    gamma: float = 0.0
    min_rows: int = 1
    min_child_weight: float = 0.0

    def __post_init__(self) -> None:
        for name in ("reg_lambda", "gamma", "min_rows", "min_child_weight"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a finite number of at least 0 but got {value}")
        if self.min_rows != int(self.min_rows):
            raise ValueError(f"min_rows must be a whole number but got {self.min_rows}")


@dataclass(frozen=True, eq=False)
class Best:
    """The best split of each of S nodes.

    Attributes:
        gain: float64 [S]; -inf where no candidate gains.
        column: int32 [S]; -1 where no candidate gains.
        code: int32 [S]; rows with a code up to it go left; -1 where no candidate gains.
        left: int64 [S, k]: sums of the rows that go left; zeros where no candidate gains.
    """

    gain: NDArray[np.float64]
    column: NDArray[np.int32]
    code: NDArray[np.int32]
    left: Integers


def best_splits(sums: Integers, scale: float, rule: GainRule, allowed: NDArray[np.bool_] | None = None) -> Best:
    """Return each node's candidate of the largest gain; ties go to the lowest column, then to the lowest bin.

    A pure function of the integers: equal sums give equal splits, whatever computed them.

    Args:
        sums: int64 [F, S, B, k], for each column, node and bin the sums of g, h, the count of rows, and
            whatever else. Candidate ``c`` sends bins 0 to ``c`` to the left.
        scale: what stands for 1 in g and h (``2**precision``); positive.
        rule: validity and regularization. A side whose ``H + λ`` is not positive has no weight, so it is
            not valid either.
        allowed: bool [S, F, B], the candidates that may be chosen; ``None`` for all.

    Returns:
        The winners; only candidates of positive gain (γ subtracted) win.

    Raises:
        ValueError: shapes do not fit, or ``scale`` is not positive.
    """
    if sums.ndim != 4 or sums.shape[3] < 3:
        raise ValueError(f"sums must be [F, S, B, k] with k of at least 3 but have shape {sums.shape}")
    _check_scale(scale)
    columns, nodes, bins, k = sums.shape
    if allowed is None:
        allowed = np.ones((1, 1, 1), dtype=np.bool_)
    elif allowed.shape != (nodes, columns, bins):
        raise ValueError(f"allowed must have shape {(nodes, columns, bins)} but has {allowed.shape}")
    best = Best(
        gain=np.full(nodes, -np.inf),
        column=np.full(nodes, -1, dtype=np.int32),
        code=np.full(nodes, -1, dtype=np.int32),
        left=np.zeros((nodes, k), dtype=np.int64),
    )
    limits = (
        float(rule.reg_lambda),
        float(rule.gamma),
        max(1, int(rule.min_rows)),
        float(rule.min_child_weight),
    )
    picks = (best.gain, best.column, best.code)
    _best_splits(
        np.ascontiguousarray(sums),
        float(scale),
        limits,
        np.broadcast_to(allowed, (nodes, columns, bins)),
        picks,
    )
    for s in np.flatnonzero(best.column >= 0):
        best.left[s] = sums[best.column[s], s, : best.code[s] + 1].sum(axis=0)
    return best


def leaf_weights(sums: Integers, scale: float, reg_lambda: float, learning_rate: float) -> NDArray[np.float64]:
    """Return float64 [m]: ``-learning_rate * G / (H + λ)`` of each row; 0 where ``H + λ`` is not positive.

    Args:
        sums: int64 [m, k]: G, H and whatever else.
        scale: what stands for 1 in G and H.
        reg_lambda: λ.
        learning_rate: the shrinkage of each tree.

    Raises:
        ValueError: ``scale`` is not positive.
    """
    _check_scale(scale)
    g, h = sums[:, 0] / scale, sums[:, 1] / scale + reg_lambda
    return -learning_rate * np.divide(g, h, out=np.zeros(len(sums)), where=h > 0)


def _check_scale(scale: float) -> None:
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be a positive number but got {scale}")


@jit
def _best_splits(
    sums: Integers,
    scale: float,
    limits: tuple[float, float, int, float],
    allowed: NDArray[np.bool_],
    picks: tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]],
) -> None:
    columns, nodes, bins, _ = sums.shape
    reg_lambda, gamma, min_rows, min_weight = limits
    gains, column, code = picks
    for f in range(columns):
        for s in range(nodes):
            cells = sums[f, s]
            g, h, rows = np.int64(0), np.int64(0), np.int64(0)
            for c in range(bins):
                g, h, rows = g + cells[c, 0], h + cells[c, 1], rows + cells[c, 2]
            gl, hl, left = np.int64(0), np.int64(0), np.int64(0)
            for c in range(bins):
                gl, hl, left = gl + cells[c, 0], hl + cells[c, 1], left + cells[c, 2]
                if left < min_rows or rows - left < min_rows or not allowed[s, f, c]:
                    continue
                weight_l, weight_r = hl / scale, (h - hl) / scale
                if weight_l < min_weight or weight_r < min_weight:
                    continue
                gain = _gain(gl / scale, weight_l, (g - gl) / scale, weight_r, reg_lambda) - gamma
                if gain > 0 and gain > gains[s]:
                    gains[s], column[s], code[s] = gain, f, c


@jit
def _gain(gl: float, hl: float, gr: float, hr: float, reg_lambda: float) -> float:
    """Return the gain without γ, or -inf where a side has no weight or where it is no more than rounding."""
    a, b = hl + reg_lambda, hr + reg_lambda
    if a <= 0 or b <= 0:
        return -np.inf
    first, second = gl * b, gr * a
    d = first - second
    if abs(d) <= _NOISE * (abs(first) + abs(second)):
        d = 0.0
    between = d * d / (a * b * (a + b))
    shrunk = reg_lambda * (gl + gr) * (gl + gr) / ((hl + hr + reg_lambda) * (a + b))
    gain = between - shrunk
    return 0.5 * gain if abs(gain) > _NOISE * (between + shrunk) else -np.inf
