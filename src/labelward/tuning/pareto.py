"""Dominance, fronts and hypervolume of points of objectives, all of which are minimized.

A point dominates another that it equals or undercuts in all objectives and undercuts in one: Definition 1 of the CMOSB
paper. Hypervolume: the share of a box that the points dominate (Equation 2), between fixed bounds, which do not depend
on what else was measured, or between those of pooled points, as the paper has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
"""float64 [points, objectives]."""


def front_of(points: Points) -> NDArray[np.int64]:
    """Return int64 [front], ascending: the points that no other dominates; of equal points the first."""
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    if not len(points):
        return np.empty(0, np.int64)
    _, first = np.unique(points, axis=0, return_index=True)
    first = np.sort(first)
    kept = NonDominatedSorting().do(points[first], only_non_dominated_front=True)
    return np.sort(first[np.asarray(kept, np.int64)])


def ranks_of(points: Points) -> NDArray[np.int64]:
    """Return int64 [points]: 0 for the front, 1 for the front of the others, and so on."""
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    ranks = np.empty(len(points), np.int64)
    for rank, members in enumerate(NonDominatedSorting().do(points)):
        ranks[members] = rank
    return ranks


def hypervolume(points: Points, bounds: Points) -> float:
    """Return the share of a box that points dominate, from 0 to 1; what lies outside is cut off at its sides.

    Args:
        bounds: float64 [2, objectives]: the best and the worst corner.
    """
    from pymoo.indicators.hv import HV

    best, worst = bounds
    scaled = np.clip((points - best) / (worst - best), 0.0, None)
    inside = scaled[(scaled < 1.0).all(axis=1)]
    return float(HV(ref_point=np.ones(points.shape[1]))(inside)) if len(inside) else 0.0


def shortfall(points: Points) -> float:
    """Return what the nearest point lacks of the worst corner, 1 in all objectives; 0 where one lies within."""
    return float(np.maximum(points - 1.0, 0.0).sum(axis=1).min())


def hypervolumes(points: Points, bounds: Points) -> list[float]:
    """Return the hypervolume of the first point, of the first two, and so on."""
    kept, found = np.empty((0, points.shape[1])), list[float]()
    for point in points:
        if len(kept) and ((kept <= point).all(axis=1)).any():
            found.append(found[-1])
            continue
        kept = np.vstack([kept[~(point <= kept).all(axis=1)], point])
        found.append(hypervolume(kept, bounds))
    return found


def pooled_bounds(pools: Sequence[Points]) -> Points:
    """Return the least and the largest value of each objective in several sets of points together."""
    every = np.concatenate(pools)
    low, high = every.min(axis=0), every.max(axis=0)
    return np.stack([low, np.where(high > low, high, low + 1.0)])
