import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.kernels.loss import logistic_gradients, sigmoid


@settings(deadline=None)  # the first example compiles
@given(st.floats(-30, 30), st.sampled_from([0.0, 1.0, 0.3]))
def test_gradients_are_the_derivatives_of_the_loss(margin: float, y: float) -> None:
    def loss(m: float) -> float:
        return float(np.logaddexp(0.0, m) - y * m)

    g, h = logistic_gradients(np.array([margin]), np.array([y]))
    step = 1e-3
    # central differences err by step²/6 times the third derivative (below 0.1), and by rounding of a loss up to 30
    assert g[0] == pytest.approx((loss(margin + step) - loss(margin - step)) / (2 * step), abs=1e-7)
    second = (loss(margin + step) - 2 * loss(margin) + loss(margin - step)) / step**2
    assert h[0] == pytest.approx(second, abs=3e-8)  # 4 roundings of 30 (3.6e-15 each) over step²


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.tuples(st.floats(-1e308, 1e308), st.booleans()), min_size=1, max_size=20))
def test_ranges_hold_for_any_margin(pairs: list[tuple[float, bool]]) -> None:
    margin = np.array([m for m, _ in pairs])
    y = np.array([float(label) for _, label in pairs])
    g, h = logistic_gradients(margin, y)
    assert ((g >= -1) & (g <= 1)).all()
    assert ((h >= 0) & (h <= 0.25)).all()
    # the compiler may fuse other operations in the two kernels: the last bit of a value up to 1
    np.testing.assert_allclose(sigmoid(margin) - y, g, rtol=0, atol=2.0**-52)


def test_known_values() -> None:
    np.testing.assert_array_equal(sigmoid(np.array([[0.0, 800.0], [-800.0, 0.0]])), [[0.5, 1.0], [0.0, 0.5]])
    g, h = logistic_gradients(np.zeros(2), np.array([0.0, 1.0]))
    assert g.tolist() == [0.5, -0.5]
    assert h.tolist() == [0.25, 0.25]


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        logistic_gradients(np.zeros(2), np.zeros(3))
