"""What each party holds, as matrices; and how a table's columns, labels and sides become that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward.data import catalogue
from labelward.data.encoding import fit_encoding, transform_splits
from labelward.data.labels import encode_labels, encode_regression_targets, encode_weights, quantile_edges
from labelward.data.splitting import DataSplit
from labelward.errors import DataError
from labelward.job import Job
from labelward.rng import PrivateSeed

__all__ = ["LabelColumn", "PartyDataset", "VerticalDataset", "assemble_dataset", "encode_columns", "read_labels"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyDataset:
    """What one party holds: n training, v validation and m test rows of F columns, float64 in C order, NaN missing.

    Attributes:
        name: the party.
        columns: names of the encoded columns (F).
        train: [n, F].
        validation: [v, F].
        test: [m, F].
        categories: for each column (by position) that holds codes its categories, by code: those of the training and
            validation rows, so that a test row may have the code -1 of a category that training never met.
        monotone: for some columns (by position) 1 or -1: predictions may only rise, or fall, with the column.
        dates: names of the columns that hold dates or times.
        private: what it draws from where others must not be able to repeat the draw.
    """

    name: str
    columns: tuple[str, ...]
    train: Floats
    validation: Floats
    test: Floats
    categories: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    monotone: Mapping[int, int] = field(default_factory=dict)
    dates: frozenset[str] = frozenset()
    private: PrivateSeed = field(default_factory=PrivateSeed.drawn, repr=False)


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalDataset:
    """All parties' data for one seed; row i is the same row at every party.

    Rows are in the order of the table, or sorted by id (as text) where rows have ids.

    Attributes:
        name: the data set.
        label: table and column of the labels, in words.
        task: ``"classification"`` or ``"regression"``.
        classes: the values of the label, sorted, as text (C); empty for regression.
        parties: the active party first.
        train_values: float64[n], what is learned: positions in ``classes``, or quantities.
        validation_values: float64[v].
        test_values: float64[m].
        train_weights: float64[n], at least 0; 1 where no column says otherwise.
        validation_weights: float64[v].
        test_weights: float64[m].
        train_labels: int64[n], what attacks guess: positions in ``classes``; for regression the bin of each quantity
            among bins of equal numbers of training rows (:func:`~labelward.data.labels.quantile_edges`).
        test_labels: int64[m].
        train_ids: text[n]: the ids, or the row numbers of the table counted from 0; with the published split those of
            the cut tables, training rows first.
        validation_ids: text[v].
        test_ids: text[m].
        split: where these rows stand among all rows in the order that the parties share.
        table_rows: where they stand in the common table, or among the active party's rows sorted by id.
    """

    name: str
    label: str
    task: str
    classes: tuple[str, ...]
    parties: tuple[PartyDataset, ...]
    train_values: Floats
    validation_values: Floats
    test_values: Floats
    train_weights: Floats
    validation_weights: Floats
    test_weights: Floats
    train_labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]
    train_ids: NDArray[np.str_]
    validation_ids: NDArray[np.str_]
    test_ids: NDArray[np.str_]
    split: DataSplit
    table_rows: DataSplit

    @property
    def ids(self) -> NDArray[np.str_]:
        """text[n + v + m]: the ids of all rows, in their order."""
        given = np.concatenate([self.train_ids, self.validation_ids, self.test_ids])
        order = np.concatenate([rows for _, rows in self.split.named()])
        return given[np.argsort(order)]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelColumn:
    """The active party's label and weight columns, of all rows in order.

    Attributes:
        task: ``"classification"`` or ``"regression"``.
        classes: names of the classes; empty for quantities.
        values: class numbers or quantities [rows].
        weights: float64 [rows].
    """

    task: str
    classes: tuple[str, ...]
    values: NDArray[Any]
    weights: Floats


def read_labels(job: Job, table: pa.Table, columns: tuple[str, str | None], place: str) -> LabelColumn:
    """Return the labels and weights of a table.

    Args:
        job: says whether labels are classes.
        table: the common one, or the active party's own.
        columns: the label column, and that of the weights, if any.
        place: whose table it is, for messages.

    Raises:
        DataError: a label or weight cannot be used.
    """
    label, weight = columns
    weights = np.ones(table.num_rows) if weight is None else encode_weights(table, weight, place)
    task = job.data.task or _usual_task(job.data.table)
    if task == "regression":
        return LabelColumn(
            task=task, classes=(), values=encode_regression_targets(table, label, place), weights=weights
        )
    classes, codes = encode_labels(table, label, place)
    return LabelColumn(task=task, classes=classes, values=codes, weights=weights)


def _usual_task(table: str | None) -> str:
    entry = catalogue.catalogue_entries().get(table or "")
    return "classification" if entry is None else entry.task


def encode_columns(
    job: Job,
    name: str,
    held: tuple[pa.Table, Sequence[str], Mapping[str, int]],
    sides: DataSplit,
    private: PrivateSeed,
) -> PartyDataset:
    """Return what a party holds of a table.

    Args:
        job: says what categories become.
        name: of the party.
        held: the table, the party's columns of it, and the directions of those that are constrained.
        sides: positions of rows in the table.
        private: the party's own.

    Raises:
        DataError: a column or value cannot be used, a passive party holds no column at all, or a constrained column
            holds categories.
    """
    table, columns, directions = held
    place = f"party {name!r}"
    seen = np.concatenate([sides.train, sides.validation])
    known = fit_encoding(table, columns, place, style=job.data.categories, rows=seen)
    for column in directions:
        if column not in known.names or column in known.categories:
            raise DataError(
                f"column {column!r} holds categories, which have no order",
                code="columns",
                field=f"{place}: monotone",
                value=column,
            )
    if name != job.active.name and not known.names:
        raise DataError(
            "it has no column with more than one category, so it holds nothing", code="columns", field=place
        )
    train, validation, test = transform_splits(table, known, place, [rows for _, rows in sides.named()])
    return PartyDataset(
        name=name,
        columns=known.names,
        train=train,
        validation=validation,
        test=test,
        categories={known.names.index(column): names for column, names in known.categories.items()},
        monotone={known.names.index(column): direction for column, direction in directions.items()},
        dates=known.dates or frozenset(),
        private=private,
    )


def assemble_dataset(
    job: Job,
    named: tuple[str, str],
    parties: tuple[PartyDataset, ...],
    targets: LabelColumn,
    ids: NDArray[np.str_],
    sides: DataSplit,
) -> VerticalDataset:
    """Put together what the parties hold.

    Args:
        job: says into how many bins quantities are cut for attacks.
        named: the data set, and table and column of the labels in words.
        parties: the active party first.
        targets: of all rows.
        ids: of all rows, in the order that the positions of ``sides`` speak of.
        sides: of the rows.

    Raises:
        DataError: all training labels are the same, or all rows of a side have weight 0.
    """
    weights = targets.weights
    for name, rows in sides.named():
        if len(rows) and not weights[rows].any():
            raise DataError(f"every {name} row has weight 0", code="rows", field=named[1], value=name)
    values, bins = targets.values.astype(np.float64), targets.values
    _refuse_absent_classes(job, targets, sides)
    if targets.task == "regression":
        learned = values[sides.train]
        if (learned == learned[0]).all():
            raise DataError(
                f"every training row has the label {learned[0]:g}; there is nothing to learn",
                code="labels",
                field=named[1],
                value=float(learned[0]),
            )
        bins = np.searchsorted(quantile_edges(learned, job.leakage.label_bins), values)
    return VerticalDataset(
        name=named[0],
        label=named[1],
        task=targets.task,
        classes=targets.classes,
        parties=parties,
        train_values=values[sides.train],
        validation_values=values[sides.validation],
        test_values=values[sides.test],
        train_weights=weights[sides.train],
        validation_weights=weights[sides.validation],
        test_weights=weights[sides.test],
        train_labels=bins[sides.train],
        test_labels=bins[sides.test],
        train_ids=ids[sides.train],
        validation_ids=ids[sides.validation],
        test_ids=ids[sides.test],
        split=_among_shared(job, ids, sides),
        table_rows=sides,
    )


def _refuse_absent_classes(job: Job, targets: LabelColumn, sides: DataSplit) -> None:
    """Refuse a draw in which a side lacks a class, before anything leaves: it could not be learned, or not scored."""
    for name, key, rows in (
        ("training", "test_size", sides.train),
        ("validation", "validation_size", sides.validation),
        ("test", "test_size", sides.test),
    ):
        absent = np.setdiff1d(np.arange(len(targets.classes)), targets.values[rows])
        if len(rows) and len(absent):
            raise DataError(
                f"in this draw no {name} row has class {targets.classes[int(absent[0])]!r}; "
                "choose another share, or begin again, which draws anew",
                code="labels",
                field=f"[data] {key}",
                value=targets.classes[int(absent[0])],
            )


def _among_shared(job: Job, ids: NDArray[np.str_], sides: DataSplit) -> DataSplit:
    """Return where the rows of each side stand in the order that all parties share."""
    if job.data.split == "reference":
        return sides.in_order()
    return sides if job.data.id is None or job.data.table is None else sides.among(ids)
