"""Objectives of trees: gradients and hessians, starting margins, and conversion of margins to predictions.

Names, gradients and metrics are those of XGBoost. The gradient and hessian of a row are the first and second derivative
of its loss with respect to its margins; those of softmax have twice the second derivative (unless ``exact_hessian``),
and those of Poisson are enlarged by ``exp(max_delta_step)``, as in XGBoost, where both make steps smaller.

====================  =======================  ===========================================  ============================
name                  predicted mean           gradient                                     hessian
====================  =======================  ===========================================  ============================
binary:logistic       p = 1 / (1 + exp(-m))    p - y                                        p (1 - p)
multi:softprob        p_c = exp(m_c) / Σ exp   p_c - [y = c]                                2 p_c (1 - p_c)
reg:squarederror      m                        m - y                                        1
count:poisson         exp(m)                   exp(m) - y                                   exp(m + max_delta_step)
reg:tweedie           exp(m)                   exp((2-ρ) m) - y exp((1-ρ) m)                (2-ρ) exp((2-ρ) m)
                                                                                            - (1-ρ) y exp((1-ρ) m)
gini                  share of each class      -[y = c]                                     1
variance              m                        m - y                                        1
====================  =======================  ===========================================  ============================

The last two are for forests: with λ = 0 a leaf's weight is then the share of each class, or the mean, and the gain is
the decrease of Gini impurity, or of the variance, times the rows of the node.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, JobError, unknown_name
from labelward.jit import jit
from labelward.kernels.row_layout import Implied

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """Common interface of objectives. Margins are float64 [n, outputs], targets ``y`` float64 [n]."""

    name: str  # as XGBoost calls it; ``"gini"`` or ``"variance"`` for forests
    outputs: int = 1  # margins of a row
    hessians: int = 1  # hessians of a row; 0 where it is 1 for all
    implied: Implied = ""  # what the gradients of a row add up to, see :class:`labelward.kernels.row_layout.RowLayout`
    classes: int = 0  # number of classes, 0 for regression
    bounded: bool = False  # whether gradients and hessians are at most 1 in size, as long as rows have no weights
    g_most: float = math.inf  # largest size of a gradient, where ``bounded``
    h_most: float = math.inf  # largest hessian, where ``bounded``

    @abstractmethod
    def gradients(self, margins: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return float64 [n, outputs] and float64 [n, hessians]; infinite where margins are too large for float64."""

    @abstractmethod
    def start(self, y: Floats, weights: Floats, base_score: float | None) -> Floats:
        """Return the margins [outputs] at which training starts; ``base_score`` is a probability or a mean.

        Without a base score they are 0 for classes, and those of the weighted mean for regression.

        Raises:
            JobError: the base score is none that this objective can predict.
            DataError: the targets have no mean that it can predict.
        """

    @abstractmethod
    def check(self, y: Floats) -> None:
        """Raise :class:`DataError` with the first target that does not fit."""

    @abstractmethod
    def loss(self, margins: Floats, y: Floats, weights: Floats) -> float:
        """Return the loss as XGBoost's default metric has it: a weighted mean (its root for squared errors)."""

    @abstractmethod
    def predicted(self, margins: Floats) -> Floats:
        """Return probabilities float64 [n, classes], or means float64 [n]."""


class _Logistic(Objective):
    """Two classes, one margin: the log-odds of class 1. Targets may be probabilities."""

    def gradients(self, margins: Floats, y: Floats) -> tuple[Floats, Floats]:
        _fit(margins, y, 1)
        g, h = _logistic(np.ascontiguousarray(margins[:, 0]), np.ascontiguousarray(y, dtype=np.float64))
        return g[:, None], h[:, None]

    def start(self, y: Floats, weights: Floats, base_score: float | None) -> Floats:
        if base_score is None:
            return np.zeros(1)
        if not 0.0 < base_score < 1.0:
            reason = f"must be strictly between 0 and 1 but got {base_score!r}"
            raise JobError(reason, code="range", field="[model] base_score", value=base_score)
        return np.array([math.log(base_score) - math.log1p(-base_score)])

    def check(self, y: Floats) -> None:
        _refuse(y, ~((y >= 0) & (y <= 1)), "a class must be 0 or 1")

    def loss(self, margins: Floats, y: Floats, weights: Floats) -> float:
        _fit(margins, y, 1)
        return _mean(np.logaddexp(0.0, margins[:, 0]) - y * margins[:, 0], weights)

    def predicted(self, margins: Floats) -> Floats:
        return np.stack([sigmoid(-margins[:, 0]), sigmoid(margins[:, 0])], axis=1)


class _Classes(Objective):
    """Several classes, a margin for each; no class is favored at the start."""

    def start(self, y: Floats, weights: Floats, base_score: float | None) -> Floats:
        if base_score is not None:
            reason = f"{self.name!r} starts alike for all classes, so it must be left out"
            raise JobError(reason, code="conflict", field="[model] base_score", value=base_score)
        return np.zeros(self.classes)

    def check(self, y: Floats) -> None:
        bad = ~((y >= 0) & (y < self.classes) & (y == np.floor(y)))
        _refuse(y, bad, f"a class must be from 0 to {self.classes - 1}")


@dataclass(frozen=True, kw_only=True)
class _Softmax(_Classes):
    exact_hessian: bool = False

    def gradients(self, margins: Floats, y: Floats) -> tuple[Floats, Floats]:
        _fit(margins, y, self.outputs)
        p = self.predicted(margins)
        h = np.minimum((1.0 if self.exact_hessian else 2.0) * p * (1.0 - p), self.h_most)
        p[np.arange(len(p)), y.astype(np.int64)] -= 1.0
        return p, h

    def loss(self, margins: Floats, y: Floats, weights: Floats) -> float:
        _fit(margins, y, self.outputs)
        most = margins.max(axis=1)
        whole = most + np.log(np.exp(margins - most[:, None]).sum(axis=1))
        return _mean(whole - margins[np.arange(len(y)), y.astype(np.int64)], weights)

    def predicted(self, margins: Floats) -> Floats:
        return softmax(margins)


class _Gini(_Classes):
    def gradients(self, margins: Floats, y: Floats) -> tuple[Floats, Floats]:
        _fit(margins, y, self.outputs)
        g = np.zeros((len(y), self.outputs))
        g[np.arange(len(y)), y.astype(np.int64)] = -1.0
        return g, np.empty((len(y), 0))

    def loss(self, margins: Floats, y: Floats, weights: Floats) -> float:
        _fit(margins, y, self.outputs)
        share = margins[np.arange(len(y)), y.astype(np.int64)]
        return _mean(-np.log(np.maximum(share, 1e-16)), weights)  # the least probability of XGBoost's metric

    def predicted(self, margins: Floats) -> Floats:
        return margins.copy()


class _Squared(Objective):
    """Regression on the mean: half the squared error."""

    def gradients(self, margins: Floats, y: Floats) -> tuple[Floats, Floats]:
        _fit(margins, y, 1)
        return margins - y[:, None], np.empty((len(y), 0))

    def start(self, y: Floats, weights: Floats, base_score: float | None) -> Floats:
        return np.array([_mean(y, weights) if base_score is None else base_score])

    def check(self, y: Floats) -> None:
        _refuse(y, ~np.isfinite(y), "a regression target must be a finite number")

    def loss(self, margins: Floats, y: Floats, weights: Floats) -> float:
        _fit(margins, y, 1)
        return math.sqrt(_mean((margins[:, 0] - y) ** 2, weights))

    def predicted(self, margins: Floats) -> Floats:
        return margins[:, 0].copy()


class _LogMean(Objective):
    """A nonnegative target whose margin is the logarithm of its mean."""

    def start(self, y: Floats, weights: Floats, base_score: float | None) -> Floats:
        if base_score is not None and not (math.isfinite(base_score) and base_score > 0):
            reason = f"must be above 0 for {self.name!r} but got {base_score!r}"
            raise JobError(reason, code="range", field="[model] base_score", value=base_score)
        mean = _mean(y, weights) if base_score is None else base_score
        if mean <= 0:
            raise DataError(f"all labels are 0, but {self.name!r} needs one above", code="labels")
        return np.array([math.log(mean)])

    def check(self, y: Floats) -> None:
        _refuse(y, ~(np.isfinite(y) & (y >= 0)), f"a label for {self.name!r} must be a finite number of at least 0")

    def predicted(self, margins: Floats) -> Floats:
        return _exp(margins[:, 0])


@dataclass(frozen=True, kw_only=True)
class _Poisson(_LogMean):
    """Counts."""

    max_delta_step: float

    def gradients(self, margins: Floats, y: Floats) -> tuple[Floats, Floats]:
        _fit(margins, y, 1)
        return _exp(margins) - y[:, None], _exp(margins + self.max_delta_step)

    def loss(self, margins: Floats, y: Floats, weights: Floats) -> float:
        _fit(margins, y, 1)
        return _mean(_log_factorial(y) + _exp(margins[:, 0]) - y * margins[:, 0], weights)


@dataclass(frozen=True, kw_only=True)
class _Tweedie(_LogMean):
    """Nonnegative targets that are often 0, such as costs of claims."""

    variance_power: float

    def gradients(self, margins: Floats, y: Floats) -> tuple[Floats, Floats]:
        _fit(margins, y, 1)
        one, two = 1.0 - self.variance_power, 2.0 - self.variance_power
        target, mean = y[:, None] * _exp(one * margins), _exp(two * margins)
        return mean - target, two * mean - one * target

    def loss(self, margins: Floats, y: Floats, weights: Floats) -> float:
        _fit(margins, y, 1)
        one, two, m = 1.0 - self.variance_power, 2.0 - self.variance_power, margins[:, 0]
        return _mean(_exp(two * m) / two - y * _exp(one * m) / one, weights)


def hessian_factor(classes: int, *, exact: bool) -> float:
    """Return hessians as a multiple of p(1 - p), where two classes have one margin: 2 for softmax as in XGBoost."""
    return 1.0 if classes == 2 or exact else 2.0


def margins_of_output(output: int) -> slice:
    """Return the margins to which a tree of this output adds; -1: all."""
    return slice(None) if output < 0 else slice(output, output + 1)


OBJECTIVES = (
    "binary:logistic",
    "multi:softprob",
    "reg:squarederror",
    "count:poisson",
    "reg:tweedie",
    "gini",
    "variance",
)


def objective(
    name: str,
    *,
    classes: int,
    variance_power: float = 1.5,
    max_delta_step: float = 0.0,
    exact_hessian: bool = False,
) -> Objective:
    """Return an objective.

    Args:
        classes: number of classes of the labels; 0 for regression.
        variance_power: ρ of Tweedie, strictly between 1 and 2.
        max_delta_step: by which Poisson enlarges its hessians; at least 0.
        exact_hessian: whether hessians of softmax are p(1 - p), the second derivative, and not 2p(1 - p).

    Raises:
        JobError: the name is unknown, or the objective does not fit so many classes, or ``variance_power`` is out of
            range.
    """
    if name not in OBJECTIVES:
        raise JobError(
            f"{unknown_name('objective', name, OBJECTIVES)}", code="unknown", field="[model] objective", value=name
        )
    least, most = {"binary:logistic": (2, 2), "multi:softprob": (2, None), "gini": (2, None)}.get(name, (0, 0))
    if classes < least or (most is not None and classes > most):
        has = f"has {classes} classes" if classes else "is a regression target"
        raise JobError(
            f"{name!r} does not fit a label that {has}", code="unsupported", field="[model] objective", value=name
        )
    if name == "binary:logistic":
        return _Logistic(name=name, classes=2, bounded=True, g_most=1.0, h_most=0.25)
    if name == "count:poisson":
        return _Poisson(name=name, max_delta_step=float(max_delta_step))
    if name == "reg:tweedie":
        if not 1.0 < variance_power < 2.0:
            reason = f"must be strictly between 1 and 2 but got {variance_power}"
            raise JobError(reason, code="range", field="[model] tweedie_variance_power", value=variance_power)
        return _Tweedie(name=name, variance_power=float(variance_power))
    if name in ("reg:squarederror", "variance"):
        return _Squared(name=name, hessians=0, h_most=1.0)
    shape: dict[str, Any] = {"name": name, "classes": classes, "outputs": classes, "bounded": True, "g_most": 1.0}
    if name == "gini":
        return _Gini(**shape, hessians=0, h_most=1.0, implied="count")
    most_of_h = 0.25 if exact_hessian else 0.5
    return _Softmax(**shape, hessians=classes, h_most=most_of_h, implied="zero", exact_hessian=exact_hessian)


def evaluation_metric(
    name: str, objective: Objective, margins: Floats, y: Floats, weights: Floats
) -> tuple[float, bool]:
    """Return how well margins fit targets, and whether larger is better.

    Args:
        name: ``"auto"`` for the objective's own loss; ``"logloss"``, ``"error"`` (share of wrong classes) or ``"auc"``
            (one class against the rest, plain mean over more than two classes, of which those without rows are left
            out; 0.5 where one class has all rows) for classes; ``"rmse"`` or ``"mae"`` for regression.
        margins: float64 [n, outputs].
        y: float64 [n].
        weights: float64 [n].

    Raises:
        JobError: the name is unknown, or the metric does not fit the objective.
        DataError: the rows have no weight.
    """
    kinds = {"auto": None, "logloss": True, "error": True, "auc": True, "rmse": False, "mae": False}
    if name not in kinds:
        raise JobError(
            f"{unknown_name('metric', name, kinds)}", code="unknown", field="[model] eval_metric", value=name
        )
    if kinds[name] not in (None, objective.classes > 0):
        reason = f"{name!r} does not fit objective {objective.name!r}"
        raise JobError(reason, code="conflict", field="[model] eval_metric", value=name)
    if name in ("auto", "logloss"):
        return objective.loss(margins, y, weights), False
    predicted = objective.predicted(margins)
    if name == "error":
        return _mean((predicted.argmax(axis=1) != y).astype(np.float64), weights), False
    if name == "auc":
        each = range(1, 2) if objective.classes == 2 else range(objective.classes)
        found = [area for c in each if (area := _auc(predicted[:, c], y == c, weights)) is not None]
        return float(np.mean(found or [0.5])), True
    off = np.abs(predicted - y)
    return (math.sqrt(_mean(off * off, weights)) if name == "rmse" else _mean(off, weights)), False


def _auc(score: Floats, positive: NDArray[np.bool_], weights: Floats) -> float | None:
    """Return the share of pairs of a positive and a negative row that the score puts in order; ties are one half.

    None where there are no such pairs. This is no error: peers would hear of it, and it depends on the labels.
    """
    _, at = np.unique(score, return_inverse=True)
    up = np.bincount(at, weights * positive)
    down = np.bincount(at, weights * ~positive)
    pairs = float(up.sum() * down.sum())
    if not pairs > 0:
        return None
    return float(up @ (np.cumsum(down) - 0.5 * down)) / pairs


def sigmoid(margin: Floats) -> Floats:
    """Return ``1 / (1 + exp(-margin))`` for float64 of any shape; never overflows."""
    margin = np.ascontiguousarray(margin, dtype=np.float64)
    return _sigmoid(margin.reshape(-1)).reshape(margin.shape)


def softmax(margins: Floats) -> Floats:
    """Return the shares of classes for float64 [n, classes], row by row; never overflows."""
    p: Floats = np.exp(margins - margins.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


def _fit(margins: Floats, y: Floats, outputs: int) -> None:
    if y.ndim != 1 or margins.shape != (len(y), outputs):
        raise ValueError(f"margins {margins.shape} do not fit targets {y.shape} and {outputs} outputs")


def _mean(values: Floats, weights: Floats) -> float:
    total = float(weights.sum())
    if not total > 0:
        raise DataError("the rows have no weight, so they have no mean", code="rows")
    return float(values @ weights) / total


def _refuse(y: Floats, bad: NDArray[np.bool_], rule: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(
            f"{rule} but that of row {row}, counting from 0, is {float(y[row]):g}", code="labels", value=float(y[row])
        )


def _exp(values: Floats) -> Floats:
    """Return the exponential; infinite where it overflows, which the choice of scales refuses."""
    with np.errstate(over="ignore"):
        return np.exp(values)


def _log_factorial(y: Floats) -> Floats:
    distinct, inverse = np.unique(y, return_inverse=True)
    return np.array([math.lgamma(value + 1.0) for value in distinct])[inverse]


@jit
def _sigmoid(margin: Floats) -> Floats:
    out = np.empty(margin.size)
    for i in range(margin.size):
        e = math.exp(-abs(margin[i]))
        out[i] = 1.0 / (1.0 + e) if margin[i] >= 0 else e / (1.0 + e)
    return out


@jit
def _logistic(margin: Floats, y: Floats) -> tuple[Floats, Floats]:
    g, h = np.empty(margin.size), np.empty(margin.size)
    for i in range(margin.size):
        e = math.exp(-abs(margin[i]))
        inverse = 1.0 / (1.0 + e)
        g[i] = (inverse if margin[i] >= 0 else e * inverse) - y[i]
        h[i] = min(e * inverse * inverse, 0.25)  # rounding may exceed it
    return g, h
