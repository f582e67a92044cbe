"""Which rows lie in which bin of a column, from sums over the rows of each bin: constraint propagation.

Every row has one bin, the same in all groups of rows. Of each group (a node of a tree) the sum of the rows' keys and
their number are known in each bin. Keys are random linear hashes of the rows' integers, modulo 2**64, so that sums of
integers become sums of single numbers; two different sums agree with probability 2**-64.

A *cell* is a bin of a group, or several bins whose rows were summed together. A row's *domain* is the set of bins that
no sum has excluded. A visit to a level of a tree takes, for each cell, the rows that may lie in it, less those that
surely do, and draws only conclusions that hold in every solution:

- no row is left to find, or all candidates are: they are excluded, or fixed;
- few rows are left to find, or few are to be left out: all subsets of this size with the right sum are found, and a
  candidate that is in none of them is excluded (or fixed);
- few candidates are left: all subsets of any size are found by meeting in the middle, and a candidate that is in none,
  or in all of them, is excluded, or fixed.

Each row is visited once a level; subsets are searched in cells that changed since the last search.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.jit import Whole, jit

Keys = NDArray[np.uint64]
Domains = NDArray[np.uint64]
Integers = NDArray[np.int64]
Slots = NDArray[np.int32]

_KEEP, _EXCLUDE, _FIX, _SEARCH = range(4)
_MOST = 3  # rows of a subset that is searched among many candidates


def visit(
    slot: Slots,
    keys: Keys,
    times: Slots,
    target: Keys,
    count: Integers,
    cell_of: Slots,
    domains: Domains,
    searched: Slots,
    limits: Integers,
) -> int:
    """Narrow the domains of rows by the sums of one level, in place; return how many bins were excluded.

    Args:
        slot: int32 [rows]: each row's group; -1: in none.
        keys: uint64 [rows].
        times: int32 [rows]: how often each row counts in the sums.
        target: uint64 [groups, bins]: sums of keys, of each cell at one of its bins.
        count: int64 [groups, bins]: sums of ``times``.
        cell_of: int32 [groups, bins]: the bin at which the sums of a bin's cell stand.
        domains: uint64 [rows, words]: bit b of word w stands for bin 64 w + b.
        searched: int32 [groups, bins]: number of candidates at the last search of a cell, 0 before; updated.
        limits: int64 [5]: number of candidates up to which a cell is searched for subsets of 0 to 3 rows, and for
            subsets of any size.

    Raises:
        ValueError: no assignment of rows to bins has these sums.
    """
    found = int(_visit(slot, keys, times, target, count, cell_of, domains, searched, limits))
    if found < 0:
        raise ValueError("no assignment of rows to bins has these sums")
    return found


@jit
def _visit(
    slot: Slots,
    keys: Keys,
    times: Slots,
    target: Keys,
    count: Integers,
    cell_of: Slots,
    domains: Domains,
    searched: Slots,
    limits: Integers,
) -> int:
    groups, bins = target.shape
    rest, left = target.copy(), count.copy()
    held, many = np.zeros((groups, bins), np.int64), np.zeros((groups, bins), np.int32)
    whole = np.zeros((groups, bins), np.uint64)
    found, words = np.empty(bins, np.int64), domains.shape[1]
    widest = np.zeros(words, np.uint64)
    for row in range(len(slot)):
        for word in range(words):
            widest[word] |= domains[row, word]
    anywhere, times_there, keys_there = (
        np.zeros(groups, np.int32),
        np.zeros(groups, np.int64),
        np.zeros(groups, np.uint64),
    )
    for row in range(len(slot)):
        group = slot[row]
        if group < 0:
            continue
        if _equal(domains[row], widest):  # most rows of a large table: added to all cells at once
            anywhere[group] += 1
            times_there[group] += times[row]
            keys_there[group] += keys[row]
            continue
        cells = _cells(domains[row], cell_of[group], found)
        if not cells:
            return -1
        if cells == 1:
            rest[group, found[0]] -= keys[row]
            left[group, found[0]] -= times[row]
            continue
        for cell in found[:cells]:
            held[group, cell] += times[row]
            many[group, cell] += 1
            whole[group, cell] += keys[row]
    action = np.zeros((groups, bins), np.int8)
    place = np.full((groups, bins), -1, np.int32)
    acts = np.zeros(groups, np.bool_)
    total = 0
    for group in range(groups):
        cells = _cells(widest, cell_of[group], found) if anywhere[group] else 0
        for cell in found[:cells]:
            if cells == 1:
                rest[group, cell] -= keys_there[group]
                left[group, cell] -= times_there[group]
            else:
                held[group, cell] += times_there[group]
                many[group, cell] += anywhere[group]
                whole[group, cell] += keys_there[group]
        for cell in range(bins):
            if left[group, cell] < 0 or left[group, cell] > held[group, cell]:
                return -1
            if not many[group, cell]:
                continue
            if left[group, cell] == 0:
                action[group, cell] = _EXCLUDE
            elif left[group, cell] == held[group, cell]:
                action[group, cell] = _FIX
            elif searched[group, cell] != many[group, cell]:
                few = min(left[group, cell], held[group, cell] - left[group, cell])
                if (few <= _MOST and many[group, cell] <= limits[few]) or many[group, cell] <= limits[-1]:
                    action[group, cell], place[group, cell] = _SEARCH, total
                    searched[group, cell] = many[group, cell]
                    total += many[group, cell]
            acts[group] = acts[group] or action[group, cell] != _KEEP
    listed, filled = np.empty(total, np.int32), np.zeros((groups, bins), np.int32)
    changed = 0
    for row in range(len(slot)):
        group = slot[row]
        if group < 0 or not acts[group]:
            continue
        cells = _cells(domains[row], cell_of[group], found)
        if cells == 1:
            continue
        for cell in found[:cells]:
            if action[group, cell] == _SEARCH:
                listed[place[group, cell] + filled[group, cell]] = row
                filled[group, cell] += 1
            elif action[group, cell] != _KEEP:
                changed += _narrow(domains[row], cell_of[group], cell, action[group, cell] == _FIX)
    if not total:
        return changed
    for group in range(groups):
        for cell in range(bins):
            if action[group, cell] != _SEARCH:
                continue
            rows = listed[place[group, cell] : place[group, cell] + many[group, cell]]
            sums = (rest[group, cell], whole[group, cell])
            verdict = _searched(keys[rows], times[rows], sums, left[group, cell], held[group, cell], limits)
            for position in range(len(rows)):
                if verdict[position] != _KEEP:
                    domain = domains[rows[position]]
                    changed += _narrow(domain, cell_of[group], cell, verdict[position] == _FIX)
    return changed


@jit
def _cells(domain: Keys, cell_of: Slots, found: Integers) -> int:
    """Write the cells in which a row may lie, each once; return their number.

    Cells are of adjacent bins, but for that of bin 0, which may include the last: that of rows without a value.
    """
    cells = 0
    for word in range(len(domain)):
        bits = domain[word]
        while bits:
            cell = cell_of[64 * word + _lowest(bits)]
            bits &= bits - np.uint64(1)
            if not cells or (found[cells - 1] != cell and found[0] != cell):
                found[cells] = cell
                cells += 1
    return cells


@jit
def _equal(one: Keys, other: Keys) -> bool:
    different = False
    for word in range(len(one)):
        different |= one[word] != other[word]
    return not different


@jit
def _narrow(domain: Keys, cell_of: Slots, cell: int, inside: bool) -> int:
    """Exclude the bins of a cell, or all others; return how many."""
    changed = 0
    for word in range(len(domain)):
        bits = domain[word]
        while bits:
            bit = bits & (~bits + np.uint64(1))
            bits ^= bit
            if (cell_of[64 * word + _lowest(bit)] == cell) != inside:
                domain[word] ^= bit
                changed += 1
    return changed


@jit
def _searched(
    keys: Keys, times: Slots, sums: tuple[np.uint64, np.uint64], left: int, held: int, limits: Integers
) -> NDArray[np.int8]:
    """Return for each candidate of a cell whether it is excluded or fixed; ``sums``: to be found, and of all."""
    rest, whole = sums
    verdict, m = np.zeros(len(keys), np.int8), len(keys)
    if times.max() > 1:
        if left == 1:
            for position in range(m):
                if keys[position] != rest or times[position] > 1:
                    verdict[position] = _EXCLUDE
        return verdict
    if m <= limits[-1]:
        return _met(keys, rest, left)
    inside = left <= held - left
    few = left if inside else held - left
    possible = _in_subsets(keys, rest if inside else whole - rest, few)
    for position in range(m):
        if not possible[position]:
            verdict[position] = _EXCLUDE if inside else _FIX
    return verdict


@jit
def _in_subsets(keys: Keys, target: np.uint64, few: int) -> NDArray[np.bool_]:
    """Return which keys are part of any subset of so many keys, from 1 to 3, with this sum."""
    m = len(keys)
    possible = np.zeros(m, np.bool_)
    if few == 1:
        possible[:] = keys == target
        return possible
    order = np.argsort(keys)
    ordered = keys[order]
    if few == 2:
        for one in range(m):
            _mark(ordered, order, target - keys[one], one, np.int64(-1), possible)
        return possible
    for one in range(m):
        for two in range(one):
            if not (possible[one] and possible[two]):
                _mark(ordered, order, target - keys[one] - keys[two], one, two, possible)
    return possible


@jit
def _mark(ordered: Keys, order: Integers, wanted: np.uint64, one: int, two: Whole, possible: NDArray[np.bool_]) -> None:
    """Mark rows that complete a subset: those of the wanted key, but for the rows that it has already."""
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    while low < len(ordered) and ordered[low] == wanted:
        third = order[low]
        if third != one and third != two:
            possible[one] = possible[third] = True
            if two >= 0:
                possible[two] = True
        low += 1


@jit
def _met(keys: Keys, target: np.uint64, left: int) -> NDArray[np.int8]:
    """Return the verdicts from all subsets of so many keys with this sum: halves that meet."""
    m = len(keys)
    half = m // 2
    verdict = np.zeros(m, np.int8)
    lower = _subset_sums(keys[:half])
    upper = _subset_sums(keys[half:])
    order = np.argsort(lower)
    ordered = lower[order]
    union, common, solutions = 0, (1 << m) - 1, 0
    for high in range(len(upper)):
        wanted = target - upper[high]
        size = left - _bits(high)
        at = np.searchsorted(ordered, wanted)
        while at < len(ordered) and ordered[at] == wanted:
            low = order[at]
            if _bits(low) == size:
                subset = (high << half) | low
                union |= subset
                common &= subset
                solutions += 1
            at += 1
    if not solutions:
        return verdict
    for position in range(m):
        if not (union >> position) & 1:
            verdict[position] = _EXCLUDE
        elif (common >> position) & 1:
            verdict[position] = _FIX
    return verdict


@jit
def _subset_sums(keys: Keys) -> Keys:
    """Return the sum of each subset; bit i of its position stands for key i."""
    sums = np.zeros(1 << len(keys), np.uint64)
    for position in range(len(keys)):
        for subset in range(1 << position):
            sums[subset | (1 << position)] = sums[subset] + keys[position]
    return sums


@jit
def _bits(number: int) -> int:
    found = 0
    while number:
        number &= number - 1
        found += 1
    return found


@jit
def _lowest(bits: np.uint64) -> int:
    """Return the position of the lowest bit that is set."""
    low, position = bits & (~bits + np.uint64(1)), 0
    while low > np.uint64(0xFF):
        low >>= np.uint64(8)
        position += 8
    while low > np.uint64(1):
        low >>= np.uint64(1)
        position += 1
    return position
