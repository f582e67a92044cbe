"""Split gains and leaf weights from integer sums.

The gain is that of the XGBoost library: with G and H the sums of first and second derivatives,
``gain = GL²/(HL+λ) + GR²/(HR+λ) − G²/(H+λ) − γ`` (Chen and Guestrin 2016, Eq. 7, halve the squares, so that their γ is
half the library's); a leaf weighs ``−learning_rate · G/(H+λ)`` (Eq. 5). With several outputs the squares are summed
over them.

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

from labelward.kernels.row_layout import FixedPointScales, RowLayout
from labelward.kernels.split_search import IMPLIED, is_monotone, search_bounded, search_multi_output, search_scalar

if TYPE_CHECKING:
    from labelward.kernels.split_candidates import Candidates

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class GainRule:
    """Which candidates are valid, and what their gain is.

    Attributes:
        min_child_weight: least sum of second derivatives on each side, with several outputs of their mean; at least 0.

    Raises:
        ValueError: a value is negative or not finite; the message names it.
    """

    reg_lambda: float = 1.0  # λ, added to each sum of second derivatives; at least 0
    gamma: float = 0.0  # γ, the minimum gain of a split; at least 0
    min_rows: int = 1  # least rows on each side; 0 means 1, as no split has an empty side
    min_child_weight: float = 0.0
    max_delta_step: float = 0.0  # largest size of a leaf weight before the learning rate; 0 for no limit

    def __post_init__(self) -> None:
        for name in ("reg_lambda", "gamma", "min_rows", "min_child_weight", "max_delta_step"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a finite number of at least 0 but got {value}")
        if self.min_rows != int(self.min_rows):
            raise ValueError(f"min_rows must be an integer but got {self.min_rows}")


@dataclass(frozen=True, eq=False)
class BestSplits:
    """The best split of each of S nodes.

    Attributes:
        weights: float64 [S, 2]: what the left and the right child weigh before the learning rate, within the bounds;
            zeros where no candidate gains, and with several outputs.
    """

    gain: Floats  # float64 [S]; -inf where no candidate gains
    column: NDArray[np.int32]  # int32 [S]; -1 where no candidate gains
    candidate: NDArray[np.int32]  # int32 [S]; -1 where no candidate gains
    left: Integers  # int64 [S, k]: sums of the rows that go left; zeros where no candidate gains
    weights: Floats


def best_splits(
    candidates: Candidates,
    totals: Integers,
    numbers: RowLayout,
    scales: FixedPointScales,
    rule: GainRule,
    *,
    kinds: NDArray[np.int8],
    bounds: Floats | None = None,
    allowed: NDArray[np.bool_] | None = None,
) -> BestSplits:
    """Return each node's candidate of the largest gain; ties go to the lowest column, then to the lowest candidate.

    A pure function of the integers: equal sums give equal splits, whatever computed them.

    Args:
        candidates: of S nodes, F columns, A each.
        totals: int64 [S, k]: sums of all rows of each node.
        rule: validity and regularization. A side where ``H + λ`` of any output is not positive has no weight, so it
            is not valid either.
        kinds: int8 [F], see :mod:`labelward.kernels.split_search`.
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
    best = BestSplits(
        gain=np.full(nodes, -np.inf),
        column=np.full(nodes, -1, dtype=np.int32),
        candidate=np.full(nodes, -1, dtype=np.int32),
        left=np.zeros((nodes, k), dtype=np.int64),
        weights=np.zeros((nodes, 2)),
    )
    limits = (float(rule.reg_lambda), float(rule.gamma), max(1, int(rule.min_rows)), float(rule.min_child_weight))
    units = (scales.g, hessian_scale(numbers, scales))
    open_to = np.broadcast_to(np.True_ if allowed is None else allowed, left.shape[:3])
    search = (units, limits, open_to, (best.gain, best.column, best.candidate))
    bounded = bounds is not None or is_monotone(kinds)
    if numbers.outputs > 1:
        if bounded:
            raise ValueError("monotone columns and bounds of weights are for one output")
        g, h = (np.ascontiguousarray(part) for part in numbers.full(totals))
        place = (numbers.stored, numbers.count, IMPLIED[numbers.implied])
        search_multi_output(left, (g, h, totals[:, numbers.count].copy()), place, *search, float(rule.max_delta_step))
    else:
        place = (0, 1 if numbers.hessians else numbers.count, numbers.count)
        if bounded or rule.max_delta_step:
            ordered = (np.ascontiguousarray(kinds), _within(bounds, rule, nodes))
            search_bounded(left, np.ascontiguousarray(totals), place, *search, ordered)
        else:
            search_scalar(left, np.ascontiguousarray(totals), place, *search)
    _fill(best, left, totals, numbers, scales, rule, bounds)
    return best


def _fill(
    best: BestSplits,
    left: Integers,
    totals: Integers,
    numbers: RowLayout,
    scales: FixedPointScales,
    rule: GainRule,
    bounds: Floats | None,
) -> None:
    """Complete what follows from the winners: sums and weights of their children."""
    won = np.flatnonzero(best.column >= 0)
    best.left[won] = left[won, best.column[won], best.candidate[won]]
    if numbers.outputs == 1:
        sums = np.concatenate([best.left[won], totals[won] - best.left[won]])
        inside = None if bounds is None else np.concatenate([bounds[won]] * 2)
        best.weights[won] = leaf_weights(sums, numbers, scales, rule, 1.0, inside).reshape(2, -1).T


def leaf_weights(
    totals: Integers,
    numbers: RowLayout,
    scales: FixedPointScales,
    rule: GainRule,
    learning_rate: float,
    bounds: Floats | None = None,
) -> Floats:
    """Return float64 [m, K]: ``-learning_rate * G / (H + λ)``; 0 where ``H + λ`` is not positive.

    Args:
        totals: int64 [m, k].
        rule: λ and the largest weight.
        bounds: float64 [m, 2]: the least and the greatest weight of each leaf before the learning rate.
    """
    sums, hessians = numbers.full(totals)
    g = sums / scales.g
    h = np.broadcast_to(hessians / hessian_scale(numbers, scales) + rule.reg_lambda, g.shape)
    weights: Floats = -np.divide(g, h, out=np.zeros(g.shape), where=h > 0)
    if bounds is not None or rule.max_delta_step:
        within = _within(bounds, rule, len(totals))
        np.clip(weights, within[:, :1], within[:, 1:], out=weights)
    weights *= learning_rate
    return weights


def hessian_scale(numbers: RowLayout, scales: FixedPointScales) -> float:
    """Return the fixed-point scale of hessians; 1 if the count replaces them."""
    return scales.h if numbers.hessians else 1.0


def _within(bounds: Floats | None, rule: GainRule, count: int) -> Floats:
    """Return float64 [count, 2]: the least and the greatest weight."""
    most = rule.max_delta_step or np.inf
    limits = np.tile([-most, most], (count, 1))
    if bounds is None:
        return limits
    if bounds.shape != limits.shape or not (bounds[:, 0] <= bounds[:, 1]).all():
        raise ValueError(f"bounds must be {limits.shape} with the least weight first but are {bounds.shape}")
    np.clip(limits, bounds[:, :1], bounds[:, 1:], out=limits)
    return limits
