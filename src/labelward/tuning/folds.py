"""Rows of a search: settings are compared on validation rows, and test rows wait for what the search has found."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from labelward.data import DataSplit, VerticalDataset, check_weights
from labelward.errors import DataError
from labelward.rng import learning

Rows = NDArray[np.int64]


def selection_rows(data: VerticalDataset, share: float, seed: int) -> VerticalDataset:
    """Return a dataset without the test rows, in whose place a share of the training rows is scored.

    Rows are drawn without regard to the labels.

    Raises:
        DataError: the training rows lack a class, or all rows of a part have weight 0.
    """
    order = learning(seed, "", 0, "rows that select").permutation(len(data.train_values))
    count = max(1, round(share * len(order)))
    return _rows(data, np.sort(order[count:]), np.sort(order[:count]))


def fewer_rows(data: VerticalDataset, share: float, seed: int) -> VerticalDataset:
    """Return a dataset with a share of the training rows; the rows that are scored stay."""
    if share >= 1.0:
        return data
    order = learning(seed, "", 0, "rows of a fidelity").permutation(len(data.train_values))
    return _rows(data, np.sort(order[: max(1, round(share * len(order)))]), None)


def _rows(data: VerticalDataset, train: Rows, scored: Rows | None) -> VerticalDataset:
    """Return a dataset of some training rows; ``scored``: those of them that replace the test rows."""

    def test(of_train: NDArray, of_test: NDArray) -> NDArray:  # type: ignore[type-arg]
        return of_test if scored is None else of_train[scored]

    def split(old: DataSplit) -> DataSplit:
        return DataSplit(train=old.train[train], validation=old.validation, test=test(old.train, old.test))

    kept = split(data.split)
    place = np.concatenate([rows for _, rows in kept.items()])
    ranks = np.argsort(np.argsort(place))
    ends = np.cumsum([len(kept.train), len(kept.validation)])
    new_train, new_validation, new_test = np.split(ranks, ends)
    found = dataclasses.replace(
        data,
        parties=tuple(
            dataclasses.replace(each, train=each.train[train], test=test(each.train, each.test))
            for each in data.parties
        ),
        train_values=data.train_values[train],
        test_values=test(data.train_values, data.test_values),
        train_weights=data.train_weights[train],
        test_weights=test(data.train_weights, data.test_weights),
        train_labels=data.train_labels[train],
        test_labels=test(data.train_labels, data.test_labels),
        train_ids=data.train_ids[train],
        test_ids=test(data.train_ids, data.test_ids),
        split=DataSplit(train=new_train, validation=new_validation, test=new_test),
        table_rows=split(data.table_rows),
        train_holders=data.train_holders[train],
    )
    check_weights(data.label, {"train": found.train_weights, "test": found.test_weights})
    absent = np.setdiff1d(np.arange(len(data.classes)), found.train_labels)
    if len(absent):
        missing = data.classes[int(absent[0])]
        reason = f"no training row of the search has class {missing!r}"
        raise DataError(reason, code="labels", field="[tune] validation", value=missing)
    return found
