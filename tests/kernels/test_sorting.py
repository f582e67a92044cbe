import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.kernels.binning import sort_floats

FINITE = st.floats(allow_nan=False, width=64)


@settings(deadline=None)  # the first example compiles
@given(st.lists(FINITE, max_size=50))
def test_it_sorts_as_numpy_does(values: list[float]) -> None:
    column = np.array(values, dtype=np.float64)
    expected = np.sort(column)
    sort_floats(column, np.empty((2, len(values)), dtype=np.uint64))
    np.testing.assert_array_equal(column, expected)


@pytest.mark.parametrize("draw", ["normal", "integers", "subnormal"])
def test_it_sorts_many_values(draw: str) -> None:
    rng = np.random.default_rng(1)
    column = {
        "normal": rng.standard_normal(5000) * 10.0 ** rng.integers(-300, 300, 5000),
        "integers": rng.integers(-3, 3, 5000).astype(np.float64),
        "subnormal": rng.integers(-9, 9, 5000) * 5e-324,
    }[draw]
    expected = np.sort(column)
    sort_floats(column, np.empty((2, 6000), dtype=np.uint64))  # the spare may be longer
    np.testing.assert_array_equal(column, expected)
