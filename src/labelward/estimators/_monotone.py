"""Monotone constraints, in the forms that XGBoost takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from labelward.estimators._columns import EncodedColumns, position_of
from labelward.estimators._errors import InvalidInputError

_TEXT = re.compile(r"\(\s*([+-]?\d+(?:\s*,\s*[+-]?\d+)*)\s*,?\s*\)")
_NAME = "monotone_constraints"


def parse_monotone(given: Any, columns: EncodedColumns, *, named: bool) -> dict[int, int]:
    """Return 1 or -1 by position of a column in X.

    Args:
        given: a dictionary by name or position, or a direction for each column of X, also as a text such as
            ``"(1,0,-1)"``; None: no constraint.
        columns: of X.
        named: whether X has names of columns.

    Raises:
        ValueError: another form or length, no such column, one that is given twice, another direction than 1, -1 and
            0, or a column of categories.
    """
    if given is None:
        return {}
    found: dict[int, int] = {}
    for column, direction in _pairs(given, columns.names):
        place = position_of(column, columns.names, _NAME, named=named)
        whole = isinstance(direction, int | np.integer) and not isinstance(direction, bool)
        if not whole or direction not in (-1, 0, 1):
            raise InvalidInputError(
                f"must be 1, -1 or 0, but {column!r} has {direction!r}", code="choice", field=_NAME, value=direction
            )
        if direction and columns.names[place] in columns.categories:
            name = columns.names[place]
            raise InvalidInputError(
                f"categories have no order, but {name!r} has {direction!r}", code="unsupported", field=_NAME, value=name
            )
        if place in found:
            raise InvalidInputError(
                f"column {columns.names[place]!r} is given by name and by position",
                code="duplicate",
                field=_NAME,
                value=columns.names[place],
            )
        found[place] = int(direction)
    return {place: direction for place, direction in found.items() if direction}


def _pairs(given: Any, names: Sequence[str]) -> list[tuple[Any, Any]]:
    """Return columns and their directions as they were given."""
    if isinstance(given, Mapping):
        return list(given.items())
    each = given
    if isinstance(given, str) and (text := _TEXT.fullmatch(given.strip())):
        each = [int(number) for number in text[1].split(",")]
    elif isinstance(given, np.ndarray) and given.ndim == 1:
        each = given.tolist()
    if not isinstance(each, list | tuple):
        told = "a dictionary by column, or a list of 1, -1 or 0 for each column of X"
        raise InvalidInputError(f"must be {told}, but got {given!r}", code="type", field=_NAME, value=given)
    if len(each) != len(names):
        raise InvalidInputError(
            f"must have as many directions as X has columns, {len(names)}, not {len(each)}",
            code="range",
            field=_NAME,
            value=len(each),
        )
    return list(enumerate(each))
