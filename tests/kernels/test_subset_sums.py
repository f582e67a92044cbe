"""Conclusions from sums, compared with all assignments of rows to bins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.kernels.subset_sums import visit

_LIMITS = np.array([0, 100, 100, 100, 0], np.int64)


def _sums(bins: np.ndarray, slot: np.ndarray, keys: np.ndarray, cell_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    target, count = np.zeros(cell_of.shape, np.uint64), np.zeros(cell_of.shape, np.int64)
    for row, group in enumerate(slot):
        if group >= 0:
            cell = cell_of[group, bins[row]]
            target[group, cell] += keys[row]
            count[group, cell] += 1
    return target, count


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), distinct=st.integers(1, 7), subsets=st.sampled_from([0, 20]), merged=st.booleans())
def test_no_solution_is_excluded(seed: int, distinct: int, subsets: int, merged: bool) -> None:
    """After visits until nothing changes, a domain has at least all bins that the row has in any solution."""
    rng = np.random.default_rng(seed)
    n, bins = 6, 3
    truth = rng.integers(bins, size=n)
    levels = []
    for groups in (1, 2):
        slot = rng.integers(-1 if groups > 1 else 0, groups, size=n).astype(np.int32)
        keys = rng.integers(1 << 40, size=distinct, dtype=np.uint64)[rng.integers(distinct, size=n)]
        cell_of = np.tile(np.arange(bins, dtype=np.int32), (groups, 1))
        if merged:
            cell_of[0, 1] = 0
        levels.append((slot, keys, np.ones(n, np.int32), *_sums(truth, slot, keys, cell_of), cell_of))
    domains = np.full((n, 1), (1 << bins) - 1, np.uint64)
    searched = [np.zeros(level[3].shape, np.int32) for level in levels]
    limits = _LIMITS.copy()
    limits[-1] = subsets
    while sum(visit(*level, domains, done, limits) for level, done in zip(levels, searched, strict=True)):
        pass
    possible = np.zeros((n, bins), np.bool_)
    for guess in itertools.product(range(bins), repeat=n):
        found = [_sums(np.array(guess), slot, keys, cell_of) for slot, keys, _, _, _, cell_of in levels]
        if all((t == lv[3]).all() and (c == lv[4]).all() for (t, c), lv in zip(found, levels, strict=True)):
            possible[np.arange(n), list(guess)] = True
    held = (domains >> np.arange(bins, dtype=np.uint64)) & np.uint64(1)
    assert not (possible & (held == 0)).any()
    if subsets and distinct == 7:
        assert held.sum() <= 2 * possible.sum()  # not exact: cells are searched one by one


@pytest.mark.parametrize("few", [1, 2, 3])
def test_few_rows_are_found_among_many_and_few_left_out(few: int) -> None:
    """With keys of their own, the rows of a small cell, and those that a large cell leaves out, are exact."""
    rng = np.random.default_rng(4)
    keys = rng.integers(1 << 40, size=90, dtype=np.uint64)
    bins = np.zeros(90, np.int64)
    bins[rng.choice(90, few, replace=False)] = 1
    slot, cell_of = np.zeros(90, np.int32), np.arange(2, dtype=np.int32)[None]
    domains = np.full((90, 1), 3, np.uint64)
    for _ in range(2):
        visit(
            slot,
            keys,
            np.ones(90, np.int32),
            *_sums(bins, slot, keys, cell_of),
            cell_of,
            domains,
            np.zeros((1, 2), np.int32),
            _LIMITS,
        )
    np.testing.assert_array_equal(domains[:, 0] == 2, bins == 1)


def test_sums_of_no_assignment_are_refused() -> None:
    """More rows than there are candidates."""
    slot, cell_of = np.zeros(3, np.int32), np.arange(2, dtype=np.int32)[None]
    keys, once = np.ones(3, np.uint64), np.ones(3, np.int32)
    count = np.array([[4, 0]])
    with pytest.raises(ValueError, match="no assignment"):
        visit(
            slot,
            keys,
            once,
            count.astype(np.uint64),
            count,
            cell_of,
            np.full((3, 1), 3, np.uint64),
            np.zeros((1, 2), np.int32),
            _LIMITS,
        )
