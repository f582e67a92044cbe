"""Routing rows through one tree."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.kernels.node_rows import route_rows


def test_a_tree_without_splits() -> None:
    none = np.zeros(0, np.int32)
    assert route_rows(none, none, np.zeros((0, 4), np.bool_)).tolist() == [0, 0, 0, 0]


def test_a_known_tree() -> None:
    """Split 0 leads to split 1 and leaf 0; split 1 to leaves 2 and 1."""
    left, right = np.array([1, -3], np.int32), np.array([-1, -2], np.int32)
    sides = np.array([[True, True, False, False], [True, False, True, False]])
    assert route_rows(left, right, sides).tolist() == [2, 1, 0, 0]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(0, 9))
def test_against_a_walk_in_python(seed: int, splits: int, rows: int) -> None:
    """Trees of any shape: each new split takes the place of a leaf drawn among those that there are."""
    rng = np.random.default_rng(seed)
    links = np.zeros((splits, 2), np.int32)
    open_ends = [(0, 0), (0, 1)]
    for split in range(1, splits):
        above, side = open_ends.pop(int(rng.integers(len(open_ends))))
        links[above, side] = split
        open_ends += [(split, 0), (split, 1)]
    for leaf, (above, side) in enumerate(open_ends):
        links[above, side] = -1 - leaf
    sides = rng.random((splits, rows)) < 0.5
    expected = []
    for row in range(rows):
        at = 0
        while at >= 0:
            at = int(links[at, 0 if sides[at, row] else 1])
        expected.append(-1 - at)
    got = route_rows(np.ascontiguousarray(links[:, 0]), np.ascontiguousarray(links[:, 1]), sides)
    assert got.tolist() == expected
