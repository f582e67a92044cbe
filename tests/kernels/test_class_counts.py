import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.kernels.class_counts import child_purities, counts_of_flags, counts_of_gradients, purities


def classes_of(draw: st.DrawFn) -> np.ndarray:
    """Draw rows of each class in some nodes, int64 [n, C]; some nodes are empty."""
    n, classes = draw(st.integers(0, 6)), draw(st.integers(2, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.integers(0, draw(st.sampled_from([1, 4, 1000])), (n, classes))


@st.composite
def nodes(draw: st.DrawFn) -> np.ndarray:
    return classes_of(draw)


@settings(deadline=None)  # the first example compiles
@given(nodes(), st.integers(0, 3))
def test_classes_follow_from_flags_and_from_gradients_that_are_minus_the_flags(counts: np.ndarray, before: int) -> None:
    rows = counts.sum(axis=1, keepdims=True)
    others = np.full((len(counts), before), 7)
    assert counts_of_flags(np.hstack([others, rows, counts[:, 1:]]), before).tolist() == counts.tolist()
    stored = counts.shape[1] - 1
    assert counts_of_gradients(np.hstack([-counts[:, :-1], rows]), stored, stored).tolist() == counts.tolist()


@settings(deadline=None)
@given(nodes(), st.integers(1, 4), st.integers(0, 2**32))
def test_purity_is_the_share_of_the_largest_class(counts: np.ndarray, each: int, seed: int) -> None:
    expected = counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1)
    assert purities(counts).tolist() == expected.tolist()
    left = np.random.default_rng(seed).integers(0, counts[:, None] + 1, (len(counts), each, counts.shape[1]))
    right = counts[:, None] - left
    of_left, of_right, least = child_purities(left, counts)
    for found, side in ((of_left, left), (of_right, right)):
        assert found.tolist() == (side.max(axis=2) / np.maximum(side.sum(axis=2), 1)).tolist()
    assert least == 0


def test_a_left_child_with_more_rows_than_its_node_leaves_less_than_none() -> None:
    left = np.array([[[1, 2], [4, 0]]])
    assert child_purities(left, np.array([[3, 2]]))[2] == -1
