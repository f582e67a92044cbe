"""What the report knows of each metric: its name, which way is better, and how its figures are written."""

from __future__ import annotations

from dataclasses import dataclass

from labelward.report.formatting import decimals, significant
from labelward.report.summary import Spread

__all__ = ["Metric", "figure", "metric_name", "metric_text", "spread_text"]

NOTHING = "–"
_LEAST_UNFIT = 1000.0
"""A share of 1 that is as large, such as the R² of predictions far off, has no use for decimals."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric.

    Attributes:
        name: as people write it.
        larger: whether larger is better for the model.
        share: whether 1 is perfect, so that differences are told in points; else they are told as a share of the value.
    """

    name: str
    larger: bool = True
    share: bool = True

    def better(self, value: float) -> float:
        """Return the value, or its negative, so that larger is better."""
        return value if self.larger else -value


_METRICS = {
    "v_measure": Metric(name="V-measure"),
    "ari": Metric(name="adjusted Rand index"),
    "r2": Metric(name="R²"),
    "auc": Metric(name="AUC"),
    "accuracy": Metric(name="accuracy"),
    "accuracy_majority": Metric(name="accuracy, clusters named by the majority"),
    "f1": Metric(name="F1"),
    "logloss": Metric(name="log loss", larger=False, share=False),
    "loss": Metric(name="loss", larger=False, share=False),
    "error": Metric(name="share of wrong classes", larger=False),
    "rmse": Metric(name="RMSE", larger=False, share=False),
    "mae": Metric(name="mean absolute error", larger=False, share=False),
    "deviance": Metric(name="deviance", larger=False, share=False),
}


def metric_text(name: str) -> Metric:
    """Return what is known of a metric; one that nobody knows is a share of 1."""
    return _METRICS.get(name, Metric(name=name))


def metric_name(name: str) -> str:
    """Return a metric's name as people write it."""
    return metric_text(name).name


def figure(name: str, value: float, beside: float | None = None, digits: int = 3) -> str:
    """Return a metric's value as text, and its spread: a share of 1 with fixed decimals, others with four digits.

    Args:
        name: of the metric.
        value: of it.
        beside: its spread.
        digits: decimals of a share.
    """
    if not metric_text(name).share or max(abs(value), abs(beside or 0.0)) >= _LEAST_UNFIT:
        return significant(value, beside)
    text = decimals(value, digits)
    return text if beside is None else f"{text} ± {decimals(beside, digits)}"


def spread_text(name: str, spread: Spread | None, digits: int = 3) -> str:
    """Return ``mean ± std``, the mean alone for a single seed, a dash for nothing; see :func:`figure`."""
    return NOTHING if spread is None else figure(name, spread.mean, spread.std, digits)
