from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.kernels.gain import GainRule, best_splits, leaf_weights

SCALE = 2.0**10


def exact_gain(left: np.ndarray, total: np.ndarray, rule: GainRule) -> Fraction | None:
    """The gain in rational numbers, or None where the candidate is not valid."""
    right = total - left
    least = max(1, rule.min_rows)
    if left[2] < least or right[2] < least:
        return None
    lam, scale = Fraction(rule.reg_lambda), Fraction(SCALE)
    sides = [(Fraction(int(s[0])) / scale, Fraction(int(s[1])) / scale) for s in (left, right, total)]
    if any(h < Fraction(rule.min_child_weight) or h + lam <= 0 for _, h in sides[:2]):
        return None
    a, b, whole = (g * g / (h + lam) for g, h in sides)
    return (a + b - whole) / 2 - Fraction(rule.gamma)


def slow_best(sums: np.ndarray, rule: GainRule, allowed: np.ndarray | None, s: int) -> tuple[float, int, int]:
    best: tuple[Fraction, int, int] = (Fraction(0), -1, -1)
    for f in range(sums.shape[0]):
        total = sums[f, s].sum(axis=0)
        for c in range(sums.shape[2]):
            if allowed is not None and not allowed[s, f, c]:
                continue
            gain = exact_gain(sums[f, s, : c + 1].sum(axis=0), total, rule)
            if gain is not None and gain > best[0]:
                best = (gain, f, c)
    return (float(best[0]) if best[1] >= 0 else -np.inf, best[1], best[2])


def histograms(rng: np.random.Generator, columns: int, nodes: int, bins: int, coarse: bool) -> np.ndarray:
    """Sums of the same random rows by random codes, as a level gives them; coarse values make many exact ties."""
    top = 2 if coarse else 1024
    n = 3 * bins
    rows = np.stack([rng.integers(-top, top + 1, n), rng.integers(0, top + 1, n), np.ones(n, dtype=int)], axis=1)
    sums = np.zeros((columns, nodes, bins, 3), dtype=np.int64)
    for s in range(nodes):
        for f in range(columns):
            np.add.at(sums[f, s], rng.integers(0, bins, n), rows)
    return sums


@settings(max_examples=150, deadline=None)  # the first example compiles
@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 6),
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.builds(
        GainRule,
        reg_lambda=st.sampled_from([0.0, 1.0, 0.125]),
        gamma=st.sampled_from([0.0, 0.25]),
        min_rows=st.integers(0, 3),
        min_child_weight=st.sampled_from([0.0, 1.0]),
    ),
    st.booleans(),
)
def test_winners_equal_exact_brute_force(
    columns: int, nodes: int, bins: int, coarse: bool, seed: int, rule: GainRule, masked: bool
) -> None:
    rng = np.random.default_rng(seed)
    sums = histograms(rng, columns, nodes, bins, coarse)
    allowed = rng.random((nodes, columns, bins)) < 0.7 if masked else None
    best = best_splits(sums, SCALE, rule, allowed)
    for s in range(nodes):
        gain, column, code = slow_best(sums, rule, allowed, s)
        if gain < 1e-13:  # terms up to 100 are known to 1e-13: a smaller gain may be taken for rounding
            assert best.gain[s] < 1e-12
            continue
        assert best.gain[s] == pytest.approx(gain, rel=1e-9)  # relative to terms at most 1e4 times the gain here
        chosen = sums[best.column[s], s, : best.code[s] + 1].sum(axis=0)
        np.testing.assert_array_equal(best.left[s], chosen)
        if (best.column[s], best.code[s]) != (column, code):  # different numbers whose gains tie but for rounding
            other = exact_gain(chosen, sums[0, s].sum(axis=0), rule)
            assert float(other) == pytest.approx(gain, rel=1e-12)


def one_node(*columns: list[tuple[int, int, int]]) -> np.ndarray:
    return np.array(columns, dtype=np.int64)[:, None]


def test_a_hand_computed_split() -> None:
    sums = one_node([(1024, 512, 1), (1024, 512, 1), (-2048, 1024, 2)])
    best = best_splits(sums, SCALE, GainRule(reg_lambda=1.0, gamma=0.5))
    # bins 0 and 1 left: G = 2, H = 1 and G = -2, H = 1: (4/2 + 4/2 - 0/3) / 2 - 1/2
    assert (best.gain[0], best.column[0], best.code[0]) == (1.5, 0, 1)
    assert best.left[0].tolist() == [2048, 1024, 2]


def test_ties_go_to_the_lowest_column_and_bin() -> None:
    left, right, nothing = (700, 300, 3), (-500, 200, 2), (0, 0, 0)
    sums = one_node([nothing, left, nothing, right], [left, nothing, nothing, right], [right, left, nothing, nothing])
    best = best_splits(sums, SCALE, GainRule())
    assert (best.column[0], best.code[0]) == (0, 1)
    best = best_splits(sums[1:], SCALE, GainRule())
    assert (best.column[0], best.code[0]) == (0, 0)


@settings(deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=6, max_size=6), st.sampled_from([0.0, 0.1, 1.0, 3.7]))
def test_swapping_left_and_right_ties_exactly(n: list[int], reg_lambda: float) -> None:
    left, right = (n[0], n[1], n[2]), (-n[3], n[4], n[5])
    rule = GainRule(reg_lambda=reg_lambda)
    gains = [best_splits(one_node(column), SCALE, rule).gain[0] for column in ([left, right], [right, left])]
    assert gains[0] == gains[1]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-(2**30), 2**30),
    st.integers(1, 2**30),
    st.lists(st.integers(1, 2**20), min_size=2, max_size=8),
    st.sampled_from([0.0, 1e-12, 0.1, 1.0]),
    st.sampled_from([2.0**30, 1e9]),
)
def test_a_node_of_equal_rows_never_splits(g: int, h: int, rows: list[int], reg_lambda: float, scale: float) -> None:
    sums = one_node([(g * r, h * r, r) for r in rows])
    best = best_splits(sums, scale, GainRule(reg_lambda=reg_lambda))
    assert best.column[0] == -1
    assert best.gain[0] == -np.inf


def test_a_side_without_weight_never_wins() -> None:
    sums = one_node([(100, 0, 5), (-100, 50, 5)])
    assert best_splits(sums, SCALE, GainRule(reg_lambda=0.0)).column[0] == -1
    assert best_splits(sums, SCALE, GainRule(reg_lambda=1.0)).column[0] == 0


def test_no_winner_is_said_plainly() -> None:
    best = best_splits(np.zeros((2, 3, 4, 5), dtype=np.int64), SCALE, GainRule())
    assert best.gain.tolist() == [-np.inf] * 3
    assert best.column.tolist() == best.code.tolist() == [-1] * 3
    assert not best.left.any()
    assert best.left.shape == (3, 5)
    none = best_splits(np.zeros((0, 2, 4, 3), dtype=np.int64), SCALE, GainRule())  # a party without columns
    assert none.column.tolist() == [-1, -1]


def test_further_sums_ride_along() -> None:
    sums = one_node([(100, 50, 5, 3, 2), (-100, 50, 5, 1, 4)])
    assert best_splits(sums, SCALE, GainRule()).left[0].tolist() == [100, 50, 5, 3, 2]


def test_leaf_weights() -> None:
    sums = np.array([[1024, 1024, 3], [-512, 0, 1], [512, 0, 1]])
    np.testing.assert_array_equal(leaf_weights(sums, SCALE, 1.0, 0.5), [-0.25, 0.25, -0.25])
    np.testing.assert_array_equal(leaf_weights(sums, SCALE, 0.0, 0.5), [-0.5, 0.0, 0.0])


@pytest.mark.parametrize("name", ["reg_lambda", "gamma", "min_rows", "min_child_weight"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_rules_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} .* {value}"):
        GainRule(**{name: value})


def test_shapes_and_scales_that_do_not_fit_are_refused() -> None:
    sums = np.zeros((2, 3, 4, 3), dtype=np.int64)
    with pytest.raises(ValueError, match=r"allowed must have shape \(3, 2, 4\)"):
        best_splits(sums, SCALE, GainRule(), np.ones((2, 3, 4), dtype=bool))
    with pytest.raises(ValueError, match="k of at least 3"):
        best_splits(sums[..., :2], SCALE, GainRule())
    with pytest.raises(ValueError, match="scale"):
        best_splits(sums, 0.0, GainRule())
    with pytest.raises(ValueError, match=r"1\.5"):
        GainRule(min_rows=1.5)  # type: ignore[arg-type]
