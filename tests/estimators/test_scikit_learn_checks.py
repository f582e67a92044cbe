"""scikit-learn's own checks of estimators: all pass but those that are named here, each with its reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from labelward.estimators import (
    FederatedForestClassifier,
    FederatedForestRegressor,
    SecureBoostClassifier,
    SecureBoostRegressor,
)

_DRAWS = "rows are drawn with replacement: a row of weight 2 is one row to draw, and not two"
EXPECTED_FAILURES: dict[str, dict[str, str]] = {
    "SecureBoostClassifier": {},
    "SecureBoostRegressor": {},
    "FederatedForestClassifier": {"check_sample_weight_equivalence_on_dense_data": _DRAWS},
    "FederatedForestRegressor": {"check_sample_weight_equivalence_on_dense_data": _DRAWS},
}


def _expected(estimator: BaseEstimator) -> dict[str, str]:
    return EXPECTED_FAILURES[type(estimator).__name__]


@pytest.mark.slow
@parametrize_with_checks(
    [
        cls(n_estimators=4, max_depth=4, engine="plain", insecure=True)
        for cls in (
            SecureBoostClassifier,
            SecureBoostRegressor,
            FederatedForestClassifier,
            FederatedForestRegressor,
        )
    ],
    expected_failed_checks=_expected,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_checks_of_scikit_learn(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("cls", [FederatedForestClassifier, FederatedForestRegressor])
def test_a_forest_without_draws_takes_weights_for_repeated_rows(cls: Any) -> None:
    """What fails above fails for the draws alone; sums are of numbers that are rounded to 2 ** -29 here."""
    rng = np.random.default_rng(42)
    X, y, weight = rng.random((15, 30)), rng.integers(0, 3, 15), rng.integers(0, 5, 15)
    params = {"n_estimators": 2, "bootstrap": False, "engine": "plain", "insecure": True}
    weighted = cls(**params).fit(X, y, sample_weight=weight).predict(X)
    repeated = cls(**params).fit(X.repeat(weight, axis=0), y.repeat(weight)).predict(X)
    np.testing.assert_allclose(weighted, repeated, atol=2.0**-27)
