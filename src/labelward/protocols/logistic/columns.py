"""A party's columns as logistic regression reads them: standardized, without gaps, in fixed point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset
from labelward.errors import JobError
from labelward.protocols.logistic.fixed_point import MOST_COLUMNS, Codes, column_codes

Floats = NDArray[np.float64]

MOST_CATEGORIES = 256
"""Of a column: each one but the first becomes a column of its own."""


class ColumnScale(msgspec.Struct, frozen=True, kw_only=True):
    """How one column is encoded.

    Attributes:
        mean, deviation: of its training values that are not missing; a missing value becomes the mean.
        categories: number of categories; 0: a column of numbers. Each category but the first is a column of 0 and 1,
            and a value that is missing or unknown is 0 in all of them.
    """

    mean: float = 0.0
    deviation: float = 1.0
    categories: int = 0

    @classmethod
    def of(cls, values: Floats, categories: int) -> ColumnScale:
        """Return the scale of a column's training values."""
        if categories:
            return cls(categories=categories)
        known = values[~np.isnan(values)]
        if not len(known):
            return cls()
        deviation = float(known.std())
        return cls(mean=float(known.mean()), deviation=deviation if deviation > 0 else 1.0)

    def encoded(self, values: Floats) -> Floats:
        """Return the column's numbers, float64 [rows, columns that it becomes]."""
        if self.categories:
            return np.asarray(values[:, None] == np.arange(1, max(self.categories, 2)), dtype=np.float64)
        scaled = (values - self.mean) / self.deviation
        return np.asarray(np.where(np.isnan(scaled), 0.0, scaled)[:, None])


def scales_of(features: Floats, columns: Sequence[str], categories: Mapping[str, int]) -> tuple[ColumnScale, ...]:
    """Return the scale of each of a party's columns from its training rows.

    Raises:
        JobError: a column has too many categories; names it.
    """
    for name in columns:
        if categories.get(name, 0) > MOST_CATEGORIES:
            reason = f"column {name!r} has {categories[name]} categories, more than {MOST_CATEGORIES}; drop it"
            raise JobError(reason, code="range", field="[data] drop", value=name)
    return tuple(ColumnScale.of(features[:, at], categories.get(name, 0)) for at, name in enumerate(columns))


def scales_of_party(party: PartyDataset) -> tuple[ColumnScale, ...]:
    """Return the scales of a party's columns."""
    categories = {party.columns[place]: len(names) for place, names in party.categories.items()}
    return scales_of(party.train, party.columns, categories)


def check_width(party: str, scales: Sequence[ColumnScale]) -> None:
    """Refuse more encoded columns than a party may have; :class:`JobError` names the party."""
    width = sum(max(scale.categories, 2) - 1 for scale in scales)
    if width > MOST_COLUMNS:
        reason = f"party {party!r} has {width} columns, categories counted, more than {MOST_COLUMNS}"
        raise JobError(reason, code="range", field="[data] drop", value=width)


def encoded_columns(scales: Sequence[ColumnScale], x: Floats) -> Codes:
    """Return a party's rows in fixed point, int32 [rows, encoded columns]."""
    parts = [column_codes(scale.encoded(x[:, at])) for at, scale in enumerate(scales)]
    return np.ascontiguousarray(np.hstack([np.empty((len(x), 0), dtype=np.int32), *parts]))
