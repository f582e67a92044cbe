"""Columns of X: reading arrays and tables, encoding as numbers, assignment to parties."""

from __future__ import annotations

import re
from collections import Counter
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
_DIRECTIONS = re.compile(r"\(\s*([+-]?\d+(?:\s*,\s*[+-]?\d+)*)\s*,?\s*\)")
_MONOTONE = "monotone_constraints"


@dataclass(frozen=True)
class EncodedColumns:
    """Encoded columns of X.

    Attributes:
        names: names of the columns; ``x0``, ``x1``, … if X has none.
        x: float64 [rows, columns]; NaN is a missing value.
        categories: names of the categories of each categorical column; a code is an index.
    """

    names: tuple[str, ...]
    x: Floats
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_columns(estimator: BaseEstimator, X: Any, *, reset: bool) -> Floats | Any:
    """Return X as float64 [rows, columns] or as an Arrow table, by scikit-learn's rules for column names and counts.

    Args:
        estimator: the estimator, which has ``n_features_in_`` and ``feature_names_in_``.
        reset: True: set these attributes; False: check X against them.

    Raises:
        ValueError: X is empty, its columns differ from training, two have one name, or a value is infinite or not a
            number.
        TypeError: X is a sparse matrix.
    """
    if hasattr(X, "__arrow_c_stream__") and hasattr(X, "columns"):
        import pyarrow as pa

        from labelward.data import as_table

        names = X.column_names if isinstance(X, pa.Table) else X.columns
        if repeated := [name for name, times in Counter(names).items() if times > 1]:
            reason = f"column {repeated[0]!r} occurs more than once; rename it"
            raise InvalidInputError(reason, code="duplicate", field="X", value=repeated[0])
        table = as_table(validate_data(estimator, X, reset=reset, skip_check_array=True), "X")
        return table.rename_columns(list(column_names(estimator)))
    return validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", order="C")


def fit_columns(
    estimator: BaseEstimator, X: Floats | Any, rows: NDArray[np.int64], held: Mapping[str, Sequence[int]]
) -> EncodedColumns:
    """Fit the encoding of X on the training rows, and return these rows encoded.

    Args:
        X: result of :func:`read_columns`.
        rows: positions of the training rows; other categories are unknown later.
        held: positions of each party's columns. Those of a table that no party holds may be anything, and become NaN.

    Raises:
        DataError: the type of a column is not supported, or it has too many categories.
    """
    names = column_names(estimator)
    if isinstance(X, np.ndarray):
        return EncodedColumns(names, np.ascontiguousarray(X[rows]))
    from labelward.data.encoding import fit_encoding, transform_splits

    places = sorted(place for own in held.values() for place in own)
    known = fit_encoding(X, [names[place] for place in places], "X", rows=rows)
    x = np.full((len(rows), len(names)), np.nan)
    x[:, places] = transform_splits(X, known, "X", [rows])[0]
    return EncodedColumns(names, x, known.categories)


def transform_columns(
    names: Sequence[str], places: Sequence[int], categories: Mapping[str, tuple[str, ...]], X: Floats | Any
) -> Floats:
    """Encode columns of X as in training: float64 [rows, columns].

    Args:
        places: positions of the columns in X.
        categories: categories of training by column; another one becomes -1.
        X: result of :func:`read_columns`.

    Raises:
        ValueError: a column has another type than in training.
    """
    if not isinstance(X, np.ndarray):
        from labelward.data import transform

        return transform(X, names, categories, "X")
    for name in categories:
        reason = f"column {name!r} was categorical in training; X must be a table again"
        raise InvalidInputError(reason, code="type", field="X", value=name)
    return np.ascontiguousarray(X[:, list(places)])


def assign_positions(
    parties: Mapping[str, Iterable[str | int]] | None, active: str | None, names: Sequence[str], *, named: bool
) -> dict[str, tuple[int, ...]]:
    """Return the positions of each party's columns, the active party first.

    Args:
        parties: names or positions of columns by party; None: the first half for ``"active"``, the rest for
            ``"passive"``.
        active: the party with the labels; None: ``"active"`` if there is such a party, else the first.
        named: whether the columns of X have names.

    Raises:
        ValueError: there are fewer than two parties, a passive party has no column, or a column is unknown or assigned
            twice.
    """
    if parties is None:
        half = len(names) // 2
        parties = {"active": range(half), "passive": range(half, len(names))}
    if not isinstance(parties, Mapping) or len(parties) < 2:
        reason = f"must give the columns of at least two parties but got {parties!r}"
        raise InvalidInputError(reason, code="type", field="parties", value=parties)
    first = ("active" if "active" in parties else next(iter(parties))) if active is None else active
    if first not in parties:
        raise InvalidInputError(
            unknown_name("party", str(first), map(str, parties)), code="unknown", field="active", value=first
        )
    holder: dict[int, str] = {}
    positions: dict[str, tuple[int, ...]] = {}
    for party in (first, *(other for other in parties if other != first)):
        given = parties[party]
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidInputError(
                f"{party!r} needs a list of columns but got {given!r}", code="type", field="parties", value=given
            )
        places = tuple(position_of(column, names, f"parties: {party!r}", named=named) for column in given)
        PartySection(name=party, columns=tuple(names[place] for place in places))  # checks name and repeated columns
        if not places and party != first:
            reason = f"{party!r} has no column; a passive party needs at least one"
            raise InvalidInputError(reason, code="range", field="parties", value=party)
        for place in places:
            if place in holder:
                reason = f"column {names[place]!r} is assigned to {holder[place]!r} as well"
                raise InvalidInputError(reason, code="duplicate", field=f"parties: {party!r}", value=names[place])
            holder[place] = party
        positions[party] = places
    if len({party.lower() for party in positions}) < len(positions):
        reason = f"names must differ in more than case: {', '.join(positions)}"
        raise InvalidInputError(reason, code="duplicate", field="parties", value=tuple(positions))
    return positions


def position_of(column: Any, names: Sequence[str], place: str, *, named: bool) -> int:
    """Return the position of a column, given by name or position.

    Raises:
        ValueError: the column does not exist (names ``place`` and the most similar one), or a name is given and X has
            none.
    """
    if isinstance(column, str):
        if not named:
            reason = f"X has no column names; give {column!r} by its position"
            raise InvalidInputError(reason, code="unsupported", field=place, value=column)
        if column not in names:
            raise InvalidInputError(unknown_name("column", column, names), code="unknown", field=place, value=column)
        return names.index(column)
    if isinstance(column, bool) or not isinstance(column, int | np.integer):
        raise InvalidInputError(
            f"columns must be given by name or position but got {column!r}", code="type", field=place, value=column
        )
    if not 0 <= column < len(names):
        raise InvalidInputError(
            f"X has no column {column}; it has {len(names)}, counted from 0", code="unknown", field=place, value=column
        )
    return int(column)


def column_names(estimator: Any) -> tuple[str, ...]:
    """Return the names of the columns of X; ``x0``, ``x1``, … if it has none."""
    known = getattr(estimator, "feature_names_in_", None)
    return tuple(f"x{place}" for place in range(estimator.n_features_in_)) if known is None else tuple(map(str, known))


def parse_monotone(given: Any, columns: EncodedColumns, *, named: bool) -> dict[int, int]:
    """Return the constraint, 1 or -1, by position of a column in X.

    Args:
        given: a dictionary by name or position, a sequence with a direction for each column of X, or its text form such
            as ``"(1,0,-1)"``; None: no constraints.
        named: whether the columns of X have names.

    Raises:
        ValueError: the form or length is wrong, a column does not exist, is listed twice or is categorical, or a
            direction is not 1, -1 or 0.
    """
    if given is None:
        return {}
    directions: dict[int, int] = {}
    for column, direction in _pairs(given, columns.names):
        place = position_of(column, columns.names, _MONOTONE, named=named)
        whole = isinstance(direction, int | np.integer) and not isinstance(direction, bool)
        if not whole or direction not in (-1, 0, 1):
            raise InvalidInputError(
                f"must be 1, -1 or 0, but {column!r} has {direction!r}", code="choice", field=_MONOTONE, value=direction
            )
        if direction and columns.names[place] in columns.categories:
            name = columns.names[place]
            reason = f"{name!r} is categorical and cannot have the constraint {direction!r}"
            raise InvalidInputError(reason, code="unsupported", field=_MONOTONE, value=name)
        if place in directions:
            reason = f"column {columns.names[place]!r} is listed by name and by position"
            raise InvalidInputError(reason, code="duplicate", field=_MONOTONE, value=columns.names[place])
        directions[place] = int(direction)
    return {place: direction for place, direction in directions.items() if direction}


def _pairs(given: Any, names: Sequence[str]) -> list[tuple[Any, Any]]:
    """Return pairs of a column (name or position) and its direction."""
    if isinstance(given, Mapping):
        return list(given.items())
    each = given
    if isinstance(given, str) and (text := _DIRECTIONS.fullmatch(given.strip())):
        each = [int(number) for number in text[1].split(",")]
    elif isinstance(given, np.ndarray) and given.ndim == 1:
        each = given.tolist()
    if not isinstance(each, list | tuple):
        wanted = "a dictionary by column, or a list with 1, -1 or 0 for each column of X"
        raise InvalidInputError(f"must be {wanted}, but got {given!r}", code="type", field=_MONOTONE, value=given)
    if len(each) != len(names):
        reason = f"must have one direction for each of the {len(names)} columns of X but has {len(each)}"
        raise InvalidInputError(reason, code="range", field=_MONOTONE, value=len(each))
    return list(enumerate(each))
