"""Expected accuracy of clusters that are named by the classes of a few known rows.

All classes have equal weight: accuracy is the mean recall of the classes (balanced accuracy). Tables are int64
[clusters, classes]: the number of rows of each class in each cluster.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_DRAWS = 2000
_MATCHES = 100


def contingency_table(guess: NDArray[np.int64], truth: NDArray[Any]) -> Counts:
    """Return the number of rows of each class in each cluster."""
    clusters, cluster = np.unique(guess, return_inverse=True)
    classes, label = np.unique(truth, return_inverse=True)
    flat = np.bincount(cluster * len(classes) + label, minlength=len(clusters) * len(classes))
    return flat.reshape(len(clusters), len(classes)).astype(np.int64)


def majority_accuracy(table: Counts) -> float:
    """Return the balanced accuracy if each cluster takes its best class: the maximum over all namings."""
    return float((table / table.sum(axis=0)).max(axis=1).sum() / len(table[0]))


def majority_chance(table: Counts) -> float:
    """Return the mean of :func:`majority_accuracy` over 2,000 permutations of the labels with a fixed seed."""
    totals = table.sum(axis=0)
    rng = np.random.default_rng(0)
    found = 0.0
    for rows in table.sum(axis=1):
        drawn = rng.multivariate_hypergeometric(totals, rows, size=_DRAWS, method="marginals")
        found += float((drawn / totals).max(axis=1).mean())
    return found / len(table[0])


def matched_accuracy(table: Counts) -> float:
    """Return the balanced accuracy if clusters and classes are matched one to one, as is best."""
    from scipy.optimize import linear_sum_assignment

    recall = table / table.sum(axis=0)
    return float(recall[linear_sum_assignment(recall, maximize=True)].sum() / len(table[0]))


def matched_chance(table: Counts) -> float:
    """Return the mean of :func:`matched_accuracy` over permutations of the labels with a fixed seed.

    There are 100 permutations, fewer for more than 200 clusters, whose chance level varies less.
    """
    from scipy.stats import random_table

    draws = max(5, min(_MATCHES, 200 * _MATCHES // len(table)))
    margins = np.sort(table.sum(axis=1)), np.sort(table.sum(axis=0))  # whatever clusters and classes are called
    drawn = random_table(*margins, seed=0).rvs(size=draws, method="boyett")
    return float(np.mean([matched_accuracy(each.astype(np.int64)) for each in drawn]))


def expected_accuracy(table: Counts, known: int) -> float:
    """Return the exact mean of the balanced accuracy over the draws of known rows.

    ``known`` rows of each cluster (all rows of a smaller one) are drawn without replacement. The cluster takes their
    most frequent class, ties at random. Known rows are not scored. The recall of a class is averaged over the draws
    that leave a row of it to score; a class without such a draw is left out, and without any class the result is
    1 / classes.

    With X the correctly named scored rows of a class and Y all its scored rows, the result is the mean over classes of
    E[X / Y]. Clusters are drawn independently, so E[X / Y] is a sum over clusters, over the number of known rows of the
    class in the cluster and over the number elsewhere.
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
        scored = float(everywhere[:total].sum())  # probability that at least one row is left to score
        left = total - here[:, None] - np.arange(elsewhere.shape[1])
        right = 0.0
        for cluster in range(clusters):
            share = np.where(left > 0, column[cluster] - here[:, None], 0) / np.maximum(left, 1)
            right += float(named[cluster, label] @ share @ elsewhere[cluster])
        recalls.append(right / scored)
    return float(np.mean(recalls)) if recalls else 1 / classes


def expected_accuracy_by_class(table: Counts, known: int) -> float:
    """Return the exact mean of the balanced accuracy over draws of ``known`` rows of each class from all of its rows.

    A cluster takes the most frequent class of the known rows in it, ties at random; so does one without a known row.
    Known rows are not scored; a class of which all rows are known is left out, and without any class the result is
    1 / classes.

    With X the known rows of a class in a cluster (hypergeometric, independent of those of other classes), the recall
    of a class of n rows is the sum over the clusters of E[(rows of the class in the cluster - X) · P(the class wins)]
    / (n - known).
    """
    from scipy.stats import hypergeom

    totals = table.sum(axis=0)
    taken = np.minimum(known, totals)
    here = np.arange(known + 1)
    drawn = hypergeom.pmf(here, totals[:, None], table[:, :, None], taken[:, None])  # [clusters, classes, known + 1]
    fewer = np.concatenate((np.zeros_like(drawn[:, :, :1]), np.cumsum(drawn, axis=2)[:, :, :-1]), axis=2)
    scored = np.maximum(table[:, :, None] - here, 0)
    right = np.zeros(len(totals))
    nodes, weights = np.polynomial.legendre.leggauss(len(totals) // 2 + 1)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):  # a tie of t + 1 classes: the mean of node^t
        against = fewer + node * drawn
        for label in range(len(totals)):
            others = np.delete(against, label, axis=1).prod(axis=1)
            right[label] += weight * float(np.sum(drawn[:, label] * scored[:, label] * others))
    left = totals > taken
    return float(np.mean(right[left] / (totals - taken)[left])) if left.any() else 1 / len(totals)


def _named(table: Counts, known: int) -> Floats:
    """Return float64 [clusters, classes, known + 1]: probability that this number of known rows has the class and wins.

    Draws are counted with generating functions, scaled by the cluster's size to prevent overflow.
    """
    clusters, classes = table.shape
    size = table.sum(axis=1)
    taken = np.minimum(known, size)
    ways = np.ones((clusters, classes, known + 1))  # binomial(rows of the class, a) / size^a
    every = np.ones((clusters, known + 1))  # the same for all rows of the cluster
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
    """Return float64 [clusters, classes]: scaled number of draws of ``rest`` other rows against which ``a`` rows win.

    Each other class may have fewer than ``a`` rows, or exactly ``a``: a tie among t + 1 classes, won with probability
    1 / (t + 1). That is the mean of u^t over u in [0, 1], which Gauss-Legendre quadrature with enough nodes gives
    exactly.
    """
    clusters, classes, width = ways.shape
    largest = int(rest.max(initial=0))
    nodes, weights = np.polynomial.legendre.leggauss(largest // a // 2 + 1)
    found = np.zeros((clusters, classes))
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        factors = np.zeros((clusters, classes, width))
        factors[:, :, :a] = ways[:, :, :a]
        factors[:, :, a] = node * ways[:, :, a]
        # Products of the factors of all classes before and after each class, so that one class can be left out.
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
    """Return products of polynomials [clusters, width] with shorter ones, truncated to the width."""
    out = np.zeros_like(one)
    for power in range(other.shape[1]):
        out[:, power:] += one[:, : one.shape[1] - power] * other[:, power : power + 1]
    return out


def _all_but_one(drawn: Floats) -> Floats:
    """Return float64 [clusters, ...]: the distribution of the sum over all other clusters, for each cluster."""
    clusters = len(drawn)
    before, after = [np.ones(1)], [np.ones(1)]
    for cluster in range(clusters - 1):
        before.append(np.convolve(before[-1], drawn[cluster]))
        after.append(np.convolve(after[-1], drawn[clusters - 1 - cluster]))
    return np.stack([np.convolve(before[cluster], after[clusters - 1 - cluster]) for cluster in range(clusters)])
