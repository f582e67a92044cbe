"""Leakage metrics: agreement of a guess with the true labels, and its chance level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError
from labelward.metrics.cluster_labeling import (
    contingency_table,
    expected_accuracy,
    expected_accuracy_by_class,
    majority_accuracy,
    majority_chance,
    matched_accuracy,
    matched_chance,
)
from labelward.metrics.registry import CHANCE_LEVELS, Metric

Clusters = NDArray[np.int64]
Labels = NDArray[np.int64]
Floats = NDArray[np.float64]

_TOP = 5
_PERMUTATIONS = 200


def score_clusters(
    guess: Clusters,
    truth: NDArray[Any],
    targets: Floats | None = None,
    *,
    known_per_cluster: int = 0,
    known_per_class: int = 0,
) -> dict[str, float]:
    """Return the agreement of clusters with labels, independent of the names of both.

    Args:
        guess: int64 [rows].
        truth: [rows], classes, or bins of regression targets.
        targets: float64 [rows], regression targets; None for classes.
        known_per_cluster: number of known rows of each cluster, which name it; 0: clusters have no names.
        known_per_class: number of known rows of each class, wherever they lie, which name clusters instead.

    Returns:
        ``v_measure``: harmonic mean of homogeneity and completeness, 0 to 1 (Rosenberg and Hirschberg 2007);
        ``ari``: Rand index adjusted for chance, at most 1 (Hubert and Arabie 1985);
        ``matched_accuracy``: the mean recall of the classes if each class is matched with one cluster at most, and each
        cluster with one class, as is best.
        With targets, ``r2``: the share of their variance that the cluster means explain, 0 to 1; constant targets: 0.
        With known rows, ``accuracy``: the mean recall of the classes if each cluster takes the most frequent class of
        its known rows, as the exact mean over the draws of known rows, which are not scored; ``accuracy_majority``: the
        mean recall if each cluster takes the class with the highest result, the upper bound over all namings.

    Raises:
        DataError: no rows, or a different number of labels.
    """
    from sklearn.metrics import adjusted_rand_score, v_measure_score

    _check(guess, truth)
    table = contingency_table(guess, truth)
    found = {"v_measure": float(v_measure_score(truth, guess)), "ari": float(adjusted_rand_score(truth, guess))}
    found["matched_accuracy"] = matched_accuracy(table)
    if targets is not None:
        _check(guess, targets)
        found["r2"] = _explained_variance(guess, targets)
    if known_per_class:
        found["accuracy"] = expected_accuracy_by_class(table, known_per_class)
    elif known_per_cluster:
        found["accuracy"] = expected_accuracy(table, known_per_cluster)
    if known_per_class or known_per_cluster:
        found["accuracy_majority"] = majority_accuracy(table)
    return found


def cluster_chance(
    guess: Clusters,
    truth: NDArray[Any],
    targets: Floats | None = None,
    *,
    known_per_cluster: int = 0,
    known_per_class: int = 0,
) -> dict[str, float]:
    """Return the exact mean of :func:`score_clusters` over all permutations of the truth.

    A permutation changes neither entropy, so the mean V-measure is 2 · E[mutual information] /
    (H(clusters) + H(labels)), with the expectation of the hypergeometric model. The adjusted Rand index has mean 0 by
    construction. If all permutations give the same partition (a single cluster and a single label, or one row in each
    of both), it and the V-measure are 1. The mean ``r2`` of k clusters of n rows is (k - 1) / (n - 1), as in the
    analysis of variance. The mean ``accuracy`` is 1 / classes, as known labels are independent of the others (exact if
    every class has more rows than are known in total). ``accuracy_majority`` and ``matched_accuracy`` have no closed
    form; their means are estimated over 2,000 and at most 100 permutations with a fixed seed.

    Raises:
        DataError: as :func:`score_clusters`.
    """
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

    _check(guess, truth)
    table = contingency_matrix(truth, guess, sparse=True)
    if table.shape in ((1, 1), (len(truth), len(truth))):
        found = {"v_measure": 1.0, "ari": 1.0}
    else:
        information = expected_mutual_information(table, len(truth))
        entropies = sum(_entropy(np.asarray(table.sum(axis=axis)).ravel()) for axis in (0, 1))
        found = {"v_measure": float(2 * information / entropies), "ari": CHANCE_LEVELS["ari"]}
    named = contingency_table(guess, truth)
    found["matched_accuracy"] = matched_chance(named)
    if targets is not None:
        _check(guess, targets)
        varies = bool(np.ptp(targets))
        found["r2"] = (len(np.unique(guess)) - 1) / (len(guess) - 1) if varies else 0.0
    if known_per_cluster or known_per_class:
        found["accuracy"] = 1 / named.shape[1]
        found["accuracy_majority"] = majority_chance(named)
    return found


def score_labels(guess: Labels, truth: Labels, scores: Floats | None = None, *, classes: int) -> dict[str, float]:
    """Return the agreement of guessed labels with the true ones.

    With two classes, ``auc`` and ``f1`` are those of the second. With more, they are unweighted means over the classes
    that occur in the truth (for ``auc``: but not in every row), each against the rest.

    Args:
        guess: int64 [rows], class numbers.
        truth: int64 [rows], class numbers.
        scores: float64 [rows, classes], rank rows for each class and classes for each row; None: the guess is used.
        classes: number of classes.

    Returns:
        ``accuracy``; ``balanced_accuracy``, the mean recall of the classes that occur; ``auc``, 0.5 if no class has
        rows both inside and outside it; ``f1``. With scores and more than five classes, ``top5``: the share of rows
        whose label is among the five highest scores, ties by class number.

    Raises:
        DataError: no rows, or a different number of labels.
    """
    _check(guess, truth)
    scored = [1] if classes == 2 else range(classes)
    ranked = np.eye(classes)[guess] if scores is None else scores
    found = {
        "accuracy": float(np.mean(guess == truth)),
        "balanced_accuracy": float(np.mean([np.mean(guess[truth == c] == c) for c in np.unique(truth)])),
        "auc": _mean([_area(ranked[:, c], truth == c) for c in scored if 0 < np.mean(truth == c) < 1], 0.5),
        "f1": _mean([_f1(guess == c, truth == c, float(np.mean((guess == c) & (truth == c)))) for c in scored], 0.0),
    }
    if scores is not None and classes > _TOP:
        found["top5"] = float(np.mean(_best(scores)[np.arange(len(truth)), truth]))
    return found


def label_chance(guess: Labels, truth: Labels, scores: Floats | None = None, *, classes: int) -> dict[str, float]:
    """Return the exact mean of :func:`score_labels` over all permutations of the truth.

    A permutation changes neither how often a class is guessed nor how often it occurs. So the number of rows where both
    agree has a hypergeometric distribution, and ``accuracy``, ``f1`` and ``top5`` are sums of such numbers.

    Raises:
        DataError: as :func:`score_labels`.
    """
    _check(guess, truth)
    scored = [1] if classes == 2 else range(classes)
    occurs, named = (np.bincount(each, minlength=classes) / len(truth) for each in (truth, guess))
    both = occurs * named
    found = {
        "accuracy": float(both.sum()),
        "balanced_accuracy": float(named[occurs > 0].mean()),
        "auc": CHANCE_LEVELS["auc"],
        "f1": _mean([_f1(guess == c, truth == c, float(both[c])) for c in scored], 0.0),
    }
    if scores is not None and classes > _TOP:
        found["top5"] = float(_best(scores).mean(axis=0) @ occurs)
    return found


def permutation_chance(
    metrics: Sequence[Metric], score: Callable[[Labels], dict[str, float]], truth: Labels
) -> dict[str, float]:
    """Return the chance level of metrics that an attack brings.

    It is the stated one where a metric has one, otherwise the mean score over 200 permutations of the truth, drawn from
    a fixed seed.

    Args:
        metrics: those that are scored.
        score: returns all of them, by name, of a guess against a given truth.
        truth: int64 [rows].
    """
    stated = {each.name: each.chance for each in metrics if each.chance is not None}
    if len(stated) == len(metrics):
        return stated
    rng = np.random.default_rng(0)
    drawn = [score(rng.permutation(truth)) for _ in range(_PERMUTATIONS)]
    return {each.name: stated.get(each.name, float(np.mean([one[each.name] for one in drawn]))) for each in metrics}


def _best(scores: Floats) -> NDArray[np.bool_]:
    """Return bool [rows, classes]: the five highest scores of each row."""
    best = np.zeros(scores.shape, dtype=np.bool_)
    np.put_along_axis(best, np.argsort(-scores, axis=1, kind="stable")[:, :_TOP], True, axis=1)
    return best


def _area(ranks: Floats, inside: NDArray[np.bool_]) -> float:
    """Return the AUC: the share of (inside, outside) pairs where the row inside ranks higher; ties count half."""
    from scipy.stats import rankdata

    pairs = int(inside.sum()) * int((~inside).sum())
    below = rankdata(ranks)[inside].sum() - inside.sum() * (inside.sum() + 1) / 2
    return float(below / pairs)


def _f1(guessed: NDArray[np.bool_], inside: NDArray[np.bool_], both: float) -> float | None:
    """Return the F1 of a class, given the share of rows guessed and true; None for a class that does not occur."""
    return 2 * both / float(guessed.mean() + inside.mean()) if inside.any() else None


def _mean(values: Sequence[float | None], otherwise: float) -> float:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else otherwise


def _explained_variance(guess: Clusters, targets: Floats) -> float:
    """Return the sum of squares between clusters as a share of the total sum of squares."""
    if not np.ptp(targets):
        return 0.0
    deviations = targets - targets.mean()
    deviations /= np.abs(deviations).max()  # keeps the squares finite
    cluster = np.unique(guess, return_inverse=True)[1]
    sums, sizes = np.bincount(cluster, weights=deviations), np.bincount(cluster)
    return min(1.0, float(np.sum(sums**2 / sizes) / np.sum(deviations**2)))


def _entropy(counts: NDArray[np.int64]) -> float:
    share = counts[counts > 0] / counts.sum()
    return -float(np.sum(share * np.log(share)))


def _check(guess: Clusters, truth: NDArray[Any]) -> None:
    if not len(truth):
        raise DataError("no rows to score", code="rows", value=0)
    if len(guess) != len(truth):
        raise DataError(f"{len(guess)} guesses for {len(truth)} rows of labels", code="rows", value=len(guess))
