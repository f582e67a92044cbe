"""Labels as class numbers or regression targets, and weights of the rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from labelward.data.encoding import encode_numbers
from labelward.data.mistyped_values import first_mistyped, is_text
from labelward.data.tables import describe_row, file_row, find_column, first_row, rows_taken
from labelward.errors import DataError, DataWarning

WIDEST_WEIGHTS = 1e9
"""Largest ratio of two positive weights: encrypted gradients have 30 bits behind the point."""
_QUANTITIES = 'set task = "regression" in [data]'


def encode_labels(
    table: pa.Table,
    column: str,
    place: str,
    *,
    divided: bool = False,
    quantities: str = _QUANTITIES,
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the classes in sorted order, as text, and each row's position among them.

    Args:
        column: its label column: integers, texts, categories or booleans.
        divided: the rows are to be divided into training and test rows, so that each class needs more than one.
        quantities: what an error advises where the labels look like quantities.

    Raises:
        DataError: labels are missing, fractional, infinite or all equal, or a class has too few rows.
    """
    labels = find_column(table, column, place)
    where = f"{place}, label column {column!r}"
    if pa.types.is_dictionary(labels.type):
        labels = labels.cast(labels.type.value_type)
    _refuse_missing(labels, where)
    if pa.types.is_floating(labels.type) or pa.types.is_decimal(labels.type):
        labels = _as_integers(labels, where, quantities)
    kind = labels.type
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind)):
        reason = f"type {kind} is not supported; labels must be integers, texts or booleans"
        raise DataError(reason, code="labels", field=where, value=str(kind))
    values = pc.unique(labels)
    values = values.take(pc.sort_indices(values.cast(pa.int8()) if pa.types.is_boolean(kind) else values))
    codes = pc.index_in(labels, value_set=values).to_numpy().astype(np.int64)
    classes = tuple(str(value) for value in values.to_pylist())
    if len(classes) < 2:
        reason = f"all labels are {classes[0]!r}; at least two classes are needed"
        raise DataError(reason, code="labels", field=where, value=classes[0])
    _warn_of_spellings(classes, where)
    counts = np.bincount(codes)
    if divided and counts.min() < 2:
        lonely = classes[int(counts.argmin())]
        advice = "" if is_text(kind) else f"; {quantities} if the labels are continuous"
        if is_text(kind) and file_row(int(np.argmax(codes == counts.argmin()))) == 0:
            advice = "; it is in row 0, which may be a second line of names"
        reason = f"class {lonely!r} has a single row, but training and test each need one{advice}"
        raise DataError(reason, code="labels", field=where, value=lonely)
    return classes, codes


def _warn_of_spellings(classes: Sequence[str], where: str) -> None:
    """Warn of classes that differ in case or blanks alone."""
    spelled: dict[str, str] = {}
    for name in classes:
        plain = " ".join(name.split()).lower()
        if plain in spelled:
            reason = f"{where}: classes {spelled[plain]!r} and {name!r} differ only in case or blanks"
            warnings.warn(reason, DataWarning, stacklevel=3)
        spelled.setdefault(plain, name)


def positive_last(
    classes: tuple[str, ...], codes: NDArray[np.int64], positive: str, place: str
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return two classes, and the positions of labels among them, with the positive class as the second.

    Raises:
        DataError: there are more classes, or ``positive`` is none of them.
    """
    named = [position for position, name in enumerate(classes) if name.casefold() == positive.casefold()]
    if positive in classes:
        named = [classes.index(positive)]
    if len(classes) > 2 or len(named) != 1:
        listed = ", ".join(map(repr, classes[:10])) + (", …" if len(classes) > 10 else "")
        reason = f"positive {positive!r} must be one of two classes, and the classes are {listed}"
        raise DataError(reason, code="labels", field=place, value=positive)
    return (classes, codes) if named[0] == 1 else (classes[::-1], 1 - codes)


def encode_held_labels(table: pa.Table, column: str, place: str, classes: Sequence[str]) -> NDArray[np.float64]:
    """Return the labels that one of several holders has, float64 [rows]; NaN where another party holds the label.

    Args:
        classes: names of the classes, whose positions are returned; empty: the labels are quantities.

    Raises:
        DataError: a label is no class, or no number.
    """
    labels = find_column(table, column, place)
    where = f"{place}, label column {column!r}"
    known = ~pc.is_null(labels, nan_is_null=True).to_numpy(zero_copy_only=False)
    values, held = np.full(len(labels), np.nan), labels.filter(pa.array(known))
    if not known.any():
        return values
    if not classes:
        if not _is_number(held.type):
            reason = f"regression needs numbers but the column has type {held.type}{_misfit(held)}"
            raise DataError(reason, code="labels", field=where, value=str(held.type))
        return encode_numbers(labels, where)
    if pa.types.is_floating(held.type):
        with rows_taken(np.flatnonzero(known)):
            held = _as_integers(held, where, _QUANTITIES)
    texts = held.cast(pa.string())
    codes = pc.index_in(texts, value_set=pa.array(classes, pa.string()))
    if codes.null_count:
        stranger = texts.filter(pc.is_null(codes))[0].as_py()
        raise DataError(f"{stranger!r} is none of the classes", code="labels", field=where, value=stranger)
    values[known] = codes.to_numpy()
    return values


def encode_regression_targets(
    table: pa.Table, column: str, place: str, *, classes: str = 'set task = "classification" in [data]'
) -> NDArray[np.float64]:
    """Return a label column of regression targets as float64 [rows].

    Args:
        classes: what an error advises where the labels look like classes.

    Raises:
        DataError: labels are not numbers, missing, infinite, too large or all equal.
    """
    labels = find_column(table, column, place)
    where = f"{place}, label column {column!r}"
    _refuse_missing(labels, where)
    if not _is_number(labels.type):
        reason = (
            f"regression needs numbers but the column has type {labels.type}{_misfit(labels)}; "
            f"{classes} if the labels are classes"
        )
        raise DataError(reason, code="labels", field=where, value=str(labels.type))
    values = encode_numbers(labels, where)
    if (values == values[0]).all():
        reason = f"all labels are {values[0]:g}; at least two values are needed"
        raise DataError(reason, code="labels", field=where, value=float(values[0]))
    return values


def encode_weights(table: pa.Table, column: str, place: str) -> NDArray[np.float64]:
    """Return a column of row weights as float64 [rows], at least 0.

    Raises:
        DataError: weights are not numbers, missing, negative, infinite, too large, all 0, or of too wide a range.
    """
    weights = find_column(table, column, place)
    where = f"{place}, weight column {column!r}"
    if not _is_number(weights.type):
        reason = f"weights must be numbers but the column has type {weights.type}{_misfit(weights)}"
        raise DataError(reason, code="columns", field=where, value=str(weights.type))
    values = encode_numbers(weights, where)
    for wrong, problem in ((np.isnan(values), "is missing"), (values < 0, "is negative")):
        if wrong.any():
            row = first_row(wrong)
            reason = f"{describe_row(row)}, {problem} ({np.count_nonzero(wrong)} in all)"
            raise DataError(reason, code="values", field=where, value=int(np.count_nonzero(wrong)))
    if not values.any():
        raise DataError("all weights are 0; at least one must be positive", code="values", field=where)
    least, most = float(values[values > 0].min()), float(values.max())
    if reason := too_wide(least, most):
        raise DataError(reason, code="range", field=where, value=(least, most))
    return values


def too_wide(least: float, most: float) -> str:
    """Return what is wrong where positive weights range from one number to another; empty: nothing."""
    if most / least <= WIDEST_WEIGHTS:
        return ""
    return (
        f"positive weights range from {least:g} to {most:g}, a ratio above {WIDEST_WEIGHTS:g}: the smallest would "
        "round to zero; set them to 0 or increase them"
    )


def quantile_edges(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Return ascending quantile edges that cut regression targets into bins of nearly equal counts.

    The bin of a value is ``np.searchsorted(edges, value)``: that of the first edge that is not smaller. Edges are
    values that occur, without the largest: no bin is empty, and there are at least two.

    Args:
        values: targets of the training rows, of which at least two differ.
        bins: the largest number of bins; equal values may leave fewer.
    """
    edges: NDArray[np.float64] = np.unique(np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf"))
    edges = edges[edges < values.max()]
    return edges if len(edges) else np.array([values[values < values.max()].max()])


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _misfit(values: Any) -> str:
    mistyped = first_mistyped(values, "number") if is_text(values.type) else ""
    return f" ({mistyped})" if mistyped else ""


def _refuse_missing(labels: Any, where: str) -> None:
    missing = pc.is_null(labels, nan_is_null=True).to_numpy(zero_copy_only=False)
    count = int(np.count_nonzero(missing))
    if count:
        number = "1 label is missing" if count == 1 else f"{count} labels are missing"
        raise DataError(
            f"{number} (the first in {describe_row(first_row(missing))})", code="labels", field=where, value=count
        )


def _as_integers(labels: Any, where: str, quantities: str) -> Any:
    values = np.asarray(labels.cast(pa.float64(), safe=False).to_numpy())
    wrong = ~np.isfinite(values) | (values != np.floor(values)) | (np.abs(values) > 2**53)
    if wrong.any():
        row = first_row(wrong)
        number, wanted = values[row], "; labels of classes must be integers or texts"
        if np.isfinite(number) and number == np.floor(number):
            number, wanted = f"{number:.0f}", ", too large for an integer; write labels of classes as texts"
        reason = f"{describe_row(row)}, is {number}{wanted} ({quantities} if they are continuous)"
        raise DataError(reason, code="labels", field=where, value=float(values[row]))
    return pa.chunked_array([pa.array(values.astype(np.int64))])
