import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labelward.kernels.binning import bin_codes, bin_columns, missing_code, node_candidates, presort

FEW = st.sampled_from([-2.0, -0.0, 0.0, 1.0, 5.0, 7.5, np.nan])
ANY = st.floats(allow_nan=False, allow_infinity=False)  # up to the largest and down to subnormal values


def slow_codes(values: np.ndarray, edges: list[float] | np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The number of edges below each value; the missing code of the codes' type where it is missing."""
    return np.where(np.isnan(values), missing_code(codes.dtype), np.searchsorted(edges, values, side="left"))


def matrices(rows: int = 40) -> st.SearchStrategy[np.ndarray]:
    shape = st.tuples(st.integers(1, rows), st.integers(1, 10))
    return shape.flatmap(lambda s: hnp.arrays(np.float64, s, elements=st.one_of(FEW, ANY)))


def slow_edges(values: np.ndarray, bins: int) -> list[float]:
    """The rule of the module's text, on a list of what is not missing."""
    rest = sorted(values[~np.isnan(values)].tolist())
    distinct = sorted(set(rest))
    if len(distinct) <= bins:
        return distinct[:-1]
    edges: list[float] = []
    while len(edges) < bins - 1:
        target = max(1, int(len(rest) / (bins - len(edges)) + 0.5))
        value = rest[target - 1]
        below, upto = sum(v < value for v in rest), sum(v <= value for v in rest)
        end = below if below > 0 and target - below < upto - target else upto
        if end == len(rest):
            break
        edges.append(rest[end - 1])
        rest = rest[end:]
    return edges


@settings(max_examples=150, deadline=None)  # the first example compiles
@given(matrices(), st.integers(2, 40))
def test_edges_and_codes_of_whole_columns(x: np.ndarray, bins: int) -> None:
    binned = bin_columns(x, bins)
    assert binned.codes.shape == x.shape
    assert len(binned.edges) == x.shape[1]
    for f, edges in enumerate(binned.edges):
        column = x[:, f]
        assert edges.tolist() == slow_edges(column, bins)
        assert len(edges) <= bins - 1
        assert binned.sizes[f] == len(edges) + 1
        np.testing.assert_array_equal(binned.codes[:, f], slow_codes(column, edges, binned.codes))
        assert (np.diff(edges) > 0).all()
        for c, edge in enumerate(edges):
            left = column <= edge
            np.testing.assert_array_equal(left, binned.codes[:, f] <= c)
            assert 0 < left.sum() < np.count_nonzero(~np.isnan(column))


@settings(max_examples=60, deadline=None)
@given(matrices(), matrices(), st.integers(2, 40))
def test_new_rows_are_coded_by_counting_edges_below(x: np.ndarray, new: np.ndarray, bins: int) -> None:
    new = np.resize(new, (len(new), x.shape[1]))
    edges = bin_columns(x, bins).edges
    codes = bin_codes(new, edges)
    expected = np.column_stack([slow_codes(new[:, f], e, codes) for f, e in enumerate(edges)])
    np.testing.assert_array_equal(codes, expected)


@settings(max_examples=60, deadline=None)
@given(matrices())
def test_without_bins_every_distinct_value_but_the_largest_is_an_edge(x: np.ndarray) -> None:
    binned = bin_columns(x, None)
    for f, edges in enumerate(binned.edges):
        known = x[~np.isnan(x[:, f]), f]
        assert edges.tolist() == sorted(set(known.tolist()))[:-1]
        np.testing.assert_array_equal(binned.codes[:, f], slow_codes(x[:, f], edges, binned.codes))


def test_more_distinct_values_than_codes_are_refused() -> None:
    x = np.arange(65_536.0)[:, None]
    binned = bin_columns(x[:-1], None)
    assert (binned.codes.dtype, binned.sizes[0], binned.codes.max()) == (np.uint16, 65_535, 65_534)
    with pytest.raises(ValueError, match="column 0 has more"):
        bin_columns(x, None)


@pytest.mark.parametrize(("size", "code_type"), [(3, np.uint8), (255, np.uint8), (256, np.uint16)])
def test_codes_of_categories_are_the_categories(size: int, code_type: type) -> None:
    category = np.array([0.0, 2.0, -1.0, np.nan, size - 1.0, 1.0])
    x = np.stack([np.arange(6.0), category], axis=1)
    missing = np.iinfo(code_type).max
    expected = [0, 2, missing, missing, size - 1, 1]
    for bins in (4, None):
        binned = bin_columns(x, bins, {1: size})
        assert binned.codes.dtype == code_type
        assert binned.codes[:, 1].tolist() == expected
        assert binned.sizes.tolist() == [bins or 6, size]
        assert len(binned.edges[1]) == 0
        assert len(binned.edges[0]) == (bins or 6) - 1
        np.testing.assert_array_equal(bin_codes(x, binned.edges, {1: size}), binned.codes)
    slot = np.array([0, 1, 0, 1, -1, 1], dtype=np.int32)
    codes, edges = node_candidates(x, slot, 2, 4, None, {1: size})
    assert codes.dtype == code_type
    assert codes[:, 1].tolist() == [0, 2, missing, missing, 0, 1]
    assert np.isnan(edges[:, 1]).all()
    assert edges[1, 0].tolist() == [1.0, 3.0, pytest.approx(np.nan, nan_ok=True)]


def test_columns_without_any_value_have_one_bin() -> None:
    x = np.full((5, 2), np.nan)
    binned = bin_columns(x, 32, {1: 0})
    assert binned.sizes.tolist() == [1, 1]
    assert (binned.codes == 255).all()
    codes, edges = node_candidates(x, np.zeros(5, dtype=np.int32), 1, 32)
    assert (codes == 255).all()
    assert np.isnan(edges).all()


@pytest.mark.parametrize("value", [3.0, -2.0, 0.5])
def test_what_is_no_category_is_refused(value: float) -> None:
    x = np.array([[0.0], [value]])
    with pytest.raises(ValueError, match="categories 0 to 2"):
        bin_columns(x, 32, {0: 3})
    with pytest.raises(ValueError, match="column 0"):
        bin_codes(x, (np.empty(0),), {0: 3})
    with pytest.raises(ValueError, match="column 0"):
        node_candidates(x, np.zeros(2, dtype=np.int32), 1, 32, None, {0: 3})
    with pytest.raises(ValueError, match="categorical column 1"):
        bin_columns(x, 32, {1: 3})
    with pytest.raises(ValueError, match="65536 categories"):
        bin_columns(x, 32, {0: 65_536})


def test_edges_without_ties_are_quantiles() -> None:
    x = np.random.default_rng(0).permutation(320.0 * np.arange(1, 321))[:, None]
    np.testing.assert_array_equal(bin_columns(x, 32).edges[0], 320.0 * np.arange(10, 320, 10))


def test_a_heavy_value_takes_one_bin_and_leaves_the_others_even() -> None:
    x = np.concatenate([np.zeros(1000), np.arange(1.0, 301.0)])[:, None]
    np.testing.assert_array_equal(bin_columns(x, 4).edges[0], [0.0, 100.0, 200.0])


@pytest.mark.parametrize(("bins", "code_type"), [(255, np.uint8), (256, np.uint16), (1024, np.uint16)])
def test_codes_are_as_small_as_the_bins_allow(bins: int, code_type: type) -> None:
    x = np.random.default_rng(0).standard_normal((3000, 2))
    binned = bin_columns(x, bins)
    assert binned.codes.dtype == code_type
    assert [len(e) for e in binned.edges] == [bins - 1] * 2
    assert np.bincount(binned.codes[:, 0]).max() <= np.ceil(3000 / bins)
    np.testing.assert_array_equal(bin_codes(x, binned.edges), binned.codes)


@pytest.mark.parametrize("bins", [2, 63, 64, 65, 66, 300])
def test_few_and_many_edges_are_counted_alike(bins: int) -> None:
    rng = np.random.default_rng(bins)
    x = rng.integers(-400, 400, (2000, 3)) / 4
    x[rng.random(x.shape) < 0.1] = np.nan
    edges = bin_columns(x, bins).edges
    codes = bin_codes(x[:519], edges)
    for f, e in enumerate(edges):
        np.testing.assert_array_equal(codes[:, f], slow_codes(x[:519, f], e, codes))


@given(st.permutations([0.0, -0.0, 0.0, -0.0, 1.0, 2.0, 3.0]))
def test_zero_has_one_sign_as_an_edge(values: list[float]) -> None:
    x = np.array(values)[:, None]
    slot = np.zeros(len(x), dtype=np.int32)
    for edges in (bin_columns(x, 32).edges[0], bin_columns(x, 2).edges[0], node_candidates(x, slot, 1, 2)[1][0, 0]):
        assert edges[0] == 0
        assert not np.signbit(edges[0])


def test_blocks_of_rows_and_columns_join_without_seams() -> None:
    x = np.random.default_rng(0).standard_normal((517, 19))  # neither a multiple of 256 nor of 8
    binned = bin_columns(x, 32)
    for f in range(19):
        alone = bin_columns(x[:, f : f + 1], 32)
        np.testing.assert_array_equal(alone.codes[:, 0], binned.codes[:, f])
        np.testing.assert_array_equal(alone.edges[0], binned.edges[f])


@pytest.mark.parametrize("shape", [(0, 3), (5, 0)])
def test_no_rows_and_no_columns(shape: tuple[int, int]) -> None:
    binned = bin_columns(np.zeros(shape), 32)
    assert binned.codes.shape == shape
    assert [len(e) for e in binned.edges] == [0] * shape[1]


@settings(max_examples=100, deadline=None)
@given(matrices(), st.integers(2, 12), st.integers(1, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_node_candidates_are_those_of_each_node_alone(
    x: np.ndarray, bins: int, n_slots: int, seed: int, presorted: bool
) -> None:
    slot = np.random.default_rng(seed).integers(-1, n_slots, len(x)).astype(np.int32)
    codes, edges = node_candidates(x, slot, n_slots, bins, presort(x) if presorted else None)
    assert edges.shape == (n_slots, x.shape[1], bins - 1)
    assert (codes[slot == -1] == 0).all()
    for s in range(n_slots):
        for f in range(x.shape[1]):
            inside = x[slot == s, f]
            own = slow_edges(inside, bins) if len(inside) else []
            assert edges[s, f, : len(own)].tolist() == own
            assert np.isnan(edges[s, f, len(own) :]).all()
            np.testing.assert_array_equal(codes[slot == s, f], slow_codes(inside, own, codes))


def test_a_node_of_few_rows_offers_all_its_values() -> None:
    x = np.arange(64.0)[:, None]
    slot = (np.arange(64) % 2).astype(np.int32)
    _, edges = node_candidates(x, slot, 2, 32)
    np.testing.assert_array_equal(edges[0, 0], np.arange(0.0, 62.0, 2))
    np.testing.assert_array_equal(edges[1, 0], np.arange(1.0, 63.0, 2))


@pytest.mark.parametrize("bins", [1, 1025])
def test_bins_out_of_range_are_refused(bins: int) -> None:
    with pytest.raises(ValueError, match=f"bins .* {bins}"):
        bin_columns(np.zeros((2, 1)), bins)
    with pytest.raises(ValueError, match=f"bins .* {bins}"):
        node_candidates(np.zeros((2, 1)), np.zeros(2, dtype=np.int32), 1, bins)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_are_refused_by_place(value: float) -> None:
    x = np.zeros((3000, 2))
    x[2999, 1] = value
    with pytest.raises(ValueError, match="row 2999, column 1"):
        bin_columns(x, 32)
    with pytest.raises(ValueError, match="row 2999, column 1"):
        bin_codes(x, (np.zeros(1), np.zeros(1)))


def test_slots_and_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="from -1 to 1"):
        node_candidates(np.zeros((2, 1)), np.array([0, 2], dtype=np.int32), 2, 32)
    with pytest.raises(ValueError, match="do not fit"):
        node_candidates(np.zeros((2, 1)), np.zeros(3, dtype=np.int32), 2, 32)
    with pytest.raises(ValueError, match="edges for 2"):
        bin_codes(np.zeros((2, 1)), (np.zeros(1), np.zeros(1)))
