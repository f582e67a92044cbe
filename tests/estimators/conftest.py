"""Data for the estimators' tests."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from people_table import people


@pytest.fixture(scope="session")
def table() -> tuple[pd.DataFrame, np.ndarray]:
    return people()


@pytest.fixture(scope="session")
def numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(250, 5))
    return x, (x[:, 0] + x[:, 3] ** 2 + rng.normal(0, 0.3, 250) > 1).astype(int)
