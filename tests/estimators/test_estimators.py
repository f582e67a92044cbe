"""The estimators train what the role programs train, and behave in scikit-learn's tools as its own do."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from people_table import OPEN, PARTIES, people
from scipy.special import expit
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss, v_measure_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.id2graph import ID2Graph
from labelward.estimators import (
    FederatedForestClassifier,
    FederatedForestRegressor,
    SecureBoostClassifier,
    SecureBoostRegressor,
)
from labelward.estimators._errors import InvalidInputError
from labelward.messages.tree import OwnSplit
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost
from refusals import refused
from wiring import Setting, joined

Table = tuple[pd.DataFrame, np.ndarray]
Numbers = tuple[np.ndarray, np.ndarray]
SMALL: dict[str, Any] = {"n_estimators": 3, "max_depth": 3, **OPEN}
ALL = (SecureBoostClassifier, SecureBoostRegressor, FederatedForestClassifier, FederatedForestRegressor)
MODELS = [cls(**SMALL) for cls in ALL]


def name_of(model: Any) -> str:
    return type(model).__name__


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_the_model_is_that_of_the_role_programs_and_of_the_joined_table(model: Any, numbers: Numbers) -> None:
    X, y = numbers
    kind = SecureBoost if "SecureBoost" in name_of(model) else FederatedForest
    drawn = {"replace": True} if kind is FederatedForest else {}
    classes = ("0", "1") if "Classifier" in name_of(model) else ()
    setting = Setting(
        parts={"active": X[:, :2], "passive": X[:, 2:]},
        labels=y,
        classes=classes,
        params=kind(trees=3, depth=3, **drawn),
        seed=OPEN["random_state"],
    )
    run, pooled = setting.run(), joined(setting)
    fitted = clone(model).fit(X, y)
    shares = run.shares
    for party, share in fitted.shares_.items():
        assert share.own == shares[party].own
        assert share.trees == shares[party].trees
    assert fitted.shares_["active"].trees == pooled.trees
    margins = run.active.margins[:, -1]
    if isinstance(model, SecureBoostClassifier):
        np.testing.assert_array_equal(fitted.decision_function(X), margins)
        np.testing.assert_allclose(fitted.predict_proba(X)[:, 1], expit(margins), rtol=1e-15)  # one rounding apart
    elif isinstance(model, FederatedForestClassifier):
        np.testing.assert_array_equal(fitted.predict_proba(X)[:, 1], margins)
    else:
        np.testing.assert_array_equal(fitted.predict(X), margins)


@pytest.mark.parametrize("model", MODELS[:1] + MODELS[3:], ids=name_of)
def test_encryption_changes_no_model(model: Any, numbers: Numbers) -> None:
    X, y = numbers[0][:80, 1:4], numbers[1][:80]
    encrypted = clone(model).set_params(engine="paillier", key_bits=512, n_estimators=2).fit(X, y)
    plain = clone(model).set_params(n_estimators=2).fit(X, y)
    np.testing.assert_array_equal(encrypted.apply(X), plain.apply(X))
    np.testing.assert_array_equal(encrypted.predict(X), plain.predict(X))
    assert encrypted.views_["passive"].header.insecure == ("512-bit key",)
    assert plain.views_["passive"].header.insecure == ("plain engine",)


def test_the_default_is_encrypted_as_a_job_is() -> None:
    for cls in ALL:
        params = cls().get_params()
        assert (params["engine"], params["key_bits"], params["insecure"]) == ("paillier", None, False)
        assert cls()._encryption().bits == 2048


def test_several_classes() -> None:
    X, y = load_wine(return_X_y=True)
    names = np.array(["barolo", "grignolino", "barbera"])[y]
    for cls in (SecureBoostClassifier, FederatedForestClassifier):
        model = cls(**{**SMALL, "n_estimators": 6}).fit(X, names)
        proba = model.predict_proba(X)
        assert model.classes_.tolist() == ["barbera", "barolo", "grignolino"]
        assert proba.shape == (len(X), 3)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)  # rounding of three terms
        assert model.score(X, names) > 0.95
    each = SecureBoostClassifier(**SMALL, multi_strategy="one_output_per_tree").fit(X, names)
    assert each.apply(X).shape == (len(X), 9)
    assert each.decision_function(X).shape == (len(X), 3)
    assert each.score(X, names) > 0.9


def test_quantities_and_counts(table: Table) -> None:
    X, y = load_diabetes(return_X_y=True)
    for cls in (SecureBoostRegressor, FederatedForestRegressor):
        assert cls(**{**SMALL, "n_estimators": 10}).fit(X, y).score(X, y) > 0.5
    frame = table[0].drop(columns="calls")
    calls = table[0]["calls"].to_numpy()
    parties = {"bank": ["age", "income"], "telco": ["area"]}
    for objective in ("count:poisson", "reg:tweedie"):
        model = SecureBoostRegressor(objective=objective, parties=parties, **SMALL).fit(frame, calls)
        assert (model.predict(frame) > 0).all()
        assert model.predict(frame).mean() == pytest.approx(calls.mean(), rel=0.05)


def test_leaves_are_those_of_the_trees(numbers: Numbers) -> None:
    """Margins follow from the leaves that rows reach."""
    X, y = numbers
    model = SecureBoostClassifier(**SMALL).fit(X, y)
    trees = model.shares_["active"].trees
    leaves = model.apply(X)
    total = np.zeros(len(X))
    for number, tree in enumerate(trees):
        weight = dict(zip(tree.leaves, tree.weights, strict=True))
        total += [weight[leaf] for leaf in leaves[:, number].tolist()]
    np.testing.assert_array_equal(model.decision_function(X), total)


def test_early_stopping_keeps_the_best_round() -> None:
    X, y = people(400)
    X_new, y_new = people(200, seed=1)
    params = {**OPEN, "parties": PARTIES, "max_depth": 4, "learning_rate": 1.0}
    model = SecureBoostClassifier(n_estimators=12, early_stopping_rounds=2, **params)
    model.fit(X, y, eval_set=[(X_new, y_new)])
    history = model.evals_result_["validation_0"]["loss"]
    assert len(history) < 12
    assert model.best_iteration_ == len(history) - 3 == int(np.argmin(history))
    assert model.best_score_ == history[model.best_iteration_]
    assert model.apply(X_new).shape[1] == model.best_iteration_ + 1
    # the losses are means over the same rows, summed in another order
    assert log_loss(y_new, model.predict_proba(X_new)) == pytest.approx(model.best_score_, rel=1e-12)
    kept = SecureBoostClassifier(n_estimators=model.best_iteration_ + 1, **params).fit(X, y)
    np.testing.assert_array_equal(kept.predict_proba(X), model.predict_proba(X))
    model.set_params(early_stopping_rounds=None).fit(X, y)
    assert not hasattr(model, "best_iteration_")


def test_metrics_and_weights_of_validation_rows() -> None:
    X, y = people(200)
    X_new, y_new = people(100, seed=1)
    model = SecureBoostClassifier(**SMALL, parties=PARTIES, eval_metric="auc")
    scores = model.fit(X, y, eval_set=(X_new, y_new)).evals_result_["validation_0"]["auc"]
    assert model.best_iteration_ == int(np.argmax(scores))
    assert model.best_score_ == max(scores) > 0.7
    weight = np.where(np.arange(100) < 50, 1.0, 0.0)
    weighted = model.fit(X, y, eval_set=(X_new, y_new), eval_sample_weight=[weight]).evals_result_
    first = model.fit(X, y, eval_set=(X_new[:50], y_new[:50])).evals_result_
    assert weighted == first
    with refused(InvalidInputError, "labels", field="eval_set", value="ugly"):
        model.fit(X, y, eval_set=(X_new, np.where(y_new == "bad", "ugly", y_new)))
    with refused(InvalidInputError, "type", field="eval_set"):
        model.fit(X, y, eval_set=[(X_new, y_new), (X, y)])
    with refused(InvalidInputError, "conflict", field="eval_metric", value="rmse"):
        model.set_params(eval_metric="rmse").fit(X, y, eval_set=(X_new, y_new))


@pytest.mark.parametrize(
    ("cls", "sampled"),
    [
        (SecureBoostClassifier, {"subsample": 0.5}),
        (SecureBoostClassifier, {"sampling_method": "goss", "n_estimators": 3}),
        (FederatedForestClassifier, {"max_samples": 0.5}),
    ],
)
def test_random_state_decides_all_draws(cls: Any, sampled: dict[str, Any], numbers: Numbers) -> None:
    X, y = numbers

    def fitted(seed: Any) -> Any:
        return cls(**{**SMALL, **sampled, "colsample_bytree": 0.5, "random_state": seed}).fit(X, y)

    first = fitted(5).predict_proba(X)
    np.testing.assert_array_equal(fitted(5).predict_proba(X), first)
    np.testing.assert_array_equal(fitted(np.int64(5)).predict_proba(X), first)
    assert (fitted(6).predict_proba(X) != first).any()
    drawn = fitted(np.random.RandomState(3)).predict_proba(X)
    np.testing.assert_array_equal(fitted(np.random.RandomState(3)).predict_proba(X), drawn)


def test_the_views_are_those_of_the_training_and_can_be_attacked(table: Table) -> None:
    X, y = table
    model = SecureBoostClassifier(**{**SMALL, "n_estimators": 5}, parties=PARTIES).fit(X, y)
    view = model.views_["telco"]
    assert (view.party, view.ended, view.rows) == ("telco", "complete", len(X))
    assert view.parameter("model.kind") == "secureboost"
    assert view.parameter("model.trees") == 5
    assert 0 < len(list(view.observed(OwnSplit))) == len(model.shares_["telco"].own.columns)
    own = AttackerData(
        features=model.held_by("telco", X),
        columns=view.header.columns,
        categories={name: len(values) for name, values in view.header.categories.items()},
    )
    guess = ID2Graph()(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(1))
    alone = ID2Graph()(view.without_records(), own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(1))
    assert v_measure_score(y, guess.values) > v_measure_score(y, alone.values)


def test_a_defense_acts(table: Table) -> None:
    X, y = table
    open_model = SecureBoostClassifier(**SMALL, parties=PARTIES).fit(X, y)
    model = SecureBoostClassifier(**SMALL, parties=PARTIES, defenses=[{"kind": "id-lmid", "xi": 0.0}]).fit(X, y)
    assert len(open_model.shares_["telco"].own.columns) > 0
    assert model.shares_["telco"].own.columns == ()
    assert next(model.views_["bank"].applied())["kind"] == "id-lmid"
    chain = [{"kind": "local-trees", "count": 1}, {"kind": "id-lmid", "xi": 0.5}]
    model.set_params(defenses=chain).fit(X, y)
    assert {one["kind"] for one in model.views_["bank"].applied()} == {"local-trees", "id-lmid"}
    with refused(InvalidInputError, "inapplicable", field="defense 'local-trees'", value=99):
        model.set_params(defenses=[{"kind": "local-trees", "count": 99}]).fit(X, y)


def test_monotone_constraints_hold(table: Table) -> None:
    X, y = table
    model = SecureBoostClassifier(**{**SMALL, "n_estimators": 10}, parties=PARTIES, monotone_constraints={"calls": 1})
    model.fit(X, y)
    rows = pd.concat([X.head(20)] * 15, ignore_index=True)
    rows["calls"] = np.repeat(np.arange(15.0), 20)
    margins = model.decision_function(rows).reshape(15, 20)
    assert (np.diff(margins, axis=0) >= 0).all()
    assert (np.diff(margins, axis=0) > 0).any()
    assert {name: view.header.monotone for name, view in model.views_.items()} == {"bank": {}, "telco": {"calls": 1}}


@pytest.mark.parametrize("mode", ["mixed", "layered"])
def test_modes_of_growth(mode: str, numbers: Numbers) -> None:
    X, y = numbers
    passive: dict[str, Any] = {"passive_depth": 1} if mode == "layered" else {}
    model = SecureBoostClassifier(**SMALL, mode=mode, **passive).fit(X, y)
    owners = [set(tree.owners) for tree in model.shares_["active"].trees]
    if mode == "mixed":
        assert all(len(tree) == 1 for tree in owners)
        assert {0, 1} <= set.union(*owners)
    else:
        assert all(tree.owners[0] == 1 for tree in model.shares_["active"].trees)


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_pickled_and_saved_models_predict_the_same(model: Any, table: Table, tmp_path: Path) -> None:
    X, labels = table
    y = labels if "Classifier" in name_of(model) else X["calls"].to_numpy()
    fitted = clone(model).set_params(parties=PARTIES).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.views_["telco"].digest() == fitted.views_["telco"].digest()
    loaded = type(model).load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(loaded.feature_importances_, fitted.feature_importances_)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.parties_ == fitted.parties_
    assert loaded.feature_names_in_.tolist() == fitted.feature_names_in_.tolist()
    assert loaded.score(X, y) == fitted.score(X, y)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "model", *(tmp_path / "model").rglob("*")))


def test_a_pipeline_with_tables_inside(table: Table) -> None:
    X, y = table
    impute = ColumnTransformer(
        [("income", SimpleImputer(), ["income"])], remainder="passthrough", verbose_feature_names_out=False
    )
    pipeline = make_pipeline(impute.set_output(transform="pandas"), SecureBoostClassifier(**SMALL, parties=PARTIES))
    pipeline.fit(X, y)
    assert pipeline.score(X, y) > 0.8
    assert pipeline[-1].shares_["telco"].categories == {"area": ("east", "north", "south", "west")}
    assert (cross_val_score(pipeline, X, y, cv=2) > 0.6).all()


def test_a_search_over_parameters_and_parties(table: Table) -> None:
    X, y = table
    grid = {
        "max_depth": np.array([1, 3]),
        "parties": [PARTIES, {"active": [], "telco": ["since"]}],
    }
    search = GridSearchCV(SecureBoostClassifier(**SMALL), grid, cv=2, scoring="roc_auc").fit(X, y)
    assert search.best_params_ == {"max_depth": 3, "parties": PARTIES}
    assert search.best_estimator_.parties_ == PARTIES
    assert search.best_score_ > 0.7


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_a_warm_start_goes_on_with_the_model(model: Any, table: Table, tmp_path: Path) -> None:
    X, labels = table
    y = labels if "Classifier" in name_of(model) else X["calls"].to_numpy()
    once = clone(model).set_params(parties=PARTIES, n_estimators=5).fit(X, y)
    warm = clone(model).set_params(parties=PARTIES, n_estimators=2, warm_start=True).fit(X, y)
    warm = type(model).load(warm.save(tmp_path / "model"))
    assert warm.n_estimators_ == 2
    warm.set_params(n_estimators=5).fit(X, y)
    assert warm.n_estimators_ == once.n_estimators_ == 5
    np.testing.assert_array_equal(warm.predict(X), once.predict(X))
    with refused(InvalidInputError, "range", field="n_estimators", value=5):
        warm.fit(X, y)
    warm.set_params(n_estimators=6)
    with refused(InvalidInputError, "other-run", field="parties", value=("a", "telco")):
        warm.fit(X, y, parties={"a": ["age"], "telco": ["calls"]})
    with refused(InvalidInputError, "other-run", field="party 'bank'", value=("age", "income")):
        warm.fit(X, y, parties={"bank": ["age"], "telco": ["calls"]})
    if "Classifier" in name_of(model):
        with refused(InvalidInputError, "other-run", field="y", value=("False", "True")):
            warm.fit(X, y == "good")


def test_nothing_is_fitted_before_fit() -> None:
    model = SecureBoostClassifier()
    for what in ("feature_importances_", "parties_", "views_", "classes_"):
        assert not hasattr(model, what)
    for method in (model.apply, model.decision_function, lambda X: model.held_by("active", X)):
        with pytest.raises(NotFittedError):
            method([[1.0, 2.0]])


def test_progress_goes_to_stderr(numbers: Numbers, capsys: pytest.CaptureFixture[str]) -> None:
    SecureBoostClassifier(**SMALL).fit(*numbers)
    assert capsys.readouterr() == ("", "")
    SecureBoostClassifier(**SMALL, verbose=True).fit(*numbers)
    assert capsys.readouterr().out == ""


def test_scikit_learn_is_loaded_with_the_estimators_only() -> None:
    code = "import sys, labelward\nprint('sklearn' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert out.stdout.strip() == "False"


def test_a_view_prints_what_it_holds(numbers: Numbers) -> None:
    model = SecureBoostClassifier(n_estimators=2, max_depth=2, **OPEN).fit(*numbers)
    view = model.views_["passive"]
    lines = str(view).splitlines()
    assert all(word in lines[0] for word in ("'passive'", "'active'", "complete"))
    assert lines[1].startswith(f"{len(numbers[1])} training rows")
    counts = view.counts()
    for line in lines[2:]:
        kind, total = line.split(":")[0].split()
        found = dict(each.rsplit(" ", 1) for each in line.split(": ")[1].split(", "))
        assert {(kind, name): int(number) for name, number in found.items()} == {
            key: number for key, (number, _) in counts.items() if key[0] == kind
        }
        assert int(total) == sum(map(int, found.values()))
    assert {line.split()[0] for line in lines[2:]} == {kind for kind, _ in counts}
    records = sum(number for number, _ in counts.values())
    assert repr(view) == f"<view of 'passive': {view.rows} training rows, {records} records, complete>"
    assert "no peers" not in str(view.without_records())
