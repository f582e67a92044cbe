"""Which party gets which columns of a common table."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward import rng
from labelward.errors import DataError
from labelward.job import Job

from .encode import as_numbers
from .tables import find_column

__all__ = ["assign_columns", "column_counts", "importance"]

_IMPORTANCE_ROWS = 10_000
_ROUNDING = 1e-9  # shares such as 0.29 of 100 columns must not lose one to rounding


def assign_columns(
    job: Job, seed: int, table: pa.Table, ranked: Callable[[Sequence[str]], Sequence[str]]
) -> tuple[tuple[str, ...], ...]:
    """Return each party's columns, in the order of the job's parties.

    Lists are taken as they stand. Shares are dealt out at random by seed, or by importance: the passive parties, in
    their order, get the most telling columns and the active party those that follow. A party's columns are in the
    order of the table.

    Args:
        job: its parties have shares or lists of columns.
        seed: of the run.
        table: the common table; label and id columns are nobody's.
        ranked: sorts columns by falling importance; asked only where the job wants it.

    Raises:
        DataError: a listed column does not exist, or a passive party's share comes to no column.
    """
    if job.active.share is None:
        for party in job.parties:
            for column in party.columns or ():
                find_column(table, column, f"party {party.name!r}")
        return tuple(party.columns or () for party in job.parties)
    columns = [name for name in table.column_names if name not in (job.data.label, job.data.id)]
    counts = column_counts([party.share or 0.0 for party in job.parties], len(columns))
    for party, count in zip(job.passive, counts[1:], strict=True):
        if count == 0:
            raise DataError(
                f"[parties] {party.name}: a share of {party.share} of {len(columns)} columns is not one column, "
                "and a passive party must hold one"
            )
    if job.data.partition == "importance":
        dealt, sizes = list(ranked(columns)), [*counts[1:], counts[0]]
    else:
        dealt, sizes = _shuffled(columns, seed, reference=job.data.split == "reference"), counts
    ends = np.cumsum(sizes).tolist()
    place = {name: position for position, name in enumerate(columns)}
    dealt_out = [
        tuple(sorted(dealt[end - size : end], key=place.__getitem__)) for size, end in zip(sizes, ends, strict=True)
    ]
    return tuple([dealt_out[-1], *dealt_out[:-1]] if job.data.partition == "importance" else dealt_out)


def column_counts(shares: Sequence[float], columns: int) -> list[int]:
    """Return how many of ``columns`` each share comes to; shares that sum to 1 use every column.

    Each gets the whole part; what is left goes to the largest remainders, among equals to the last. So of 31 columns
    halved between two parties the active one, which comes first, gets 15.
    """
    exact = [share * columns for share in shares]
    counts = [math.floor(value + _ROUNDING) for value in exact]
    left = math.floor(sum(exact) + _ROUNDING) - sum(counts)
    by_remainder = sorted(range(len(shares)), key=lambda one: (round(exact[one] - counts[one], 9), one), reverse=True)
    for one in by_remainder[:left]:
        counts[one] += 1
    return counts


def importance(
    table: pa.Table, columns: Sequence[str], rows: NDArray[np.int64], labels: NDArray[np.int64], seed: int
) -> list[str]:
    """Return the columns by falling mutual information with the labels, among equals in the order given.

    The nearest-neighbor estimate for numbers, counts for categories: "Impact of Feature Partitions" of the ID2Graph
    paper. It uses the training rows, at most 10,000 of them drawn by seed.
    """
    from sklearn.feature_selection import mutual_info_classif

    draw = rng.learning(seed, "", 0, "importance")
    if len(rows) > _IMPORTANCE_ROWS:
        rows = np.sort(draw.choice(rows, _IMPORTANCE_ROWS, replace=False))
    numbered = [as_numbers(table, column, "[data] table") for column in columns]
    values = np.column_stack([numbers[rows] for numbers, _ in numbered])
    discrete = np.array([is_code for _, is_code in numbered])
    told = mutual_info_classif(values, labels[rows], discrete_features=discrete, random_state=int(draw.integers(2**31)))
    return [columns[position] for position in np.argsort(-told, kind="stable")]


def _shuffled(columns: list[str], seed: int, *, reference: bool) -> list[str]:
    if reference:  # the draw of the published figures: Python's generator, not numpy's
        return random.Random(seed).sample(columns, len(columns))
    return [columns[position] for position in rng.learning(seed, "", 0, "columns").permutation(len(columns))]
