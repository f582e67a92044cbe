"""Utility metrics on the test rows, and centralized baselines on the active party's columns and on all columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset, VerticalDataset

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Baselines = dict[str, dict[str, float]]
"""``alone`` and ``joined``, each with the metric names of :func:`utility_scores`."""

_MIN_PROBABILITY = 1e-15
"""Bound for the log loss, as in scikit-learn: a forest may give a class probability 0."""
_TINY, _HUGE = 1e-140, 1e140
"""Differences whose squares, and the sums of these, are numbers."""


class UtilityModel(Protocol):
    """Interface of a model for utility metrics; see :class:`labelward.protocols.family.ModelFamily`."""

    @property
    def deviance_power(self) -> float | None:
        """Variance power of the regression objective; None: it has none."""

    def predicted(self, margins: Floats, classes: Sequence[str]) -> Floats:
        """Return the probabilities or regression predictions of margins."""

    def pooled(self, data: VerticalDataset, parties: Sequence[PartyDataset], *, seed: int, precision: int) -> Floats:
        """Return the test margins of a centralized model on the parties' columns."""


def utility_scores(
    programs: UtilityModel, margins: Floats, data: VerticalDataset, names: Collection[str] | None = None
) -> dict[str, float]:
    """Return the metrics of a model on the weighted test rows whose labels are known; the first one ranks models.

    Args:
        margins: float64 [test rows, outputs].
        names: of metrics of classes to compute; None: all.

    Returns:
        Nothing where the known labels are too few for a metric, since other parties hold the rest.
    """
    known = ~np.isnan(data.test_values)
    values, margins = data.test_values[known], margins[known]
    if not len(values) or (not known.all() and len(np.unique(values)) < len(data.classes)):
        return {}
    weights = data.test_weights[known] if len(np.unique(data.test_weights)) > 1 else None
    predicted = programs.predicted(margins, data.classes)
    if data.classes:
        ranks = margins if margins.shape[1] == 1 else predicted
        return class_scores(ranks, predicted, values.astype(np.int64), weights, names=names)
    return regression_scores(predicted, values, weights, power=programs.deviance_power)


def class_scores(
    ranks: Floats,
    predicted: Floats,
    labels: Labels,
    weights: Floats | None = None,
    *,
    names: Collection[str] | None = None,
) -> dict[str, float]:
    """Return ``auc``, ``accuracy``, ``f1`` and ``logloss``; the prediction is the first class of highest probability.

    With two classes, AUC and F1 are those of the second. With more, they are unweighted means over the classes that
    occur, each against the rest. Where rows of one class alone occur, the AUC is 0.5.

    Args:
        ranks: float64 [rows, classes], rank the rows for each class; [rows, 1] for the second of two classes.
        predicted: float64 [rows, classes], probabilities.
        labels: int64 [rows], class numbers.
        weights: float64 [rows]; None: equal weights.
        names: of the metrics to compute; None: all.
    """
    from sklearn.metrics import accuracy_score, f1_score, log_loss, roc_auc_score

    if weights is not None and not weights.all():
        counted = weights > 0
        ranks, predicted, labels, weights = ranks[counted], predicted[counted], labels[counted], weights[counted]
    classes = predicted.shape[1]
    rows = np.bincount(labels, minlength=classes)
    occurring = [1] if classes == 2 else np.flatnonzero(rows).tolist()
    ranked = [c for c in occurring if 0 < rows[c] < len(labels)]
    guess = predicted.argmax(axis=1)

    def auc() -> Any:
        each = [roc_auc_score(labels == c, ranks[:, c % ranks.shape[1]], sample_weight=weights) for c in ranked]
        return np.mean(each or [0.5])

    def accuracy() -> Any:
        return accuracy_score(labels, guess, sample_weight=weights)

    def f1() -> Any:
        return np.mean(
            f1_score(labels, guess, labels=occurring, average=None, zero_division=0.0, sample_weight=weights)
        )

    def logloss() -> Any:
        bounded = np.clip(predicted, _MIN_PROBABILITY, 1.0)
        bounded /= bounded.sum(axis=1, keepdims=True)
        return log_loss(labels, bounded, labels=list(range(classes)), sample_weight=weights)

    found = (auc, accuracy, f1, logloss)
    return {each.__name__: float(each()) for each in found if names is None or each.__name__ in names}


def regression_scores(
    predicted: Floats, values: Floats, weights: Floats | None = None, *, power: float | None = None
) -> dict[str, float]:
    """Return ``rmse``, ``mae`` and ``r2`` of regression predictions, and ``deviance`` if ``power`` is given.

    Args:
        predicted: float64 [rows].
        values: float64 [rows], regression targets.
        weights: float64 [rows]; None: equal weights.
        power: exponent of the variance as a function of the mean: 1 for Poisson, up to 2 for Tweedie. The deviance is
            the mean over rows of twice the difference in log-likelihood from a perfect model (Jørgensen 1987).
    """
    errors = predicted - values
    mean = float(np.average(values, weights=weights))
    scale = _power_of_two(errors, values - mean)
    spread = float(np.average(((values - mean) / scale) ** 2, weights=weights))
    squared = float(np.average((errors / scale) ** 2, weights=weights))
    found = {
        "rmse": scale * float(np.sqrt(squared)),
        "mae": float(np.average(np.abs(errors), weights=weights)),
        "r2": 1.0 - squared / spread if spread > 0 else float(squared == 0),
    }
    if power is not None:
        from sklearn.metrics import mean_tweedie_deviance

        positive = np.maximum(predicted, np.finfo(np.float64).tiny)
        found["deviance"] = float(mean_tweedie_deviance(values, positive, sample_weight=weights, power=power))
    return found


def _power_of_two(*differences: Floats) -> float:
    """Return by what to divide differences, so that their squares are numbers; 1 unless they are tiny or huge."""
    largest = max(float(np.abs(each).max(initial=0.0)) for each in differences)
    if not math.isfinite(largest) or largest == 0 or _TINY < largest < _HUGE:
        return 1.0
    return math.ldexp(1.0, math.frexp(largest)[1] - 1)


def baselines(programs: UtilityModel, data: VerticalDataset, *, seed: int, precision: int) -> Baselines:
    """Return the metrics of undefended, unencrypted training on the active party's columns alone and on all columns.

    An active party without columns predicts the same for every row, so its AUC alone is 0.5.
    """
    return {
        name: utility_scores(programs, programs.pooled(data, parties, seed=seed, precision=precision), data)
        for name, parties in (("alone", data.parties[:1]), ("joined", data.parties))
    }


def utility(
    programs: UtilityModel, margins: Floats, data: VerticalDataset, baselines: Baselines
) -> dict[str, float | dict[str, Any] | str]:
    """Return the metrics of a run's test margins and of the baselines, in the form of a result row."""
    found = utility_scores(programs, margins, data)
    return {**found, **baselines, "primary": next(iter(found))}
