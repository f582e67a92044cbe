"""What a model is worth on the test rows, beside the same algorithm on the active party's columns and on all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.data import Rehearsal
from labelward.evaluate.programs import Programs

__all__ = ["Baselines", "baselines", "probabilities", "scores", "utility"]

Floats = NDArray[np.float64]
Baselines = dict[str, dict[str, float]]
"""``alone`` and ``joined``, each with the metric names of :func:`scores`."""


def probabilities(margins: Floats) -> Floats:
    """Return the probability of class 1 for each margin."""
    from scipy.special import expit

    result: Floats = expit(margins)
    return result


def scores(margins: Floats, labels: NDArray[np.int64]) -> dict[str, float]:
    """Return ``auc``, ``accuracy`` and ``f1`` of class 1; class 1 is predicted where the margin is above 0.

    Args:
        margins: float64 [rows].
        labels: int64 [rows], 0 or 1, both present.
    """
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

    guess = (margins > 0).astype(np.int64)
    return {
        "auc": float(roc_auc_score(labels, margins)),
        "accuracy": float(accuracy_score(labels, guess)),
        "f1": float(f1_score(labels, guess, zero_division=0.0)),
    }


def baselines(programs: Programs[Any], data: Rehearsal, *, seed: int, precision: int) -> Baselines:
    """Return what the undefended, unencrypted algorithm reaches on the active party's columns alone, and on all joined.

    An active party without columns predicts the same for every row, so that its AUC alone is 0.5.
    """
    return {
        name: scores(programs.pooled(held, data.train_labels, seed=seed, precision=precision), data.test_labels)
        for name, held in (("alone", data.parties[:1]), ("joined", data.parties))
    }


def utility(margins: Floats, data: Rehearsal, beside: Baselines) -> dict[str, float | dict[str, float]]:
    """Return the metrics of a run's test margins with the baselines beside them, as a result row holds them."""
    return {**scores(margins, data.test_labels), **beside}
