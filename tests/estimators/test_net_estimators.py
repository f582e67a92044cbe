"""Split networks with scikit-learn's interface."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from labelward.errors import Code, OutputError
from labelward.estimators import SplitNetClassifier, SplitNetRegressor
from labelward.estimators._errors import InvalidInputError
from labelward.messages.splitnn import BatchGradients
from refusals import refused

torch.set_num_threads(1)  # two parties already take both cores of a small machine

SMALL: dict[str, Any] = {"epochs": 3, "width": 8, "batch_size": 32, "random_state": 1}


@pytest.fixture(scope="module")
def cancer() -> tuple[pd.DataFrame, Any]:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return X, np.array(["no", "yes"])[y]


_WEIGHTS = "a row of weight 2 is one row of a batch, and not two"
EXPECTED_FAILURES = {"check_sample_weight_equivalence_on_dense_data": _WEIGHTS}


@pytest.mark.slow
@parametrize_with_checks(
    # float64, as scikit-learn has it: it compares predictions of a row in batches of several sizes to 1e-7
    [cls(**{**SMALL, "epochs": 9}, dtype="float64") for cls in (SplitNetClassifier, SplitNetRegressor)],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_a_classifier_learns_predicts_and_is_saved(cancer: tuple[pd.DataFrame, Any], tmp_path: Path) -> None:
    X, y = cancer
    parties = {"bank": list(X.columns[:10]), "telco": list(X.columns[10:])}
    model = SplitNetClassifier(parties=parties, **{**SMALL, "epochs": 8}).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.93
    np.testing.assert_array_equal(model.classes_, ["no", "yes"])
    assert model.parties_ == parties
    assert (model.n_iter_, len(model.loss_curve_)) == (8, 8)
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X) == "yes")
    view = model.views_["telco"]
    assert (view.header.engine, view.header.insecure, view.rows) == ("none", (), 400)
    again = SplitNetClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with refused(OutputError, "exists", field=str(tmp_path / "model"), value="SplitNetClassifier"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)
    embedded = model.bottom_of("telco")(torch.from_numpy(model.held_by("telco", X)).float())
    assert embedded.shape == (len(X), 10)


def test_one_output_decides_between_two_classes(cancer: tuple[pd.DataFrame, Any]) -> None:
    X, y = cancer
    model = SplitNetClassifier(**{**SMALL, "epochs": 8}, top=False, loss="logistic").fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.9
    margins = model.decision_function(X)
    assert margins.shape == (len(X),)
    np.testing.assert_array_equal(margins > 0, model.predict(X) == "yes")
    np.testing.assert_array_equal(margins > 0, model.predict_proba(X)[:, 1] > 0.5)


def test_defenses_and_behaviors_act(cancer: tuple[pd.DataFrame, Any]) -> None:
    X, y = cancer
    plain = SplitNetClassifier(**SMALL).fit(X, y)
    defended = clone(plain).set_params(defenses=[{"kind": "gradient-compression", "keep": 0.25}]).fit(X, y)
    for received in defended.views_["passive"].received(BatchGradients):
        values = received.message.values.value.unpack()
        assert np.count_nonzero(values) <= np.ceil(0.25 * values.size)
    off = clone(plain).set_params(behaviors={"passive": {"kind": "malicious-optimizer"}}).fit(X, y)
    assert [each["kind"] for each in off.views_["passive"].applied() if each["stage"] == "behavior"]
    assert off.loss_curve_ != plain.loss_curve_
    assert "base" not in off.shares_["passive"].behavior["parameters"]
    beside_adam = off.set_params(optimizer="adam", epochs=1).fit(X, y)
    assert beside_adam.shares_["passive"].behavior["parameters"]["base"] == "adam"
    with refused(InvalidInputError, "unknown", field="behaviors", value="active"):
        clone(plain).set_params(behaviors={"active": {"kind": "malicious-optimizer"}}).fit(X, y)


def test_categories_and_missing_values(cancer: tuple[pd.DataFrame, Any]) -> None:
    X, y = cancer
    table = X.iloc[:, :3].assign(site=np.where(y == "yes", "north", "south"))
    table.iloc[::7, 1] = np.nan
    model = SplitNetClassifier(
        parties={"active": list(table.columns[:2]), "telco": ["mean perimeter", "site"]}, **SMALL
    )
    model.fit(table, y)
    assert model.score(table, y) > 0.98  # the column tells all
    assert model.shares_["telco"].categories == {"site": ("north", "south")}


def test_modules_of_one_s_own_over_images() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    images = rng.normal(size=(200, 1, 6, 8)).astype(np.float32) + y[:, None, None, None]
    X = {"active": images[..., :4], "telco": images[..., 4:]}

    def bottom() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 4))

    bottoms = {"active": bottom(), "telco": bottom()}
    model = SplitNetClassifier(bottom=bottoms, top_model=nn.Linear(8, 2), **{**SMALL, "epochs": 20})
    assert model.fit(X, y).score(X, y) > 0.9  # of 25 draws of the modules' weights the worst gave 1.0
    assert model.held_by("telco", X).shape == (200, 1, 6, 4)
    with refused(InvalidInputError, "missing", field="X", value=("active",)):
        model.predict({"active": X["active"]})
    with refused(InvalidInputError, "type", field="bottom"):
        model.save("never")


def test_early_stopping_needs_rows_to_watch(cancer: tuple[pd.DataFrame, Any]) -> None:
    X, y = cancer
    model = SplitNetClassifier(**{**SMALL, "patience": 1, "epochs": 30, "learning_rate": 0.5})
    with refused(InvalidInputError, "missing", field="patience"):
        model.fit(X, y)
    model.fit(X[:400], y[:400], eval_set=(X[400:], y[400:]))
    losses = model.evals_result_["validation_0"]["loss"]
    assert len(losses) == model.n_iter_ < 30


def test_a_regressor_learns_and_speaks_in_the_label_s_unit() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = SplitNetRegressor(**{**SMALL, "epochs": 30, "learning_rate": 0.01}).fit(X, y)
    assert model.score(X, y) > 0.35
    assert abs(model.predict(X).mean() - y.mean()) < 20


@pytest.mark.parametrize(
    ("changes", "code", "field", "value", "about"),
    [
        ({"bottom": "mlq"}, "unknown", "bottom", "mlq", "'mlp'"),
        (
            {"bottom": nn.Linear(15, 4)},
            "type",
            "bottom",
            "Linear",
            "",
        ),
        ({"bottom": dict.fromkeys(("active", "passive", "telco"))}, "unknown", "bottom", "telco", ""),
        ({"epochs": 0}, "range", "epochs", 0, ""),
        ({"device": "cuda:99"}, "unsupported", "device", "cuda:99", "torch finds"),
        ({"class_weights": [1.0, 2.0]}, "conflict", "class_weights", (1.0, 2.0), "'weighted'"),
        (
            {"defenses": [{"kind": "id-lmid", "xi": 0.4}]},
            "inapplicable",
            "",
            ("before_instance_space", "split_candidates"),
            "for tree models",
        ),
    ],
)
def test_what_cannot_be_used_is_named(
    cancer: tuple[pd.DataFrame, Any], changes: dict[str, Any], code: Code, field: str, value: object, about: str
) -> None:
    X, y = cancer
    with refused(InvalidInputError, code, field=field, value=value) as caught:
        SplitNetClassifier(**{**SMALL, **changes}).fit(X, y)
    assert about in caught.value.reason


@pytest.mark.slow
def test_trees_need_no_torch_and_networks_say_which_extra_brings_it() -> None:
    code = (
        "import sys\nimport numpy as np\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n            raise ImportError(name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "from labelward.estimators import SecureBoostClassifier, SplitNetClassifier\n"
        "X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2\n"
        "SecureBoostClassifier(engine='plain', insecure=True, n_estimators=1).fit(X, y)\n"
        "from labelward.errors import DependencyError\n"
        "try:\n    SplitNetClassifier().fit(X, y)\nexcept DependencyError as error:\n    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "[nets]" in out.stdout
