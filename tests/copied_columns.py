"""A party that has a column of another one as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from labelward.data import VerticalDataset

Floats = NDArray[np.float64]


def copying(
    of: str, to: str, change: Callable[[Floats], Floats] = lambda column: column
) -> Callable[[VerticalDataset], VerticalDataset]:
    """Return what gives a party a column that follows from the first one of another."""

    def copied(data: VerticalDataset) -> VerticalDataset:
        parties = {each.name: each for each in data.parties}
        source, target = parties[of], parties[to]
        parties[to] = replace(
            target,
            columns=(*target.columns, "copy"),
            train=np.column_stack([target.train, change(source.train[:, 0])]),
            test=np.column_stack([target.test, change(source.test[:, 0])]),
        )
        return replace(data, parties=tuple(parties.values()))

    return copied
