import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.errors import DataError
from labelward.kernels.row_layout import FixedPointScales, RowLayout, choose_scales, encode_rows, number_bounds
from refusals import refused

SIZES = st.sampled_from([1e-30, 1e-3, 1.0, 1.5, 1e6])


@settings(deadline=None)  # the first example compiles
@given(
    st.integers(0, 30),
    st.sampled_from(["logistic", "softmax", "gini", "weighted gini", "squared", "weighted squared"]),
    st.integers(2, 5),
    st.booleans(),
    SIZES,
    st.integers(0, 40),
    st.integers(0, 2**32 - 1),
)
def test_sums_of_integers_mean_the_sums_of_the_numbers(
    n: int, kind: str, classes: int, flagged: bool, size: float, precision: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    onehot = (y[:, None] == np.arange(classes)).astype(np.float64)
    w = rng.random((n, 1)) * size
    g, h, implied, bounded = {
        "logistic": (rng.uniform(-1, 1, (n, 1)), rng.uniform(0, 0.25, (n, 1)), "", True),
        "softmax": (rng.dirichlet(np.ones(classes), n) - onehot, rng.uniform(0, 0.5, (n, classes)), "zero", True),
        "gini": (-onehot, np.empty((n, 0)), "count", True),
        "weighted gini": (-onehot * w, w, "weight", False),
        "squared": (rng.normal(size=(n, 1)) * size, np.empty((n, 0)), "", False),
        "weighted squared": (rng.normal(size=(n, 1)) * w, w, "", False),
    }[kind]
    numbers = RowLayout(outputs=g.shape[1], hessians=h.shape[1], implied=implied, classes=classes if flagged else 0)
    scales = choose_scales(g, h, precision, bounded=bounded, implied=implied)
    rows = encode_rows(numbers, g, h, onehot[:, 1:].astype(np.int64) if flagged else None, scales)
    assert rows.shape == (n, numbers.k)
    most = number_bounds(numbers, scales, float(np.abs(g).max(initial=0)), float(h.max(initial=0)))
    assert len(most) == numbers.k
    assert (np.abs(rows) <= most).all()
    sums = rows.sum(axis=0)
    gradients, hessians = numbers.full(sums)
    # each number is rounded by at most 1/2, the implied one is the sum of all that are stored
    np.testing.assert_allclose(gradients, g.sum(axis=0) * scales.g, rtol=1e-12, atol=n * numbers.outputs)
    if h.shape[1]:
        np.testing.assert_allclose(hessians, h.sum(axis=0) * scales.h, rtol=1e-12, atol=n)
    else:
        assert hessians.tolist() == [n]
    if implied == "zero":
        assert gradients.sum() == 0
    if implied in ("count", "weight"):
        assert -gradients.sum() == hessians.sum()
    if flagged or implied == "count":
        assert numbers.class_counts(sums).tolist() == np.bincount(y, minlength=classes).tolist()
    assert sums[numbers.count] == n


@settings(deadline=None)
@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=5), st.integers(0, 40))
def test_scales_fill_the_precision(values: list[float], precision: int) -> None:
    g = np.array(values)[:, None]
    scales = choose_scales(g, np.empty((len(g), 0)), precision, bounded=False)
    assert scales.h == 1.0
    most = float(np.abs(g).max())
    if most == 0:
        assert scales.g == 2.0**precision
    elif most > 1e-280:  # below, the scale is as large as it can be
        assert 2.0 ** (precision - 1) < most * scales.g <= 2.0**precision


def test_known_scales() -> None:
    g, h = np.array([[0.5], [-1.0]]), np.array([[3.0], [0.0]])
    assert choose_scales(g, h, 30, bounded=False) == FixedPointScales(2.0**30, 2.0**28)
    assert choose_scales(g, h, 30, bounded=True) == FixedPointScales(2.0**30, 2.0**30)
    assert choose_scales(g, h, 30, bounded=False, implied="weight") == FixedPointScales(2.0**28, 2.0**28)
    assert choose_scales(g, h, 30, bounded=False, implied="count") == FixedPointScales(1.0, 1.0)
    assert choose_scales(0 * g, 0 * h, 30, bounded=False) == FixedPointScales(2.0**30, 2.0**30)
    tiny = choose_scales(np.full((1, 1), 5e-324), h, 30, bounded=False)
    assert math.isfinite(tiny.g)


def test_what_an_implied_gradient_adds_to() -> None:
    row = np.array([[3, -5, 7, 2]])
    for implied, last in (("zero", 2), ("weight", -5)):
        numbers = RowLayout(outputs=3, hessians=1, implied=implied)
        assert numbers.full(row)[0].tolist() == [[3, -5, last]]
        assert numbers.full(row)[1].tolist() == [[7]]
    assert RowLayout(outputs=4, hessians=0, implied="count").full(row)[0].tolist() == [[3, -5, 7, -7]]
    assert RowLayout(outputs=4, hessians=0, implied="count").class_counts(row).tolist() == [[-3, 5, -7, 7]]


def test_places() -> None:
    numbers = RowLayout(outputs=4, hessians=4, implied="zero", classes=4)
    assert (numbers.stored, numbers.count, numbers.first_class, numbers.flags, numbers.k) == (3, 7, 8, 3, 11)
    plain = RowLayout(outputs=1, hessians=0)
    assert (plain.stored, plain.count, plain.first_class, plain.flags, plain.k) == (1, 1, 2, 0, 2)
    assert number_bounds(numbers, FixedPointScales(8.0, 4.0), 1.1, 0.3) == (9, 9, 9, 2, 2, 2, 2, 1, 1, 1, 1)


def test_a_training_that_diverged_is_told() -> None:
    for bad in (np.inf, -np.inf, np.nan):
        with refused(DataError, "diverged"):
            choose_scales(np.array([[0.0], [bad]]), np.empty((2, 0)), 30, bounded=False)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"outputs": 0, "hessians": 1}, "outputs .* 0"),
        ({"outputs": 1, "hessians": 1, "implied": "zero"}, "outputs .* 2"),
        ({"outputs": 3, "hessians": 2}, "hessians .* 2"),
        ({"outputs": 3, "hessians": 0, "implied": "weight"}, "'weight'"),
        ({"outputs": 3, "hessians": 0, "implied": "some"}, "'some'"),
        ({"outputs": 1, "hessians": 1, "classes": 1}, "classes .* 1"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RowLayout(**values)  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused() -> None:
    numbers, scales = RowLayout(outputs=1, hessians=1), FixedPointScales(1.0, 1.0)
    with pytest.raises(ValueError, match="end in 3 numbers"):
        numbers.full(np.zeros((2, 4), dtype=np.int64))
    with pytest.raises(ValueError, match="no class counts"):
        numbers.class_counts(np.zeros((2, 3), dtype=np.int64))
    with pytest.raises(ValueError, match="do not fit"):
        encode_rows(numbers, np.zeros((2, 2)), np.zeros((2, 1)), None, scales)
    with pytest.raises(ValueError, match="1 flags"):
        encode_rows(numbers, np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 1), dtype=np.int64), scales)
    for bad in (0.0, 3.0, math.inf):
        with pytest.raises(ValueError, match=f"scale g .* {bad}"):
            FixedPointScales(bad, 1.0)
    with pytest.raises(ValueError, match=r"precision .* 63"):
        choose_scales(np.zeros((1, 1)), np.zeros((1, 1)), 63, bounded=True)
