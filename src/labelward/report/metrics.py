"""Metric values as text: names, decimals, spreads over seeds."""

from __future__ import annotations

from labelward.attacks import ATTACKS
from labelward.metrics.registry import METRICS, OUTSIDE, Metric, find_metric
from labelward.report.formatting import NOTHING, decimals, significant
from labelward.report.summary import Spread

_NO_DECIMALS_FROM = 1000.0
"""A value of a metric on unit scale, such as the R² of predictions far off, is written without fixed decimals above."""


def metric_of(name: str) -> Metric:
    """Return a metric by name: a listed one, or one that an attack brings."""
    if name.removeprefix(OUTSIDE) in METRICS:
        return find_metric(name)
    return find_metric(name, [metric for attack in ATTACKS.classes().values() for metric in attack.metrics])


def metric_name(name: str) -> str:
    """Return a metric's name as printed."""
    return metric_of(name).title


def format_metric(name: str, value: float, spread: float | None = None, digits: int = 3) -> str:
    """Return a metric's value as text, with its spread.

    Args:
        name: of the metric.
        value: its value.
        spread: standard deviation; None: not printed.
        digits: decimals of a metric on unit scale; others get four significant digits.
    """
    if not metric_of(name).unit_scale or max(abs(value), abs(spread or 0.0)) >= _NO_DECIMALS_FROM:
        return significant(value, spread)
    text = decimals(value, digits)
    return text if spread is None else f"{text} ± {decimals(spread, digits)}"


def spread_text(name: str, spread: Spread | None, digits: int = 3) -> str:
    """Return ``mean ± std``, the mean alone for a single seed, a dash for no value; see :func:`format_metric`."""
    return NOTHING if spread is None else format_metric(name, spread.mean, spread.std, digits)
