"""The numbers of the reference: fixed point, sums of whole numbers, gains as ``kernels.gain`` documents them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.objectives import Objective

PRECISION = 30
NOISE = 2.0**-50

Floats = NDArray[np.float64]
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Sums:
    """Whole numbers of some rows: gradients, hessians, how many rows."""

    g: tuple[int, ...]
    h: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Numbers:
    """What stands for each row of a tree: whole numbers and what stands for 1."""

    g: list[tuple[int, ...]]
    h: list[tuple[int, ...]]
    scale_g: float
    scale_h: float

    def sums(self, rows: list[int], repeats: list[int]) -> Sums:
        """Return the sums of some rows."""
        outputs, hessians = len(self.g[0]), len(self.h[0])
        g = tuple(sum(self.g[row][c] * repeats[row] for row in rows) for c in range(outputs))
        h = tuple(sum(self.h[row][c] * repeats[row] for row in rows) for c in range(hessians))
        return Sums(g, h, sum(repeats[row] for row in rows))


def encode(g: Floats, h: Floats, weights: Floats | None, rows: list[int], implied: str, found: Objective) -> Numbers:
    """Return whole numbers in fixed point; of the last gradient what the others and the rule imply.

    Args:
        weights: of the rows, by which g and h are multiplied; None where no row has a weight.
        rows: that are encoded; what stands for 1 depends on the largest of them.
    """
    if weights is not None:
        if not h.shape[1]:
            h = np.ones((len(g), 1))
            implied = "weight" if implied == "count" else implied
        g, h = g * weights[:, None], h * weights[:, None]
    bounded = found.bounded and weights is None
    scale_g, scale_h = scale_of(g[rows], bounded), scale_of(h[rows], bounded)
    if implied == "count":
        scale_g = 1.0
    if implied == "weight":
        scale_g = scale_h = min(scale_g, scale_h)
    whole_g = [[round(value * scale_g) for value in row] for row in g.tolist()]
    whole_h = [[round(value * scale_h) for value in row] for row in h.tolist()]
    for gs, hs in zip(whole_g, whole_h, strict=True):
        if implied:
            gs[-1] = -sum(gs[:-1]) - {"zero": 0, "count": 1, "weight": sum(hs)}[implied]
    return Numbers([tuple(row) for row in whole_g], [tuple(row) for row in whole_h], scale_g, scale_h)


def scale_of(values: Floats, bounded: bool) -> float:
    """Return what stands for 1: 2**precision, or that divided by the least power of two that no value exceeds."""
    largest = float(np.abs(values).max(initial=0.0))
    exponent = 0
    if not bounded and largest > 0.0:
        while 2.0**exponent < largest:
            exponent += 1
        while 2.0 ** (exponent - 1) >= largest:
            exponent -= 1
    return 2.0 ** (PRECISION - exponent)


def gain_of(
    left: list[tuple[float, float]], right: list[tuple[float, float]], lam: float, bounds: Bounds
) -> float | None:
    """Return the gain without gamma, in the form that ``kernels.gain`` documents; None where it is only rounding.

    Args:
        left, right: gradient and hessian of each output.
        bounds: least and largest weight.
    """
    plus, minus = 0.0, 0.0
    for (gl, hl), (gr, hr) in zip(left, right, strict=True):
        a, b = hl + lam, hr + lam
        if a <= 0 or b <= 0:
            return None
        nodes = [(gl, a, 1), (gr, b, 1), (gl + gr, hl + hr + lam, -1)]
        if all(bounds[0] <= -g / h <= bounds[1] for g, h, _ in nodes):
            d = gl * b - gr * a
            d = d if abs(d) > NOISE * (abs(gl * b) + abs(gr * a)) else 0.0
            plus += d * d / (a * b * (a + b))
            minus += lam * (gl + gr) * (gl + gr) / ((hl + hr + lam) * (a + b))
            continue
        for g, h, sign in nodes:  # what each side's weight w gains: -(2 G w + (H + lambda) w^2)
            weight = min(max(-g / h, bounds[0]), bounds[1])
            terms = (sign * -2.0 * g * weight, sign * -h * weight * weight)
            plus += sum(max(term, 0.0) for term in terms)
            minus += sum(max(-term, 0.0) for term in terms)
    gain = plus - minus
    return gain if abs(gain) > NOISE * len(left) * (plus + minus) else None


def first_direction(weights: list[list[float]], masses: list[float]) -> Floats:
    """Return the first principal direction of weighted vectors; its largest entry is positive."""
    points, mass = np.array(weights), np.array(masses)
    centered = points - np.average(points, axis=0, weights=mass)
    covariance = (centered * mass[:, None]).T @ centered
    direction = np.linalg.eigh(covariance)[1][:, -1]
    return direction * np.sign(direction[np.argmax(np.abs(direction))])
