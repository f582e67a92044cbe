"""What a party knows of the leaves, on views written by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blames import refused_about
from labelward.attacks.base import AttackerData
from labelward.attacks.instance_spaces import observed_leaves
from labelward.errors import DataError, FileFormatError
from labelward.he.base import Layout
from labelward.messages.base import CipherDigest, RowMask
from labelward.messages.tree import LevelRequest, NodeSplit, OwnSplit, TreeStart
from labelward.testing.attacks import planted_view, view_of
from refusals import refused
from released import released

GRADIENTS = CipherDigest("plain", "rows", (0,), Layout((1,), 0, 1), 0, 0, b"")


def mask(text):
    """``"1101"``: the rows that are in, or go left."""
    return RowMask.pack(np.array([letter == "1" for letter in text], np.bool_))


def start(tree, rows):
    return TreeStart(tree, released(mask(rows)), GRADIENTS), (tree,)


def told(tree, depth, **splits):
    return LevelRequest(
        tree, depth, released(tuple(NodeSplit(int(node[1:]), mask(left)) for node, left in splits.items())), ()
    ), (
        tree,
        depth,
    )


def owned(tree, depth, node, left):
    return OwnSplit(tree, node, "age", 0.5, 0, mask(left)), (tree, depth)


def leaves(*records, rows):
    return observed_leaves(view_of(list(records), rows)).tolist()


def test_a_tree_without_a_known_split_is_its_sample():
    assert leaves(start(0, "1101"), told(0, 0), rows=4) == [[0, 0, -1, 0]]


def test_splits_that_were_told_and_own_splits_are_both_known():
    found = leaves(
        start(0, "111111"),
        owned(0, 0, 0, "110101"),  # left: rows 0 1 3 5, right: 2 4
        told(0, 1, n1="0110"),  # of rows 0 1 3 5, rows 1 and 3 go left
        owned(0, 1, 2, "01"),
        rows=6,
    )
    assert found == [[4, 3, 6, 3, 5, 4]]


def test_masks_speak_of_the_rows_of_the_sample():
    assert leaves(start(0, "011011"), told(0, 1, n0="1010"), rows=6) == [[-1, 1, 2, -1, 1, 2]]


def test_of_a_split_that_was_not_told_only_the_parent_is_known():
    # Node 1 was split by the active party into two leaves: its rows stay together; node 2, told, is split.
    assert leaves(start(0, "11111111"), told(0, 1, n0="11110000"), told(0, 2, n2="0110"), rows=8) == [
        [1, 1, 1, 1, 6, 5, 5, 6]
    ]


def test_nothing_below_a_hidden_split_is_known():
    """A split that is told without its parent's says nothing of rows."""
    assert leaves(start(0, "1111"), told(0, 2, n1="10"), owned(0, 3, 3, "1"), rows=4) == [[0, 0, 0, 0]]


def test_a_leaf_beside_a_told_sibling_follows_by_subtraction():
    assert leaves(start(0, "1111"), told(0, 1, n0="1000"), rows=4) == [[1, 2, 2, 2]]


def test_trees_are_in_order_and_those_of_others_absent():
    found = leaves(start(2, "11"), start(0, "10"), told(2, 1, n0="10"), told(1, 1, n0="10"), rows=2)
    assert found == [[0, -1], [1, 2]]
    assert observed_leaves(view_of([], 2)).shape == (0, 2)


def test_of_a_tree_begun_again_the_last_attempt_counts():
    assert leaves(start(0, "11"), told(0, 1, n0="10"), start(0, "11"), told(0, 1, n0="01"), rows=2) == [[2, 1]]


def test_an_empty_child_may_be_split_no_further():
    assert leaves(start(0, "11"), owned(0, 0, 0, "11"), told(0, 1, n2=""), rows=2) == [[1, 1]]


def test_a_mask_that_does_not_fit_its_node_is_refused():
    with refused_about("tree 0", FileFormatError, "damaged", value="passive"):
        leaves(start(0, "111"), told(0, 1, n0="10"), rows=3)


@given(
    st.tuples(st.integers(0, 3), st.integers(1, 40)).flatmap(
        lambda shape: arrays(np.int32, shape, elements=st.integers(-1, 9))
    ),
    st.booleans(),
)
def test_a_planted_view_shows_the_planted_leaves(planted, own):
    found = observed_leaves(planted_view(planted, own=own))
    assert found.shape == planted.shape
    for one, other in zip(found, planted, strict=True):
        np.testing.assert_array_equal(one < 0, other < 0)
        np.testing.assert_array_equal(one[:, None] == one[None, :], other[:, None] == other[None, :])


def test_rows_out_of_the_sample_pass_own_splits_as_far_as_these_lead_to_a_leaf():
    """Rows 4 and 5 go right at the own root split, to a leaf; row 6 goes left, where another splits."""
    records = [
        start(0, "1111000"),
        owned(0, 0, 0, "1110"),  # age <= 0.5
        told(0, 1, n1="100"),
    ]
    own = AttackerData(features=np.array([[0.0], [0.5], [0.1], [2.0], [0.6], [9.0], [0.5]]), columns=("age",))
    view = view_of(records, 7)
    assert observed_leaves(view).tolist() == [[3, 4, 4, 2, -1, -1, -1]]
    assert observed_leaves(view, own).tolist() == [[3, 4, 4, 2, 2, 2, -1]]
    with refused(DataError, "columns", value="age"):
        observed_leaves(view, AttackerData(features=np.zeros((7, 1)), columns=("size",)))


def stands(values, column, *, missing_left=False, **split):
    """Whether rows of these values of an own column go left at a split of it, by the leaf that they end in."""
    own = AttackerData(features=np.array(values, dtype=float)[:, None], columns=(column,), categories={"town": 3})
    observed = OwnSplit(0, 0, column, split.get("threshold", 0.0), 0, mask("1"), missing_left, split.get("towns", ()))
    rows = len(values)
    view = view_of([start(0, "1" + "0" * (rows - 1)), (observed, (0, 0))], rows)
    return (observed_leaves(view, own)[0, 1:] == 1).tolist()


@pytest.mark.parametrize("missing_left", [False, True])
def test_missing_and_unknown_values_out_of_the_sample_go_where_the_split_sends_them(missing_left):
    lost = missing_left
    assert stands([0, 0.5, 0.6, np.nan], "age", threshold=0.5, missing_left=missing_left) == [True, False, lost]
    assert stands([0, 0.5, np.nan], "age", threshold=np.inf, missing_left=missing_left) == [True, lost]
    towns = [0, 0, 1, 2, np.nan, -1]
    assert stands(towns, "town", towns=(0, 2), missing_left=missing_left) == [True, False, True, lost, lost]


def test_trees_that_grow_side_by_side_and_rows_drawn_several_times():
    """A forest: gradients come with the first tree only, levels of several trees are interleaved, rows repeat."""
    first = TreeStart(0, released(mask("1101")), GRADIENTS, together=2, route=True, repeats=bytes([2, 1, 1]))
    second = TreeStart(1, released(mask("0111")), None, together=0, repeats=bytes([1, 1, 2]))
    records = [
        (first, (0,)),
        (second, (1,)),
        told(0, 1, n0="100"),
        told(1, 1, n0="011"),
        owned(0, 1, 2, "01"),  # age <= 0.5
    ]
    assert leaves(*records, rows=4) == [[1, 6, -1, 5], [-1, 2, 1, 1]]
    own = AttackerData(features=np.array([[9.0], [9.0], [0.0], [0.0]]), columns=("age",))
    assert observed_leaves(view_of(records, 4), own).tolist() == [
        [1, 6, -1, 5],
        [-1, 2, 1, 1],
    ]  # the root is not its own
