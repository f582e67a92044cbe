"""Label proxies: columns that alone tell the label, such as a row number of a table that is sorted by label."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from labelward.data.dataset import VerticalDataset
from labelward.errors import DataWarning

_ROWS = 2_000
_LEAST = 0.99
_LARGEST = 1e30  # so that sums of 100,000,000 rows stay finite in single precision


def label_proxies(data: VerticalDataset) -> list[tuple[str, str]]:
    """Return party and name of each column that alone predicts the label almost perfectly.

    A tree of at most 64 leaves on the column is fitted to half of up to 2,000 training rows, and scored on the other
    half: by balanced accuracy, for quantities by R²; a proxy reaches .99.
    """
    from sklearn.metrics import r2_score
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    tree, score = (
        (DecisionTreeClassifier(max_leaf_nodes=64, random_state=0), _balanced_accuracy)
        if data.classes
        else (DecisionTreeRegressor(max_leaf_nodes=64, random_state=0), r2_score)
    )
    rows = np.random.default_rng(0).permutation(len(data.train_values))[:_ROWS]
    fitted, scored = rows[::2], rows[1::2]
    labels = data.train_values / (1 if data.classes else np.abs(data.train_values).max() or 1)
    if len(scored) < 2 or not _varied(labels[fitted]) or not _varied(labels[scored]):
        return []

    def reached(column: NDArray[np.float64]) -> float:
        single = np.clip(column, -_LARGEST, _LARGEST)[:, None]  # the tree compares numbers of single precision
        guess = tree.fit(single[fitted], labels[fitted]).predict(single[scored])
        return float(score(labels[scored], guess))

    return [
        (party.name, name)
        for party in data.parties
        for name, column in zip(party.columns, party.train.T, strict=True)
        if _varied(column) and reached(column) >= _LEAST
    ]


def warn_of_label_proxies(data: VerticalDataset) -> None:
    """Issue a :class:`~labelward.errors.DataWarning` if a column alone tells the label."""
    found = label_proxies(data)
    if found:
        names = ", ".join(f"{column!r} of party {party!r}" for party, column in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        each = "column " if len(found) == 1 else "each of the columns "
        reason = f"{each}{names}{more} alone predicts the label almost perfectly; leave out what is no real feature"
        warnings.warn(reason, DataWarning, stacklevel=3)


def _balanced_accuracy(truth: NDArray[np.float64], guess: NDArray[np.float64]) -> float:
    """Return the mean recall of the classes that occur, scikit-learn's to the last bit in a sixtieth of the time."""
    labels = truth.astype(np.int64)
    rows, right = np.bincount(labels), np.bincount(labels, truth == guess)
    return float(np.mean(right[rows > 0] / rows[rows > 0]))


def _varied(values: NDArray[np.float64]) -> bool:
    known = values[~np.isnan(values)]
    return len(known) > 0 and bool((known != known[0]).any())
