"""Columns that two parties have in common.

A split client opens the sums of a source's bins and is told no rows. With a column from which the source's bins follow
it knows them, and so the labels of others: a copy, a number in another unit or of another precision, the age beside a
flag of old age, the town beside the region. A label holder is told the bins of its rows in all columns, so that it can
refuse such columns in time. What it does not find is a copy with other values in some rows, or with others missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, permutations, product

import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError
from labelward.kernels.split_search import CATEGORICAL
from labelward.messages.pivodl import MISSING
from labelward.protocols.common.columns import Codes, SourceColumns

LEAST = 100
"""Rows outside the most common bin, of those that a holder labels, from which on a column is compared: related columns
agree on fewer by chance."""
_MIXED = 1 / 8
"""Most rows of a bin across an edge of the other column, as a share of those that this one tells from its most common
bin: the values of a fine column say on which side its rows are, those of a flag do not."""
_FIRST = 200
"""Rows that tell most columns apart."""


def refuse_common_columns(sources: Mapping[str, SourceColumns]) -> None:
    """Refuse columns of two parties, of which one tells the bins of the other in the rows of a label holder.

    Args:
        sources: by party, its columns as far as the holder knows them, its own included.

    Raises:
        JobError: names both parties.
    """
    telling = {party: list(_telling(columns)) for party, columns in sources.items()}
    for (one, of_one), (other, of_other) in combinations(telling.items(), 2):
        for (a, a_ordered), (b, b_ordered) in product(of_one, of_other):
            ordered = a_ordered and b_ordered
            if _may_follow(a[:_FIRST], b[:_FIRST], ordered) and _follows(a, b, ordered):
                reason = (
                    f"parties {one!r} and {other!r} have a column in common, with which one reads labels of others; "
                    "drop it at one of them, add the defense 'label-dp-sums', or set [model] common_columns to 'allow'"
                )
                raise JobError(reason, code="columns", field="[data] drop", value=(one, other))


def _telling(columns: SourceColumns) -> Iterator[tuple[Codes, bool]]:
    """Yield the columns that tell enough rows apart, and whether their bins have an order."""
    for column, kind in zip(columns.codes.T, columns.kinds.tolist(), strict=True):
        if _apart(column) >= LEAST:
            yield np.ascontiguousarray(column), kind != CATEGORICAL


def _apart(column: Codes) -> int:
    """Return how many rows are outside the most common bin."""
    return len(column) - int(np.bincount(column, minlength=1).max())


def _may_follow(one: Codes, other: Codes, ordered: bool) -> bool:
    """Return False where no further row can make one column follow from the other."""
    known = one != MISSING
    if (known != (other != MISSING)).any():
        return False
    if ordered:
        return _is_chain(*_pairs(one[known], other[known]))
    return any(not len(_mixed(*each)) for each in permutations((one[known], other[known])))


def _follows(one: Codes, other: Codes, ordered: bool) -> bool:
    """Return whether one of two columns, of which the same rows are missing, tells the bins of the other."""
    known = one != MISSING
    both = permutations((one[known], other[known]))
    return _may_follow(one, other, ordered) and any(_tells(reader, source, ordered) for reader, source in both)


def _tells(reader: Codes, source: Codes, ordered: bool) -> bool:
    """Return whether who has a column knows the bins of another one, which orders no two rows against it if ordered.

    Without an order everything follows from a column whose rows have a bin each.
    """
    mixed, counts = _mixed(reader, source), np.bincount(reader)
    if not ordered:
        return not len(mixed) and bool(2 * np.count_nonzero(counts) <= len(reader))
    return int(counts[mixed].max(initial=0)) <= _MIXED * _apart(source)


def _pairs(one: Codes, other: Codes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different pairs of bins that rows have, in order."""
    both = np.unique(one.astype(np.int64) << 16 | other)
    return both >> 16, both & MISSING


def _mixed(reader: Codes, source: Codes) -> NDArray[np.int64]:
    """Return the bins of a column whose rows are in several bins of another one."""
    bins, parts = np.unique(_pairs(reader, source)[0], return_counts=True)
    return bins[parts > 1]


def _is_chain(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Return whether no two rows are ordered by one column against the other, or none as the other does."""
    rising = bool((np.diff(other) >= 0).all())
    order = np.lexsort((-other, one))
    return rising or bool((np.diff(other[order]) <= 0).all())
