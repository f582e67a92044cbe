"""A party's columns as logistic regression reads them: standardized, without gaps, in fixed point."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset
from labelward.errors import JobError
from labelward.kernels.encoded_columns import Codes, column_codes, least_rows, scale_of_numbers, standardized
from labelward.protocols.logistic.fixed_point import MOST_COLUMNS
from labelward.protocols.logistic.params import LogisticRegression

Floats = NDArray[np.float64]

MOST_CATEGORIES = 256
"""Of a column: each one but the first becomes a column of its own, unless it is rare."""


class ColumnScale(msgspec.Struct, frozen=True, kw_only=True):
    """How one column is encoded.

    Attributes:
        mean, deviation: of its training values that are not missing; a missing value becomes the mean.
        kept: codes of the categories that are columns of 0 and 1; None: a column of numbers. The first category, rare
            ones and values that are missing or unknown are 0 in all of them. Numbers that tell but few rows from all
            others have none.
    """

    mean: float = 0.0
    deviation: float = 1.0
    kept: tuple[int, ...] | None = None

    @classmethod
    def of(cls, values: Floats, categories: int, least: int) -> ColumnScale:
        """Return the scale of a column's training values.

        Categories of fewer than ``least`` rows are rare; numbers that are equal but in fewer rows have no column.
        """
        if categories:
            kept = [code for code in range(1, categories) if np.count_nonzero(values == code) >= least]
            return cls(kept=tuple(kept))
        scale = scale_of_numbers(values, least)
        return cls(kept=()) if scale is None else cls(mean=scale[0], deviation=scale[1])

    def encoded(self, values: Floats) -> Floats:
        """Return the column's numbers, float64 [rows, columns that it becomes]."""
        if self.kept is not None:
            return np.asarray(values[:, None] == np.array(self.kept), dtype=np.float64)
        return standardized(values, self.mean, self.deviation)[:, None]


def scales_of_party(params: LogisticRegression, party: PartyDataset) -> tuple[ColumnScale, ...]:
    """Return the scale of each of a party's columns from its training rows.

    Raises:
        JobError: a column has too many categories, or the party too many encoded columns, or none; names it.
    """
    least = least_rows(len(party.train), params.most_rows(len(party.train)))
    counts = {place: len(names) for place, names in party.categories.items()}
    for place, count in counts.items():
        if count > MOST_CATEGORIES:
            name = party.columns[place]
            reason = f"column {name!r} has {count} categories, more than {MOST_CATEGORIES}; drop it"
            raise JobError(reason, code="range", field="[data] drop", value=name)
    scales = tuple(ColumnScale.of(values, counts.get(place, 0), least) for place, values in enumerate(party.train.T))
    width = encoded_width(scales)
    if width > MOST_COLUMNS:
        reason = f"party {party.name!r} has {width} columns, categories counted, more than {MOST_COLUMNS}"
        raise JobError(reason, code="range", field="[data] drop", value=width)
    if scales and not width:
        reason = (
            f"party {party.name!r} has no column that tells {least} rows from the others, and no category of so many "
            "besides the first of each column; merge some"
        )
        raise JobError(reason, code="columns", field="[data]", value=party.name)
    return scales


def encoded_width(scales: Sequence[ColumnScale]) -> int:
    """Return how many encoded columns the columns of these scales become."""
    return sum(1 if scale.kept is None else len(scale.kept) for scale in scales)


def encoded_columns(scales: Sequence[ColumnScale], x: Floats) -> Codes:
    """Return a party's rows in fixed point, int32 [rows, encoded columns]."""
    parts = [column_codes(scale.encoded(x[:, at])) for at, scale in enumerate(scales)]
    return np.ascontiguousarray(np.hstack([np.empty((len(x), 0), dtype=np.int32), *parts]))
