"""The vertical data set of one run: each party's encoded columns, and the labels of the active party."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward.data import catalog
from labelward.data.encoding import fit_encoding, transform_splits
from labelward.data.labels import (
    encode_held_labels,
    encode_labels,
    encode_regression_targets,
    encode_weights,
    positive_last,
    quantile_edges,
)
from labelward.data.splitting import DataSplit, refuse_equal_quantities, refuse_rare_classes
from labelward.errors import DataError, DataWarning, JobError
from labelward.job import Job, PartySection
from labelward.rng import PrivateSeed

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnRows:
    """Labeled rows that only the active party holds (:mod:`labelward.data.unaligned`): u rows of its F columns."""

    features: Floats  # [u, F], encoded as the party's training rows
    values: Floats  # [u], positions in the classes, or quantities
    weights: Floats  # [u], at least 0


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyDataset:
    """Columns of one party: n training, v validation and m test rows of F columns, float64 in C order, NaN if missing.

    Attributes:
        categories: categories of each categorical column, by position of the column; a code is an index. Only training
            and validation rows define categories: another category of a test row has the code -1.
        monotone: 1 or -1 by position of a column: predictions may only rise, or only fall, with it.
        edges: by position of a column where its buckets end, whatever its rows are.
        private: seed of draws that no other party may repeat.
        unaligned: rows that no other party holds, at the active party; None: none.
    """

    name: str
    columns: tuple[str, ...]  # names of the encoded columns (F)
    train: Floats  # [n, F]
    validation: Floats  # [v, F]
    test: Floats  # [m, F]
    categories: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    monotone: Mapping[int, int] = field(default_factory=dict)
    edges: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    dates: frozenset[str] = frozenset()  # names of the columns that hold dates or times
    private: PrivateSeed = field(default_factory=PrivateSeed.drawn, repr=False)
    unaligned: OwnRows | None = None

    @property
    def directions(self) -> dict[str, int]:
        """1 or -1 by name of each column with a monotone constraint."""
        return {self.columns[position]: direction for position, direction in self.monotone.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalDataset:
    """Data of all parties for one seed; row i is the same row at every party.

    Rows follow the order of the table; rows with ids are sorted by id, as text.

    Attributes:
        train_labels: int64 [n], targets of attacks: positions in ``classes``; for regression bins of equal numbers of
            training rows (:func:`~labelward.data.labels.quantile_edges`); -1 where the label is not known here.
        table: the common table, without the roles of its columns, but with columns that no party has or that the job
            drops; None: the parties have tables of their own.
        train_ids: text [n]: ids, or row numbers of the table from 0; of the published split row numbers of the cut
            tables, training rows first.
    """

    name: str
    label: str  # table and label column, for messages
    task: str  # ``"classification"`` or ``"regression"``
    classes: tuple[str, ...]  # values of the label as text, sorted (C); empty for regression
    parties: tuple[PartyDataset, ...]  # the active party first
    train_values: Floats  # float64 [n], training targets: positions in ``classes``, or quantities; NaN: not known here
    validation_values: Floats  # float64 [v]
    test_values: Floats  # float64 [m]
    train_weights: Floats  # float64 [n], at least 0; 1 without a weight column
    validation_weights: Floats  # float64 [v]
    test_weights: Floats  # float64 [m]
    train_labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]  # int64 [m]
    train_ids: NDArray[np.str_]
    validation_ids: NDArray[np.str_]  # text [v]
    test_ids: NDArray[np.str_]  # text [m]
    split: DataSplit  # positions of these rows among all rows, in the order that all parties share
    table_rows: DataSplit  # positions of these rows in the common table, or among the active party's rows sorted by id
    holders: tuple[str, ...]  # parties that hold labels, the coordinator first
    train_holders: NDArray[np.int64]  # int64 [n]: for each row the position of the holder of its label
    validation_holders: NDArray[np.int64]  # int64 [v]
    table: pa.Table | None = field(default=None, repr=False)

    def holds(self, party: str) -> NDArray[np.bool_]:
        """Return bool [n + v]: which labels of training and validation rows a party holds."""
        held = np.concatenate([self.train_holders, self.validation_holders])
        if party not in self.holders:
            return np.zeros(len(held), dtype=np.bool_)
        mine: NDArray[np.bool_] = held == self.holders.index(party)
        return mine

    @property
    def ids(self) -> NDArray[np.str_]:
        """Ids of all rows, text [n + v + m], in the order that all parties share."""
        ids = np.concatenate([self.train_ids, self.validation_ids, self.test_ids])
        order = np.concatenate([rows for _, rows in self.split.items()])
        return ids[np.argsort(order)]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelColumn:
    """Label and weight columns of the label holders, in the order of the rows."""

    task: str
    classes: tuple[str, ...]  # names of the classes; empty for regression
    values: NDArray[Any]  # class numbers, int64, or regression targets, float64 [rows]; NaN for labels of others
    weights: Floats  # float64 [rows]
    holders: NDArray[np.int64]  # int64 [rows]: position of the holder of each label among the job's; -1: not known

    def at(self, rows: NDArray[np.int64]) -> LabelColumn:
        """Return the labels of some rows."""
        return replace(self, values=self.values[rows], weights=self.weights[rows], holders=self.holders[rows])


def read_labels(job: Job, table: pa.Table, columns: tuple[str, str | None], place: str) -> LabelColumn:
    """Return the labels and weights of a table.

    Args:
        job: its task; without one the task of the catalog's entry, else classification.
        table: the common table, or the active party's.
        columns: names of the label column and of the weight column, if any.

    Raises:
        DataError: a column does not exist, or a label or weight is not valid.
    """
    label, weight = columns
    holders = np.zeros(table.num_rows, dtype=np.int64)
    weights = np.ones(table.num_rows) if weight is None else encode_weights(table, weight, place)
    task = job.data.task or default_task(job.data.table)
    if job.data.classes:
        named = encode_held_labels(table, label, place, job.data.classes)
        return LabelColumn(task=task, classes=job.data.classes, values=named, weights=weights, holders=holders)
    if task == "regression":
        return LabelColumn(
            task=task,
            classes=(),
            values=encode_regression_targets(table, label, place),
            weights=weights,
            holders=holders,
        )
    classes, codes = encode_labels(table, label, place, divided=True)
    if (positive := job.data.positive or job.active.positive) is not None:
        classes, codes = positive_last(classes, codes, positive, f"{place}, label column {label!r}")
    return LabelColumn(task=task, classes=classes, values=codes, weights=weights, holders=holders)


def read_held_labels(job: Job, party: PartySection, table: pa.Table) -> LabelColumn:
    """Return the labels that one of several holders has in its own table.

    Raises:
        DataError: a label is not valid.
        JobError: the job does not name the classes, of which a single party may not see all.
    """
    task = job.data.task or default_task(None)
    if task == "classification" and not job.data.classes:
        raise JobError("required where several parties have labels", code="missing", field="[data] classes")
    classes = job.data.classes or ()
    values = encode_held_labels(table, party.label or "", f"party {party.name!r}", classes)
    holders = np.where(np.isnan(values), -1, job.holders.index(party.name))
    return LabelColumn(task=task, classes=classes, values=values, weights=np.ones(len(values)), holders=holders)


def default_task(table: str | None) -> Literal["classification", "regression"]:
    """Return the task of a table of the catalog; classification for any other."""
    entry = catalog.catalog_entries().get(table or "")
    return "regression" if entry is not None and entry.task == "regression" else "classification"


class OwnSource(NamedTuple):
    """Of what a party's columns are encoded.

    Attributes:
        columns: the party's, in the table.
        directions: of monotone columns.
        edges: of columns with stated buckets.
    """

    table: pa.Table
    columns: Sequence[str]
    directions: Mapping[str, int]
    edges: Mapping[str, tuple[float, ...]]


def encode_columns(
    job: Job,
    name: str,
    source: OwnSource,
    sides: DataSplit,
    private: PrivateSeed,
) -> PartyDataset:
    """Return the encoded columns of a party.

    Args:
        job: its encoding of categories.
        sides: positions of the rows in the table.

    Raises:
        DataError: a column or value is not valid, a passive party has no column, or one that must have
            an order is categorical.
    """
    table, columns, directions, edges = source
    place = f"party {name!r}"
    seen = np.concatenate([sides.train, sides.validation])
    hashed = (*job.data.hashed, *job.party(name).hashed)
    known = fit_encoding(
        table, columns, place, style=job.data.categories, buckets=job.data.buckets, hashed=hashed, rows=seen
    )
    for key, ordered in (("monotone", directions), ("edges", edges)):
        for column in ordered:
            if column not in known.names or column in known.categories:
                reason = f"column {column!r} is categorical, and categories have no order; remove it"
                raise DataError(reason, code="columns", field=f"{place}: {key}", value=column)
    if name not in (job.active.name, job.dealer) and not known.names:
        raise DataError(
            "no column has more than one category, and a passive party needs one", code="columns", field=place
        )
    train, validation, test = transform_splits(table, known, place, [rows for _, rows in sides.items()])
    return PartyDataset(
        name=name,
        columns=known.names,
        train=train,
        validation=validation,
        test=test,
        categories={known.names.index(column): names for column, names in known.categories.items()},
        monotone={known.names.index(column): direction for column, direction in directions.items()},
        edges={known.names.index(column): own for column, own in edges.items()},
        dates=known.dates or frozenset(),
        private=private,
    )


def encode_all(parties: Iterable[Callable[[], PartyDataset]]) -> tuple[PartyDataset, ...]:
    """Return the encoded columns of all parties, each made by a call.

    Raises:
        DataError: columns cannot be used; names those of all parties.
    """
    made, wrong = list[PartyDataset](), list[DataError]()
    for encode in parties:
        try:
            made.append(encode())
        except DataError as error:
            wrong.append(error)
    if len(wrong) > 1:
        fields = tuple(
            name for each in wrong for name in (each.value if isinstance(each.value, tuple) else (each.field,))
        )
        reason = "\n".join([f"columns of {len(wrong)} parties cannot be used", *map(str, wrong)])
        raise DataError(reason, code="columns", value=fields)
    if wrong:
        raise wrong[0]
    return tuple(made)


def assemble_dataset(
    job: Job,
    named: tuple[str, str],
    parties: tuple[PartyDataset, ...],
    targets: LabelColumn,
    ids: NDArray[np.str_],
    sides: DataSplit,
) -> VerticalDataset:
    """Assemble the data of all parties.

    Args:
        job: its split, and its number of label bins.
        named: name of the data set; table and label column, for messages.
        ids: ids of all rows, in the order to which the positions of ``sides`` refer.

    Raises:
        DataError: nearly all labels are equal, a class has too few rows, or all rows of a part have weight 0.
    """
    weights = targets.weights
    check_weights(named[1], {name: weights[rows] for name, rows in sides.items()})
    values = targets.values.astype(np.float64)
    known = ~np.isnan(values)
    bins = np.full(len(values), -1)
    if targets.classes:
        bins[known] = values[known]
        if known.all():
            refuse_rare_classes(job.data, sides, bins, weights, targets.classes)
        _warn_of_one_class(job.holders, targets.holders[sides.train], bins[sides.train])
    elif known.all():
        refuse_equal_quantities(job.data, sides, values, weights, named[1])
        bins = np.searchsorted(quantile_edges(values[sides.train], job.leakage.label_bins), values)
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
        split=_shared_positions(job, ids, sides),
        table_rows=sides,
        holders=job.holders,
        train_holders=targets.holders[sides.train],
        validation_holders=targets.holders[sides.validation],
    )


def check_weights(field: str, weights: Mapping[str, NDArray[np.float64]]) -> None:
    """Refuse a part of the rows of which all have weight 0: no metric is defined for it.

    Args:
        field: where the labels come from, for the message.
        weights: float64 [rows] of each part.
    """
    for name, values in weights.items():
        if len(values) and not values.any():
            reason = f"all {name} rows have weight 0; at least one positive weight is needed"
            raise DataError(reason, code="rows", field=field, value=name)


def _warn_of_one_class(parties: Sequence[str], holders: NDArray[np.int64], classes: NDArray[np.int64]) -> None:
    """Say which of several label holders has labels of one class only, which is allowed; -1: an unknown class."""
    for position, party in enumerate(parties if len(parties) > 1 else ()):
        own = classes[(holders == position) & (classes >= 0)]
        if len(own) and (own == own[0]).all():
            warnings.warn(f"party {party!r} labels training rows of one class only", DataWarning, stacklevel=2)


def _shared_positions(job: Job, ids: NDArray[np.str_], sides: DataSplit) -> DataSplit:
    """Return the positions of each part's rows in the order that all parties share."""
    if job.data.split == "reference":
        return sides.contiguous()
    return sides if job.data.id is None or job.data.table is None else sides.reordered(ids)
