from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splits import ONE, SCALE, SCALES, exact_gain, found, histograms

from labelward.kernels.gain import GainRule, best_splits, leaf_weights
from labelward.kernels.row_layout import FixedPointScales, RowLayout
from labelward.kernels.split_candidates import candidates

RULES = st.builds(
    GainRule,
    reg_lambda=st.sampled_from([0.0, 1.0, 0.125]),
    gamma=st.sampled_from([0.0, 0.25]),
    min_rows=st.integers(0, 3),
    min_child_weight=st.sampled_from([0.0, 1.0]),
    max_delta_step=st.sampled_from([0.0, 0.0, 0.25]),
)
NUMBERS = st.sampled_from(
    [
        ONE,
        RowLayout(outputs=1, hessians=1, classes=2),
        RowLayout(outputs=1, hessians=0),
        RowLayout(outputs=3, hessians=3, implied="zero"),
        RowLayout(outputs=3, hessians=3),
        RowLayout(outputs=2, hessians=0, implied="count"),
        RowLayout(outputs=4, hessians=1, implied="weight", classes=4),
    ]
)


def agree(best: float, expected: float) -> bool:
    """Whether a gain is the expected one; terms up to 100 are known to 1e-13, so a smaller one may be rounding."""
    return best < 1e-12 if expected < 1e-13 else best == pytest.approx(expected, rel=1e-9)


@settings(max_examples=200, deadline=None)  # the first example compiles
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 6)),
    NUMBERS,
    RULES,
    st.sampled_from([0.0, 0.3]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.integers(0, 2**32 - 1),
)
def test_winners_equal_exact_brute_force(
    shape: tuple[int, int, int],
    numbers: RowLayout,
    rule: GainRule,
    missing: float,
    choices: tuple[bool, bool, bool],
    seed: int,
) -> None:
    rng, (coarse, masked, bound) = np.random.default_rng(seed), choices
    columns, nodes, bins = shape
    sums, totals = histograms(rng, *shape, numbers=numbers, coarse=coarse, missing=missing)
    scales = FixedPointScales(1.0 if numbers.implied == "count" else SCALE, SCALE)
    single = numbers.outputs == 1
    kinds = rng.choice([0, 2, 3] if single else [0], columns).astype(np.int8)
    lows, highs = rng.choice([-np.inf, -0.5, 0.125], nodes), rng.choice([0.125, 0.75, np.inf], nodes)
    bounds = np.stack([lows, highs], axis=1) if bound and single else None
    offered = candidates(sums, totals, numbers, scales, rule, kinds=kinds)
    each = offered.left.shape[2]
    allowed = rng.random((nodes, columns, each)) < 0.7 if masked else None
    best = best_splits(offered, totals, numbers, scales, rule, kinds=kinds, bounds=bounds, allowed=allowed)
    for s in range(nodes):
        within = (-np.inf, np.inf) if bounds is None else tuple(bounds[s])
        gains: dict[tuple[int, int], Fraction] = {}
        for f in range(columns):
            absent = totals[s] - sums[f, s].sum(axis=0)
            for a in range(each):
                left = sums[f, s, : a % bins + 1].sum(axis=0) + (absent if a >= bins else 0)
                np.testing.assert_array_equal(offered.left[s, f, a], left)
                gain = exact_gain(left, totals[s], rule, numbers, scales, kind=kinds[f], bounds=within)
                if gain is not None and (allowed is None or allowed[s, f, a]):
                    gains[f, a] = gain
        most = max(gains.values(), default=Fraction(0))
        assert agree(best.gain[s], float(most))
        if best.column[s] >= 0 and most > 1e-13:
            chosen = int(best.column[s]), int(best.candidate[s])
            # not the first of the largest gains only where different numbers tie but for rounding
            assert float(gains[chosen]) == pytest.approx(float(most), rel=1e-12)
            np.testing.assert_array_equal(best.left[s], offered.left[s, chosen[0], chosen[1]])


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3]), RULES)
def test_weights_of_the_children_are_those_of_leaves(bins: int, seed: int, missing: float, rule: GainRule) -> None:
    rng = np.random.default_rng(seed)
    sums, totals = histograms(rng, 3, 4, bins, missing=missing)
    kinds = np.array([0, 2, 3], dtype=np.int8)
    bounds = np.tile([-0.25, 0.5], (4, 1))
    offered = candidates(sums, totals, ONE, SCALES, rule, kinds=kinds)
    best = best_splits(offered, totals, ONE, SCALES, rule, kinds=kinds, bounds=bounds)
    for s in range(4):
        left, right = best.weights[s]
        if best.column[s] < 0:
            assert left == right == 0
            continue
        sides = np.stack([best.left[s], totals[s] - best.left[s]])
        assert best.weights[s].tolist() == leaf_weights(sides, ONE, SCALES, rule, 1.0, bounds[:2])[:, 0].tolist()
        assert -0.25 <= min(left, right) <= max(left, right) <= 0.5
        assert {0: True, 2: left <= right, 3: left >= right}[int(kinds[best.column[s]])]


def one_node(*columns: list[tuple[int, ...]]) -> np.ndarray:
    return np.array(columns, dtype=np.int64)[:, None]


def test_a_hand_computed_split() -> None:
    sums = one_node([(1024, 512, 1), (1024, 512, 1), (-2048, 1024, 2)])
    best = found(sums, GainRule(reg_lambda=1.0, gamma=0.5))
    # bins 0 and 1 left: G = 2, H = 1 and G = -2, H = 1: 4/2 + 4/2 - 0/3 - 1/2
    assert (best.gain[0], best.column[0], best.candidate[0]) == (3.5, 0, 1)
    assert best.left[0].tolist() == [2048, 1024, 2]
    assert best.weights[0].tolist() == [-1.0, 1.0]


def test_a_hand_computed_split_within_bounds() -> None:
    sums = one_node([(1024, 512, 1), (1024, 512, 1), (-2048, 1024, 2)])
    # weights are -1 and 1 but may be at most 1/2 in size: each side gains 2 * 2 * 1/2 - 2 * 1/4 = 3/2 instead of 2
    best = found(sums, GainRule(max_delta_step=0.5))
    assert best.gain[0] == 3.0
    assert best.weights[0].tolist() == [-0.5, 0.5]


def test_several_outputs_gain_the_sum_of_each() -> None:
    columns = [one_node([(1024, 512, 2), (-1024, 1024, 3)]), one_node([(300, 100, 2), (700, 200, 3)])]
    rule = GainRule()
    alone = [float(found(each, rule).gain[0]) for each in columns]
    assert alone[1] == -np.inf
    alone[1] = float(exact_gain(columns[1][0, 0, 0], columns[1][0, 0].sum(axis=0), rule))
    both = RowLayout(outputs=2, hessians=2)
    sums = one_node([(1024, 300, 512, 100, 2), (-1024, 700, 1024, 200, 3)])
    offered = candidates(sums, sums[0].sum(axis=1), both, SCALES, rule, kinds=np.zeros(1, np.int8))
    best = best_splits(offered, sums[0].sum(axis=1), both, SCALES, rule, kinds=np.zeros(1, np.int8))
    assert best.gain[0] == pytest.approx(sum(alone), rel=1e-12)


def test_gini_gain_is_the_decrease_of_impurity_times_rows() -> None:
    counts = np.array([[5, 1, 0], [1, 7, 4]])  # classes of the left and of the right bin
    numbers = RowLayout(outputs=3, hessians=0, implied="count")
    sums = np.concatenate([-counts[:, :2], counts.sum(axis=1, keepdims=True)], axis=1)[None, None]
    totals, kinds, rule = sums[0].sum(axis=1), np.zeros(1, np.int8), GainRule(reg_lambda=0.0)
    scales = FixedPointScales(1.0, 1.0)
    best = best_splits(
        candidates(sums, totals, numbers, scales, rule, kinds=kinds), totals, numbers, scales, rule, kinds=kinds
    )

    def impurity(own: np.ndarray) -> float:  # times rows
        return float(own.sum() * (1 - ((own / own.sum()) ** 2).sum()))

    decrease = impurity(counts.sum(axis=0)) - impurity(counts[0]) - impurity(counts[1])
    assert best.gain[0] == pytest.approx(decrease, rel=1e-12)
    np.testing.assert_allclose(leaf_weights(best.left, numbers, scales, rule, 1.0), [[5 / 6, 1 / 6, 0.0]], rtol=1e-15)


def test_ties_go_to_the_lowest_column_and_bin() -> None:
    left, right, nothing = (700, 300, 3), (-500, 200, 2), (0, 0, 0)
    sums = one_node([nothing, left, nothing, right], [left, nothing, nothing, right], [right, left, nothing, nothing])
    best = found(sums, GainRule())
    assert (best.column[0], best.candidate[0]) == (0, 1)
    best = found(sums[1:], GainRule())
    assert (best.column[0], best.candidate[0]) == (0, 0)


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=6, max_size=6), st.sampled_from([0.0, 0.1, 1.0, 3.7]), RULES)
def test_swapping_left_and_right_ties_exactly(n: list[int], reg_lambda: float, rule: GainRule) -> None:
    left, right = (n[0], n[1], n[2]), (-n[3], n[4], n[5])
    rule = GainRule(reg_lambda=reg_lambda, max_delta_step=rule.max_delta_step)
    gains = [found(one_node(column), rule).gain[0] for column in ([left, right], [right, left])]
    assert gains[0] == gains[1]
    twice = RowLayout(outputs=2, hessians=1)
    pairs = [one_node([(one[0], two[0], *one[1:]), (two[0], one[0], *two[1:])]) for one, two in [(left, right)] * 2]
    pairs[1] = pairs[1][:, :, ::-1]
    gains = []
    for sums in pairs:
        totals, kinds = sums[0].sum(axis=1), np.zeros(1, np.int8)
        offered = candidates(sums, totals, twice, SCALES, rule, kinds=kinds)
        gains.append(best_splits(offered, totals, twice, SCALES, rule, kinds=kinds).gain[0])
    assert gains[0] == gains[1]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-(2**30), 2**30), min_size=3, max_size=3),
    st.integers(1, 2**30),
    st.lists(st.integers(1, 2**20), min_size=2, max_size=8),
    st.sampled_from([0.0, 1e-12, 0.1, 1.0]),
    st.sampled_from([0.0, 0.1]),
    st.integers(1, 3),
)
def test_a_node_of_equal_rows_never_splits(
    g: list[int], h: int, rows: list[int], reg_lambda: float, step: float, outputs: int
) -> None:
    numbers, kinds = RowLayout(outputs=outputs, hessians=1), np.zeros(1, np.int8)
    sums = one_node([(*(each * r for each in g[:outputs]), h * r, r) for r in rows])
    totals, rule, scales = (
        sums[0].sum(axis=1),
        GainRule(reg_lambda=reg_lambda, max_delta_step=step),
        FixedPointScales(2.0**30, 2.0**30),
    )
    offered = candidates(sums, totals, numbers, scales, rule, kinds=kinds)
    best = best_splits(offered, totals, numbers, scales, rule, kinds=kinds)
    assert best.column[0] == -1
    assert best.gain[0] == -np.inf


def test_a_side_without_weight_never_wins() -> None:
    sums = one_node([(100, 0, 5), (-100, 50, 5)])
    assert found(sums, GainRule(reg_lambda=0.0)).column[0] == -1
    assert found(sums, GainRule(reg_lambda=0.0, max_delta_step=1.0)).column[0] == -1
    assert found(sums, GainRule(reg_lambda=1.0)).column[0] == 0


def test_no_winner_is_said_plainly() -> None:
    best = found(np.zeros((2, 3, 4, 5), dtype=np.int64), GainRule())
    assert best.gain.tolist() == [-np.inf] * 3
    assert best.column.tolist() == best.candidate.tolist() == [-1] * 3
    assert not best.left.any()
    assert best.left.shape == (3, 5)
    assert not best.weights.any()
    none, totals, kinds = np.zeros((0, 2, 4, 3), dtype=np.int64), np.ones((2, 3), dtype=np.int64), np.zeros(0, np.int8)
    offered = candidates(none, totals, ONE, SCALES, GainRule(), kinds=kinds)  # a party without columns
    assert best_splits(offered, totals, ONE, SCALES, GainRule(), kinds=kinds).column.tolist() == [-1, -1]


def test_further_sums_ride_along() -> None:
    sums = one_node([(100, 50, 5, 3, 2), (-100, 50, 5, 1, 4)])
    assert found(sums, GainRule()).left[0].tolist() == [100, 50, 5, 3, 2]


def test_leaf_weights() -> None:
    sums = np.array([[1024, 1024, 3], [-512, 0, 1], [512, 0, 1]])
    one = GainRule(reg_lambda=1.0)
    np.testing.assert_array_equal(leaf_weights(sums, ONE, SCALES, one, 0.5)[:, 0], [-0.25, 0.25, -0.25])
    np.testing.assert_array_equal(leaf_weights(sums, ONE, SCALES, GainRule(reg_lambda=0), 0.5)[:, 0], [-0.5, 0, 0])
    limited = GainRule(reg_lambda=1.0, max_delta_step=0.375)
    np.testing.assert_array_equal(leaf_weights(sums, ONE, SCALES, limited, 0.5)[:, 0], [-0.1875, 0.1875, -0.1875])
    bounds = np.array([[-0.25, 1.0], [-1.0, 0.25], [-2.0, -1.0]])
    np.testing.assert_array_equal(leaf_weights(sums, ONE, SCALES, one, 0.5, bounds)[:, 0], [-0.125, 0.125, -0.5])


def test_leaf_weights_of_several_outputs() -> None:
    numbers = RowLayout(outputs=3, hessians=3, implied="zero")
    sums = np.array([[1024, -2048, 1024, 0, 3072, 5]])
    np.testing.assert_array_equal(leaf_weights(sums, numbers, SCALES, GainRule(), 1.0), [[-0.5, 2.0, -0.25]])
    shares = RowLayout(outputs=3, hessians=0, implied="count")
    counts = np.array([[-1, -2, 8]])
    weights = leaf_weights(counts, shares, FixedPointScales(1.0, 1.0), GainRule(reg_lambda=0.0), 1.0)
    np.testing.assert_array_equal(weights, [[0.125, 0.25, 0.625]])


@pytest.mark.parametrize("name", ["reg_lambda", "gamma", "min_rows", "min_child_weight", "max_delta_step"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_rules_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} .* {value}"):
        GainRule(**{name: value})


def test_shapes_that_do_not_fit_are_refused() -> None:
    sums = np.zeros((2, 3, 4, 3), dtype=np.int64)
    with pytest.raises(ValueError, match=r"shape \(3, 2, 4\)"):
        found(sums, GainRule(), allowed=np.ones((2, 3, 4), dtype=bool))
    kinds, totals = np.zeros(2, np.int8), np.zeros((3, 3), dtype=np.int64)
    with pytest.raises(ValueError, match=r"\[F, S, B, 3\]"):
        candidates(sums[..., :2], totals, ONE, SCALES, GainRule(), kinds=kinds)
    with pytest.raises(ValueError, match="do not fit"):
        candidates(sums, totals[:2], ONE, SCALES, GainRule(), kinds=kinds)
    offered = candidates(sums, totals, ONE, SCALES, GainRule(), kinds=kinds)
    with pytest.raises(ValueError, match="do not fit"):
        best_splits(offered, totals, ONE, SCALES, GainRule(), kinds=kinds[:1])
    with pytest.raises(ValueError, match="least weight first"):
        best_splits(offered, totals, ONE, SCALES, GainRule(), kinds=kinds, bounds=np.tile([1.0, 0.0], (3, 1)))
    with pytest.raises(ValueError, match=r"1\.5"):
        GainRule(min_rows=1.5)  # type: ignore[arg-type]


def test_monotone_columns_need_one_output() -> None:
    numbers, kinds = RowLayout(outputs=2, hessians=1), np.array([2], np.int8)
    sums, totals = np.zeros((1, 1, 2, 4), dtype=np.int64), np.zeros((1, 4), dtype=np.int64)
    offered = candidates(sums, totals, numbers, SCALES, GainRule(), kinds=kinds)
    with pytest.raises(ValueError, match="one output"):
        best_splits(offered, totals, numbers, SCALES, GainRule(), kinds=kinds)
