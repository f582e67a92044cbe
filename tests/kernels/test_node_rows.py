"""Node numbers, and the rows of nodes, against what their definitions say."""

from __future__ import annotations

import numpy as np
import pytest

from labelward.kernels.node_rows import NodeRows, children, depth_of, is_below, parent, sibling


@pytest.mark.parametrize("node", range(200))
def test_numbers_of_relatives(node: int) -> None:
    left, right = children(node)
    assert (parent(left), parent(right)) == (node, node)
    assert (sibling(left), sibling(right)) == (right, left)
    assert depth_of(left) == depth_of(right) == depth_of(node) + 1
    ancestors = set()
    above = node
    while above:
        above = parent(above)
        ancestors.add(above)
    assert {other for other in range(250) if is_below(node, other)} == ancestors
    assert depth_of(node) == len(ancestors)


def test_the_root() -> None:
    assert (depth_of(0), parent(0), is_below(0, 0)) == (0, -1, False)


def test_rows_of_leaves() -> None:
    """Splits divide a node's rows in their order; a merge undoes all splits below a node."""
    rows = NodeRows(9, np.array([1, 2, 4, 5, 8]))
    rows.split(0, np.array([True, False, True, False, True]))
    rows.split(1, np.array([False, True, False]))
    assert {node: rows.rows(node).tolist() for node in range(9) if node in rows} == {2: [2, 5], 3: [4], 4: [1, 8]}
    assert [rows.size(node) for node in (2, 3, 4)] == [2, 1, 2]
    assert rows.slots([4, 2]).tolist() == [-1, 0, 1, -1, -1, 1, -1, -1, 0]
    rows.merge(1)
    assert {node: rows.rows(node).tolist() for node in range(9) if node in rows} == {1: [1, 4, 8], 2: [2, 5]}
    rows.merge(2)  # a leaf stays as it is
    rows.merge(0)
    assert rows.rows(0).tolist() == [1, 2, 4, 5, 8]


def test_only_leaves_are_split() -> None:
    rows = NodeRows(2, np.arange(2))
    rows.split(0, np.array([True, False]))
    with pytest.raises(KeyError):
        rows.split(0, np.array([True, False]))
