"""The label column as class numbers or quantities, and the weights of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.data.encoding import encode_numbers
from labelward.data.mistyped_values import first_mistyped, is_text
from labelward.data.tables import describe_row, find_column
from labelward.errors import DataError

__all__ = ["encode_labels", "encode_regression_targets", "encode_weights", "quantile_edges"]


def encode_labels(table: pa.Table, column: str, place: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the classes in sorted order, as text, and each row's position among them.

    Args:
        table: the active party's table.
        column: its label column: whole numbers, texts, categories or booleans.
        place: whose table it is, for messages.

    Raises:
        DataError: labels are missing, fractional or infinite, or all the same, or a class has a single row.
    """
    labels = find_column(table, column, place)
    where = f"{place}, label column {column!r}"
    if pa.types.is_dictionary(labels.type):
        labels = labels.cast(labels.type.value_type)
    _refuse_missing(labels, where)
    if pa.types.is_floating(labels.type) or pa.types.is_decimal(labels.type):
        labels = _whole(labels, where)
    kind = labels.type
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind)):
        raise DataError(
            f"type {kind} is not supported; labels must be whole numbers, texts or booleans",
            code="labels",
            field=where,
            value=str(kind),
        )
    found = pc.unique(labels)
    found = found.take(pc.sort_indices(found.cast(pa.int8()) if pa.types.is_boolean(kind) else found))
    codes = pc.index_in(labels, value_set=found).to_numpy().astype(np.int64)
    classes = tuple(str(value) for value in found.to_pylist())
    if len(classes) < 2:
        raise DataError(
            f"every label is {classes[0]!r}; at least two classes are needed",
            code="labels",
            field=where,
            value=classes[0],
        )
    counts = np.bincount(codes)
    if counts.min() < 2:
        lonely = classes[int(counts.argmin())]
        told = "" if is_text(kind) else '; set task = "regression" in [data] if the labels are quantities'
        raise DataError(
            f"class {lonely!r} has a single row, which cannot be in training and in test{told}",
            code="labels",
            field=where,
            value=lonely,
        )
    return classes, codes


def encode_regression_targets(table: pa.Table, column: str, place: str) -> NDArray[np.float64]:
    """Return a label column of numbers as float64 [rows].

    Args:
        table: the active party's table.
        column: its label column.
        place: whose table it is, for messages.

    Raises:
        DataError: labels are no numbers, missing, infinite or huge, or all the same.
    """
    labels = find_column(table, column, place)
    where = f"{place}, label column {column!r}"
    _refuse_missing(labels, where)
    if not _is_number(labels.type):
        raise DataError(
            f"a regression needs numbers but the column has type {labels.type}{_misfit(labels)}; "
            'set task = "classification" in [data] if these are classes',
            code="labels",
            field=where,
            value=str(labels.type),
        )
    values = encode_numbers(labels, where)
    if (values == values[0]).all():
        raise DataError(
            f"every label is {values[0]:g}; there is nothing to learn",
            code="labels",
            field=where,
            value=float(values[0]),
        )
    return values


def encode_weights(table: pa.Table, column: str, place: str) -> NDArray[np.float64]:
    """Return a column of row weights as float64 [rows], at least 0.

    Raises:
        DataError: weights are no numbers, missing, negative, infinite or huge, or all 0.
    """
    weights = find_column(table, column, place)
    where = f"{place}, weight column {column!r}"
    if not _is_number(weights.type):
        raise DataError(
            f"weights must be numbers but the column has type {weights.type}{_misfit(weights)}",
            code="columns",
            field=where,
            value=str(weights.type),
        )
    values = encode_numbers(weights, where)
    for wrong, told in ((np.isnan(values), "is missing"), (values < 0, "is negative")):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"{describe_row(row)}, {told} ({np.count_nonzero(wrong)} in all)",
                code="values",
                field=where,
                value=int(np.count_nonzero(wrong)),
            )
    if not values.any():
        raise DataError("every weight is 0", code="values", field=where)
    return values


def quantile_edges(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Return the edges, ascending, that cut quantities into bins of as equal numbers as their repeats allow.

    A value belongs to the bin of the first edge that is at least as large, ``np.searchsorted(edges, value)``. Edges are
    values that occur, and none is the largest, so that no bin of ``values`` is empty; there are at least two bins.

    Args:
        values: of the training rows; two different ones at least.
        bins: at most so many.
    """
    edges: NDArray[np.float64] = np.unique(np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf"))
    edges = edges[edges < values.max()]
    return edges if len(edges) else np.array([values[values < values.max()].max()])


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _misfit(values: Any) -> str:
    told = first_mistyped(values, "number") if is_text(values.type) else ""
    return f" ({told})" if told else ""


def _refuse_missing(labels: Any, where: str) -> None:
    missing = pc.is_null(labels, nan_is_null=True).to_numpy(zero_copy_only=False)
    count = int(np.count_nonzero(missing))
    if count:
        told = "1 label is missing" if count == 1 else f"{count} labels are missing"
        raise DataError(
            f"{told} (the first in {describe_row(int(np.argmax(missing)))})", code="labels", field=where, value=count
        )


def _whole(labels: Any, where: str) -> Any:
    values = np.asarray(labels.cast(pa.float64(), safe=False).to_numpy())
    wrong = ~np.isfinite(values) | (values != np.floor(values)) | (np.abs(values) > 2**53)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{describe_row(row)}, is {values[row]}; labels must be classes, whole numbers or texts "
            '(set task = "regression" in [data] if they are quantities)',
            code="labels",
            field=where,
            value=float(values[row]),
        )
    return pa.chunked_array([pa.array(values.astype(np.int64))])
