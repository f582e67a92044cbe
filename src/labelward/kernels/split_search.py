"""Exhaustive split search: the best candidate of each node, with gains as in :mod:`labelward.kernels.gain`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Picks = tuple[Floats, NDArray[np.int32], NDArray[np.int32]]

ORDERED, CATEGORICAL, RISING, FALLING = range(4)
"""Kinds of columns; the last two are ordered, and predictions may only rise, or only fall, with them."""

IMPLIED = {"": 0, "zero": 1, "count": 2, "weight": 3}
"""Codes for the implied sum of all gradients, see :class:`labelward.kernels.row_layout.RowLayout`."""

_COUNT, _WEIGHT = IMPLIED["count"], IMPLIED["weight"]
_NOISE = 2.0**-50  # 8 roundings: each of the two products carries at most 6


def is_monotone(kinds: NDArray[np.int8]) -> bool:
    """Return whether any of the columns of these kinds, int8 [F], has a monotone constraint."""
    return bool((kinds >= RISING).any())


@jit
def search_scalar(
    left: Integers,
    totals: Integers,
    place: tuple[int, int, int],
    units: tuple[float, float],
    limits: tuple[float, float, int, float],
    allowed: NDArray[np.bool_],
    picks: Picks,
) -> None:
    """Find the best splits for one output without bounds; ``place``: of gradient, hessian and count."""
    nodes, columns, each, _ = left.shape
    (gi, hi, ci), (unit_g, unit_h) = place, units
    reg_lambda, gamma, min_rows, min_weight = limits
    gains, column, candidate = picks
    for s in range(nodes):
        g, h, rows = totals[s, gi], totals[s, hi], totals[s, ci]
        for f in range(columns):
            for a in range(each):
                side = left[s, f, a]
                if side[ci] < min_rows or rows - side[ci] < min_rows or not allowed[s, f, a]:
                    continue
                hl, hr = side[hi] / unit_h, (h - side[hi]) / unit_h
                if hl < min_weight or hr < min_weight:
                    continue
                gain = _gain(side[gi] / unit_g, hl, (g - side[gi]) / unit_g, hr, reg_lambda) - gamma
                if gain > 0 and gain > gains[s]:
                    gains[s], column[s], candidate[s] = gain, f, a


@jit
def search_bounded(
    left: Integers,
    totals: Integers,
    place: tuple[int, int, int],
    units: tuple[float, float],
    limits: tuple[float, float, int, float],
    allowed: NDArray[np.bool_],
    picks: Picks,
    ordered: tuple[NDArray[np.int8], Floats],
) -> None:
    """Find the best splits for one output whose weights have bounds; ``ordered``: kinds of columns, bounds by node."""
    nodes, columns, each, _ = left.shape
    (gi, hi, ci), (unit_g, unit_h) = place, units
    reg_lambda, gamma, min_rows, min_weight = limits
    gains, column, candidate = picks
    kinds, within = ordered
    for s in range(nodes):
        g, h, rows, low, high = totals[s, gi], totals[s, hi], totals[s, ci], within[s, 0], within[s, 1]
        for f in range(columns):
            for a in range(each):
                side = left[s, f, a]
                if side[ci] < min_rows or rows - side[ci] < min_rows or not allowed[s, f, a]:
                    continue
                gl, gr = side[gi] / unit_g, (g - side[gi]) / unit_g
                hl, hr = side[hi] / unit_h, (h - side[hi]) / unit_h
                if hl < min_weight or hr < min_weight or hl + reg_lambda <= 0 or hr + reg_lambda <= 0:
                    continue
                # Leaf weights clipped to the bounds of the node must respect the monotone direction.
                wl = min(max(-gl / (hl + reg_lambda), low), high)
                wr = min(max(-gr / (hr + reg_lambda), low), high)
                if (kinds[f] == RISING and wl > wr) or (kinds[f] == FALLING and wl < wr):
                    continue
                plus, minus = _terms_within(gl, hl, gr, hr, reg_lambda, low, high)
                gain = _difference(plus, minus, _NOISE) - gamma
                if gain > 0 and gain > gains[s]:
                    gains[s], column[s], candidate[s] = gain, f, a


@jit
def search_multi_output(
    left: Integers,
    whole: tuple[Integers, Integers, Integers],
    place: tuple[int, int, int],
    units: tuple[float, float],
    limits: tuple[float, float, int, float],
    allowed: NDArray[np.bool_],
    picks: Picks,
    most: float,
) -> None:
    """Find the best splits for several outputs.

    ``whole``: gradients [S, K], hessians [S, Q] and rows [S] of the nodes; ``place``: number of stored gradients
    (followed by the hessians, or the count in their place), position of the count, code of the implied sum;
    ``most``: the largest weight, 0 for no limit.
    """
    nodes, columns, each, _ = left.shape
    all_g, all_h, all_rows = whole
    stored, ci, implied = place
    unit_g, unit_h = units
    reg_lambda, gamma, min_rows, min_weight = limits
    gains, column, candidate = picks
    outputs, hessians = all_g.shape[1], all_h.shape[1]
    for s in range(nodes):
        rows = all_rows[s]
        for f in range(columns):
            for a in range(each):
                side = left[s, f, a]
                if side[ci] < min_rows or rows - side[ci] < min_rows or not allowed[s, f, a]:
                    continue
                # Mean child weight over the outputs must reach min_weight.
                sum_l, sum_r = 0.0, 0.0
                for q in range(hessians):
                    sum_l += side[stored + q] / unit_h
                    sum_r += (all_h[s, q] - side[stored + q]) / unit_h
                if sum_l < min_weight * hessians or sum_r < min_weight * hessians:
                    continue
                # Sum the gains of the outputs, positive and negative terms apart to bound the rounding error.
                plus, minus, rest, valid = 0.0, 0.0, np.int64(0), True
                for c in range(outputs):
                    if c < stored:
                        own = side[c]
                        rest -= own
                    else:  # not stored: the last gradient follows from the implied sum of all
                        own = rest - (side[ci] if implied == _COUNT else side[stored] if implied == _WEIGHT else 0)
                    q = c if hessians > 1 else 0
                    hl, hr = side[stored + q] / unit_h, (all_h[s, q] - side[stored + q]) / unit_h
                    if hl + reg_lambda <= 0 or hr + reg_lambda <= 0:
                        valid = False
                        break
                    gl, gr = own / unit_g, (all_g[s, c] - own) / unit_g
                    if most > 0:
                        more, less = _terms_within(gl, hl, gr, hr, reg_lambda, -most, most)
                    else:
                        more, less = _terms(gl, hl, gr, hr, reg_lambda)
                    plus += more
                    minus += less
                gain = _difference(plus, minus, _NOISE * outputs) - gamma if valid else -np.inf
                if gain > 0 and gain > gains[s]:
                    gains[s], column[s], candidate[s] = gain, f, a


@jit
def _gain(gl: float, hl: float, gr: float, hr: float, reg_lambda: float) -> float:
    """Return the gain without γ, or -inf if a side has no weight or the gain is within rounding error."""
    if hl + reg_lambda <= 0 or hr + reg_lambda <= 0:
        return -np.inf
    between, shrunk = _terms(gl, hl, gr, hr, reg_lambda)
    return _difference(between, shrunk, _NOISE)


@jit
def _difference(plus: float, minus: float, noise: float) -> float:
    """Return the difference, or -inf if it is within rounding error."""
    gain = plus - minus
    return gain if abs(gain) > noise * (plus + minus) else -np.inf


@jit
def _terms(gl: float, hl: float, gr: float, hr: float, reg_lambda: float) -> tuple[float, float]:
    """Return the two terms whose difference is the gain of one output."""
    a, b = hl + reg_lambda, hr + reg_lambda
    first, second = gl * b, gr * a
    d = first - second
    if abs(d) <= _NOISE * (abs(first) + abs(second)):
        d = 0.0
    between = d * d / (a * b * (a + b))
    return between, reg_lambda * (gl + gr) * (gl + gr) / ((hl + hr + reg_lambda) * (a + b))


@jit
def _terms_within(
    gl: float, hl: float, gr: float, hr: float, reg_lambda: float, low: float, high: float
) -> tuple[float, float]:
    """Return the same for weights from ``low`` to ``high``: all that adds to the gain, and all that takes from it."""
    plus, minus, free = 0.0, 0.0, True
    for side in range(3):
        g = gl if side == 0 else gr if side == 1 else gl + gr
        h = (hl if side == 0 else hr if side == 1 else hl + hr) + reg_lambda
        best = -g / h
        weight = min(max(best, low), high)
        free = free and weight == best
        linear, square = -2.0 * g * weight, h * weight * weight
        if side == 2:
            linear, square = -linear, -square
        plus += max(linear, 0.0) + max(-square, 0.0)
        minus += max(-linear, 0.0) + max(square, 0.0)
    return _terms(gl, hl, gr, hr, reg_lambda) if free else (plus, minus)
