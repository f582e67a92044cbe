"""Slow, plain references: candidates from their definition, gains in rational numbers."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from labelward.kernels.gain import BestSplits, GainRule, best_splits
from labelward.kernels.row_layout import FixedPointScales, RowLayout
from labelward.kernels.split_candidates import candidates

SCALE = 2.0**10
SCALES = FixedPointScales(SCALE, SCALE)
ONE = RowLayout(outputs=1, hessians=1)


def parts(sums: np.ndarray, numbers: RowLayout, scales: FixedPointScales) -> tuple[list[Fraction], list[Fraction], int]:
    """Gradients and hessians of each output, and the count, of sums [k]."""
    g, h = numbers.full(np.asarray(sums))
    unit = Fraction(scales.h) if numbers.hessians else Fraction(1)
    hessians = [Fraction(int(each)) / unit for each in h]
    return (
        [Fraction(int(each)) / Fraction(scales.g) for each in g],
        hessians * (numbers.outputs // len(hessians)),
        int(sums[numbers.count]),
    )


def weight(g: Fraction, h: Fraction, low: float, high: float) -> Fraction:
    best = -g / h
    best = best if low == -np.inf else max(best, Fraction(low))
    return best if high == np.inf else min(best, Fraction(high))


def exact_gain(
    left: np.ndarray,
    total: np.ndarray,
    rule: GainRule,
    numbers: RowLayout = ONE,
    scales: FixedPointScales = SCALES,
    *,
    kind: int = 0,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> Fraction | None:
    """The gain in rational numbers, or None where the candidate is not valid."""
    lam, least = Fraction(rule.reg_lambda), max(1, rule.min_rows)
    sides = [parts(each, numbers, scales) for each in (left, total - left, total)]
    if any(rows < least for _, _, rows in sides[:2]):
        return None
    for _, h, _ in sides[:2]:
        if sum(h) / len(h) < Fraction(rule.min_child_weight) or any(each + lam <= 0 for each in h):
            return None
    most = rule.max_delta_step or np.inf
    low, high = np.clip([-most, most], *bounds)
    gain, weights = Fraction(0), []
    for sign, (g, h, _) in zip((1, 1, -1), sides, strict=True):
        for one, two in zip(g, h, strict=True):
            w = weight(one, two + lam, low, high)
            weights.append(w)
            gain -= sign * (2 * one * w + (two + lam) * w * w)
    if (kind == 2 and weights[0] > weights[1]) or (kind == 3 and weights[0] < weights[1]):
        return None
    return gain - Fraction(rule.gamma)


def prefixes(
    cells: np.ndarray,
    rule: GainRule,
    numbers: RowLayout = ONE,
    scales: FixedPointScales = SCALES,
    *,
    kind: int = 0,
    size: int | None = None,
    onehot: int = 4,
    threshold: int = 64,
) -> list[list[int] | None]:
    """Which bins of one node and column each candidate sends left; None where there is no such candidate."""
    bins = len(cells)
    size = bins if size is None else size
    if kind != 1:
        return [list(range(a + 1)) for a in range(bins)]
    if size < onehot:
        return [[a] if a < size else None for a in range(bins)]

    def key(c: int) -> Fraction:
        g, h, _ = parts(cells[c], numbers, scales)
        size = h[0] + Fraction(rule.reg_lambda)
        return -g[0] / size if size > 0 else Fraction(0)

    here = [c for c in range(bins) if cells[c, numbers.count] > 0]
    sign = lowest_first([key(c) for c in here])
    order = sorted(here, key=lambda c: (sign * key(c), c))
    return [
        sorted(order[: a + 1]) if a < len(order) and (a + 1 <= threshold or len(order) - a - 1 <= threshold) else None
        for a in range(bins)
    ]


def lowest_first(keys: Sequence[Fraction | float]) -> int:
    """The sign under which the first key is smaller than the next one that differs from it."""
    return next((-1 if key < keys[0] else 1 for key in keys if key != keys[0]), 1)


def histograms(
    rng: np.random.Generator,
    columns: int,
    nodes: int,
    bins: int,
    *,
    numbers: RowLayout = ONE,
    coarse: bool = False,
    missing: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Sums [F, S, B, k] and totals [S, k] of the same random rows by random codes; coarse values make exact ties."""
    top = 2 if coarse else 1024
    n = 3 * bins
    sums = np.zeros((columns, nodes, bins, numbers.k), dtype=np.int64)
    totals = np.zeros((nodes, numbers.k), dtype=np.int64)
    for s in range(nodes):
        rows = np.ones((n, numbers.k), dtype=np.int64)
        rows[:, : numbers.stored] = rng.integers(-top, top + 1, (n, numbers.stored))
        rows[:, numbers.stored : numbers.count] = rng.integers(0, top + 1, (n, numbers.hessians))
        totals[s] = rows.sum(axis=0)
        for f in range(columns):
            known = rng.random(n) >= missing
            np.add.at(sums[f, s], rng.integers(0, bins, n)[known], rows[known])
    return sums, totals


def found(
    sums: np.ndarray, rule: GainRule, *, scales: FixedPointScales = SCALES, allowed: np.ndarray | None = None
) -> BestSplits:
    """The best splits of ordered columns without missing values, one output."""
    kinds, totals = np.zeros(len(sums), dtype=np.int8), sums[0].sum(axis=1)
    numbers = RowLayout(outputs=1, hessians=1, classes=sums.shape[3] - 2 if sums.shape[3] > 3 else 0)
    offered = candidates(sums, totals, numbers, scales, rule, kinds=kinds)
    return best_splits(offered, totals, numbers, scales, rule, kinds=kinds, allowed=allowed)
