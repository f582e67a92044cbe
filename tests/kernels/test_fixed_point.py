import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.kernels.row_layout import to_fixed_point


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.floats(-1, 1), max_size=20), st.integers(0, 50))
def test_encoding_is_exact_rounding_half_to_even(values: list[float], precision: int) -> None:
    expected = [round(Fraction(v) * 2**precision) for v in values]  # Python rounds fractions half to even
    assert to_fixed_point(np.array(values), 2.0**precision).tolist() == expected


def test_halves_go_to_even() -> None:
    assert to_fixed_point(np.array([0.5, 1.5, 2.5, -0.5, -1.5]), 1.0).tolist() == [0, 2, 2, 0, -2]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_values_are_refused_by_position(value: float) -> None:
    with pytest.raises(ValueError, match="position 1"):
        to_fixed_point(np.array([0.0, value]), 2.0**30)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="position 0"):
        to_fixed_point(np.array([2.0**33]), 2.0**30)
    assert to_fixed_point(np.array([2.0**33 - 1]), 2.0**30)[0] == (2**33 - 1) << 30


def test_scales_beyond_the_precision_of_one_are_taken() -> None:
    assert to_fixed_point(np.array([[2.0**-90, 3 * 2.0**-90]]), 2.0**92).tolist() == [[4, 12]]
    assert to_fixed_point(np.array([2.0**90]), 2.0**-60).tolist() == [2**30]


@pytest.mark.parametrize("scale", [0.0, -2.0, 3.0, math.inf, math.nan])
def test_scales_that_are_no_power_of_two_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match=f"scale .* {scale}"):
        to_fixed_point(np.zeros(1), scale)
