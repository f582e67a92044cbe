"""What the IFMA kernel multiplies: a list of numbers for each product, cut into parts, of which eight go together.

First the rows of each joint cell of a set of columns, sorted by counting, one set in each thread; then, for each cell
of a column, what was made of the joint cells that have its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.contract import Groups
from labelward.he.paillier.ifma_ir import LANES
from labelward.he.paillier.joint import cells_of, countable
from labelward.he.paillier.joint_loops import present_rows
from labelward.he.paillier.threads import each
from labelward.jit import compiled as jit

__all__ = ["Cells", "Integers", "Lists", "Parts", "Small", "batches", "cut_lists"]

Integers = NDArray[np.int64]
Small = NDArray[np.int32]
_MOST = 3  # columns of a set


class Lists(NamedTuple):
    """Which numbers make each product.

    Attributes:
        bounds: int64 [c+1]; the i-th list is ``items[bounds[i]:bounds[i+1]]``, and has one item at least.
        items: int32.
    """

    bounds: Integers
    items: Small


class Parts(NamedTuple):
    """Stretches of lists, the longest first, so that the eight that are made together are about equally long.

    Attributes:
        starts: int64, as many as parts, made a multiple of eight.
        stops: int64, the same; parts beyond the last are empty.
        owners: int32 [parts], the list that each is of.
    """

    starts: Integers
    stops: Integers
    owners: Small


class Cells(NamedTuple):
    """The rows of each joint cell of one or more sets of columns.

    Attributes:
        rows: their lists.
        targets: int64 [J, 3], the flat cells (column, group) that a joint cell is part of; -1 for none.
    """

    rows: Lists
    targets: Integers

    def members(self, owners: Small, size: int) -> tuple[Integers, Lists]:
        """Return which of ``size`` flat cells have any pieces, and the lists of these; ``owners`` are joint cells."""
        counts = np.zeros(size, np.int64)
        _count_members(owners, self.targets, counts)
        cells = np.flatnonzero(counts)
        bounds = np.concatenate([[0], np.cumsum(counts[cells])]).astype(np.int64)
        pieces = np.empty(bounds[-1], np.int32)
        counts[cells] = bounds[:-1]
        _place_members(owners, self.targets, counts, pieces)
        return cells, Lists(bounds, pieces)


@jit
def cut_lists(bounds: Integers, most: int) -> Parts:
    """Cut lists into parts of nearly equal length, at most so long."""
    count, longest = 0, 0
    for index in range(len(bounds) - 1):
        size = bounds[index + 1] - bounds[index]
        own = -(-size // most)
        count, longest = count + own, max(longest, -(-size // own))
    places = np.zeros(longest + 2, np.int64)
    for index in range(len(bounds) - 1):
        size = bounds[index + 1] - bounds[index]
        own = -(-size // most)
        places[size // own] += own - size % own
        places[size // own + 1] += size % own
    before = 0
    for length in range(longest + 1, -1, -1):
        places[length], before = before, before + places[length]
    padded = -(-count // LANES) * LANES
    starts, stops, owners = np.zeros(padded, np.int64), np.zeros(padded, np.int64), np.empty(count, np.int32)
    for index in range(len(bounds) - 1):
        start, size = bounds[index], bounds[index + 1] - bounds[index]
        own = -(-size // most)
        for part in range(own):
            length = size // own + (part < size % own)
            place = places[length]
            starts[place], stops[place], owners[place] = start, start + length, index
            places[length] += 1
            start += length
    return Parts(starts, stops, owners)


def batches(
    groups: Groups, n_groups: int, joined: Sequence[tuple[int, ...]], *, threads: int, most: int
) -> Iterator[Cells]:
    """Sort rows by the joint cells of each set of columns, and yield what is to be summed at a time.

    Args:
        groups: int32 [rows, F]; -1 where a row is absent.
        n_groups: groups are below it.
        joined: the sets of columns.
        threads: that sort.
        most: joint cells of a batch that has more than one set.
    """
    present = present_rows(groups)
    sets = [_Sorting(groups, present, columns, n_groups) for columns in joined]
    each(threads, [one.count for one in sets])
    batch: list[_Sorting] = []
    for one in sets:
        if batch and sum(other.cells for other in batch) + one.cells > most:
            yield _sorted(batch, threads)
            batch = []
        batch.append(one)
    if batch:
        yield _sorted(batch, threads)


class _Sorting:
    """Sorts the rows ``present`` by their groups in the columns of one set.

    Attributes:
        entries: rows that are not absent from all of the columns.
        cells: joint cells that hold any.
    """

    def __init__(self, groups: Groups, present: Small, columns: tuple[int, ...], n_groups: int) -> None:
        self._groups, self._present, self._columns, self._n_groups = groups, present, columns, n_groups
        self._counted = countable(len(columns), n_groups, len(present))
        self.entries = self.cells = 0

    def count(self) -> None:
        """Count the rows of each joint cell."""
        chosen = np.array(self._columns, np.int64)
        self._keys = np.empty(len(self._present), np.int32)
        if self._counted:
            self._counts = np.zeros((self._n_groups + 1) ** len(chosen), np.int32)
            self.cells = _count(self._groups, self._present, chosen, self._n_groups, self._keys, self._counts)
        else:  # too many keys to count: most of them would be empty
            numbers, self._joint = cells_of(self._groups, self._columns, self._n_groups)
            self._counts = np.zeros(len(self._joint) + 1, np.int32)
            self.cells = _count(
                numbers[:, None], self._present, np.zeros(1, np.int64), len(self._joint), self._keys, self._counts
            )
        self.entries = len(self._keys) - int(self._counts[0])

    def place(self, entry: int, bounds: Integers, items: Small, targets: Integers) -> None:
        """Write the lists of this set's cells, whose first item is the ``entry``-th of all."""
        _place(self._present, self._keys, self._counts, entry, bounds, items)
        targets[:] = -1
        if self._counted:
            _target(self._counts, np.array(self._columns, np.int64), self._n_groups, targets)
            return
        for at, column in enumerate(self._columns):
            targets[:, at] = np.where(self._joint[:, at] < 0, -1, column * self._n_groups + self._joint[:, at])


def _sorted(sets: list[_Sorting], threads: int) -> Cells:
    """Put the lists of sets one after the other."""
    entries, cells = sum(one.entries for one in sets), sum(one.cells for one in sets)
    bounds, items = np.empty(cells + 1, np.int64), np.empty(entries, np.int32)
    targets, work, entry, cell = np.empty((cells, _MOST), np.int64), list[Callable[[], None]](), 0, 0
    bounds[-1] = entries

    def place(one: _Sorting, entry: int, own: slice) -> Callable[[], None]:
        return lambda: one.place(entry, bounds[own], items, targets[own])

    for one in sets:
        work.append(place(one, entry, slice(cell, cell + one.cells)))
        entry, cell = entry + one.entries, cell + one.cells
    each(threads, work)
    return Cells(Lists(bounds, items), targets)


@jit
def _count(
    groups: Groups, present: Small, columns: Integers, n_groups: int, keys: Small, counts: Small
) -> int:  # fmt: skip
    """Write the key of each row present, count each of (n_groups + 1)^columns keys, return how many cells they are.

    Key 0 is that of rows that are absent from all columns, which are in no cell.
    """
    size, cells = n_groups + 1, 0
    for i in range(len(present)):
        key = 0
        for column in columns:
            key = key * size + groups[present[i], column] + 1
        keys[i] = key
        cells += key > 0 and counts[key] == 0
        counts[key] += 1
    return cells


@jit
def _place(present: Small, keys: Small, counts: Small, entry: int, bounds: Integers, items: Small) -> None:
    """Write lists of rows, cells in the order of their keys."""
    following, number = np.empty(len(counts), np.int64), 0
    for key in range(1, len(counts)):
        if counts[key]:
            bounds[number], following[key] = entry, entry
            number, entry = number + 1, entry + counts[key]
    for i in range(len(keys)):
        if keys[i]:
            items[following[keys[i]]] = present[i]
            following[keys[i]] += 1


@jit
def _target(counts: Small, columns: Integers, n_groups: int, targets: Integers) -> None:
    """Write to ``targets`` [cells, 3] the flat cells of the joint cells whose ``counts`` are positive."""
    size, number = n_groups + 1, 0
    for key in range(1, len(counts)):
        if counts[key]:
            rest = key
            for at in range(len(columns) - 1, -1, -1):
                if rest % size:
                    targets[number, at] = columns[at] * n_groups + rest % size - 1
                rest //= size
            number += 1


@jit
def _count_members(owners: Small, targets: Integers, counts: Integers) -> None:
    for owner in owners:
        for at in range(_MOST):
            if targets[owner, at] >= 0:
                counts[targets[owner, at]] += 1


@jit
def _place_members(owners: Small, targets: Integers, places: Integers, pieces: Small) -> None:
    """Write each piece to the next place of each of its cells."""
    for piece in range(len(owners)):
        for at in range(_MOST):
            target = targets[owners[piece], at]
            if target >= 0:
                pieces[places[target]] = piece
                places[target] += 1
