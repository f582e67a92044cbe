"""The further attribute that an attack infers: its values in the training rows, and what the attacker knows of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AuxiliaryKnowledge
from labelward.data import VerticalDataset, fit_encoding, source_column, transform_splits
from labelward.data.labels import quantile_edges
from labelward.errors import JobError, unknown_name
from labelward.leakage.known_rows import sample_known_rows

Classes = NDArray[np.int64]


def value_numbers(values: NDArray[np.float64], *, categorical: bool) -> Classes:
    """Return the values of a column as classes, int64 [rows], numbered in ascending order.

    Categories, and numbers of which only two differ, are classes of their own; of other numbers the class tells the
    side of the median, 1 for those above it.

    Args:
        values: float64 [rows], without gaps.
        categorical: whether they are codes of categories.
    """
    different, numbers = np.unique(values, return_inverse=True)
    if categorical or len(different) <= 2:
        return numbers.astype(np.int64)
    return np.searchsorted(quantile_edges(values, 2), values).astype(np.int64)


def attribute_values(data: VerticalDataset, column: str) -> Classes:
    """Return the classes of an attribute in the training rows (:func:`value_numbers`).

    Args:
        data: of all parties.
        column: as :attr:`labelward.attacks.base.Attack.attribute` names it.

    Raises:
        DataError: the column of the common table cannot be encoded.
        JobError: there is no such column, or its values are missing in some rows or all equal.
    """
    values, categorical = _cells(data, column)
    if np.isnan(values).any():
        missing = int(np.isnan(values).sum())
        reason = f"{column!r} has no value in {missing} training rows, and its inference cannot be scored there"
        raise JobError(reason, code="values", field="column", value=column)
    found = value_numbers(values, categorical=categorical)
    if not found.any():
        raise JobError(f"{column!r} has one value only", code="values", field="column", value=column)
    return found


def check_attribute(attack: Attack, data: VerticalDataset, attackers: Sequence[str], *, seed: int) -> None:
    """Refuse an attribute that cannot be inferred or scored, or that an attacker has among its own columns.

    Args:
        attack: with an attribute.
        data: of all parties.
        attackers: names of the parties that run it.
        seed: of the run.

    Raises:
        DataError: as :func:`attribute_values`; fewer known values than the attribute has, or no row left to guess.
        JobError: as :func:`attribute_values`, or an attacker has the column.
    """
    column = (attack.attribute or ("", 0))[0]
    known_attribute(attack, data, seed=seed)
    held = next((name for name in _holders(data, column) if name in attackers), None)
    if held is not None:
        reason = f"{column!r} is a column of {held!r}, which would infer it; name another attacker under party"
        raise JobError(reason, code="conflict", field="column", value=column)


def known_attribute(attack: Attack, data: VerticalDataset, *, seed: int) -> AuxiliaryKnowledge | None:
    """Return what an attacker knows of the attribute that its attack names; None: it names none.

    Raises:
        DataError: as :func:`check_attribute`.
        JobError: as :func:`attribute_values`.
    """
    if attack.attribute is None:
        return None
    column, count = attack.attribute
    values = attribute_values(data, column)
    rows = sample_known_rows(values, count, seed=seed, field="known_values")
    return AuxiliaryKnowledge(classes=int(values.max()) + 1, known_rows=rows, known_labels=values[rows])


def _cells(data: VerticalDataset, column: str) -> tuple[NDArray[np.float64], bool]:
    """Return a column of the training rows, float64 [rows], and whether it holds codes of categories."""
    if data.table is not None:
        if column not in data.table.column_names:
            raise _unknown(column, data.table.column_names)
        rows, place = data.table_rows.train, f"table {data.name!r}"
        known = fit_encoding(data.table, [column], place, rows=rows)
        (cells,) = transform_splits(data.table, known, place, [rows])
        if not known.names:
            raise JobError(f"{column!r} has one value only", code="values", field="column", value=column)
        return cells[:, 0], column in known.categories
    named = {f"{party.name}.{each}": (party, at) for party in data.parties for at, each in enumerate(party.columns)}
    if column not in named:
        raise _unknown(column, list(named))
    party, at = named[column]
    return party.train[:, at], at in party.categories


def _holders(data: VerticalDataset, column: str) -> list[str]:
    """Return the parties that have a column."""
    if data.table is None:
        return [party.name for party in data.parties if column in [f"{party.name}.{each}" for each in party.columns]]
    return [party.name for party in data.parties if column in {source_column(n, [column]) for n in party.columns}]


def _unknown(column: str, known: Sequence[str]) -> JobError:
    return JobError(unknown_name("column", column, known), code="unknown", field="column", value=column)
