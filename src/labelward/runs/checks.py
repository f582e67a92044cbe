"""Consistency checks of the metrics in a result row."""

from __future__ import annotations

import math
from typing import Any

Metrics = dict[str, float | dict[str, Any] | str]
"""Values by metric name, reference values (objects with the same names), and the name of the ``primary`` metric."""


def check_metrics(name: str, metrics: Metrics, beside: tuple[str, ...], *, may_be_empty: bool = False) -> None:
    """Require finite values, one of them primary, and reference objects ``beside`` with the same metric names."""
    own = {key: value for key, value in metrics.items() if key not in (*beside, "primary")}
    primary = metrics.get("primary")
    if not isinstance(primary, str):
        raise ValueError(f"{name} names no primary metric")
    for key, value in own.items():
        check_finite(f"{name}.{key}", value)
    if primary not in own:
        raise ValueError(f"the primary metric {primary!r} of {name} has no value")
    for key in beside:
        other = metrics.get(key)
        if not isinstance(other, dict) or (other.keys() != own.keys() and (other or not may_be_empty)):
            raise ValueError(f"{name}.{key} must have the metrics {', '.join(sorted(own))}")
        for metric, value in other.items():
            check_finite(f"{name}.{key}.{metric}", value)


def check_baselines(beside: Any) -> None:
    """Require finite metrics in each baseline attack."""
    check_nested("leakage.beside", beside)
    if not all(isinstance(each, dict) for each in beside.values()):
        raise ValueError("leakage.beside must hold objects of metrics")


def check_nested(name: str, figures: Any) -> None:
    """Require an object of finite numbers, nulls, and lists and objects of them."""
    if not isinstance(figures, dict):
        raise ValueError(f"{name} must be an object")
    for key, value in figures.items():
        for number, each in enumerate(value if isinstance(value, list | tuple) else [value]):
            if isinstance(each, dict):
                check_nested(f"{name}.{key}[{number}]", each)
            elif each is not None:
                check_finite(f"{name}.{key}", each)


def check_finite(name: str, value: Any) -> None:
    """Raise :class:`ValueError` unless the value is a finite number."""
    if not isinstance(value, float | int) or not math.isfinite(value):
        raise ValueError(f"{name} is not a finite number: {value}")
