"""The rows of which an attacker is told the label, or the value of an attribute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward import rng
from labelward.errors import DataError


def sample_known_rows(
    labels: NDArray[np.int64], count: int, *, seed: int, field: str = "auxiliary"
) -> NDArray[np.int64]:
    """Return int64 [count], ascending: rows whose labels an attacker is told, the same number of each class.

    If a class has too few rows, all of them are known and the other classes make up for it. The draws depend on the
    seed only, so all attacks and parties know the same rows.

    Args:
        labels: int64 [rows], class numbers.
        count: number of known rows; 0: none.
        seed: of the run.
        field: the parameter that says how many, for errors.

    Raises:
        DataError: fewer known rows than classes, or no row left to guess.
    """
    if not count:
        return np.empty(0, np.int64)
    classes = np.unique(labels)
    if not len(classes) <= count < len(labels):
        raise DataError(
            f"{count} known labels of {len(labels)} rows; give at least one for each of the {len(classes)} classes, "
            "and leave at least one row to guess",
            code="labels",
            field=field,
            value=count,
        )
    order = rng.learning(seed, "", 0, "known labels").permutation(len(labels))
    # The first row of every class comes first, then the second of every class, and so on; ties as drawn.
    place = np.empty(len(labels), np.int64)
    for label in classes:
        of_class = order[labels[order] == label]
        place[of_class] = np.arange(len(of_class))
    first = order[np.argsort(place[order], kind="stable")]
    return np.sort(first[:count])
