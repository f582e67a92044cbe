"""Sums by two or three columns at once, for fewer products: joint cells first, then each column's own from these.

A row enters one joint cell (its group in each column of the set) instead of one cell of each column, and a column's
cell is the product of the joint cells that have its group. For n rows and J joint cells that hold any, a set of s
columns takes n + s·J products instead of s·n, and J is counted, not guessed: columns that hang together have few.

The result is the same product of the same ciphertexts in another order, which modulo n² is the same number, bit for
bit. Joint cells tell nothing to anyone: only the party that has the columns, and so knows which row lies in which
cell, ever holds them, and no message has a place for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.he.contract import Groups

__all__ = ["Plan", "cells_of", "choose", "plan"]

Sets = tuple[tuple[int, ...], ...]

_FULL = 4  # rows of a joint cell below which merging takes what joining three columns saves
_ROOM = 1 << 16  # keys that may be counted in an array, whatever the number of rows


class Plan(NamedTuple):
    """Sets of columns, and what summing by them takes: products of rows, and merges of cells."""

    sets: Sets
    rows: int
    merges: int

    @property
    def products(self) -> int:
        """Both together."""
        return self.rows + self.merges


def cells_of(groups: Groups, columns: Sequence[int], n_groups: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number the joint cells of ``columns`` that hold rows.

    Returns:
        For each row of ``groups`` [n, F] its joint cell, -1 where it is absent from all columns; and for each joint
        cell [J, len(columns)] its group in each column, -1 where its rows are absent from that column.
    """
    size, numbers = n_groups + 1, np.zeros(len(groups), dtype=np.int64)
    cells = np.zeros((1, 0), dtype=np.int32)
    for column in columns:
        keys = numbers * size + (groups[:, column] + 1)
        filled, numbers = _ranked(keys, len(cells) * size)
        cells = np.concatenate([cells[filled // size], (filled % size - 1)[:, None].astype(np.int32)], axis=1)
    absent = int(len(cells) > 0 and bool((cells[0] < 0).all()))  # it has the least key of all
    return (numbers - absent).astype(np.int32), cells[absent:]


def choose(groups: Groups, n_groups: int, weight: float) -> Sets:
    """Return sets of one, two or three columns of ``groups`` [n, F], each column in one set; see :func:`plan`."""
    return plan(groups, n_groups, weight).sets


def plan(groups: Groups, n_groups: int, weight: float) -> Plan:
    """Choose the sets of columns that are cheapest to sum.

    Args:
        weight: what merging two cells costs, in products of a row.
    """
    numbers = np.ascontiguousarray(groups.T, dtype=np.int64)
    numbers += 1
    present = numbers.any(axis=0)
    numbers = numbers if present.all() else numbers[:, present]
    n, size = numbers.shape[1], n_groups + 1
    empty, held = [], []
    for column in numbers:
        counts = np.bincount(column, minlength=size)
        empty.append(int(counts[0]))
        held.append(int(np.count_nonzero(counts[1:])))
    order = sorted(range(len(held)), key=held.__getitem__)
    single: dict[tuple[int, ...], _Cost] = {(f,): _Cost(n - empty[f] - held[f], 0) for f in range(len(held))}
    best = single
    pairs, triples = list(_pairs(order)), list(_triples(order, held, n))
    # with triples at their worst better than pairs at their best, pairs need not be counted
    worst = sum(n + weight * len(each) * min(n, math.prod(held[f] for f in each)) for each in triples)
    alone = n * (len(held) - 2 * len(pairs))
    for sets in (triples,) if triples and worst < n * len(pairs) + alone else (pairs, triples):
        costs = dict(single)
        for each in sets:
            joint, apart = _cost(numbers, each, size, held), [single[(f,)] for f in each]
            if joint.weighed(weight) < sum(cost.weighed(weight) for cost in apart):
                costs[each] = joint
                for f in each:
                    del costs[(f,)]
        if sum(cost.weighed(weight) for cost in costs.values()) < sum(cost.weighed(weight) for cost in best.values()):
            best = costs
    taken = best.values()
    return Plan(tuple(sorted(best)), sum(cost.rows for cost in taken), sum(cost.merges for cost in taken))


class _Cost(NamedTuple):
    rows: int
    merges: int

    def weighed(self, weight: float) -> float:
        return self.rows + weight * self.merges


def _cost(numbers: NDArray[np.int64], columns: Sequence[int], size: int, held: Sequence[int]) -> _Cost:
    """Count what a set takes; ``numbers`` [F, n] are groups from 1 on, 0 where a row is absent."""
    first, *others = columns
    keys, rows, cells = numbers[first], numbers.shape[1], np.arange(size)[:, None]
    for at, column in enumerate(others):
        keys = keys * size + numbers[column]
        room = len(cells) * size
        if at + 1 < len(others):
            filled, keys = _ranked(keys, room)
        else:
            filled, absent = _counted(keys, room, bool(len(cells) and not cells[0].any()))
            rows -= absent
        cells = np.concatenate([cells[filled // size], (filled % size)[:, None]], axis=1)
    full = cells[cells.any(axis=1)]
    merges = sum(int(np.count_nonzero(full[:, at])) - held[f] for at, f in enumerate(columns))
    return _Cost(rows - len(full), merges)


def _pairs(order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Pair the column of the fewest cells with that of the most, and so on: the least joint cells in all."""
    for i in range(len(order) // 2):
        yield tuple(sorted((order[i], order[-1 - i])))


def _triples(order: Sequence[int], held: Sequence[int], n: int) -> Iterator[tuple[int, ...]]:
    """Form triples, where rows are many enough for them, and pairs of what is left."""
    count = len(order) // 3 - (len(order) % 3 == 1)  # four columns are better off as two pairs
    least, middle, most = order[:count], order[count:-count], order[::-1][:count]
    chosen = [tuple(sorted(each)) for each in zip(least, middle, most, strict=False)]
    if any(_FULL * held[a] * held[b] * held[c] <= n for a, b, c in chosen):
        yield from chosen
        yield from _pairs(middle[len(chosen) :])


def _counted(keys: NDArray[np.int64], size: int, first: bool) -> tuple[NDArray[np.int64], int]:
    """Return the different keys, all in range(size), and if asked for how often the key 0 occurs."""
    if size > max(_ROOM, 8 * len(keys)):
        return np.unique(keys), int(np.count_nonzero(keys == 0)) if first else 0
    counts = np.bincount(keys, minlength=size)
    return np.flatnonzero(counts), int(counts[0]) if first else 0


def _ranked(keys: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the different keys, all in range(size), and the rank of each key among them."""
    if size > max(_ROOM, 8 * len(keys)):
        return np.unique(keys, return_inverse=True)
    held = np.bincount(keys, minlength=size) > 0
    return np.flatnonzero(held), (np.cumsum(held) - 1)[keys]
