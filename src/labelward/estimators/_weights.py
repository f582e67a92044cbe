"""Weights of rows and classes: validation, including the range that fixed-point encryption can represent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from labelward.data.labels import WIDEST_WEIGHTS, too_wide
from labelward.estimators._errors import InvalidInputError

Floats = NDArray[np.float64]

_LEAST, _MOST = 1e-30, 1e30  # sums of squared weights neither underflow nor overflow in float64


def resolve_weights(given: Any, rows: int, name: str) -> Floats:
    """Return weights as float64 [rows]; ones if none are given.

    Raises:
        ValueError: the number of rows is wrong, a weight is negative or not a number, or the range is too wide.
    """
    if given is None:
        return np.ones(rows)
    weights: Floats = check_array(given, ensure_2d=False, dtype=np.float64, input_name=name)
    if weights.shape != (rows,):
        raise InvalidInputError(
            f"{name}.shape == {weights.shape}, expected {(rows,)}!", code="rows", value=weights.shape
        )
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        reason = f"row {row}, counting from 0, is {weights[row]:g}; weights must be ≥ 0"
        raise InvalidInputError(reason, code="range", field=name, value=float(weights[row]))
    positive = weights[weights > 0]
    if not len(positive):
        raise InvalidInputError(
            "every weight is zero; at least one must be positive", code="range", field=name, value=0.0
        )
    least, most = positive.min(), positive.max()
    if least < _LEAST or most > _MOST:
        row = int(np.argmax((weights > 0) & ((weights < _LEAST) | (weights > _MOST))))
        raise InvalidInputError(
            f"row {row}, counting from 0, is {weights[row]:g}; weights must be 0 or between {_LEAST:g} and {_MOST:g}",
            code="range",
            field=name,
            value=float(weights[row]),
        )
    if reason := too_wide(least, most):
        raise InvalidInputError(reason, code="range", field=name, value=(float(least), float(most)))
    return weights


def check_class_weight(factor: float, values: Floats, weights: Floats) -> None:
    """Refuse a ``scale_pos_weight`` with which the range of weights is too wide.

    Args:
        values: classes of the rows, 0 or 1.
        weights: weights of the rows, all positive.

    Raises:
        ValueError: the ratio of two weights exceeds 10⁹.
    """
    if factor == 1.0 or set(np.unique(values)) != {0.0, 1.0}:
        return
    first, second = weights[values == 0.0], weights[values == 1.0]
    with np.errstate(over="ignore"):
        ratio = max(second.max() * factor / first.min(), first.max() / (second.min() * factor or np.nextafter(0, 1)))
    if ratio > WIDEST_WEIGHTS:
        reason = (
            f"{factor:g} makes the ratio of two weights exceed {WIDEST_WEIGHTS:g}: the smallest would round to zero; "
            "choose a value closer to 1"
        )
        raise InvalidInputError(reason, code="range", field="scale_pos_weight", value=factor)
