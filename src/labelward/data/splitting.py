"""Training, validation and test rows: random and published splits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward import rng
from labelward.errors import DataError, DataWarning, JobError
from labelward.job import DataSection
from labelward.rng import PrivateSeed

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSplit:
    """Positions of the training, validation and test rows; each row is in exactly one of the three."""

    train: Rows
    validation: Rows
    test: Rows

    @classmethod
    def of(cls, validation: NDArray[np.bool_], test: NDArray[np.bool_]) -> DataSplit:
        """Return the split that two masks define, bool [rows]; positions are ascending."""
        train = ~(validation | test)
        return cls(train=np.flatnonzero(train), validation=np.flatnonzero(validation), test=np.flatnonzero(test))

    def among(self, rows: Rows) -> DataSplit:
        """Return the positions among some of the rows, which are ascending; other rows are left out."""
        return DataSplit(
            **{name: np.searchsorted(rows, places[np.isin(places, rows)]) for name, places in self.items()}
        )

    def contiguous(self) -> DataSplit:
        """Return a split of the same sizes with contiguous positions: training, then validation, then test."""
        ends = np.cumsum([len(rows) for _, rows in self.items()])
        train, validation, test = np.split(np.arange(ends[-1]), ends[:-1])
        return DataSplit(train=train, validation=validation, test=test)

    @property
    def total(self) -> int:
        """Number of rows."""
        return sum(len(rows) for _, rows in self.items())

    def masks(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the masks of the validation rows and of the test rows, bool [rows] each."""
        validation, test = (np.zeros(self.total, dtype=np.bool_) for _ in range(2))
        validation[self.validation] = True
        test[self.test] = True
        return validation, test

    def sorted_by(self, ids: NDArray[np.str_]) -> DataSplit:
        """Return the same positions; within each part they follow the order of the rows' ids."""
        return DataSplit(**{name: rows[np.argsort(ids[rows])] for name, rows in self.items()})

    def reordered(self, ids: NDArray[np.str_]) -> DataSplit:
        """Return the positions of the same rows after all rows are sorted by id."""
        place = np.empty(len(ids), dtype=np.int64)
        place[np.argsort(ids)] = np.arange(len(ids))
        return DataSplit(**{name: place[rows] for name, rows in self.items()})

    def items(self) -> tuple[tuple[str, Rows], ...]:
        """Return the three parts with their names."""
        return (("train", self.train), ("validation", self.validation), ("test", self.test))


def check_split(data: DataSection) -> None:
    """Refuse the published split of parties' own tables, or of rows with ids.

    :class:`~labelward.job.DataSection` accepts it, since jobs of earlier versions must stay readable.

    Raises:
        JobError: the split is ``"reference"``, and the job has no common table or its rows have ids.
    """
    if data.split == "reference" and (data.table is None or data.id is not None):
        reason = "'reference' requires a common table without ids; use 'random'"
        raise JobError(reason, code="conflict", field="[data] split", value=data.split)


def split_rows(data: DataSection, seed: int, rows: int, private: PrivateSeed) -> DataSplit:
    """Draw a split from the label holder's private seed, without regard to the labels; none is drawn again for them.

    All parties learn the split. A stratified split is a function of the labels, and with a seed that all parties know
    this function is public (:class:`~labelward.attacks.split_posterior.SplitPosterior`). Test rows are drawn before
    validation rows, so ``validation_size`` does not change the test rows.

    Args:
        data: sizes of the test and validation parts, as shares.
        private: private seed of the party that holds the labels.

    Raises:
        DataError: a part would be empty.
    """
    order = private.learning(seed, 0, "sides").permutation(rows)
    test_count = _part_size("test_size", data.test_size, rows)
    validation_count = (
        _part_size("validation_size", data.validation_size, rows - test_count) if data.validation_size else 0
    )
    test, validation, train = np.split(order, [test_count, test_count + validation_count])
    return DataSplit(train=np.sort(train), validation=np.sort(validation), test=np.sort(test))


def published_split(data: DataSection, seed: int, labels: NDArray[Any], classes: Sequence[str]) -> DataSplit:
    """Return the split of the published reference figures: ``train_test_split(random_state=seed)``.

    The split is stratified by label, and everybody can repeat it: a mask over the rows of the table would reveal the
    labels. It is for simulations only, in which the parties get tables that are
    already cut (:meth:`DataSplit.contiguous`).

    Args:
        data: sizes of the test and validation parts, as shares.
        labels: class numbers or regression targets of all rows.
        classes: names of the classes; empty for regression.

    Raises:
        DataError: a part has too few rows.
    """
    everything = np.arange(len(labels))
    train, test = _stratified_halves("test_size", data.test_size, seed, everything, labels, classes)
    validation = train[:0]
    if data.validation_size:
        state = int(rng.learning(seed, "", 0, "validation").integers(2**31))
        train, validation = _stratified_halves("validation_size", data.validation_size, state, train, labels, classes)
    return DataSplit(train=np.sort(train), validation=np.sort(validation), test=np.sort(test))


def refuse_rare_classes(
    data: DataSection, split: DataSplit, labels: NDArray[Any], weights: Floats, classes: Sequence[str]
) -> None:
    """Refuse classes that cannot be learned, before any message is sent.

    A random split is used as it was drawn: whoever drew again until all parts have all classes would tell, by each
    split, which rows a rare class cannot be. So a class is refused for its number of rows, whatever the split; a
    training part without a class is then drawn less than once in a thousand times. A validation or test part may lack
    classes, of which a warning tells. The published split is stratified, and refused where a part lacks a class.

    Args:
        data: its key of the part's size is named in the error.
        labels: class numbers of all rows.
        weights: float64 [rows]; rows of weight 0 do not count, but for a class that has no others.
        classes: names of the classes, at least one.

    Raises:
        DataError: a class has too few rows, or a part of the published split, or the training part, has none.
    """
    total, published = np.bincount(labels, minlength=len(classes)), data.split == "reference"
    weighed = np.bincount(labels[weights > 0], minlength=len(classes))
    total = np.where(weighed > 0, weighed, total)
    parts = sum(len(rows) > 0 for _, rows in split.items())
    least = parts if published else _least_rows(len(split.train) / split.total)
    few = int(total.argmin())
    if total[few] < least:
        count = f"{total[few]} row{'' if total[few] == 1 else 's'}"
        why = f"each of {parts} parts needs one" if published else f"with these shares {least} are needed"
        raise DataError(
            f"class {classes[few]!r} has {count}; {why}: leave out rows with this label, or give them another class",
            code="labels",
            field="[data] test_size",
            value=classes[few],
        )
    for name, rows in split.items():
        absent = [classes[each] for each in np.setdiff1d(np.arange(len(classes)), labels[rows])] if len(rows) else []
        if absent and (published or name == "train"):
            part = "training" if name == "train" else name
            cut = name == "validation" or (name == "train" and published and len(split.validation))
            reason = f"no {part} row has class {absent[0]!r}; choose another share"
            field = "[data] validation_size" if cut else "[data] test_size"
            raise DataError(reason, code="labels", field=field, value=absent[0])
        if absent:
            listed = ", ".join(map(repr, absent[:5])) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
            reason = f"no {name} row has class {listed}; its scores are those of the other classes"
            warnings.warn(reason, DataWarning, stacklevel=2)


def refuse_equal_quantities(data: DataSection, split: DataSplit, values: Floats, weights: Floats, place: str) -> None:
    """Refuse quantities of which nearly all are equal, as :func:`refuse_rare_classes` refuses a rare class.

    Args:
        data: its shares.
        values: float64 [rows], of all rows.
        weights: float64 [rows]; rows of weight 0 do not count.
        place: table and label column, for messages.

    Raises:
        DataError: too few labels differ from the most frequent one, or no two of the training rows.
    """
    counted = values[weights > 0]
    others = len(counted) - int(np.unique(counted, return_counts=True)[1].max(initial=0))
    least = 1 if data.split == "reference" else _least_rows(len(split.train) / split.total)
    if others < least:
        labels = "1 label differs" if others == 1 else f"{others} labels differ"
        reason = f"{labels} from the most frequent one; with these shares {least} are needed"
        raise DataError(reason, code="labels", field=place, value=others)
    learned = values[split.train]
    if (learned == learned[0]).all():
        reason = f"all training rows have the label {learned[0]:g}; at least two values are needed"
        raise DataError(reason, code="labels", field=place, value=float(learned[0]))


def _least_rows(share: float) -> int:
    """Return how many rows a class needs, so that all of them lie outside of the training part once in 1,000 times."""
    return math.ceil(math.log(1e-3) / math.log(1 - share)) if share < 1 else 1


def _part_size(key: str, share: float, rows: int) -> int:
    """Return the number of rows of a part, rounded up as scikit-learn does."""
    count = math.ceil(share * rows)
    if not 0 < count < rows:
        raise DataError(
            f"{share} of {rows} rows leaves one part empty", code="rows", field=f"[data] {key}", value=share
        )
    return count


def _stratified_halves(
    key: str, share: float, state: int, rows: Rows, labels: NDArray[Any], classes: Sequence[str]
) -> tuple[Rows, Rows]:
    from sklearn.model_selection import train_test_split

    among = labels[rows] if classes else None
    try:
        left, taken = train_test_split(rows, test_size=float(share), random_state=state, stratify=among)
    except ValueError as error:
        reason = f"leaves too few in one part for {len(classes)} classes" if classes else "leaves one part empty"
        raise DataError(
            f"{share} of {len(rows)} rows {reason}", code="rows", field=f"[data] {key}", value=share
        ) from error
    return left, taken
