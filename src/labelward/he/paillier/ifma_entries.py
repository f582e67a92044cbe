"""What the IFMA kernel multiplies: rows sorted by the joint cells of each set of columns, and cells by what they have.

A joint cell's first row is where its product begins (its *lead*), each further row is an *entry* that is multiplied to
it. A set's rows are sorted by counting, one set in each thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.contract import Groups
from labelward.he.paillier.joint import cells_of, countable
from labelward.he.paillier.joint_loops import present_rows
from labelward.he.paillier.threads import each
from labelward.jit import compiled as jit

__all__ = ["Entries", "Members", "batches"]

Integers = NDArray[np.int64]
_MOST = 3  # columns of a set


class Members(NamedTuple):
    """Which pieces make each cell that has any.

    Attributes:
        cells: int64 [c], flat (column, group).
        bounds: int64 [c+1]; the pieces of the i-th cell are ``pieces[bounds[i]:bounds[i+1]]``.
        pieces: int64.
    """

    cells: Integers
    bounds: Integers
    pieces: Integers


class Entries(NamedTuple):
    """The entries of one or more sets of columns, sorted by joint cell.

    Attributes:
        leads: int32 [J], the first row of each joint cell.
        order: int32, the row of each entry.
        cells: int32, its joint cell; they rise by steps of one.
        targets: int64 [J, 3], the flat cells (column, group) that a joint cell is part of; -1 for none.
    """

    leads: NDArray[np.int32]
    order: NDArray[np.int32]
    cells: NDArray[np.int32]
    targets: Integers

    def members(self, owners: NDArray[np.int32], size: int) -> Members:
        """Return the pieces of each of ``size`` cells.

        ``owners`` tells the joint cell of each piece, -1 where a place is empty.
        """
        counts = np.zeros(size, np.int64)
        _count_members(owners, self.targets, counts)
        cells = np.flatnonzero(counts)
        bounds = np.concatenate([[0], np.cumsum(counts[cells])]).astype(np.int64)
        pieces = np.empty(bounds[-1], np.int64)
        counts[cells] = bounds[:-1]
        _place_members(owners, self.targets, counts, pieces)
        return Members(cells, bounds, pieces)


def batches(
    groups: Groups, n_groups: int, joined: Sequence[tuple[int, ...]], no_row: int, *, threads: int, most: int
) -> Iterator[Entries]:
    """Sort rows by the joint cells of each set of columns, and yield what is to be summed at a time.

    Args:
        groups: int32 [rows, F]; -1 where a row is absent.
        n_groups: groups are below it.
        joined: the sets of columns.
        no_row: what stands for an entry where a joint cell has no other row than its lead.
        threads: that sort.
        most: joint cells of a batch that has more than one set.
    """
    present, found = present_rows(groups), dict[int, Entries]()

    def sort(index: int) -> Callable[[], None]:
        def work() -> None:
            found[index] = _sorted(groups, present, joined[index], n_groups, no_row)

        return work

    each(threads, map(sort, range(len(joined))))
    batch: list[Entries] = []
    for index in range(len(joined)):
        if batch and sum(len(one.leads) for one in batch) + len(found[index].leads) > most:
            yield _joined(batch)
            batch = []
        batch.append(found.pop(index))
    if batch:
        yield _joined(batch)


def _joined(sets: list[Entries]) -> Entries:
    """Put sets one after the other, their joint cells counted over all."""
    before = np.cumsum([0, *(len(one.leads) for one in sets)], dtype=np.int32)
    cells = [one.cells + first for one, first in zip(sets, before, strict=False)]
    leads, order, targets = ([one.leads for one in sets], [one.order for one in sets], [one.targets for one in sets])
    return Entries(np.concatenate(leads), np.concatenate(order), np.concatenate(cells), np.concatenate(targets))


def _sorted(
    groups: Groups, present: NDArray[np.int32], columns: tuple[int, ...], n_groups: int, no_row: int
) -> Entries:
    """Sort the rows ``present`` by their groups in the columns of one set."""
    leads, order, cells = (np.empty(len(present), np.int32) for _ in range(3))
    if countable(len(columns), n_groups, len(present)):
        counts, chosen = np.zeros((n_groups + 1) ** len(columns), np.int32), np.array(columns, np.int64)
        entries, count = _arrange(groups, present, chosen, n_groups, no_row, counts, leads, order, cells)
        targets = np.full((count, _MOST), -1, np.int64)
        _target(counts, chosen, n_groups, targets)
    else:  # too many keys to count: most of them would be empty
        numbers, joint = cells_of(groups, columns, n_groups)
        counts, chosen = np.zeros(len(joint) + 1, np.int32), np.zeros(1, np.int64)
        entries, count = _arrange(numbers[:, None], present, chosen, len(joint), no_row, counts, leads, order, cells)
        targets = np.full((count, _MOST), -1, np.int64)
        for at, column in enumerate(columns):
            targets[:, at] = np.where(joint[:, at] < 0, -1, column * n_groups + joint[:, at])
    return Entries(leads[:count], order[:entries], cells[:entries], targets)


@jit
def _arrange(
    groups: Groups, present: NDArray[np.int32], columns: Integers, n_groups: int, no_row: int,
    counts: NDArray[np.int32], leads: NDArray[np.int32], order: NDArray[np.int32], cells: NDArray[np.int32],
) -> tuple[int, int]:  # fmt: skip
    """Sort rows of ``groups`` [n, F] by their groups in ``columns``; return how many entries and cells there are.

    ``counts`` are zeros for (n_groups + 1)^columns keys; those of joint cells that hold rows become positive. Cells are
    numbered in the order of their keys; where one has no row besides its lead, its entry is ``no_row``.
    """
    size, n = n_groups + 1, len(present)
    keys = np.empty(n, np.int32)
    for i in range(n):
        key = 0
        for column in columns:
            key = key * size + groups[present[i], column] + 1
        keys[i] = key
        counts[key] += 1
    counts[0], before, number = 0, 0, 0
    following, numbers = np.empty(len(counts), np.int32), np.empty(len(counts), np.int32)
    for key in range(1, len(counts)):
        if counts[key]:
            own = max(1, counts[key] - 1)
            cells[before : before + own] = number
            order[before], leads[number] = no_row, -1
            following[key], numbers[key] = before, number
            number, before = number + 1, before + own
    for i in range(n):
        key = keys[i]
        if key and leads[numbers[key]] < 0:
            leads[numbers[key]] = present[i]
        elif key:
            order[following[key]] = present[i]
            following[key] += 1
    return before, number


@jit
def _target(counts: NDArray[np.int32], columns: Integers, n_groups: int, targets: Integers) -> None:
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
def _count_members(owners: NDArray[np.int32], targets: Integers, counts: Integers) -> None:
    for piece in range(len(owners)):
        if owners[piece] >= 0:
            for at in range(_MOST):
                target = targets[owners[piece], at]
                if target >= 0:
                    counts[target] += 1


@jit
def _place_members(owners: NDArray[np.int32], targets: Integers, places: Integers, pieces: Integers) -> None:
    """Write each piece to the next place of each of its cells."""
    for piece in range(len(owners)):
        if owners[piece] >= 0:
            for at in range(_MOST):
                target = targets[owners[piece], at]
                if target >= 0:
                    pieces[places[target]] = piece
                    places[target] += 1
