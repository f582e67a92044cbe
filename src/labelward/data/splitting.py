"""Which rows are learned from, watched and tested on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward import rng
from labelward.errors import DataError, JobError
from labelward.job import DataSection
from labelward.rng import PrivateSeed

__all__ = ["DataSplit", "check_split", "published_split", "split_rows"]

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSplit:
    """Positions of rows; each row is on one side."""

    train: Rows
    validation: Rows
    test: Rows

    @classmethod
    def of(cls, validation: NDArray[np.bool_], test: NDArray[np.bool_]) -> DataSplit:
        """Return the sides that two masks give, bool [rows], in the order of the rows."""
        train = ~(validation | test)
        return cls(train=np.flatnonzero(train), validation=np.flatnonzero(validation), test=np.flatnonzero(test))

    def in_order(self) -> DataSplit:
        """Return sides of the same sizes that come one after the other, as in tables that are already cut."""
        ends = np.cumsum([len(rows) for _, rows in self.named()])
        train, validation, test = np.split(np.arange(ends[-1]), ends[:-1])
        return DataSplit(train=train, validation=validation, test=test)

    @property
    def total(self) -> int:
        """How many rows there are."""
        return sum(len(rows) for _, rows in self.named())

    def masks(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows are validation rows and which are test rows, bool [rows] each."""
        validation, test = (np.zeros(self.total, dtype=np.bool_) for _ in range(2))
        validation[self.validation] = True
        test[self.test] = True
        return validation, test

    def sorted_by(self, ids: NDArray[np.str_]) -> DataSplit:
        """Return the same positions, those of each side in the order of the rows' ids."""
        return DataSplit(**{name: rows[np.argsort(ids[rows])] for name, rows in self.named()})

    def among(self, ids: NDArray[np.str_]) -> DataSplit:
        """Return the positions that these rows have once all rows are put in the order of their ids."""
        place = np.empty(len(ids), dtype=np.int64)
        place[np.argsort(ids)] = np.arange(len(ids))
        return DataSplit(**{name: place[rows] for name, rows in self.named()})

    def named(self) -> tuple[tuple[str, Rows], ...]:
        """Return the three with their names."""
        return (("train", self.train), ("validation", self.validation), ("test", self.test))


def check_split(data: DataSection) -> None:
    """Refuse published splits where they would be drawn over rows that a party can tell apart; :class:`JobError`.

    Not in the section itself, since jobs that an earlier version ran must still be read.
    """
    if data.split == "reference" and (data.table is None or data.id is not None):
        reason = "'reference' cuts a common table without ids, in a rehearsal; all other tables need 'random'"
        raise JobError(reason, code="conflict", field="[data] split", value=data.split)


def split_rows(data: DataSection, seed: int, rows: int, private: PrivateSeed) -> DataSplit:
    """Draw the rows of each side from the label holder's private seed; labels play no part.

    All parties learn the sides. A draw stratified by label would make them a function of the labels, and one from a
    seed that all parties share would make that function public
    (:class:`~labelward.attacks.split_posterior.SplitPosterior`). Test rows come first and validation rows next, so that
    asking for validation rows changes no test row.

    Args:
        data: shares of the sides.
        seed: of the run; each seed is another draw.
        rows: how many there are.
        private: of the party that holds the labels.

    Raises:
        DataError: a side without rows.
    """
    order = private.learning(seed, 0, "sides").permutation(rows)
    tested = _taken("test_size", data.test_size, rows)
    watched = _taken("validation_size", data.validation_size, rows - tested) if data.validation_size else 0
    test, validation, train = np.split(order, [tested, tested + watched])
    return DataSplit(train=np.sort(train), validation=np.sort(validation), test=np.sort(test))


def published_split(data: DataSection, seed: int, labels: NDArray[Any], classes: Sequence[str]) -> DataSplit:
    """Return the sides with which reference figures were published: ``train_test_split(random_state=seed)``.

    They are stratified by label and repeatable by all, so that a mask over the rows of the table would give the labels
    away. They serve rehearsals only, in which the parties get tables that are already cut: see :meth:`DataSplit.in_order`.

    Args:
        data: shares of the sides.
        seed: of the run.
        labels: of all rows: class numbers, or quantities.
        classes: names of the classes; empty for quantities.

    Raises:
        DataError: too few rows for a side, or a side without a class.
    """
    everything = np.arange(len(labels))
    train, test = _halves("test_size", data.test_size, seed, everything, labels, classes)
    validation = train[:0]
    if data.validation_size:
        state = int(rng.learning(seed, "", 0, "validation").integers(2**31))
        train, validation = _halves("validation_size", data.validation_size, state, train, labels, classes)
    sides = DataSplit(train=np.sort(train), validation=np.sort(validation), test=np.sort(test))
    for key, name, rows in (
        ("test_size", "test", sides.test),
        ("validation_size" if len(validation) else "test_size", "training", sides.train),
        ("validation_size", "validation", sides.validation),
    ):
        absent = np.setdiff1d(np.arange(len(classes)), labels[rows])
        if len(rows) and len(absent):
            raise DataError(
                f"no {name} row has class {classes[absent[0]]!r}; choose another share",
                code="labels",
                field=f"[data] {key}",
                value=classes[absent[0]],
            )
    return sides


def _taken(key: str, share: float, rows: int) -> int:
    """Return how many of the rows are set aside: at least the share, as scikit-learn rounds."""
    count = math.ceil(share * rows)
    if not 0 < count < rows:
        raise DataError(
            f"{share} of {rows} rows leaves none on one side", code="rows", field=f"[data] {key}", value=share
        )
    return count


def _halves(
    key: str, share: float, state: int, rows: Rows, labels: NDArray[Any], classes: Sequence[str]
) -> tuple[Rows, Rows]:
    from sklearn.model_selection import train_test_split

    among = labels[rows] if classes else None
    try:
        left, taken = train_test_split(rows, test_size=float(share), random_state=state, stratify=among)
    except ValueError as error:
        told = f"too few for {len(classes)} classes on one side" if classes else "none on one side"
        raise DataError(
            f"{share} of {len(rows)} rows leaves {told}", code="rows", field=f"[data] {key}", value=share
        ) from error
    return left, taken
