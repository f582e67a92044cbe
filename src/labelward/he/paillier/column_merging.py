"""Sums by two or three columns at once, for fewer products: joint cells first, then each column's own from these.

A row enters one joint cell (its group in each column of the set) instead of one cell of each column, and a column's
cell is the product of the joint cells that have its group. For n rows and J joint cells that hold any, a set of s
columns takes n + s·J products instead of s·n, and J is counted, not guessed: columns that hang together have few.

The result is the same product of the same ciphertexts in another order, which modulo n² is the same number, bit for
bit. Joint cells tell nothing to anyone: only the party that has the columns, and so knows which row lies in which
cell, ever holds them, and no message has a place for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.errors import EncryptionError
from labelward.he.base import Groups
from labelward.he.threads import run_in_threads, worthwhile_threads

Sets = tuple[tuple[int, ...], ...]

_FULL = 4  # rows of a joint cell below which merging takes what joining three columns saves
_ROOM = 1 << 16  # keys that may be counted in an array, whatever the number of rows
_PER_ROW = 8  # and more where rows are many: so many for each
_FEW = 1 << 12  # rows whose keys are otherwise sorted, which takes less time than to number the joint cells


class PresentRows(NamedTuple):
    """Rows, each of which is in a group of one column at least."""

    rows: NDArray[np.int32]  # int32 [m], which they are, ascending
    groups: NDArray[np.int32]  # int32 [F, m], their groups; -1 where a row is absent from a column


class MergePlan(NamedTuple):
    """Sets of columns, and what summing by them takes: products of rows, and merges of cells."""

    sets: Sets
    rows: int
    merges: int

    @property
    def products(self) -> int:
        """Both together."""
        return self.rows + self.merges


def present_rows(groups: Groups, n_groups: int, start: int = 0) -> PresentRows:
    """Return the rows of ``groups`` [n, F] that are not absent from all columns; the first row is number ``start``.

    Raises:
        EncryptionError: a group lies outside range(n_groups) and is not -1.
    """
    from labelward.he.paillier import (
        column_merging_loops as joint_loops,  # a process that only multiplies needs no compiler
    )

    rows = np.empty(len(groups), np.int32)
    count, least, most = joint_loops.list_present(groups, rows)
    if least < -1 or most >= n_groups:
        raise EncryptionError(
            f"a group lies outside range({n_groups}) and is not -1", code="range", value=least if least < -1 else most
        )
    columns = np.empty((groups.shape[1], count), np.int32)
    joint_loops.by_column(groups, rows[:count], columns)
    return PresentRows(rows[:count] + np.int32(start), columns)


def joint_cells(
    groups: NDArray[np.int32], columns: Sequence[int], n_groups: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number the joint cells of ``columns`` that hold rows.

    Returns:
        For each row of ``groups`` [F, m] its joint cell, -1 where it is absent from all columns; and for each joint
        cell [J, len(columns)] its group in each column, -1 where its rows are absent from that column.
    """
    size, numbers = n_groups + 1, np.zeros(groups.shape[1], dtype=np.int64)
    cells = np.zeros((1, 0), dtype=np.int32)
    for column in columns:
        keys = numbers * size + (groups[column] + 1)
        filled, numbers = _ranked(keys, len(cells) * size)
        cells = np.concatenate([cells[filled // size], (filled % size - 1)[:, None].astype(np.int32)], axis=1)
    absent = int(len(cells) > 0 and bool((cells[0] < 0).all()))  # it has the least key of all
    return (numbers - absent).astype(np.int32), cells[absent:]


def fits_in_array(columns: int, n_groups: int, rows: int) -> bool:
    """Return whether joint cells of so many columns may be counted in an array of all that there could be."""
    return bool((n_groups + 1) ** columns <= max(_ROOM, _PER_ROW * rows))


def plan_merging(groups: NDArray[np.int32], n_groups: int, weight: float, threads: int = 1) -> MergePlan:
    """Choose sets of one, two or three columns, each column in one set, by which summing is cheap.

    Considered are the columns one by one, a pairing and a division into triples, both by how many cells columns have;
    of the latter two those sets that are cheaper than their columns one by one.

    Args:
        groups: of rows that are present, int32 [F, m].
        weight: what merging two cells costs, in products of a row.
    """
    counting = _Counting(groups, n_groups, threads)
    every = range(len(groups))
    single: dict[tuple[int, ...], _Cost] = {(f,): cost for f, cost in enumerate(counting.single())}
    held = counting.held
    best, order = single, sorted(every, key=held.__getitem__)
    for sets in (list(_pairs(order)), list(_triples(order, held, counting.n))):
        costs = dict(single)
        for columns, joint in counting.costs(sets).items():
            if joint.weighed(weight) < sum(single[(f,)].weighed(weight) for f in columns):
                costs[columns] = joint
                for f in columns:
                    del costs[(f,)]
        if sum(cost.weighed(weight) for cost in costs.values()) < sum(cost.weighed(weight) for cost in best.values()):
            best = costs
    taken = best.values()
    return MergePlan(tuple(sorted(best)), sum(cost.rows for cost in taken), sum(cost.merges for cost in taken))


class _Cost(NamedTuple):
    rows: int
    merges: int

    def weighed(self, weight: float) -> float:
        return self.rows + weight * self.merges


class _Counting:
    """What sets of columns take, counted.

    Attributes:
        held: cells of each column that hold rows.
    """

    def __init__(self, groups: NDArray[np.int32], n_groups: int, threads: int) -> None:
        from labelward.he.paillier import column_merging_loops as joint_loops

        self._groups, self._n_groups, self._threads, self._loops = groups, n_groups, threads, joint_loops
        self._single = np.zeros((len(groups), n_groups + 1), np.int32)
        joint_loops.count_single(groups, self._single)
        self.n, self.held = groups.shape[1], np.count_nonzero(self._single[:, 1:], axis=1).tolist()

    def single(self) -> list[_Cost]:
        """Return what each column takes by itself."""
        absent = self._single[:, 0].tolist()
        return [_Cost(self.n - none - held, 0) for none, held in zip(absent, self.held, strict=True)]

    def costs(self, sets: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], _Cost]:
        """Return what each set of several columns takes."""
        found: dict[tuple[int, ...], _Cost] = {}

        def count(columns: tuple[int, ...]) -> None:
            found[columns] = self._cost(columns)

        run_in_threads(worthwhile_threads(self._threads, self.n * len(sets)), count, sets)
        return {columns: found[columns] for columns in sets}

    def _cost(self, columns: tuple[int, ...]) -> _Cost:
        chosen, size = np.array(columns, np.int64), self._n_groups + 1
        groups = np.zeros(len(columns), np.int64)
        if fits_in_array(len(columns), self._n_groups, self.n):
            filled = np.zeros(size ** len(columns), np.bool_)
            absent, cells = self._loops.count_filled(self._groups, chosen, size, filled, groups)
            with_group = groups.tolist()
        elif self.n <= _FEW:
            absent, cells = self._loops.count_sorted(self._groups, chosen, size, groups)
            with_group = groups.tolist()
        else:
            numbers, joint = joint_cells(self._groups, columns, self._n_groups)
            cells, absent = len(joint), int(np.count_nonzero(numbers < 0))
            with_group = [int(np.count_nonzero(joint[:, at] >= 0)) for at in range(len(columns))]
        return _Cost(self.n - absent - cells, sum(with_group) - sum(self.held[f] for f in columns))


def _pairs(order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Pair the column of the fewest cells with that of the most, and so on: the least joint cells in all."""
    for i in range(len(order) // 2):
        yield tuple(sorted((order[i], order[-1 - i])))


def _triples(order: Sequence[int], held: Sequence[int], n: int) -> Iterator[tuple[int, ...]]:
    """Form triples, where rows are many enough for them, and pairs of what is left."""
    count = len(order) // 3 - (len(order) % 3 == 1)  # four columns are better off as two pairs
    least, middle, most = order[:count], order[count:-count], order[::-1][:count]
    chosen = [tuple(sorted(three)) for three in zip(least, middle, most, strict=False)]
    if any(_FULL * held[a] * held[b] * held[c] <= n for a, b, c in chosen):
        yield from chosen
        yield from _pairs(middle[len(chosen) :])


def _ranked(keys: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different keys, all in range(size), and the rank of each key among them."""
    if size > max(_ROOM, _PER_ROW * len(keys)):
        return np.unique(keys, return_inverse=True)
    held = np.bincount(keys, minlength=size) > 0
    return np.flatnonzero(held), (np.cumsum(held) - 1)[keys]
