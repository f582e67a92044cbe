"""What the IFMA kernel multiplies: a list of numbers for each product, cut into parts, of which eight go together.

First the rows of each joint cell of a set of columns, sorted by counting, one set in each thread; then, for each cell
of a column, what was made of the joint cells that have its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.paillier.backends.ifma.montgomery_ir import LANES
from labelward.he.paillier.column_merging import PresentRows, fits_in_array, joint_cells
from labelward.he.paillier.column_merging_loops import count_joint
from labelward.he.threads import run_in_threads, worthwhile_threads
from labelward.jit import compiled as jit

Integers = NDArray[np.int64]
Int32s = NDArray[np.int32]
_MOST = 3  # columns of a set


class ItemLists(NamedTuple):
    """Which numbers make each product."""

    starts: Integers  # int64 [c]; the i-th list is ``items[starts[i]:stops[i]]``, and has one item at least
    stops: Integers  # int64 [c]
    items: Int32s  # int32

    @property
    def length(self) -> int:
        """Of all lists together."""
        return int((self.stops - self.starts).sum())


class ListParts(NamedTuple):
    """Stretches of lists, the longest first, so that the eight that are made together are about equally long."""

    starts: Integers  # int64, as many as parts, made a multiple of eight
    stops: Integers  # int64, the same; parts beyond the last are empty
    owners: Int32s  # int32 [parts], the list that each is of


class JointCells(NamedTuple):
    """The rows of each joint cell of one or more sets of columns."""

    rows: ItemLists  # their lists
    targets: Integers  # int64 [J, 3], the flat cells (column, group) that a joint cell is part of; -1 for none

    def members(self, owners: Int32s, size: int) -> tuple[Integers, ItemLists]:
        """Return which of ``size`` flat cells have any pieces, and the lists of these; ``owners`` are joint cells."""
        counts = np.zeros(size, np.int64)
        _count_members(owners, self.targets, counts)
        cells = np.flatnonzero(counts)
        stops = np.cumsum(counts[cells])
        starts, pieces = stops - counts[cells], np.empty(stops[-1], np.int32)
        counts[cells] = starts
        _place_members(owners, self.targets, counts, pieces)
        return cells, ItemLists(starts, stops, pieces)


@jit
def cut_lists(starts: Integers, stops: Integers, most: int) -> ListParts:
    """Cut lists into parts of nearly equal length, at most so long."""
    count, longest = 0, 0
    for index in range(len(starts)):
        size = stops[index] - starts[index]
        own = -(-size // most)
        count, longest = count + own, max(longest, -(-size // own))
    places = np.zeros(longest + 2, np.int64)
    for index in range(len(starts)):
        size = stops[index] - starts[index]
        own = -(-size // most)
        places[size // own] += own - size % own
        places[size // own + 1] += size % own
    before = 0
    for length in range(longest + 1, -1, -1):
        places[length], before = before, before + places[length]
    padded = -(-count // LANES) * LANES
    begins, ends, owners = np.zeros(padded, np.int64), np.zeros(padded, np.int64), np.empty(count, np.int32)
    for index in range(len(starts)):
        start, size = starts[index], stops[index] - starts[index]
        own = -(-size // most)
        for part in range(own):
            length = size // own + (part < size % own)
            place = places[length]
            begins[place], ends[place], owners[place] = start, start + length, index
            places[length] += 1
            start += length
    return ListParts(begins, ends, owners)


def cell_batches(
    present: PresentRows, n_groups: int, joined: Sequence[tuple[int, ...]], *, threads: int, most: int
) -> Iterator[JointCells]:
    """Sort rows by the joint cells of each set of columns, and yield what is to be summed at a time.

    Args:
        most: joint cells of a batch that has more than one set.
    """
    found, items = dict[int, JointCells](), np.empty((len(joined), len(present.rows)), np.int32)

    def sort(index: int) -> None:
        found[index] = _sorted(present, joined[index], n_groups, items, index)

    run_in_threads(worthwhile_threads(threads, items.size), sort, range(len(joined)))
    batch: list[JointCells] = []
    for index in range(len(joined)):
        if batch and sum(len(one.targets) for one in batch) + len(found[index].targets) > most:
            yield _joined(batch)
            batch = []
        batch.append(found[index])
    if batch:
        yield _joined(batch)


def _joined(sets: list[JointCells]) -> JointCells:
    """Put sets that share their items one after the other."""
    starts, stops, targets = zip(*((one.rows.starts, one.rows.stops, one.targets) for one in sets), strict=True)
    return JointCells(
        ItemLists(np.concatenate(starts), np.concatenate(stops), sets[0].rows.items), np.concatenate(targets)
    )


def _sorted(
    present: PresentRows, columns: tuple[int, ...], n_groups: int, items: NDArray[np.int32], index: int
) -> JointCells:
    """Sort rows by their groups in the columns of one set, into row ``index`` of ``items``."""
    rows, chosen = present.rows, np.array(columns, np.int64)
    if counted := fits_in_array(len(columns), n_groups, len(rows)):
        keys, counts = np.empty(len(rows), np.int32), np.zeros((n_groups + 1) ** len(columns), np.int32)
        count_joint(present.groups, chosen, n_groups + 1, keys, counts)
    else:  # too many keys to count: most of them would be empty
        keys, joint = joint_cells(present.groups, columns, n_groups)
        keys += 1
        counts = np.bincount(keys, minlength=len(joint) + 1).astype(np.int32)
    count = int(np.count_nonzero(counts[1:]))
    bounds, targets = np.empty(count + 1, np.int64), np.full((count, _MOST), -1, np.int64)
    _place(rows, keys, counts, bounds, items[index])
    bounds += index * len(rows)
    if counted:
        _target(counts, chosen, n_groups, targets)
    else:
        for at, column in enumerate(columns):
            targets[:, at] = np.where(joint[:, at] < 0, -1, column * n_groups + joint[:, at])
    return JointCells(ItemLists(bounds[:-1], bounds[1:], items.reshape(-1)), targets)


@jit
def _place(rows: Int32s, keys: Int32s, counts: Int32s, bounds: Integers, items: Int32s) -> None:
    """Write the lists of rows to the beginning of ``items``, cells in the order of their keys; key 0 is none."""
    following, number, before = np.empty(len(counts), np.int64), 0, 0
    for key in range(1, len(counts)):
        if counts[key]:
            bounds[number], following[key] = before, before
            number, before = number + 1, before + counts[key]
    bounds[number] = before
    for i in range(len(keys)):
        if keys[i]:
            items[following[keys[i]]] = rows[i]
            following[keys[i]] += 1


@jit
def _target(counts: Int32s, columns: Integers, n_groups: int, targets: Integers) -> None:
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
def _count_members(owners: Int32s, targets: Integers, counts: Integers) -> None:
    for owner in owners:
        for at in range(_MOST):
            if targets[owner, at] >= 0:
                counts[targets[owner, at]] += 1


@jit
def _place_members(owners: Int32s, targets: Integers, places: Integers, pieces: Int32s) -> None:
    """Write each piece to the next place of each of its cells."""
    for piece in range(len(owners)):
        for at in range(_MOST):
            target = targets[owners[piece], at]
            if target >= 0:
                pieces[places[target]] = piece
                places[target] += 1
