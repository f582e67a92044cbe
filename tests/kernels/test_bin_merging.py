"""Merged bins have enough rows in a node and its sibling, and are unions of the parent's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.kernels.bin_merging import count_bins, merge_bins, merged_codes


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 10_000),
    least=st.integers(2, 12),
    several=st.integers(1, 4),
    missing=st.sampled_from([0.0, 0.02, 0.3]),
)
def test_cells_of_two_levels(seed: int, least: int, several: int, missing: float) -> None:
    """Each cell with rows has the least number in both siblings, and of bins, or is the only one; a parent's union."""
    rng = np.random.default_rng(seed)
    rows, bins = 120, 9
    codes = rng.integers(bins, size=(rows, 2)).astype(np.uint8)
    codes[rng.random((rows, 2)) < missing] = 255
    slot = np.zeros(rows, np.int32)
    whole = count_bins(codes, slot, 1, bins)
    above = merge_bins(whole, whole, np.tile(np.arange(bins + 1, dtype=np.int32), (1, 2, 1)), least, several)
    left = rng.random(rows) < rng.choice([0.1, 0.5])
    node = count_bins(codes, np.where(left, 0, -1).astype(np.int32), 1, bins)
    cells = merge_bins(node, whole - node, above, least, several)
    replaced = merged_codes(codes, slot, cells)
    for column in range(2):
        own, parent = cells[0, column], above[0, column]
        np.testing.assert_array_equal(own[parent], own)
        for code in range(bins):
            assert replaced[codes[:, column] == code, column].tolist() == [own[code]] * int(
                (codes[:, column] == code).sum()
            )
        for mask in (left, ~left):
            counts = np.unique(replaced[mask, column], return_counts=True)[1]
            assert counts.min() >= least or len(np.unique(replaced[:, column])) == 1
        present = [own[code] for code in range(bins + 1) if whole[0, column, code]]
        assert np.unique(present, return_counts=True)[1].min() >= several or len(set(present)) == 1
        ordered = own[:-1]
        assert (np.diff(ordered) >= 0).all()
        assert all(ordered[cell] == cell for cell in ordered)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([9, 9, 0], [0, 0, 2]),
        ([9, 9, 9, 0], [0, 0, 0, 3]),
        ([9, 9, 9, 9, 0], [0, 0, 2, 2, 4]),
        ([9, 0, 9, 9, 0], [0, 0, 0, 0, 4]),
        ([9, 9, 9, 9], [0, 1, 1, 0]),
    ],
)
def test_cells_of_two_bins(rows: list[int], expected: list[int]) -> None:
    """A bin without rows is none, rows without a value are one; a column of fewer than four bins is one cell."""
    counts, own = np.array([[rows]]), np.arange(len(rows), dtype=np.int32)[None, None]
    assert merge_bins(counts, counts, own, 5, 2)[0, 0].tolist() == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([5, 5, 5, 0], [0, 1, 2, 3]),
        ([1, 5, 1, 0], [0, 0, 0, 3]),
        ([5, 5, 2, 2], [0, 1, 1, 0]),
        ([9, 9, 0, 2], [0, 1, 2, 0]),
    ],
)
def test_known_cells(rows: list[int], expected: list[int]) -> None:
    """Bins join the next; what is left over joins the last; few rows without a value join bin 0."""
    counts = np.array([[rows]])
    assert merge_bins(counts, counts, np.arange(4, dtype=np.int32)[None, None], 5)[0, 0].tolist() == expected
