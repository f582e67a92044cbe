"""Public constants of a training: the objective, and how gradients become integers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError
from labelward.he.base import Layout
from labelward.kernels.gain import hessian_scale, leaf_weights
from labelward.kernels.noisy_gain import SumNoise
from labelward.kernels.objectives import Objective, objective
from labelward.kernels.row_layout import FixedPointScales, RowLayout, choose_scales, encode_rows, number_bounds
from labelward.protocols.pivodl.params import GrownTrees

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NOISE_ROOM = 16.0  # deviations of the noise; none of 10^15 sums has more than 8


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Public constants of a training: the objective, and how gradients become integers.

    Attributes:
        fitted: the loss.
        numbers: meaning of the integers of a row.
        scales: fixed-point scales, which depend on no label.
        layout: of all sums.
        noise: on the gradients of sums, as the policies of all holders put it there; None: no noise.
    """

    fitted: Objective
    params: GrownTrees
    rows: int
    numbers: RowLayout
    scales: FixedPointScales
    layout: Layout
    noise: SumNoise | None = None

    @classmethod
    def of(
        cls,
        params: GrownTrees,
        rows: int,
        precision: int,
        *,
        quantities: bool = False,
        noise: SumNoise | None = None,
    ) -> Fixed:
        """Return them for two classes, or for standardized quantities.

        No standardized label exceeds the root of the number of rows. Gradients may be four times as large; their
        precision is lowered where sums, or noise on them, would not fit otherwise.
        """
        fitted = objective("reg:squarederror", classes=0) if quantities else objective("binary:logistic", classes=2)
        numbers = RowLayout(outputs=1, hessians=fitted.hessians)
        g_most = fitted.g_most
        if quantities:
            g_most = math.ldexp(1.0, math.ceil(math.log2(4 * math.sqrt(rows))))
            precision = min(precision, 61 - math.ceil(math.log2(g_most * rows)))
        if noise is not None:  # shared by the rows of a sum, whose bound is that of all rows
            g_most += _NOISE_ROOM * noise.deviation / rows
            precision = max(0, min(precision, 61 - math.ceil(math.log2(g_most * rows))))
        none = np.zeros((0, fitted.hessians))
        scales = choose_scales(np.zeros((0, 1)), none, precision, bounded=True)
        bounds = number_bounds(numbers, scales, g_most, fitted.h_most)
        return cls(
            fitted=fitted,
            params=params,
            rows=rows,
            numbers=numbers,
            scales=scales,
            layout=Layout(bounds=bounds, rows=rows, logical=1 + fitted.hessians),
            noise=noise,
        )

    def encode(self, margins: Floats, labels: Floats) -> Integers:
        """Return the integers of rows, int64 [rows, k]."""
        g, h = self.fitted.gradients(margins[:, None], labels)
        if (np.abs(g) * self.scales.g > self.layout.bounds[0]).any():
            reason = "training diverged: a gradient exceeds its bound; lower learning_rate"
            raise DataError(reason, code="diverged", value=self.layout.bounds[0] / self.scales.g)
        return encode_rows(self.numbers, g, h, None, self.scales)

    def weights(self, totals: Integers) -> Floats:
        """Return the weights of leaves with these sums, learning rate included: float64 [leaves]."""
        params = self.params
        weights = leaf_weights(totals, self.numbers, self.scales, params.rule, params.learning_rate)[:, 0]
        if self.noise is None:
            return weights
        return self.noise.shrunk(weights, totals[:, 1] / hessian_scale(self.numbers, self.scales), params.reg_lambda)

    def is_leaf(self, depth: int, rows: int) -> bool:
        """Return whether a node is a leaf for its depth or its number of rows (Algorithm 3, lines 5 and 15)."""
        params = self.params
        return depth >= params.depth or rows < max(params.min_node_rows, 2 * params.min_rows)
