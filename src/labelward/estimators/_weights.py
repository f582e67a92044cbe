"""Weights of rows and classes: read, and refused where training could not tell rows apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from labelward.estimators._errors import InvalidInputError

Floats = NDArray[np.float64]

_WIDEST = 1e9  # encrypted numbers have 30 binary digits: beyond this, rows of the least weight count for nothing
_LEAST, _MOST = 1e-30, 1e30  # sums of their squares are floats with room to spare


def resolve_weights(given: Any, rows: int, name: str) -> Floats:
    """Return weights as float64 [rows]; ones where there are none.

    Raises:
        ValueError: other numbers of rows, a weight that is negative or no number, or weights too far apart.
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
        raise InvalidInputError(
            f"row {row}, counting from 0, is {weights[row]:g}; weights may not be negative",
            code="range",
            field=name,
            value=float(weights[row]),
        )
    positive = weights[weights > 0]
    if not len(positive):
        raise InvalidInputError("every weight is zero", code="range", field=name, value=0.0)
    least, most = positive.min(), positive.max()
    if least < _LEAST or most > _MOST:
        row = int(np.argmax((weights > 0) & ((weights < _LEAST) | (weights > _MOST))))
        told = f"must be 0 or lie between {_LEAST:g} and {_MOST:g}"
        raise InvalidInputError(
            f"row {row}, counting from 0, is {weights[row]:g}; weights {told}",
            code="range",
            field=name,
            value=float(weights[row]),
        )
    if most / least > _WIDEST:
        told = f"lie between {least:g} and {most:g}, more than a factor of {_WIDEST:g} apart"
        raise InvalidInputError(
            f"weights {told}, so that rows of the least would count for nothing; give these 0, or larger ones",
            code="range",
            field=name,
            value=(float(least), float(most)),
        )
    return weights


def check_class_weight(factor: float, values: Floats, weights: Floats) -> None:
    """Refuse a factor of the second class's weights that takes weights too far apart.

    Args:
        factor: ``scale_pos_weight``.
        values: classes of the rows, 0 or 1.
        weights: of the rows, all positive.

    Raises:
        ValueError: the weights of one class are more than a billion times those of the other.
    """
    if factor == 1.0 or set(np.unique(values)) != {0.0, 1.0}:
        return
    first, second = weights[values == 0.0], weights[values == 1.0]
    with np.errstate(over="ignore"):
        apart = max(second.max() * factor / first.min(), first.max() / (second.min() * factor or np.nextafter(0, 1)))
    if apart > _WIDEST:
        told = f"{factor:g} takes weights of the classes more than a factor of {_WIDEST:g} apart"
        raise InvalidInputError(
            f"{told}, so that rows of the least would count for nothing",
            code="range",
            field="scale_pos_weight",
            value=factor,
        )
