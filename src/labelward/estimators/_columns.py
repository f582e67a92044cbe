"""The columns of X: read from arrays and tables, coded as numbers, dealt out to parties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from labelward.errors import unknown_name
from labelward.estimators._errors import InvalidInputError
from labelward.job import PartySection

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EncodedColumns:
    """All columns of X as numbers.

    Attributes:
        names: of the columns; ``x0``, ``x1``, … where X has none.
        x: float64 [rows, columns]; NaN is a missing value.
        categories: for each categorical column the names of its categories, by code.
    """

    names: tuple[str, ...]
    x: Floats
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_columns(estimator: BaseEstimator, X: Any, *, reset: bool) -> Floats | Any:
    """Return X as float64 [rows, columns], or as an Arrow table; scikit-learn's rules for names and numbers of columns.

    Args:
        estimator: learns ``n_features_in_`` and ``feature_names_in_``, or is asked for them.
        reset: whether it learns them.

    Raises:
        ValueError: no row, no column, other columns than in training, a value that is infinite or no number.
        TypeError: a sparse matrix.
    """
    if hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns"):
        from labelward.data import as_table

        table = as_table(validate_data(estimator, X, reset=reset, skip_check_array=True), "X")
        return table.rename_columns(list(column_names(estimator)))
    return validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", order="C")


def fit_columns(estimator: BaseEstimator, X: Floats | Any, rows: NDArray[np.int64]) -> EncodedColumns:
    """Return how the columns of X are coded, and these rows of X.

    Args:
        estimator: knows the names of the columns.
        X: as :func:`read_columns` gave it.
        rows: the training rows; only their categories are known later.

    Raises:
        DataError: a column's type is not supported, or it has more categories than its rows allow.
    """
    if isinstance(X, np.ndarray):
        return EncodedColumns(column_names(estimator), np.ascontiguousarray(X[rows]))
    from labelward.data.encoding import fit_encoding, transform_splits

    known = fit_encoding(X, X.column_names, "X", rows=rows)
    return EncodedColumns(known.names, transform_splits(X, known, "X", [rows])[0], known.categories)


def transform_columns(
    names: Sequence[str], places: Sequence[int], categories: Mapping[str, tuple[str, ...]], X: Floats | Any
) -> Floats:
    """Return some columns of X in the coding of the training: float64 [rows, columns].

    Args:
        names: of the columns that are wanted.
        places: their positions in X.
        categories: those that training met, by column and code; another one is -1.
        X: as :func:`read_columns` gave it.

    Raises:
        ValueError: a column of another type than in training.
    """
    if not isinstance(X, np.ndarray):
        from labelward.data import transform

        return transform(X, names, categories, "X")
    for name in categories:
        raise InvalidInputError(
            f"column {name!r} held categories in training, so X must be a table as it was then",
            code="type",
            field="X",
            value=name,
        )
    return np.ascontiguousarray(X[:, list(places)])


def assign_positions(
    parties: Mapping[str, Iterable[str | int]] | None, active: str | None, names: Sequence[str], *, named: bool
) -> dict[str, tuple[int, ...]]:
    """Return the positions of each party's columns, the active party first.

    Args:
        parties: names of columns (or positions) for each party; None: the first half for ``"active"``, the others for
            ``"passive"``.
        active: the party that holds the labels; None: ``"active"`` if there is such a party, else the first one.
        named: whether X has names of columns.

    Raises:
        ValueError: fewer than two parties, a passive party without a column, a column that is unknown or given twice.
    """
    if parties is None:
        half = len(names) // 2
        parties = {"active": range(half), "passive": range(half, len(names))}
    if not isinstance(parties, Mapping) or len(parties) < 2:
        raise InvalidInputError(
            f"must give the columns of at least two parties but got {parties!r}",
            code="type",
            field="parties",
            value=parties,
        )
    first = ("active" if "active" in parties else next(iter(parties))) if active is None else active
    if first not in parties:
        raise InvalidInputError(
            unknown_name("party", str(first), map(str, parties)), code="unknown", field="active", value=first
        )
    holder: dict[int, str] = {}
    dealt: dict[str, tuple[int, ...]] = {}
    for party in (first, *(other for other in parties if other != first)):
        given = parties[party]
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidInputError(
                f"{party!r} needs a list of columns but got {given!r}", code="type", field="parties", value=given
            )
        places = tuple(position_of(column, names, f"parties: {party!r}", named=named) for column in given)
        PartySection(name=party, columns=tuple(names[place] for place in places))  # checks name and repeated columns
        if not places and party != first:
            raise InvalidInputError(
                f"{party!r} holds no column; a passive party must hold at least one",
                code="range",
                field="parties",
                value=party,
            )
        for place in places:
            if place in holder:
                raise InvalidInputError(
                    f"column {names[place]!r} is given to {holder[place]!r} already",
                    code="duplicate",
                    field=f"parties: {party!r}",
                    value=names[place],
                )
            holder[place] = party
        dealt[party] = places
    if len({party.lower() for party in dealt}) < len(dealt):
        raise InvalidInputError(
            f"names may not differ only in case: {', '.join(dealt)}",
            code="duplicate",
            field="parties",
            value=tuple(dealt),
        )
    return dealt


def position_of(column: Any, names: Sequence[str], place: str, *, named: bool) -> int:
    """Return the position of a column that is given by name, or by position where X has no names.

    Raises:
        ValueError: there is no such column; names ``place`` and the nearest one.
    """
    if isinstance(column, str):
        if not named:
            raise InvalidInputError(
                f"X has no names of columns, so {column!r} must be a position",
                code="unsupported",
                field=place,
                value=column,
            )
        if column not in names:
            raise InvalidInputError(unknown_name("column", column, names), code="unknown", field=place, value=column)
        return names.index(column)
    if isinstance(column, bool) or not isinstance(column, int | np.integer):
        raise InvalidInputError(
            f"a column is given by its name or position but got {column!r}", code="type", field=place, value=column
        )
    if not 0 <= column < len(names):
        raise InvalidInputError(
            f"there is no column {column} among {len(names)}, counted from 0", code="unknown", field=place, value=column
        )
    return int(column)


def column_names(estimator: Any) -> tuple[str, ...]:
    """Return the names of the columns of X: ``x0``, ``x1``, … where it has none."""
    known = getattr(estimator, "feature_names_in_", None)
    return tuple(f"x{place}" for place in range(estimator.n_features_in_)) if known is None else tuple(map(str, known))
