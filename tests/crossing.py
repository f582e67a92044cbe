"""Parametrizations over dimensions that do not depend on each other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["crossed"]


def crossed(names: str, *axes: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrize over all combinations of the axes' values; of those that are not slow, some one has each value.

    Combinations with a value that is marked itself have its marks, too.

    Args:
        names: of the arguments, with commas between them.
        axes: values of one argument each, or :func:`pytest.param` with those of several.
    """
    quick = {tuple(at % len(axis) for axis in axes) for at in range(max(map(len, axes)))}
    cases = []
    for places in itertools.product(*(range(len(axis)) for axis in axes)):
        values, ids, marks = [], [], []
        for axis, place in zip(axes, places, strict=True):
            value = axis[place]
            if isinstance(value, type(pytest.param())):
                values += value.values
                marks += value.marks
                ids.append(value.id or "-".join(map(_named, value.values)))
            else:
                values.append(value)
                ids.append(_named(value))
        if places not in quick:
            marks.append(pytest.mark.slow)
        cases.append(pytest.param(*values, id="-".join(ids), marks=marks))
    return pytest.mark.parametrize(names, cases)


def _named(value: Any) -> str:
    return str(getattr(value, "__name__", value)).translate({ord("'"): None, ord(" "): None})
