from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splits import ONE, SCALE, SCALES, exact_gain, histograms, lowest_first, prefixes

from labelward.kernels.gain import GainRule, best_splits
from labelward.kernels.row_layout import FixedPointScales, RowLayout
from labelward.kernels.split_candidates import candidates

FREE = GainRule(reg_lambda=0.0)


@settings(max_examples=150, deadline=None)  # the first example compiles
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 7)),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 1.0]),
    st.tuples(st.integers(1, 7), st.integers(1, 3)),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_candidates_are_those_of_their_definition(
    shape: tuple[int, int, int],
    missing: float,
    reg_lambda: float,
    limits: tuple[int, int],
    coarse: bool,
    seed: int,
) -> None:
    rng, rule, (onehot, threshold) = np.random.default_rng(seed), GainRule(reg_lambda=reg_lambda), limits
    columns, nodes, bins = shape
    sums, totals = histograms(rng, *shape, coarse=coarse, missing=missing)
    kinds, sizes = rng.integers(0, 2, columns).astype(np.int8), rng.integers(1, bins + 1, columns).astype(np.int32)
    for f in range(columns):
        sums[f, :, 0] += sums[f, :, sizes[f] :].sum(axis=1)
        sums[f, :, sizes[f] :] = 0
    found = candidates(sums, totals, ONE, SCALES, rule, kinds=kinds, sizes=sizes, onehot=onehot, threshold=threshold)
    absent = totals - sums.sum(axis=2)
    assert found.left.shape[2] == (2 * bins if absent.any() else bins)
    for s in range(nodes):
        for f in range(columns):
            limit = {"kind": kinds[f], "size": sizes[f], "onehot": onehot, "threshold": threshold}
            bins_left = prefixes(sums[f, s], rule, **limit)
            for a in range(found.left.shape[2]):
                joined, missing_left = bins_left[a % bins], a >= bins
                if joined is None:  # refused: the right side is empty
                    np.testing.assert_array_equal(found.left[s, f, a], totals[s])
                    continue
                expected = sums[f, s, joined].sum(axis=0) + (absent[f, s] if missing_left else 0)
                np.testing.assert_array_equal(found.left[s, f, a], expected)
                chosen = (0, missing_left, tuple(joined)) if kinds[f] == 1 else (a % bins, missing_left, ())
                assert found.chosen(s, f, a) == chosen


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 7), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.25]), st.booleans())
def test_no_set_of_categories_gains_more_than_the_best_in_order(
    size: int, seed: int, missing: float, two_outputs: bool
) -> None:
    """Fisher's theorem; shares of two classes lie on a line, so that it holds for them too."""
    rng = np.random.default_rng(seed)
    numbers = RowLayout(outputs=2, hessians=0, implied="count") if two_outputs else ONE
    scales = FixedPointScales(1.0, 1.0) if two_outputs else SCALES
    sums, totals = histograms(rng, 1, 1, size, numbers=numbers, missing=missing)
    if two_outputs:
        sums[..., 0] = -rng.integers(0, sums[..., 1] + 1)
        totals[:, 0] = sums[0, :, :, 0].sum() - (totals - sums[0].sum(axis=1))[:, 1]  # missing rows are of class 0
    kinds = np.ones(1, np.int8)
    offered = candidates(sums, totals, numbers, scales, FREE, kinds=kinds, onehot=1)
    best = best_splits(offered, totals, numbers, scales, FREE, kinds=kinds)
    cells, absent = sums[0, 0], totals[0] - sums[0, 0].sum(axis=0)
    every = chain.from_iterable(combinations(range(size), n) for n in range(size + 1))
    sides = [cells[list(own)].sum(axis=0) + extra for own in every for extra in (0, absent)]
    gains = [exact_gain(side, totals[0], FREE, numbers, scales) for side in sides]
    most = float(max((gain for gain in gains if gain is not None), default=0))
    # terms are below 1e3 here and known to 1e-13 of themselves
    assert max(best.gain[0], 0.0) == pytest.approx(max(most, 0.0), rel=1e-9, abs=1e-9)


def test_one_category_against_the_rest() -> None:
    cells = [(300, 256, 3), (-900, 256, 3), (200, 256, 3)]
    sums = np.array(cells, dtype=np.int64)[None, None]
    totals, kinds, rule = sums[0].sum(axis=1), np.ones(1, np.int8), GainRule()
    offered = candidates(sums, totals, ONE, SCALES, rule, kinds=kinds, onehot=4)
    best = best_splits(offered, totals, ONE, SCALES, rule, kinds=kinds)
    assert offered.chosen(0, 0, int(best.candidate[0])) == (0, False, (1,))
    as_sets = candidates(sums, totals, ONE, SCALES, rule, kinds=kinds, onehot=3)
    best = best_splits(as_sets, totals, ONE, SCALES, rule, kinds=kinds)
    assert as_sets.chosen(0, 0, int(best.candidate[0])) == (0, False, (0, 2))  # weights ascend: 0, 2, then 1


def test_missing_values_alone_can_be_a_side() -> None:
    sums = np.array([(300, 256, 3), (300, 256, 3)], dtype=np.int64)[None, None]
    totals = np.array([[-400, 768, 9]])
    for kind in (0, 1):
        kinds = np.array([kind], np.int8)
        offered = candidates(sums, totals, ONE, SCALES, GainRule(), kinds=kinds, onehot=1)
        best = best_splits(offered, totals, ONE, SCALES, GainRule(), kinds=kinds)
        chosen = offered.chosen(0, 0, int(best.candidate[0]))
        assert chosen == ((1, False, ()) if kind == 0 else (0, False, (0, 1)))
        assert best.left[0].tolist() == [600, 512, 6]


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_several_outputs_are_ordered_along_the_direction_in_which_they_vary_most(
    size: int, outputs: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    numbers, rule = RowLayout(outputs=outputs, hessians=1), GainRule()
    sums, totals = histograms(rng, 1, 1, size, numbers=numbers)
    cells = sums[0, 0][sums[0, 0, :, numbers.count] > 0]
    g, h = cells[:, :outputs] / SCALE, cells[:, outputs] / SCALE
    weights = -g / (h[:, None] + 1.0)
    centered = weights - np.average(weights, axis=0, weights=h)
    _, spread, directions = np.linalg.svd(np.sqrt(h)[:, None] * centered)
    key = weights @ directions[0]
    key = key * lowest_first(key.tolist())
    if len(spread) < 2 or spread[0] - spread[1] < 1e-3 * spread[0] or np.diff(np.sort(key)).min(initial=1.0) < 1e-6:
        return  # no clear first direction, or a tie
    offered = candidates(sums, totals, numbers, SCALES, rule, kinds=np.ones(1, np.int8), onehot=1)
    codes = np.flatnonzero(sums[0, 0, :, numbers.count] > 0)
    expected = codes[np.argsort(key)]
    assert offered.orders[0][0, : len(codes)].tolist() == expected.tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.sampled_from([1, 2, 3]), st.booleans(), st.integers(0, 2**32 - 1))
def test_which_categories_go_left_does_not_tell_on_which_side_the_weights_are_larger(
    size: int, outputs: int, coarse: bool, seed: int
) -> None:
    numbers, rule = RowLayout(outputs=outputs, hessians=1), GainRule()
    sums, totals = histograms(np.random.default_rng(seed), 1, 3, size, numbers=numbers, coarse=coarse, missing=0.3)
    kinds, found = np.ones(1, np.int8), []
    for sign in (1, -1):
        signs = np.r_[np.full(outputs, sign), 1, 1]
        offered = candidates(sums * signs, totals * signs, numbers, SCALES, rule, kinds=kinds, onehot=1)
        found.append((offered.orders[0].tolist(), (offered.left * signs).tolist()))
    assert found[0] == found[1]


def test_a_node_without_rows_or_hessians_has_no_candidates() -> None:
    numbers = RowLayout(outputs=2, hessians=2)
    sums, kinds = np.zeros((1, 1, 6, 5), dtype=np.int64), np.ones(1, np.int8)
    totals = np.zeros((1, 5), dtype=np.int64)
    offered = candidates(sums, totals, numbers, SCALES, FREE, kinds=kinds)
    assert best_splits(offered, totals, numbers, SCALES, FREE, kinds=kinds).column.tolist() == [-1]
    sums[..., 4], totals[0, 4] = 1, 6
    offered = candidates(sums, totals, numbers, SCALES, FREE, kinds=kinds)
    assert best_splits(offered, totals, numbers, SCALES, FREE, kinds=kinds).column.tolist() == [-1]


def test_memory_is_that_of_the_sums() -> None:
    sums = np.ones((50, 4, 32, 3), dtype=np.int64)
    totals, kinds = sums[0].sum(axis=1), np.zeros(50, np.int8)
    assert candidates(sums, totals, ONE, SCALES, FREE, kinds=kinds).left.nbytes == sums.nbytes
    assert candidates(sums, totals + 1, ONE, SCALES, FREE, kinds=kinds).left.nbytes == 2 * sums.nbytes
