import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from labelward.kernels.leaf_signatures import merge_identical_rows

leaves = st.tuples(st.integers(0, 4), st.integers(0, 12)).flatmap(
    lambda shape: arrays(np.int32, shape, elements=st.integers(-1, 3))
)


@given(leaves)
def test_rows_are_merged_exactly_when_all_their_leaves_are_equal(leaves):
    found = merge_identical_rows(leaves)
    columns = [tuple(column) for column in leaves.T]
    first = list(dict.fromkeys(columns))
    assert found.group.tolist() == [first.index(column) for column in columns]
    assert found.size.tolist() == [columns.count(column) for column in first]
    for tree, row in enumerate(found.leaf_of_group):
        numbers = list(dict.fromkeys(column[tree] for column in columns if column[tree] >= 0))
        assert row.tolist() == [numbers.index(column[tree]) if column[tree] >= 0 else -1 for column in first]


@given(leaves, st.randoms(use_true_random=False))
def test_neither_names_of_leaves_nor_the_order_of_trees_change_the_groups(leaves, random):
    names = np.array([*random.sample(range(2**31 - 1), 4), -1], np.int32)
    order = random.sample(range(len(leaves)), len(leaves))
    one, other = merge_identical_rows(leaves), merge_identical_rows(names[leaves][order])
    np.testing.assert_array_equal(one.group, other.group)
    np.testing.assert_array_equal(one.size, other.size)
    np.testing.assert_array_equal(one.leaf_of_group[order], other.leaf_of_group)


def test_keys_that_collide_in_the_table_stay_apart():
    # 200,000 distinct leaves fill the table to more than a third, so that probing must happen.
    leaf = np.random.default_rng(1).permutation(200_000).astype(np.int32)
    found = merge_identical_rows(np.vstack([leaf, leaf % 7]))
    np.testing.assert_array_equal(found.group, np.arange(len(leaf)))
    assert (found.size == 1).all()


@pytest.mark.parametrize(
    ("leaves", "message"), [(np.zeros(3, np.int32), "1 dimensions"), (np.array([[0, -2]], np.int32), "-2")]
)
def test_what_is_no_leaf_matrix_is_refused(leaves, message):
    with pytest.raises(ValueError, match=message):
        merge_identical_rows(leaves)
