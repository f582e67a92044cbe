"""Which split of each node gains most, and what a leaf weighs, from sums of integers.

The gain is that of XGBoost (Chen and Guestrin 2016, Eq. 7) and SecureBoost: with G and H the sums of first
and second derivatives, ``gain = 1/2 [GL²/(HL+λ) + GR²/(HR+λ) − G²/(H+λ)] − γ``; a leaf weighs
``−learning_rate · G/(H+λ)`` (Eq. 5). With several outputs the brackets are summed over them.

It is computed in a form in which nearly equal terms are not subtracted. With ``a = HL+λ``, ``b = HR+λ`` and
``D = GL·b − GR·a``::

    GL²/a + GR²/b − G²/(H+λ) = D² / (a·b·(a+b)) − λ·G² / ((H+λ)·(a+b))

If all rows of a node have the same g/h, D is λ·(GL − GR): exactly 0 for λ = 0, since both products are the
same real number before they are rounded. What remains of rounding is cut off: D is taken as 0 where it is
below 2**-50 of its two products, and a gain must exceed the same share (times the outputs) of the two terms that
it is the difference of. The form is symmetric, so two candidates that swap left and right tie exactly.

Where weights have bounds (below a monotone split, and with ``max_delta_step``), a weight outside is moved to the bound,
and each square above is replaced by what the weight w gains: ``−(2·G·w + (H+λ)·w²)``. A candidate in a monotone
column is refused where the children's weights stand the wrong way round. All this is as in XGBoost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit
from labelward.kernels.numbers import Numbers, Scales

if TYPE_CHECKING:
    from labelward.kernels.candidates import Candidates

__all__ = ["Best", "GainRule", "best_splits", "leaf_weights"]

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_NOISE = 2.0**-50  # 8 roundings: each of the two products carries at most 6
_RISING, _FALLING = 2, 3  # of labelward.kernels.candidates, which imports this module


@dataclass(frozen=True, kw_only=True)
class GainRule:
    """Which candidates are valid, and what their gain is.

    Attributes:
        reg_lambda: λ, added to each sum of second derivatives; at least 0.
        gamma: γ, what a split costs; at least 0.
        min_rows: least rows on each side; 0 means 1, as no split has an empty side.
        min_child_weight: least sum of second derivatives on each side, with several outputs of their mean; at least 0.
        max_delta_step: largest size of a leaf weight before the learning rate; 0 for no limit.

    Raises:
        ValueError: a value is negative or not finite; the message names it.
    """

    reg_lambda: float = 1.0
    gamma: float = 0.0
    min_rows: int = 1
    min_child_weight: float = 0.0
    max_delta_step: float = 0.0

    def __post_init__(self) -> None:
        for name in ("reg_lambda", "gamma", "min_rows", "min_child_weight", "max_delta_step"):
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
        candidate: int32 [S]; -1 where no candidate gains.
        left: int64 [S, k]: sums of the rows that go left; zeros where no candidate gains.
        weights: float64 [S, 2]: what the left and the right child weigh before the learning rate, within the bounds;
            zeros where no candidate gains, and with several outputs.
    """

    gain: Floats
    column: NDArray[np.int32]
    candidate: NDArray[np.int32]
    left: Integers
    weights: Floats


def best_splits(
    candidates: Candidates,
    totals: Integers,
    numbers: Numbers,
    scales: Scales,
    rule: GainRule,
    *,
    kinds: NDArray[np.int8],
    bounds: Floats | None = None,
    allowed: NDArray[np.bool_] | None = None,
) -> Best:
    """Return each node's candidate of the largest gain; ties go to the lowest column, then to the lowest candidate.

    A pure function of the integers: equal sums give equal splits, whatever computed them.

    Args:
        candidates: of S nodes, F columns, A each.
        totals: int64 [S, k]: sums of all rows of each node.
        numbers: what the k integers mean.
        scales: what stands for 1.
        rule: validity and regularization. A side where ``H + λ`` of any output is not positive has no weight, so it
            is not valid either.
        kinds: int8 [F], see :mod:`labelward.kernels.candidates`.
        bounds: float64 [S, 2]: the least and the greatest weight of each node's rows, of one output; None for no
            bounds.
        allowed: bool [S, F, A], the candidates that may be chosen; ``None`` for all.

    Returns:
        The winners; only candidates of positive gain (γ subtracted) win.

    Raises:
        ValueError: shapes do not fit, or there are bounds or monotone columns, but several outputs.
    """
    left = candidates.left
    nodes, columns, each, k = left.shape
    if totals.shape != (nodes, numbers.k) or k != numbers.k or kinds.shape != (columns,):
        raise ValueError(f"totals {totals.shape} and kinds {kinds.shape} do not fit {left.shape} of {numbers}")
    if allowed is not None and allowed.shape != (nodes, columns, each):
        raise ValueError(f"allowed must have shape {(nodes, columns, each)} but has {allowed.shape}")
    monotone = bool((kinds >= _RISING).any())
    if numbers.outputs > 1 and (monotone or bounds is not None):
        raise ValueError("monotone columns and bounds of weights are for one output")
    best = Best(
        gain=np.full(nodes, -np.inf),
        column=np.full(nodes, -1, dtype=np.int32),
        candidate=np.full(nodes, -1, dtype=np.int32),
        left=np.zeros((nodes, k), dtype=np.int64),
        weights=np.zeros((nodes, 2)),
    )
    limits = (float(rule.reg_lambda), float(rule.gamma), max(1, int(rule.min_rows)), float(rule.min_child_weight))
    picks = (best.gain, best.column, best.candidate)
    units = (scales.g, _hessian_scale(numbers, scales))
    open_to = np.broadcast_to(np.True_ if allowed is None else allowed, (nodes, columns, each))
    within = None
    if monotone or bounds is not None or rule.max_delta_step:
        within = _within(bounds, rule, nodes)
    if numbers.outputs == 1:
        place = (0, 1 if numbers.hessians else numbers.count, numbers.count)
        if within is None:
            _best_of_one(left, np.ascontiguousarray(totals), place, units, limits, open_to, picks)
        else:
            ordered = (np.ascontiguousarray(kinds), within)
            _best_within(left, np.ascontiguousarray(totals), place, units, limits, open_to, picks, ordered)
    else:
        g, h = (np.ascontiguousarray(part) for part in numbers.full(totals))
        whole = (g, h, np.ascontiguousarray(totals[:, numbers.count]))
        place = (numbers.stored, numbers.count, _IMPLIED[numbers.implied])
        _best_of_many(left, whole, place, units, limits, open_to, picks, float(rule.max_delta_step))
    won = np.flatnonzero(best.column >= 0)
    best.left[won] = left[won, best.column[won], best.candidate[won]]
    if numbers.outputs == 1:
        inside = None if bounds is None else bounds[won]
        for side, sums in enumerate((best.left[won], totals[won] - best.left[won])):
            best.weights[won, side] = leaf_weights(sums, numbers, scales, rule, 1.0, inside)[:, 0]
    return best


def leaf_weights(
    totals: Integers,
    numbers: Numbers,
    scales: Scales,
    rule: GainRule,
    learning_rate: float,
    bounds: Floats | None = None,
) -> Floats:
    """Return float64 [m, K]: ``-learning_rate * G / (H + λ)``; 0 where ``H + λ`` is not positive.

    Args:
        totals: int64 [m, k].
        numbers: what the k integers mean.
        scales: what stands for 1.
        rule: λ and the largest weight.
        learning_rate: the shrinkage of each tree.
        bounds: float64 [m, 2]: the least and the greatest weight of each leaf before the learning rate.
    """
    sums, hessians = numbers.full(totals)
    g = sums / scales.g
    h = np.broadcast_to(hessians / _hessian_scale(numbers, scales) + rule.reg_lambda, g.shape)
    weights: Floats = -np.divide(g, h, out=np.zeros(g.shape), where=h > 0)
    if bounds is not None or rule.max_delta_step:
        within = _within(bounds, rule, len(totals))
        weights = np.clip(weights, within[:, :1], within[:, 1:])
    return learning_rate * weights


def _hessian_scale(numbers: Numbers, scales: Scales) -> float:
    """Return what stands for 1 in hessians; the count, which stands for them where there are none, is itself."""
    return scales.h if numbers.hessians else 1.0


def _within(bounds: Floats | None, rule: GainRule, count: int) -> Floats:
    """Return float64 [count, 2]: the least and the greatest weight."""
    most = rule.max_delta_step or np.inf
    limits = np.tile([-most, most], (count, 1))
    if bounds is None:
        return limits
    if bounds.shape != limits.shape or not (bounds[:, 0] <= bounds[:, 1]).all():
        raise ValueError(f"bounds must be {limits.shape} with the least weight first but are {bounds.shape}")
    return np.clip(limits, bounds[:, :1], bounds[:, 1:])


_NOTHING, _COUNT, _WEIGHT, _STORED = range(4)
_IMPLIED = {"": _STORED, "zero": _NOTHING, "count": _COUNT, "weight": _WEIGHT}

Picks = tuple[Floats, NDArray[np.int32], NDArray[np.int32]]


@jit
def _best_of_one(
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
def _best_within(
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
                wl = min(max(-gl / (hl + reg_lambda), low), high)
                wr = min(max(-gr / (hr + reg_lambda), low), high)
                if (kinds[f] == _RISING and wl > wr) or (kinds[f] == _FALLING and wl < wr):
                    continue
                plus, minus = _terms_within(gl, hl, gr, hr, reg_lambda, low, high)
                gain = _difference(plus, minus, _NOISE) - gamma
                if gain > 0 and gain > gains[s]:
                    gains[s], column[s], candidate[s] = gain, f, a


@jit
def _best_of_many(
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

    ``whole``: gradients [S, K], hessians [S, Q] and rows [S] of the nodes; ``place``: how many gradients are stored
    (the hessians follow, or the count that stands for them), where the count stands, what all gradients add up to; ``most``: the largest weight, 0 for no limit.
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
                sum_l, sum_r = 0.0, 0.0
                for q in range(hessians):
                    sum_l += side[stored + q] / unit_h
                    sum_r += (all_h[s, q] - side[stored + q]) / unit_h
                if sum_l < min_weight * hessians or sum_r < min_weight * hessians:
                    continue
                plus, minus, rest, valid = 0.0, 0.0, np.int64(0), True
                for c in range(outputs):
                    if c < stored:
                        own = side[c]
                        rest -= own
                    else:
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
    """Return the gain without γ, or -inf where a side has no weight or where it is no more than rounding."""
    if hl + reg_lambda <= 0 or hr + reg_lambda <= 0:
        return -np.inf
    between, shrunk = _terms(gl, hl, gr, hr, reg_lambda)
    return _difference(between, shrunk, _NOISE)


@jit
def _difference(plus: float, minus: float, noise: float) -> float:
    """Return half the difference, or -inf where it is no more than rounding."""
    gain = plus - minus
    return 0.5 * gain if abs(gain) > noise * (plus + minus) else -np.inf


@jit
def _terms(gl: float, hl: float, gr: float, hr: float, reg_lambda: float) -> tuple[float, float]:
    """Return the two terms whose difference is twice the gain of one output."""
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
