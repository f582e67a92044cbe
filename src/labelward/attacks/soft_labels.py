"""Models of an attacker's own columns, fitted to beliefs about labels in place of known ones."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.spectral import one_thread

Floats = NDArray[np.float64]

_LEAST_WEIGHT = 1e-6


def scaled_columns(columns: Floats) -> Floats:
    """Return float64 [rows, columns] less the means, divided by the standard deviations; a constant column is 0."""
    scale = columns.std(axis=0)
    scaled: Floats = (columns - columns.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    return scaled


def soft_regression(columns: Floats, beliefs: Floats, others: Floats, *, strength: float = 1.0) -> Floats:
    """Return float64 [other rows, classes]: class probabilities by a logistic regression with beliefs as weights.

    Args:
        columns: float64 [rows, columns], of unit variance.
        beliefs: float64 [rows, classes], of at least two classes; nowhere negative.
        others: float64 [other rows, columns], the rows that are answered for.
        strength: inverse weight of the squared coefficients.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    rows, classes = beliefs.shape
    weights = np.maximum(beliefs.T.ravel(), _LEAST_WEIGHT)
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=strength, max_iter=200)
        model.fit(np.tile(columns, (classes, 1)), np.repeat(np.arange(classes), rows), weights)
        found: Floats = model.predict_proba(others)
    return found
