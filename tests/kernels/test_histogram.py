import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.kernels.binning import missing_code
from labelward.kernels.histogram import goes_left, groups, impossible_node, level_sums, row_range, row_sums


def slow_sums(group: np.ndarray, values: np.ndarray, n_groups: int) -> np.ndarray:
    out = np.zeros((group.shape[1], n_groups, values.shape[1]), dtype=np.int64)
    for i, row in enumerate(group):
        for f, g in enumerate(row):
            if g >= 0:
                out[f, g] += values[i]
    return out


@settings(max_examples=100, deadline=None)  # the first example compiles
@given(
    st.integers(0, 30),
    st.integers(0, 5),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 300),
    st.integers(0, 2**32 - 1),
)
def test_sums_equal_a_plain_loop(n: int, columns: int, k: int, slots: int, bins: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, bins, (n, columns)).astype(np.uint8 if bins <= 255 else np.uint16)
    missing = rng.random(codes.shape) < rng.choice([0.0, 0.4])
    codes[missing] = missing_code(codes.dtype)
    slot = rng.integers(-1, slots, n).astype(np.int32)
    values = rng.integers(-(2**52), 2**52, (n, k))
    together = groups(codes, slot, bins)
    assert together.dtype == np.int32
    np.testing.assert_array_equal(
        together, np.where((slot[:, None] < 0) | missing, -1, slot[:, None] * bins + codes.astype(np.int64))
    )
    expected = slow_sums(together, values, slots * bins)
    level = level_sums(codes, slot, values, slots, bins)
    np.testing.assert_array_equal(level, expected.reshape(columns, slots, bins, k))


@given(st.integers(1, 20), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_sums_and_ranges_of_some_rows(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-(2**58), 2**58, (n, k))
    rows = np.flatnonzero(rng.random(n) < 0.7).astype(np.int32)
    np.testing.assert_array_equal(row_sums(values, rows), values[rows].sum(axis=0))
    if not len(rows):
        with pytest.raises(ValueError, match="rows"):
            row_range(values, rows)
    else:
        least, most = row_range(values, rows)
        np.testing.assert_array_equal(least, values[rows].min(axis=0))
        np.testing.assert_array_equal(most, values[rows].max(axis=0))


def test_arrays_that_are_not_contiguous_or_not_writable_are_taken() -> None:
    codes = np.arange(12, dtype=np.uint8).reshape(3, 4)[:, ::2] % 3
    wide = np.arange(12).reshape(3, 4)
    slot = np.zeros(3, dtype=np.int32)
    slot.flags.writeable = False
    np.testing.assert_array_equal(
        level_sums(codes, slot, wide[:, ::2], 1, 3), level_sums(codes.copy(), slot.copy(), wide[:, ::2].copy(), 1, 3)
    )


def test_partition_marks_the_rows_of_the_left_side() -> None:
    codes = np.array([[0, 3], [1, 1], [2, 2], [3, 0]], dtype=np.uint8)
    rows = np.array([3, 0, 2], dtype=np.int32)
    assert goes_left(codes, rows, 1, 1).tolist() == [True, False, False]
    assert goes_left(codes, rows, 0, 2).tolist() == [False, True, True]
    assert goes_left(codes, rows[:0], 0, 2).tolist() == []


def test_missing_values_and_categories_go_where_they_are_sent() -> None:
    codes = np.array([[0], [1], [2], [255], [4]], dtype=np.uint8)
    rows = np.arange(5, dtype=np.int32)
    assert goes_left(codes, rows, 0, 1).tolist() == [True, True, False, False, False]
    assert goes_left(codes, rows, 0, 1, missing_left=True).tolist() == [True, True, False, True, False]
    assert goes_left(codes, rows, 0, 0, categories=(1, 4)).tolist() == [False, True, False, False, True]
    assert goes_left(codes, rows, 0, 0, missing_left=True, categories=(2,)).tolist() == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert goes_left(codes, rows, 0, 254).tolist() == [True, True, True, False, True]  # all that is known
    wide = np.array([[300], [65_535]], dtype=np.uint16)
    assert goes_left(wide, rows[:2], 0, 0, categories=(300, 65_535, 70_000, -1)).tolist() == [True, False]


def test_what_would_write_outside_an_array_is_refused() -> None:
    codes = np.zeros((2, 1), dtype=np.uint8)
    values = np.zeros((2, 3), dtype=np.int64)
    with pytest.raises(ValueError, match="but one is 1"):
        level_sums(codes, np.array([0, 1], dtype=np.int32), values, 1, 32)
    with pytest.raises(ValueError, match="one is -2"):
        level_sums(codes, np.array([0, -2], dtype=np.int32), values, 1, 32)
    with pytest.raises(ValueError, match="but one is 40"):
        level_sums(codes + np.uint8(40), np.zeros(2, dtype=np.int32), values, 1, 32)
    with pytest.raises(ValueError, match="but one is 254"):
        groups(np.array([[255], [254]], dtype=np.uint8), np.zeros(2, dtype=np.int32), 32)
    with pytest.raises(ValueError, match="values of 1"):
        level_sums(codes, np.zeros(2, dtype=np.int32), values[:1], 1, 32)
    with pytest.raises(ValueError, match="do not fit int32"):
        groups(codes, np.full(2, 2**26, dtype=np.int32), 32)
    for row in (-1, 2):
        with pytest.raises(ValueError, match="from 0 to 1"):
            goes_left(codes, np.array([row], dtype=np.int32), 0, 0)
    with pytest.raises(ValueError, match="column 1"):
        goes_left(codes, np.zeros(1, dtype=np.int32), 1, 0)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 20), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_sums_of_rows_are_possible_and_none_beyond_their_range(n: int, columns: int, slots: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes, slot = rng.integers(0, 4, (n, columns)).astype(np.uint8), rng.integers(0, slots, n).astype(np.int32)
    slot[:slots] = np.arange(min(n, slots))
    present = int(slot.max()) + 1
    values = np.column_stack([rng.integers(-50, 50, (n, 2)), np.ones(n, dtype=np.int64)])
    sums = level_sums(codes, slot, values, present, 4)
    of_node = [values[slot == node] for node in range(present)]
    totals = np.stack([rows.sum(axis=0) for rows in of_node])
    least, most = (np.stack([getattr(rows, name)(axis=0) for rows in of_node]) for name in ("min", "max"))
    assert impossible_node(sums, totals, least, most, 2) == -1
    at = tuple(rng.integers(0, size) for size in sums.shape[:3])
    rows = sums[at][2]
    for beyond in (
        max(rows * least[at[1], 0], totals[at[1], 0] - (totals[at[1], 2] - rows) * most[at[1], 0]) - 1,
        min(rows * most[at[1], 0], totals[at[1], 0] - (totals[at[1], 2] - rows) * least[at[1], 0]) + 1,
    ):
        changed = sums.copy()
        changed[(*at, 0)] = beyond
        assert impossible_node(changed, totals, least, most, 2) == at[1]
