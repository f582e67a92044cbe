"""Cost of the leakage meter: readings of ever more trees, whose groups of rows split up further.

The time of a reading grows with the rows, to find the groups that no tree tells apart, and with the groups times the
starts of Louvain's method; both times the trees. Groups are counted in the trees of the dry run; after them the rows
that are not yet alone dwindle by the same factor with each tree.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from labelward.defenses.leakage_meter import (
    MOST_TREES,
    MonitorConfig,
    is_measured_at,
    louvain_restarts,
    measure_leakage,
)


def count_groups(leaves: NDArray[np.int32]) -> list[int]:
    """Return for 1, 2, … trees how many groups of rows they tell apart.

    Args:
        leaves: int32 [trees, rows], -1 for rows out of a tree's sample.
    """
    group, found = np.zeros(leaves.shape[1], dtype=np.int64), []
    for tree in leaves:
        _, group = np.unique(group * (int(tree.max()) + 2) + tree + 1, return_inverse=True)
        found.append(int(group.max()) + 1)
    return found


def reading_cost(
    leaves: NDArray[np.int32], labels: NDArray[np.int64], party: str, measure: MonitorConfig
) -> tuple[float, float]:
    """Return seconds of a reading per row and tree, and per group, tree and start, from two readings."""
    trees, rows = len(leaves) // 2 + 1, leaves.shape[1]
    measure_leakage(leaves[:1], labels, party, measure)  # loads compiled code, which a process does once
    one, several = (_timed(leaves[:count], labels, party, measure) for count in (1, trees))
    found = count_groups(leaves[:trees])
    each = max(0.0, several - trees * one) / (found[-1] * trees * louvain_restarts(rows * trees))
    return one / rows, each


def _timed(leaves: NDArray[np.int32], labels: NDArray[np.int64], party: str, measure: MonitorConfig) -> float:
    start = time.thread_time()  # a reading uses one thread, whatever else the machine does meanwhile
    measure_leakage(leaves, labels, party, measure)
    return time.thread_time() - start


def monitor_seconds(
    cost: tuple[float, float], groups: Sequence[int], *, rows: tuple[int, int], trees: Mapping[str, int]
) -> float:
    """Return seconds of all readings of a training.

    Args:
        cost: per row and tree, and per group, tree and start.
        groups: of the first trees, among the rows of the dry run.
        rows: of the dry run, and of the training.
        trees: of each passive party.
    """
    few, every = rows
    total = 0.0
    for most in trees.values():
        for seen in range(1, min(most, MOST_TREES) + 1):
            if is_measured_at(every * seen, seen) or seen == most:
                apart = _groups(groups, few, seen) * every / few
                total += seen * (cost[0] * every + cost[1] * apart * louvain_restarts(every * seen))
    return total


def _groups(groups: Sequence[int], rows: int, trees: int) -> float:
    if trees <= len(groups):
        return groups[trees - 1]
    together, before = rows - groups[-1], rows - (groups[-2] if len(groups) > 1 else 1)
    return rows - together * (together / max(1, before)) ** (trees - len(groups))
