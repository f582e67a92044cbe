"""Label proxies: columns that alone tell the label, such as a row number, and tables that are sorted by label."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from labelward.data.dataset import VerticalDataset
from labelward.errors import DataWarning

_ROWS = 2_000
_LEAST, _LEAST_OF_ORDER = 0.99, 0.9
_FEWEST = 40
_LARGEST = 1e30  # so that sums of 100,000,000 rows stay finite in single precision


def label_proxies(data: VerticalDataset) -> list[tuple[str, str]]:
    """Return party and name of each column that alone predicts the label almost perfectly (:class:`_ProxyTest`)."""
    test = _ProxyTest(data)
    return [
        (party.name, name)
        for party in data.parties
        for name, column in zip(party.columns, party.train.T, strict=True)
        if test.reached(column) >= _LEAST
    ]


def ordered_by_label(data: VerticalDataset) -> bool:
    """Return whether the order of the rows, which all parties share, alone predicts the label well (.9).

    No column has it, so that no attack uses it; and a party sees where its own columns change along the rows. Of fewer
    than 40 rows the order may do so by chance.
    """
    if len(data.train_values) < _FEWEST:
        return False
    return _ProxyTest(data).reached(data.split.train.astype(np.float64)) >= _LEAST_OF_ORDER


class _ProxyTest:
    """How well single columns predict the label.

    A tree of at most 64 leaves on the column is fitted to half of up to 2,000 training rows with known labels, and
    scored on the other half.
    """

    def __init__(self, data: VerticalDataset) -> None:
        known = np.flatnonzero(~np.isnan(data.train_values))
        rows = known[np.random.default_rng(0).permutation(len(known))[:_ROWS]]
        self._fitted, self._scored = rows[::2], rows[1::2]
        self._classes = bool(data.classes)
        self._labels = data.train_values / (1 if data.classes else np.abs(data.train_values[known]).max(initial=0) or 1)

    def reached(self, column: NDArray[np.float64]) -> float:
        """Return the balanced accuracy, for quantities R²; 0 where column or labels do not vary."""
        from sklearn.metrics import r2_score
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

        labels, fitted, scored = self._labels, self._fitted, self._scored
        if len(scored) < 2 or not all(map(_varied, (labels[fitted], labels[scored], column))):
            return 0.0
        tree, score = (
            (DecisionTreeClassifier(max_leaf_nodes=64, random_state=0), _balanced_accuracy)
            if self._classes
            else (DecisionTreeRegressor(max_leaf_nodes=64, random_state=0), r2_score)
        )
        single = np.clip(column, -_LARGEST, _LARGEST)[:, None]  # the tree compares numbers of single precision
        return float(score(labels[scored], tree.fit(single[fitted], labels[fitted]).predict(single[scored])))


def warn_of_label_proxies(data: VerticalDataset) -> None:
    """Issue a :class:`~labelward.errors.DataWarning` if a column alone, or the order of the rows, tells the label."""
    found = label_proxies(data)
    if found:
        names = ", ".join(f"{column!r} of party {party!r}" for party, column in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        each = "column " if len(found) == 1 else "each of the columns "
        reason = f"{each}{names}{more} alone predicts the label almost perfectly; leave out what is no real feature"
        warnings.warn(reason, DataWarning, stacklevel=3)
    if ordered_by_label(data):
        reason = (
            "the order of the rows alone predicts the label: every party knows it, but no attack uses it; shuffle the "
            "table, and give ids that do not follow the label"
        )
        warnings.warn(reason, DataWarning, stacklevel=3)


def _balanced_accuracy(truth: NDArray[np.float64], guess: NDArray[np.float64]) -> float:
    """Return the mean recall of the classes that occur, scikit-learn's to the last bit in a sixtieth of the time."""
    labels = truth.astype(np.int64)
    rows, right = np.bincount(labels), np.bincount(labels, truth == guess)
    return float(np.mean(right[rows > 0] / rows[rows > 0]))


def _varied(values: NDArray[np.float64]) -> bool:
    known = values[~np.isnan(values)]
    return len(known) > 0 and bool((known != known[0]).any())
