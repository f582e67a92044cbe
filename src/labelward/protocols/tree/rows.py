"""What a tree sums of each row: which rows it grows on, and their gradients and hessians as integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.he.base import Layout
from labelward.kernels.objectives import Objective
from labelward.kernels.row_layout import FixedPointScales, RowLayout, choose_scales, encode_rows, number_bounds
from labelward.protocols.tree.params import TreeModel
from labelward.rng import PrivateSeed, learning

__all__ = ["Drawn", "Encoded", "Encoder", "draw_rows"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Drawn:
    """The rows of a tree.

    Attributes:
        counts: int64 [rows]: how often each row was drawn.
        factors: float64 [rows]: by how much drawn rows stand for others; None: each for itself.
    """

    counts: Integers
    factors: Floats | None = None

    def weigh(self, weights: Floats) -> Floats:
        """Return the weights of rows, float64 [rows], with those of the rows that they stand for."""
        return weights if self.factors is None else weights * self.factors


def draw_rows(params: TreeModel, sizes: Floats, *, seed: int, party: str, tree: int, private: PrivateSeed) -> Drawn:
    """Draw the rows of one tree.

    Args:
        sizes: float64 [rows]: how large the gradient of each row is.
        party: the active party, whose draw it is.
        tree: its number.
        private: the active party's own, for draws that depend on gradients and so on labels.

    Reference: Ke et al., LightGBM (2017), Algorithm 2, for ``"goss"``: the rows of the largest gradients, and some of
    the others, which stand for all of them.
    """
    n = len(sizes)
    counts = np.zeros(n, dtype=np.int64)
    if params.sampling == "uniform" and params.row_fraction >= 1.0 and not params.replace:
        return Drawn(np.ones(n, dtype=np.int64))
    if params.sampling == "goss":
        rng = private.learning(seed, tree, "rows")
        mixed = rng.permutation(n)  # rows of like size in no order that others know
        order = mixed[np.argsort(-sizes[mixed], kind="stable")]
        top, rest = max(1, int(params.top_rate * n)), max(1, int(params.other_rate * n))
        others = np.sort(rng.choice(order[top:], min(rest, n - top), replace=False))
        factors = np.ones(n)
        factors[others] = (n - top) / max(1, len(others))
        counts[order[:top]] = counts[others] = 1
        return Drawn(counts, factors)
    rng = learning(seed, party, tree, "rows")
    drawn = rng.choice(n, max(1, int(params.row_fraction * n)), replace=params.replace)
    np.add.at(counts, drawn, 1)
    return Drawn(counts)


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The numbers of rows as integers: int64 [rows, k], what they mean, and what an engine must know of them."""

    values: Integers
    numbers: RowLayout
    scales: FixedPointScales
    layout: Layout


class Encoder:
    """From gradients to integers.

    Args:
        objective: its gradients are encoded.
        weighted: whether rows have weights other than 1, or some stand for others.
        flags: int64 [rows, C - 1]: one-hot labels but the first class, which policies need; no column otherwise.
        precision: bits behind the binary point.
    """

    def __init__(self, objective: Objective, flags: Integers, precision: int, *, weighted: bool) -> None:
        self.objective, self.flags, self.precision, self.weighted = objective, flags, precision, weighted

    def encode(self, g: Floats, h: Floats, weights: Floats, rows: Integers, outputs: int) -> Encoded:
        """Encode the chosen rows; the others are zero.

        Args:
            g: float64 [rows, outputs], not weighted.
            h: float64 [rows, outputs or 0].
            weights: float64 [rows].
            rows: int64: positions of the rows that are to be encoded.
        """
        objective, flags = self.objective, self.flags
        whole = objective.outputs == outputs
        hessians, implied = h.shape[1], objective.implied if whole and outputs > 1 else ""
        if self.weighted:
            g, h = g * weights[:, None], weights[:, None] * (h if hessians else np.ones((len(g), 1)))
            hessians, implied = max(1, hessians), "weight" if implied == "count" else implied
        classes = flags.shape[1] + 1 if flags.shape[1] else 0
        numbers = RowLayout(outputs=outputs, hessians=hessians, implied=implied, classes=classes)
        within = objective.bounded and not self.weighted  # not the weights themselves: the layout shows it
        scales = choose_scales(g[rows], h[rows], self.precision, bounded=within, implied=implied)
        known = within or implied == "count"
        g_most, h_most = (objective.g_most, objective.h_most) if known else self._most(scales)
        values = np.zeros((len(g), numbers.k), dtype=np.int64)
        chosen = flags[rows] if flags.shape[1] else None
        values[rows] = encode_rows(numbers, g[rows], h[rows], chosen, scales)
        layout = Layout(
            bounds=number_bounds(numbers, scales, g_most, h_most), rows=len(rows), logical=self._logical(numbers)
        )
        return Encoded(values=values, numbers=numbers, scales=scales, layout=layout)

    def _most(self, scales: FixedPointScales) -> tuple[float, float]:
        """Return bounds that tell nothing of the gradients: what the precision holds at most."""
        return 2.0**self.precision / scales.g, 2.0**self.precision / scales.h

    @staticmethod
    def _logical(numbers: RowLayout) -> int:
        """Return how many numbers an unpacked protocol encrypts: g, h and each class; it needs no row count."""
        return numbers.outputs + max(1, numbers.hessians) + numbers.classes
