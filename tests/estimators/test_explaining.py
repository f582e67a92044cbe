"""Explanations, drawings and exports of estimators: they fit the model, and what XGBoost and shap make of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from people_table import OPEN, PARTIES
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError

from labelward.errors import DependencyError, OutputError
from labelward.estimators import (
    FederatedForestClassifier,
    FederatedForestRegressor,
    SecureBoostClassifier,
    SecureBoostRegressor,
)
from labelward.estimators._errors import InvalidInputError
from labelward.installation import install_command
from refusals import refused

Table = tuple[pd.DataFrame, np.ndarray]
Numbers = tuple[np.ndarray, np.ndarray]
SMALL: dict[str, Any] = {"n_estimators": 3, "max_depth": 3, **OPEN}


@pytest.fixture(scope="module")
def telecom(table: Table) -> SecureBoostClassifier:
    return SecureBoostClassifier(**SMALL, parties=PARTIES).fit(*table)


@pytest.mark.parametrize(
    "model",
    [SecureBoostClassifier(**SMALL), FederatedForestRegressor(**SMALL), SecureBoostRegressor(**SMALL)],
    ids=lambda model: type(model).__name__,
)
def test_values_add_up_to_the_predictions(model: Any, numbers: Numbers) -> None:
    X, y = numbers
    found = model.fit(X, y).explain(X[:30], X[30:90])
    predict = getattr(model, "decision_function", model.predict)
    np.testing.assert_array_equal(found.margins[:, 0], predict(X[:30]))
    # both are sums over leaves of less than 10, in another order
    np.testing.assert_allclose(found.expected[0], predict(X[30:90]).mean(), atol=1e-12)
    np.testing.assert_allclose(found.values.sum(axis=1), found.margins - found.expected, atol=1e-12)


def test_an_array_without_background_rows(numbers: Numbers) -> None:
    model = SecureBoostRegressor(**SMALL).fit(*numbers)
    with refused(InvalidInputError, "rows", field="background", value=0):
        model.explain(numbers[0], numbers[0][:0])


def test_several_classes_have_values_each() -> None:
    X, y = load_wine(return_X_y=True)
    for cls in (SecureBoostClassifier, FederatedForestClassifier):
        found = cls(**SMALL).fit(X, y).explain(X[:5], X)
        assert found.values.shape == (5, len(found.features), 3)
        np.testing.assert_allclose(found.values.sum(axis=1), found.margins - found.expected, atol=1e-12)


def test_columns_are_told_by_name_unless_a_party_keeps_them(telecom: SecureBoostClassifier, table: Table) -> None:
    X = table[0]
    used = telecom.feature_importances_ > 0
    told = telecom.explain(X[:30])
    assert [each.name for each in told.features] == list(X.columns)
    assert [each.party for each in told.features] == ["bank", "bank", "telco", "telco", "telco", "telco"]
    np.testing.assert_array_equal(told.values.any(axis=(0, 2)), used)
    kept = telecom.explain(X[:30], names=["bank"])
    assert [each.label for each in kept.features[6:]] == [f"column {number}" for number in range(used[2:].sum())]
    assert {each.party for each in kept.features[6:]} == {"telco"}
    assert not kept.values[:, 2:6].any()
    np.testing.assert_array_equal(kept.values[:, :2], told.values[:, :2])
    assert sorted(kept.values[0, 6:, 0]) == sorted(told.values[0, 2:, 0][used[2:]])
    assert np.isnan(kept.data[:, 2:]).all()  # as the active party knows them


def test_the_values_of_a_column_are_of_that_column(numbers: Numbers) -> None:
    """Columns of parties in any order, one of no party; splits on one column alone move no other."""
    X, y = numbers[0].copy(), numbers[0][:, 4] > np.median(numbers[0][:, 4])
    parties = {"active": [3, 1], "passive": [4, 0]}
    found = SecureBoostClassifier(**SMALL, parties=parties).fit(X, y).explain(X[:20])
    assert [each.party for each in found.features] == [
        "passive",
        "active",
        "",
        "active",
        "passive",
        *[""] * (X.shape[1] - 5),
    ]
    assert [each.label for each in found.features] == [f"x{at}" for at in range(X.shape[1])]
    assert found.values.any(axis=(0, 2)).nonzero()[0].tolist() == [4]
    np.testing.assert_array_equal(found.data[:, [0, 1, 3, 4]], X[:20][:, [0, 1, 3, 4]])
    assert np.isnan(found.data[:, 2]).all()


def test_shap_takes_the_values(telecom: SecureBoostClassifier, table: Table) -> None:
    pytest.importorskip("shap")
    X = table[0]
    found = telecom.explain(X[:5], X)
    made = found.to_shap()
    assert made.feature_names == list(X.columns)
    np.testing.assert_allclose(made.values.sum(axis=1) + made.base_values, found.margins[:, 0], atol=1e-12)
    area = list(X.columns).index("area")
    assert [text if text != "missing" else None for text in made.display_data[:, area]] == [
        None if pd.isna(value) else value for value in X["area"][:5]
    ]
    one = made[0]  # what shap.plots.waterfall takes
    assert one.base_values == found.expected[0]
    assert one.values.shape == (6,)
    wine, y = load_wine(return_X_y=True)
    several = SecureBoostClassifier(**SMALL).fit(wine, np.array(["ja", "nein", "€"])[y]).explain(wine[:4])
    assert several.outputs == ("ja", "nein", "€")
    np.testing.assert_array_equal(several.to_shap()[:, :, "€"].values, several.values[:, :, 2])


def test_without_shap_the_values_are_there(
    telecom: SecureBoostClassifier, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shap", None)
    found = telecom.explain(table[0][:3])
    assert found.values.shape == (3, 6, 1)
    with refused(DependencyError, "dependency", value="shap") as caught:
        found.to_shap()
    assert caught.value.reason.endswith(install_command("explain"))


def test_background_rows_are_those_given_or_the_rows_themselves(telecom: SecureBoostClassifier, table: Table) -> None:
    X = table[0]
    alone = telecom.explain(X[:40])
    np.testing.assert_array_equal(alone.values, telecom.explain(X[:40], X[:40]).values)
    few = telecom.explain(X[:40], most=2)
    np.testing.assert_array_equal(few.values, telecom.explain(X[:40], X.iloc[[0, 39]]).values)


def test_an_explanation_that_cannot_be(telecom: SecureBoostClassifier, table: Table) -> None:
    X = table[0]
    with refused(InvalidInputError, "unknown", field="names", value="telko") as caught:
        telecom.explain(X, names=["telko"])
    assert "'telco'?" in caught.value.reason
    with refused(InvalidInputError, "type", field="names", value="telco"):
        telecom.explain(X, names="telco")
    with refused(InvalidInputError, "range", field="most", value=0):
        telecom.explain(X, most=0)
    with refused(InvalidInputError, "rows", field="background", value=0):
        telecom.explain(X, X[:0])
    with refused(InvalidInputError, "rows", field="X", value=0):
        telecom.explain(X[:0], X)
    with refused(InvalidInputError, "values", field="background, column 'calls'"):
        telecom.explain(X, X.assign(calls=np.inf))
    with pytest.raises(ValueError, match="yet now missing"):
        telecom.explain(X, X.drop(columns="area"))
    for ask in (lambda model: model.explain(X), lambda model: model.draw_tree(0), lambda model: model.export("a.json")):
        with pytest.raises(NotFittedError):
            ask(SecureBoostClassifier())


def test_a_tree_is_drawn_as_text_and_as_picture(telecom: SecureBoostClassifier) -> None:
    tree = telecom.shares_["bank"].trees[0]
    text = telecom.draw_tree(0)
    assert text.splitlines()[0].startswith("tree 0")
    assert text.count("leaf ") == len(tree.leaves)
    assert "split of telco on calls" in text
    hidden = telecom.draw_tree(0, names=[])
    assert "calls" not in hidden
    assert "split of telco on column" in hidden
    assert telecom.draw_tree(1, svg=True).startswith("<svg ")
    with refused(InvalidInputError, "range", field="tree", value=3):
        telecom.draw_tree(3)
    with refused(InvalidInputError, "type", field="number", value="first"):
        telecom.draw_tree("first")  # type: ignore[arg-type]


def test_xgboost_predicts_the_same_with_the_exported_model(numbers: Numbers, tmp_path: Path) -> None:
    X, y = numbers[0].astype(np.float32).astype(float), numbers[1]
    parties = {"active": [3, 1], "passive": [4, 0]}
    model = SecureBoostClassifier(**SMALL, parties=parties).fit(X, y)
    booster = xgboost.Booster(model_file=model.export(tmp_path / "model.json"))
    assert booster.feature_names == ["x3", "x1", "x4", "x0"]
    rows = xgboost.DMatrix(X[:, [3, 1, 4, 0]], feature_names=booster.feature_names)
    margins = booster.predict(rows, output_margin=True)
    np.testing.assert_allclose(margins, model.decision_function(X), atol=1e-6)  # leaves are float32 there


def test_an_export_replaces_nothing_unasked(telecom: SecureBoostClassifier, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("mine")
    with refused(OutputError, "exists", field=str(tmp_path / "model.json")):
        telecom.export(path)
    assert path.read_text() == "mine"
    assert telecom.export(path, overwrite=True) == path
    assert path.read_text() != "mine"
    with refused(OutputError, "unwritable", value=tmp_path / "model.txt"):
        telecom.export(tmp_path / "model.txt")
