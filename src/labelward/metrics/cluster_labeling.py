"""Clusters that take the class of a few known rows: how many of the other rows get their class, in expectation.

Each class counts alike, whatever its rows: figures are means of the classes' recalls (balanced accuracy). Tables are
int64 [clusters, classes], the rows of each class in each cluster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["contingency_table", "expected_accuracy", "majority_accuracy", "majority_chance"]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_DRAWS = 2000


def contingency_table(guess: NDArray[np.int64], truth: NDArray[Any]) -> Counts:
    """Return the rows of each class in each cluster."""
    clusters, cluster = np.unique(guess, return_inverse=True)
    classes, label = np.unique(truth, return_inverse=True)
    flat = np.bincount(cluster * len(classes) + label, minlength=len(clusters) * len(classes))
    return flat.reshape(len(clusters), len(classes)).astype(np.int64)


def majority_accuracy(table: Counts) -> float:
    """Return the balanced accuracy where each cluster takes the class that is best for it: no naming does better."""
    return float((table / table.sum(axis=0)).max(axis=1).sum() / len(table[0]))


def majority_chance(table: Counts) -> float:
    """Return the mean of :func:`majority_accuracy` over permutations of the labels: over 2,000 of a fixed seed."""
    totals = table.sum(axis=0)
    rng = np.random.default_rng(0)
    found = 0.0
    for rows in table.sum(axis=1):
        drawn = rng.multivariate_hypergeometric(totals, rows, size=_DRAWS, method="marginals")
        found += float((drawn / totals).max(axis=1).mean())
    return found / len(table[0])


def expected_accuracy(table: Counts, known: int) -> float:
    """Return the exact mean of the balanced accuracy over the draws of known rows.

    ``known`` rows of each cluster (all of a smaller one) are drawn without replacement; the cluster takes their most
    frequent class, of equally frequent ones any. Known rows are not scored. A class counts over the draws that leave a
    row of it to score, and not at all where none does; where no class is left, the figure is 1 / classes.

    With X the scored rows of a class that get it and Y all its scored rows, the figure is the mean over classes of
    E[X / Y]. Clusters are drawn independently, so that E[X / Y] is a sum over clusters, over how many rows of the class
    are known there and how many elsewhere.
    """
    from scipy.stats import hypergeom

    clusters, classes = table.shape
    size, here = table.sum(axis=1), np.arange(known + 1)
    named = _named(table, known)
    recalls = []
    for label in range(classes):
        column, total = table[:, label], int(table[:, label].sum())
        if column[size <= known].sum() == total:
            continue  # every draw takes all rows of the class
        drawn = hypergeom.pmf(here, size[:, None], column[:, None], np.minimum(known, size)[:, None])
        elsewhere = _all_but_one(drawn)
        everywhere = np.convolve(drawn[0], elsewhere[0])
        scored = float(everywhere[:total].sum())  # fewer than all are known
        left = total - here[:, None] - np.arange(elsewhere.shape[1])
        right = 0.0
        for cluster in range(clusters):
            share = np.where(left > 0, column[cluster] - here[:, None], 0) / np.maximum(left, 1)
            right += float(named[cluster, label] @ share @ elsewhere[cluster])
        recalls.append(right / scored)
    return float(np.mean(recalls)) if recalls else 1 / classes


def _named(table: Counts, known: int) -> Floats:
    """Return float64 [clusters, classes, known + 1]: how likely it is that so many known rows are of the class and win.

    Ways to draw are counted by generating functions, scaled by the cluster's rows so that none overflows.
    """
    clusters, classes = table.shape
    size = table.sum(axis=1)
    taken = np.minimum(known, size)
    ways = np.ones((clusters, classes, known + 1))  # binomial(rows of the class, a) / size^a
    every = np.ones((clusters, known + 1))  # the same of all rows of the cluster
    for a in range(1, known + 1):
        ways[:, :, a] = ways[:, :, a - 1] * np.maximum(table - a + 1, 0) / (a * size[:, None])
        every[:, a] = every[:, a - 1] * np.maximum(size - a + 1, 0) / (a * size)
    whole = every[np.arange(clusters), taken]
    named = np.zeros_like(ways)
    for a in range(1, known + 1):
        won = _won(ways, a, np.maximum(taken - a, 0)) / whole[:, None]
        named[:, :, a] = np.where((taken >= a)[:, None], ways[:, :, a] * won, 0.0)
    return named


def _won(ways: Floats, a: int, rest: Counts) -> Floats:
    """Return float64 [clusters, classes]: scaled ways to draw ``rest`` rows of other classes so that ``a`` rows win.

    Any other class may have fewer, or ``a`` of its own: a tie, of which t + 1 classes share the name alike. The mean of
    u^t over u from 0 to 1 is 1 / (t + 1), and Gauss' rule with enough nodes takes it exactly.
    """
    clusters, classes, width = ways.shape
    most = int(rest.max(initial=0))
    nodes, weights = np.polynomial.legendre.leggauss(most // a // 2 + 1)
    found = np.zeros((clusters, classes))
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        factors = np.zeros((clusters, classes, width))
        factors[:, :, :a] = ways[:, :, :a]
        factors[:, :, a] = node * ways[:, :, a]
        before, after = np.zeros((classes, clusters, width)), np.zeros((classes, clusters, width))
        before[0, :, 0] = after[-1, :, 0] = 1.0
        for label in range(1, classes):
            before[label] = _times(before[label - 1], factors[:, label - 1, : a + 1])
            after[-label - 1] = _times(after[-label], factors[:, -label, : a + 1])
        for label in range(classes):
            for cluster in range(clusters):
                end = int(rest[cluster])
                found[cluster, label] += weight * float(
                    before[label, cluster, : end + 1] @ after[label, cluster, end::-1]
                )
    return found


def _times(one: Floats, other: Floats) -> Floats:
    """Return products of polynomials [clusters, width] with short ones, cut off at the width."""
    out = np.zeros_like(one)
    for power in range(other.shape[1]):
        out[:, power:] += one[:, : one.shape[1] - power] * other[:, power : power + 1]
    return out


def _all_but_one(drawn: Floats) -> Floats:
    """Return float64 [clusters, ...]: the distribution of the sum over all clusters but each one."""
    clusters = len(drawn)
    before, after = [np.ones(1)], [np.ones(1)]
    for cluster in range(clusters - 1):
        before.append(np.convolve(before[-1], drawn[cluster]))
        after.append(np.convolve(after[-1], drawn[clusters - 1 - cluster]))
    return np.stack([np.convolve(before[cluster], after[clusters - 1 - cluster]) for cluster in range(clusters)])
