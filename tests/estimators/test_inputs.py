"""What may be given to the estimators: arrays, tables, columns of parties, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from people_table import OPEN, PARTIES, people
from scipy import sparse

from labelward.errors import Code
from labelward.estimators import (
    FederatedForestClassifier,
    FederatedForestRegressor,
    SecureBoostClassifier,
    SecureBoostRegressor,
)
from labelward.estimators._errors import InvalidInputError
from refusals import refused

Table = tuple[pd.DataFrame, np.ndarray]
Numbers = tuple[np.ndarray, np.ndarray]


def boosted(**params: Any) -> SecureBoostClassifier:
    return SecureBoostClassifier(**{"n_estimators": 3, "max_depth": 3, **OPEN, **params})


def test_a_table_with_every_kind_of_column(table: Table) -> None:
    X, y = table
    model = boosted(parties=PARTIES, n_estimators=10).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.classes_.tolist() == ["bad", "good"]
    assert model.parties_ == PARTIES
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert model.shares_["telco"].categories == {"area": ("east", "north", "south", "west")}
    assert model.views_["telco"].header.columns == tuple(PARTIES["telco"])
    importance = dict(zip(X.columns, model.feature_importances_, strict=True))
    assert importance["area"] > importance["age"]
    assert sum(importance.values()) == pytest.approx(1.0)


def test_columns_are_coded_as_the_data_layer_codes_them(table: Table) -> None:
    X, y = table
    model = boosted(parties=PARTIES).fit(X, y)
    held = model.held_by("telco", X)
    assert held.dtype == np.float64
    codes = X["area"].cat.codes.to_numpy().astype(float)
    np.testing.assert_array_equal(held[:, 1], np.where(codes < 0, np.nan, codes))
    np.testing.assert_array_equal(held[:, 2], X["roaming"].to_numpy().astype(float))
    days = (X["since"] - pd.Timestamp("1970-01-01")).dt.total_seconds() / 86_400
    np.testing.assert_allclose(held[:, 3], days, rtol=1e-12)


def test_a_category_that_training_never_met_goes_the_way_of_a_missing_one(table: Table) -> None:
    X, y = table
    model = boosted(parties=PARTIES).fit(X, y)
    new, missing = X.head(40).copy(), X.head(40).copy()
    new["area"], missing["area"] = pd.Categorical(["abroad"] * 40), pd.Categorical([None] * 40, categories=["east"])
    np.testing.assert_array_equal(model.decision_function(new), model.decision_function(missing))
    assert (model.held_by("telco", new)[:, 1] == -1).all()


def test_tables_of_polars_and_arrow_give_the_model_of_pandas(table: Table) -> None:
    X, y = table
    expected = boosted(parties=PARTIES).fit(X, y).predict_proba(X)
    arrow = pa.Table.from_pandas(X, preserve_index=False)
    model = boosted(parties=PARTIES).fit(arrow, y)
    np.testing.assert_array_equal(model.predict_proba(arrow), expected)
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(arrow)
    model = boosted(parties=PARTIES).fit(frame, polars.Series(y.tolist()))
    assert model.feature_names_in_.tolist() == list(X.columns)
    np.testing.assert_array_equal(model.predict_proba(frame), expected)


def test_tables_without_names_and_with_gaps_of_their_own(numbers: Numbers) -> None:
    X, y = numbers
    expected = boosted().fit(X, y).predict_proba(X)
    unnamed = pd.DataFrame(X)
    model = boosted(parties={"active": [0, 1], "passive": [2, 3, 4]}).fit(unnamed, y)
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.predict_proba(unnamed), expected)
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    gaps = np.where(np.arange(X.size).reshape(X.shape) % 7 == 0, np.nan, X)
    nullable = pd.DataFrame(gaps).convert_dtypes()
    np.testing.assert_array_equal(
        boosted().fit(nullable, y).predict_proba(nullable), boosted().fit(gaps, y).predict_proba(gaps)
    )


def test_texts_are_categories_as_well(table: Table) -> None:
    X, y = table
    texts = X.assign(area=X["area"].astype(object))
    np.testing.assert_array_equal(
        boosted(parties=PARTIES).fit(texts, y).predict_proba(texts), boosted(parties=PARTIES).fit(X, y).predict_proba(X)
    )


def test_without_parties_the_first_half_of_the_columns_is_the_active_party_s(numbers: Numbers) -> None:
    X, y = numbers
    assert boosted().fit(X, y).parties_ == {"active": [0, 1], "passive": [2, 3, 4]}
    assert boosted().fit(X[:, :1], y).parties_ == {"active": [], "passive": [0]}


def test_parties_of_fit_come_before_those_of_the_constructor(numbers: Numbers) -> None:
    X, y = numbers
    model = boosted(parties={"a": [0], "b": [1, 2]}, active="b")
    assert list(model.fit(X, y).parties_.items()) == [("b", [1, 2]), ("a", [0])]
    assert list(model.fit(X, y, parties={"c": [3], "d": [4]}).parties_.items()) == [("c", [3]), ("d", [4])]
    assert list(model.fit(X, y, active="a").parties_.items()) == [("a", [0]), ("b", [1, 2])]
    assert model.get_params()["parties"] == {"a": [0], "b": [1, 2]}
    assert next(iter(model.fit(X, y, parties={"z": [0], "active": [1]}).parties_)) == "active"


def test_three_parties_and_columns_of_none(numbers: Numbers) -> None:
    X, y = numbers
    model = boosted(parties={"a": [4], "b": [0], "c": [3]}).fit(X, y)
    assert set(model.views_) == set(model.shares_) == {"a", "b", "c"}
    assert model.feature_importances_[[1, 2]].tolist() == [0.0, 0.0]
    other = X.copy()
    other[:, [1, 2]] = 1e6
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(other))


@pytest.mark.parametrize(
    ("given", "code", "field", "value", "about"),
    [
        ({"parties": {"a": [0, 1]}}, "type", "parties", {"a": [0, 1]}, "at least two"),
        ({"parties": {"a": [0], "b": [1, 7]}}, "unknown", "parties: 'b'", 7, "has 5"),
        ({"parties": {"a": [0], "b": [1, 0]}}, "duplicate", "parties: 'b'", "x0", "'a'"),
        ({"parties": {"a": [0], "b": [1, 1]}}, "duplicate", "[parties] b", "x1", "listed twice"),
        ({"parties": {"a": [0], "b": []}}, "range", "parties", "b", ""),
        ({"parties": {"a": [0], "b": ["age"]}}, "unsupported", "parties: 'b'", "age", "no column names"),
        ({"parties": {"a": [0], "b": 1}}, "type", "parties", 1, "'b'"),
        ({"parties": {"a": [0], "../b": [1]}}, "type", "[parties]", "../b", ""),
        ({"parties": {"a": [0], "A": [1]}}, "duplicate", "parties", ("a", "A"), "case"),
        ({"parties": {"bank": [0], "b": [1]}, "active": "bnk"}, "unknown", "active", "bnk", "'bank'?"),
        ({"n_estimators": 0}, "range", "n_estimators", 0, ""),
        ({"max_bin": 1}, "range", "max_bin", 1, ""),
        ({"subsample": 1.5}, "range", "subsample", 1.5, ""),
        ({"max_depth": "deep"}, "type", "max_depth", "deep", ""),
        ({"sampling_method": "gos"}, "choice", "sampling_method", "gos", ""),
        ({"objective": "reg:squarederror"}, "choice", "objective", "reg:squarederror", "'binary:logistic'"),
        ({"key_bits": 512, "engine": "paillier", "insecure": False}, "insecure", "key_bits", 512, "2048"),
        ({"key_bits": 2048, "engine": "lattice"}, "range", "key_bits", 2048, "4096"),
        ({"key_bits": 2050, "engine": "paillier"}, "range", "key_bits", 2050, ""),
        ({"insecure": False}, "insecure", "engine", "plain", ""),
        ({"engine": "rot13"}, "unknown", "engine", "rot13", ""),
        ({"defenses": {"kind": "id-lmid"}}, "type", "defenses", {"kind": "id-lmid"}, ""),
        ({"defenses": [{"kind": "id-lmid"}]}, "missing", "xi", None, ""),
        ({"defenses": [{"kind": "id-lmi", "xi": 1.0}]}, "unknown", "", "id-lmi", "'id-lmid'?"),
        ({"monotone_constraints": {9: 1}}, "unknown", "monotone_constraints", 9, "has 5"),
        ({"monotone_constraints": {0: 2}}, "choice", "monotone_constraints", 2, "0 has 2"),
        ({"monotone_constraints": {0: True}}, "choice", "monotone_constraints", True, "0 has True"),
        ({"monotone_constraints": (1, 0)}, "range", "monotone_constraints", 2, "has 2"),
        ({"monotone_constraints": [1, 0, 0, 0, 7]}, "choice", "monotone_constraints", 7, "4 has 7"),
        ({"monotone_constraints": "rising"}, "type", "monotone_constraints", "rising", ""),
        ({"monotone_constraints": 1}, "type", "monotone_constraints", 1, ""),
        ({"verbose": "yes"}, "type", "verbose", "yes", ""),
        ({"warm_start": "x"}, "type", "warm_start", "x", ""),
        ({"monotone_constraints": {4: 1}, "parties": {"a": [0], "b": [1]}}, "columns", "monotone_constraints", 4, ""),
        ({"early_stopping_rounds": 2}, "missing", "early_stopping_rounds", None, ""),
        ({"random_state": -1}, "range", "random_state", -1, ""),
        ({"scale_pos_weight": 0}, "range", "scale_pos_weight", 0, ""),
        ({"scale_pos_weight": 1e300}, "range", "scale_pos_weight", 1e300, "1e+09"),
        ({"scale_pos_weight": 1e-300}, "range", "scale_pos_weight", 1e-300, "1e+09"),
    ],
)
def test_parameters_that_cannot_be(
    numbers: Numbers, given: dict[str, Any], code: Code, field: str, value: object, about: str
) -> None:
    with refused(InvalidInputError, code, field=field, value=value) as caught:
        boosted(**given).fit(*numbers)
    assert isinstance(caught.value, ValueError)
    assert about in caught.value.reason


def test_parameters_that_mean_nothing_for_the_targets(numbers: Numbers) -> None:
    with refused(InvalidInputError, "unsupported", field="scale_pos_weight", value=2.0):
        SecureBoostRegressor(scale_pos_weight=2.0, **OPEN).fit(*numbers)
    with refused(InvalidInputError, "conflict", field="tweedie_variance_power", value=1.2):
        boosted(tweedie_variance_power=1.2).fit(*numbers)
    with refused(InvalidInputError, "labels", value=-1.0):
        SecureBoostRegressor(objective="count:poisson", **OPEN).fit(numbers[0], numbers[1] - 1.0)


def test_labels_and_weights_that_cannot_be(numbers: Numbers) -> None:
    X, y = numbers
    model = boosted()
    with refused(InvalidInputError, "labels", field="y", value=1):
        model.fit(X, np.ones(len(X), dtype=int))
    with refused(InvalidInputError, "labels", field="y", value=1) as caught:
        model.fit(X, y, sample_weight=(y == 1).astype(float))
    assert "positive weight" in caught.value.reason
    with refused(InvalidInputError, "range", field="sample_weight", value=-1.0) as caught:
        model.fit(X, y, sample_weight=np.where(np.arange(len(X)) == 3, -1.0, 1.0))
    assert "row 3," in caught.value.reason
    with pytest.raises(ValueError, match="contains NaN"):
        model.fit(X, y, sample_weight=np.where(np.arange(len(X)) == 3, np.nan, 1.0))
    for far, value, about in ((1e140, 1e140, "row 3,"), (1e-40, 1e-40, "row 3,"), (1e10, (1.0, 1e10), "1e+09")):
        with refused(InvalidInputError, "range", field="sample_weight", value=value) as caught:
            model.fit(X, y, sample_weight=np.where(np.arange(len(X)) == 3, far, 1.0))
        assert about in caught.value.reason
    with refused(InvalidInputError, "range", field="scale_pos_weight", value=10000.0):
        boosted(scale_pos_weight=1e4).fit(X, y, sample_weight=np.where(y, 1e6, 1.0))
    with refused(InvalidInputError, "missing", field="eval_sample_weight"):
        model.fit(X, y, eval_sample_weight=np.ones(3))
    with refused(InvalidInputError, "labels", field="y"):
        model.fit(X, [None, *y[1:].tolist()])
    with pytest.raises(ValueError, match="could not convert string"):
        SecureBoostRegressor(**OPEN).fit(X, np.where(y, "yes", "no"))


def test_columns_of_no_party_may_be_anything(table: Table) -> None:
    """Free texts, bytes and intervals beside the columns that parties hold were refused."""
    X, y = table
    extra = pa.table(
        {
            "name": [f"person {row}" for row in range(len(X))],
            "bytes": pa.array([b"x"] * len(X), pa.binary_view()),
            "list": [[1.0]] * len(X),
            "limit": [np.inf] * len(X),
        }
    )
    wide = pa.Table.from_pandas(X, preserve_index=False)
    for name in extra.column_names:
        wide = wide.add_column(0, name, extra[name])
    plain = boosted(parties=PARTIES).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(boosted(parties=PARTIES).fit(wide, y).predict_proba(wide), plain)
    intervals = X.assign(band=pd.cut(X["income"].fillna(0), 3))
    np.testing.assert_array_equal(boosted(parties=PARTIES).fit(intervals, y).predict_proba(intervals), plain)
    for given, name in ((wide, "bytes"), (intervals, "band")):
        with refused(InvalidInputError, "columns", field=f"X, column '{name}'"):
            boosted(parties={**PARTIES, "shop": [name]}).fit(given, y)


def test_tables_that_cannot_be(table: Table) -> None:
    X, y = table
    with refused(InvalidInputError, "values", field="X, column 'id'", value=300):
        boosted().fit(X.assign(id=[f"p{row}" for row in range(len(X))]), y)
    with refused(InvalidInputError, "values", field="X, column 'income'", value=np.inf):
        boosted().fit(X.assign(income=np.inf), y)
    with refused(InvalidInputError, "unsupported", field="monotone_constraints", value="area"):
        boosted(monotone_constraints={"area": 1}).fit(X, y)
    with refused(InvalidInputError, "unknown", field="parties: 'b'", value="call") as caught:
        boosted(parties={"a": ["age"], "b": ["call"]}).fit(X, y)
    assert "'calls'?" in caught.value.reason
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        boosted().fit(sparse.csr_array(np.eye(6)), [0, 1] * 3)


def test_prediction_with_other_columns_than_in_training(table: Table) -> None:
    X, y = table
    model = boosted(parties=PARTIES).fit(X, y)
    with pytest.raises(ValueError, match="now missing:\n- area"):
        model.predict(X.drop(columns="area"))
    with pytest.raises(ValueError, match="fit time:\n- extra"):
        model.predict(X.assign(extra=1))
    with refused(InvalidInputError, "columns", field="X, column 'calls'", value="large_string"):
        model.predict(X.assign(calls="many"))
    with refused(InvalidInputError, "unknown", value="tel"):
        model.held_by("tel", X)
    with (
        pytest.warns(UserWarning, match="valid feature names"),
        refused(InvalidInputError, "type", field="X", value="area"),
    ):
        model.predict(np.zeros((3, 6)))


def test_rows_of_weight_zero_take_no_part() -> None:
    X, y = people(120)
    weight = np.ones(len(X))
    weight[::3] = 0
    kept = weight > 0
    model = boosted(parties=PARTIES).fit(X, y, sample_weight=weight)
    assert model.train_rows_.tolist() == np.flatnonzero(kept).tolist()
    assert model.views_["telco"].rows == kept.sum()
    other = boosted(parties=PARTIES).fit(X[kept], y[kept])
    np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X))


def test_weights_and_class_weights(numbers: Numbers) -> None:
    """A class of larger weight is found likelier; ``scale_pos_weight`` is such a weight for the second class."""
    X, y = numbers
    plain = boosted().fit(X, y).predict_proba(X)[:, 1].mean()
    weighted = boosted().fit(X, y, sample_weight=np.where(y, 8.0, 1.0))
    assert weighted.predict_proba(X)[:, 1].mean() > plain + 0.05
    scaled = boosted(scale_pos_weight=8.0).fit(X, y)
    np.testing.assert_array_equal(scaled.predict_proba(X), weighted.predict_proba(X))
    forest = FederatedForestClassifier(n_estimators=4, max_depth=3, **OPEN)
    plain = forest.fit(X, y).predict_proba(X)[:, 1].mean()
    assert forest.fit(X, y, sample_weight=np.where(y, 8.0, 1.0)).predict_proba(X)[:, 1].mean() > plain + 0.05


@pytest.mark.parametrize("factor", [1e-20, 1e20])
def test_the_scale_of_all_weights_means_nothing_to_a_forest(numbers: Numbers, factor: float) -> None:
    """Far out in the range that is allowed, and across it where few rows are light."""
    X, y = numbers
    forest = FederatedForestClassifier(n_estimators=3, max_depth=3, **OPEN)
    plain = forest.fit(X, y).score(X, y)
    assert forest.fit(X, y, sample_weight=np.full(len(X), factor)).score(X, y) == plain
    assert forest.fit(X, y, sample_weight=np.where(np.arange(len(X)) < 3, 1e9, 1.0) * factor).score(X, y) > 0.9


@pytest.mark.parametrize("metric", [None, "logloss", "error", "auc"])
def test_validation_rows_need_every_class(numbers: Numbers, metric: str | None) -> None:
    X, y = numbers
    model = boosted(eval_metric=metric)
    with refused(InvalidInputError, "labels", field="eval_set", value=1):
        model.fit(X, y, eval_set=(X[y == 0], y[y == 0]))
    with refused(InvalidInputError, "labels", field="eval_set", value=0):
        model.fit(X, y, eval_set=[(X, y)], eval_sample_weight=[y.astype(float)])


def test_forms_of_monotone_constraints(numbers: Numbers) -> None:
    X, y = numbers
    expected = boosted(monotone_constraints={0: 1, 3: -1}).fit(X, y).predict_proba(X)
    assert (expected != boosted().fit(X, y).predict_proba(X)).any()
    for given in ((1, 0, 0, -1, 0), [1, 0, 0, -1, 0], np.array([1, 0, 0, -1, 0]), "(1,0,0,-1,0)", {0: 1, 1: 0, 3: -1}):
        np.testing.assert_array_equal(boosted(monotone_constraints=given).fit(X, y).predict_proba(X), expected)
    frame = pd.DataFrame(X, columns=list("abcde"))
    by_name = boosted(monotone_constraints={"a": 1, 3: -1}).fit(frame, y)
    np.testing.assert_array_equal(by_name.predict_proba(frame), expected)
    with refused(InvalidInputError, "duplicate", field="monotone_constraints", value="a"):
        boosted(monotone_constraints={"a": 1, 0: -1}).fit(frame, y)


def test_columns_of_one_name(numbers: Numbers) -> None:
    X, y = numbers
    with refused(InvalidInputError, "duplicate", field="X", value="a"):
        boosted().fit(pd.DataFrame(X, columns=list("abcda")), y)


def test_monotone_constraints_need_one_output(numbers: Numbers) -> None:
    X, y = numbers
    frame = pd.DataFrame(X, columns=list("abcde"))
    several = np.where(X[:, 1] > 0.5, 2, y)
    given: dict[str, Any] = {"monotone_constraints": {"d": 1}, "n_estimators": 2, **OPEN}
    with refused(InvalidInputError, "unsupported", field="monotone_constraints", value="d") as caught:
        FederatedForestClassifier(**given).fit(frame, y)
    assert "a forest" in caught.value.reason
    for strategy in ("multi_output_tree", "one_output_per_tree"):
        with refused(InvalidInputError, "unsupported", field="monotone_constraints", value="d") as caught:
            SecureBoostClassifier(**given, multi_strategy=strategy).fit(frame, several)
        assert "3 classes" in caught.value.reason
    with refused(InvalidInputError, "unsupported", field="monotone_constraints", value="d") as caught:
        SecureBoostClassifier(**given, objective="multi:softprob").fit(frame, y)
    assert "2 classes" in caught.value.reason
    FederatedForestClassifier(**{**given, "monotone_constraints": {"d": 0}}).fit(frame, y)
    forest = FederatedForestRegressor(**{**given, "n_estimators": 5}).fit(frame, y)
    rows = pd.concat([frame.head(10)] * 9, ignore_index=True).assign(d=np.repeat(np.linspace(-2, 2, 9), 10))
    assert (np.diff(forest.predict(rows).reshape(9, 10), axis=0) >= 0).all()
