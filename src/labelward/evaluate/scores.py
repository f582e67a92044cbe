"""How much a guess says of the true labels, and how much a guess that knows nothing would say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError

__all__ = ["chance", "score"]


def score(guess: NDArray[np.int64], truth: NDArray[Any]) -> dict[str, float]:
    """Return the agreement of clusters with labels, whatever either are called.

    Returns:
        ``v_measure``: harmonic mean of homogeneity and completeness, 0 to 1 (Rosenberg and Hirschberg 2007);
        ``ari``: Rand index adjusted for chance, at most 1 (Hubert and Arabie 1985).

    Raises:
        DataError: no rows, or not one label a row.
    """
    from sklearn.metrics import adjusted_rand_score, v_measure_score

    _check(guess, truth)
    return {"v_measure": float(v_measure_score(truth, guess)), "ari": float(adjusted_rand_score(truth, guess))}


def chance(guess: NDArray[np.int64], truth: NDArray[Any]) -> dict[str, float]:
    """Return the exact mean of :func:`score` over all permutations of the truth.

    A permutation changes neither entropy, so that the mean V-measure is 2 · E[mutual information] /
    (H(clusters) + H(labels)), with the expectation of the hypergeometric model. The adjusted Rand index has
    mean 0 by construction. Where all permutations give the same partition (a single cluster and a single
    label, or each row its own in both), it and the V-measure are 1.

    Raises:
        DataError: as :func:`score`.
    """
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

    _check(guess, truth)
    table = contingency_matrix(truth, guess, sparse=True)
    if table.shape in ((1, 1), (len(truth), len(truth))):
        return {"v_measure": 1.0, "ari": 1.0}
    information = expected_mutual_information(table, len(truth))
    entropies = sum(_entropy(np.asarray(table.sum(axis=axis)).ravel()) for axis in (0, 1))
    return {"v_measure": float(2 * information / entropies), "ari": 0.0}


def _entropy(counts: NDArray[np.int64]) -> float:
    share = counts[counts > 0] / counts.sum()
    return -float(np.sum(share * np.log(share)))


def _check(guess: NDArray[np.int64], truth: NDArray[Any]) -> None:
    if not len(truth):
        raise DataError("there are no rows to score")
    if len(guess) != len(truth):
        raise DataError(f"a guess for {len(guess)} rows but labels of {len(truth)} rows")
