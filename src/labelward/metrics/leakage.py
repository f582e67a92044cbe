"""How much a guess says of the true labels, and how much a guess that knows nothing would say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError
from labelward.metrics.cluster_labeling import (
    contingency_table,
    expected_accuracy,
    majority_accuracy,
    majority_chance,
)

__all__ = ["cluster_chance", "label_chance", "score_clusters", "score_labels"]

Clusters = NDArray[np.int64]
Labels = NDArray[np.int64]
Floats = NDArray[np.float64]

_TOP = 5


def score_clusters(
    guess: Clusters, truth: NDArray[Any], quantities: Floats | None = None, *, known_per_cluster: int = 0
) -> dict[str, float]:
    """Return the agreement of clusters with labels, whatever either are called.

    Args:
        guess: int64 [rows].
        truth: [rows], classes; where labels are quantities the bins that they are cut into.
        quantities: float64 [rows], the labels themselves where they are quantities.
        known_per_cluster: known rows of each cluster, which name it; 0: clusters have no names.

    Returns:
        ``v_measure``: harmonic mean of homogeneity and completeness, 0 to 1 (Rosenberg and Hirschberg 2007);
        ``ari``: Rand index adjusted for chance, at most 1 (Hubert and Arabie 1985). With quantities ``r2`` besides: the
        share of their variance that the means of the clusters explain, 0 to 1; 0 where they do not vary. With known
        rows ``accuracy``: the mean recall of the classes where each cluster takes the most frequent class of its known
        rows, as the exact mean over the draws of these, which are not scored; ``accuracy_majority``: the mean recall
        where each cluster takes the class that serves it best, the most that any knowledge of names could give.

    Raises:
        DataError: no rows, or not one label a row.
    """
    from sklearn.metrics import adjusted_rand_score, v_measure_score

    _check(guess, truth)
    found = {"v_measure": float(v_measure_score(truth, guess)), "ari": float(adjusted_rand_score(truth, guess))}
    if quantities is not None:
        _check(guess, quantities)
        found["r2"] = _explained(guess, quantities)
    if known_per_cluster:
        table = contingency_table(guess, truth)
        found["accuracy"] = expected_accuracy(table, known_per_cluster)
        found["accuracy_majority"] = majority_accuracy(table)
    return found


def cluster_chance(
    guess: Clusters, truth: NDArray[Any], quantities: Floats | None = None, *, known_per_cluster: int = 0
) -> dict[str, float]:
    """Return the exact mean of :func:`score_clusters` over all permutations of the truth.

    A permutation changes neither entropy, so that the mean V-measure is 2 · E[mutual information] /
    (H(clusters) + H(labels)), with the expectation of the hypergeometric model. The adjusted Rand index has
    mean 0 by construction. Where all permutations give the same partition (a single cluster and a single
    label, or each row its own in both), it and the V-measure are 1. The mean ``r2`` of k clusters of n rows is
    (k - 1) / (n - 1), as in the analysis of variance. The mean ``accuracy`` is 1 / classes: known labels say nothing of
    the others (exact where every class has more rows than are known in all). ``accuracy_majority`` gains from the best
    of all namings; its mean has no short form and is taken over 2,000 permutations of a fixed seed.

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
        found = {"v_measure": float(2 * information / entropies), "ari": 0.0}
    if quantities is not None:
        _check(guess, quantities)
        varies = bool(np.ptp(quantities))
        found["r2"] = (len(np.unique(guess)) - 1) / (len(guess) - 1) if varies else 0.0
    if known_per_cluster:
        named = contingency_table(guess, truth)
        found["accuracy"] = 1 / named.shape[1]
        found["accuracy_majority"] = majority_chance(named)
    return found


def score_labels(guess: Labels, truth: Labels, scores: Floats | None = None, *, classes: int) -> dict[str, float]:
    """Return how well guessed labels are those of the rows.

    With two classes ``auc`` and ``f1`` are those of the second, with more the plain means over the classes that occur
    in the truth (for ``auc``: and not in every row), each against the rest.

    Args:
        guess: int64 [rows], class numbers.
        truth: int64 [rows], class numbers.
        scores: float64 [rows, classes], what orders the rows of each class, and the classes of each row; None: the
            guess does.
        classes: how many there are.

    Returns:
        ``accuracy``: share of rows whose label was guessed; ``auc``, .5 where no class has both kinds of rows; ``f1``;
        with scores and more than five classes ``top5``: share of rows whose label is among the five best scores, of
        equal ones the first.

    Raises:
        DataError: no rows, or not one guess a row.
    """
    _check(guess, truth)
    asked = [1] if classes == 2 else range(classes)
    ranked = np.eye(classes)[guess] if scores is None else scores
    found = {
        "accuracy": float(np.mean(guess == truth)),
        "auc": _mean([_area(ranked[:, c], truth == c) for c in asked if 0 < np.mean(truth == c) < 1], 0.5),
        "f1": _mean([_f1(guess == c, truth == c, float(np.mean((guess == c) & (truth == c)))) for c in asked], 0.0),
    }
    if scores is not None and classes > _TOP:
        found["top5"] = float(np.mean(_best(scores)[np.arange(len(truth)), truth]))
    return found


def label_chance(guess: Labels, truth: Labels, scores: Floats | None = None, *, classes: int) -> dict[str, float]:
    """Return the exact mean of :func:`score_labels` over all permutations of the truth.

    A permutation changes how often neither a class is guessed nor occurs, so that each count of rows where both agree
    has the mean of its hypergeometric distribution, and ``accuracy``, ``f1`` and ``top5`` are sums of such counts.

    Raises:
        DataError: as :func:`score_labels`.
    """
    _check(guess, truth)
    asked = [1] if classes == 2 else range(classes)
    occurs, named = (np.bincount(each, minlength=classes) / len(truth) for each in (truth, guess))
    both = occurs * named
    found = {
        "accuracy": float(both.sum()),
        "auc": 0.5,
        "f1": _mean([_f1(guess == c, truth == c, float(both[c])) for c in asked], 0.0),
    }
    if scores is not None and classes > _TOP:
        found["top5"] = float(_best(scores).mean(axis=0) @ occurs)
    return found


def _best(scores: Floats) -> NDArray[np.bool_]:
    """Return bool [rows, classes]: the five best of each row."""
    best = np.zeros(scores.shape, dtype=np.bool_)
    np.put_along_axis(best, np.argsort(-scores, axis=1, kind="stable")[:, :_TOP], True, axis=1)
    return best


def _area(ranks: Floats, inside: NDArray[np.bool_]) -> float:
    """Return the share of pairs, one row inside and one not, of which the one inside ranks higher; ties are half."""
    from scipy.stats import rankdata

    pairs = int(inside.sum()) * int((~inside).sum())
    below = rankdata(ranks)[inside].sum() - inside.sum() * (inside.sum() + 1) / 2
    return float(below / pairs)


def _f1(guessed: NDArray[np.bool_], inside: NDArray[np.bool_], both: float) -> float | None:
    """Return the F1 of a class with this share of rows that are both; None for one that does not occur."""
    return 2 * both / float(guessed.mean() + inside.mean()) if inside.any() else None


def _mean(values: Sequence[float | None], otherwise: float) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else otherwise


def _explained(guess: Clusters, quantities: Floats) -> float:
    """Return the sum of squares between clusters as a share of all."""
    if not np.ptp(quantities):
        return 0.0
    deviations = quantities - quantities.mean()
    deviations /= np.abs(deviations).max()  # so that no square is infinite
    cluster = np.unique(guess, return_inverse=True)[1]
    sums, sizes = np.bincount(cluster, weights=deviations), np.bincount(cluster)
    return min(1.0, float(np.sum(sums**2 / sizes) / np.sum(deviations**2)))


def _entropy(counts: NDArray[np.int64]) -> float:
    share = counts[counts > 0] / counts.sum()
    return -float(np.sum(share * np.log(share)))


def _check(guess: Clusters, truth: NDArray[Any]) -> None:
    if not len(truth):
        raise DataError("there are no rows to score", code="rows", value=0)
    if len(guess) != len(truth):
        raise DataError(f"a guess for {len(guess)} rows but labels of {len(truth)} rows", code="rows", value=len(guess))
