"""Split search and leaf weights where sums of gradients carry Gaussian noise of a known deviation.

The noise of a sum does not shrink with its rows, so that splits into few rows gain by noise. Three steps, all of them
post-processing of what was released, with hessians and counts exact:

1. No gradient exceeds 1, so that a bin's sum lies within its count, and that of an empty bin is 0.
2. Where a column has no missing value in a node, its bins must add up to the node: the difference is spread over the
   bins as least squares does.
3. A leaf of weight w has the gradient -H·w, up to noise of variance v. With a normal prior of precision λ, as the
   regularization is, and the sampling variance H of logistic gradients, w is expected to be -G / (H + λ·(1 + v / H)):
   λ grows by the ratio of both variances. The gain takes the same λ.

The variance of the left sum of m bins of M in a node whose total is given is m·(M - m)/M times that of a bin; its
maximum, M/4, stands for all candidates of a column. Not in the PIVODL paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.gain import BestSplits, GainRule, hessian_scale
from labelward.kernels.row_layout import FixedPointScales, RowLayout
from labelward.kernels.split_candidates import Candidates

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SumNoise:
    """Noise on the gradients of sums.

    Attributes:
        deviation: of one sum, where the largest gradient is 1.
        bins: the most bins of a column.
    """

    deviation: float
    bins: int

    def variance(self, bins: Floats | int) -> Floats:
        """Return the largest variance of a part of so many bins of a node."""
        return np.asarray(self.deviation**2 * bins / 4)

    def reconciled(
        self, sums: Integers, totals: Integers, numbers: RowLayout, scales: FixedPointScales
    ) -> tuple[Integers, Floats]:
        """Return sums by bin within what they can be, and the largest variance of a candidate's.

        Args:
            sums: int64 [F, S, B, k], by column, node and bin.
            totals: int64 [S, k].

        Returns:
            int64 [F, S, B, k], and float64 [F, S].
        """
        count = sums[..., numbers.count]
        most = np.ceil(count * scales.g).astype(np.int64)
        g = np.clip(sums[..., 0], -most, most)
        filled = (count > 0).sum(axis=2)
        whole = count.sum(axis=2) == totals[:, numbers.count]
        share = np.where(whole, (totals[:, 0] - g.sum(axis=2)) / (filled + self.bins / 4), 0.0)
        result = sums.copy()
        result[..., 0] = g + np.rint(share[..., None] * (count > 0)).astype(np.int64)
        return result, self.variance(filled.astype(np.float64))

    def shrunk(self, weights: Floats, hessians: Floats, reg_lambda: float) -> Floats:
        """Return leaf weights, float64 [m], as the noise of a node's total lets them be expected."""
        return weights * (hessians + reg_lambda) / (hessians + _grown(hessians, self.variance(self.bins), reg_lambda))


def best_noisy_splits(
    candidates: Candidates,
    totals: Integers,
    numbers: RowLayout,
    scales: FixedPointScales,
    rule: GainRule,
    *,
    noise: SumNoise,
    variance: Floats,
    allowed: NDArray[np.bool_] | None = None,
) -> BestSplits:
    """Return each node's candidate of the largest expected gain.

    Args:
        candidates: of S nodes and one column, of one output.
        totals: int64 [S, k].
        variance: float64 [S], of the candidates' sums.
        allowed: bool [S, 1, A], the candidates that may be chosen; None: all.
    """
    left = candidates.left[:, 0]
    right, counts = totals[:, None] - left, (left[..., numbers.count], totals[:, None, numbers.count])
    open_to = np.True_ if allowed is None else allowed[:, 0]
    valid = open_to & (np.minimum(counts[0], counts[1] - counts[0]) >= max(1, rule.min_rows))

    def term(sums: Integers, spread: Floats) -> Floats:
        g, h = sums[..., 0] / scales.g, sums[..., 1] / hessian_scale(numbers, scales)
        below = h + _grown(h, spread, rule.reg_lambda)
        squares: Floats = np.divide(g * g, below, out=np.zeros(g.shape), where=below > 0)
        return squares

    spread = variance[:, None]
    gain = term(left, spread) + term(right, spread) - term(totals, noise.variance(noise.bins))[:, None] - rule.gamma
    gain = np.where(valid & (gain > 0), gain, -np.inf)
    best, every = gain.argmax(axis=1), np.arange(len(totals))
    found = gain[every, best] > 0
    return BestSplits(
        gain=gain[every, best],
        column=np.where(found, 0, -1).astype(np.int32),
        candidate=np.where(found, best, -1).astype(np.int32),
        left=np.where(found[:, None], left[every, best], 0),
        weights=np.zeros((len(totals), 2)),
    )


def _grown(hessians: Floats, variance: Floats, reg_lambda: float) -> Floats:
    """Return λ·(1 + v / H), where λ counts as 1 at least in what it grows by; infinite where H is 0."""
    ratio: Floats = np.divide(variance, hessians, out=np.full(np.shape(hessians), np.inf), where=hessians > 0)
    return reg_lambda + max(reg_lambda, 1.0) * ratio
