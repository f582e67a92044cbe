"""Limits of objectives: how far a setting exceeds them, and how the search is told.

Sources: the penalty of the CMOSB paper, Section VI-B, with each excess divided by its limit, since a cost in seconds
would swamp the other objectives; the rule that feasible settings come first is Deb's (2000).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from labelward.job import TuneSection
from labelward.tuning.pareto import Points

PENALTY = 20.0


def excesses(section: TuneSection, values: Sequence[float]) -> tuple[float, ...]:
    """Return by how much of itself each limit is exceeded; 0 or less within."""
    by_name = dict(zip(section.objectives, values, strict=True))
    return tuple((by_name[name] - limit) / limit for name, limit in section.constraints.items())


def exceeded(excess: Iterable[float]) -> float:
    """Return by how much all limits together are exceeded; 0 within them."""
    return sum(max(0.0, each) for each in excess)


def penalized(section: TuneSection, values: Sequence[float]) -> tuple[float, ...]:
    """Return the objectives as the search is told of them."""
    if section.handling != "penalty":
        return tuple(values)
    limits = section.constraints
    return tuple(
        value + PENALTY * max(0.0, (value - limits[name]) / limits[name]) if name in limits else value
        for name, value in zip(section.objectives, values, strict=True)
    )


def feasible(section: TuneSection, points: Points) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return bool [points]: which are within all limits."""
    return np.array([max(excesses(section, point), default=0.0) <= 0 for point in points.tolist()], dtype=np.bool_)
