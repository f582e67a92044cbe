"""A fit that fails or is interrupted leaves the estimator as it was."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from people_table import OPEN
from sklearn.exceptions import NotFittedError

from labelward.errors import Code
from labelward.estimators import SecureBoostClassifier, _model_mixins
from labelward.estimators._errors import InvalidInputError
from refusals import refused

Numbers = tuple[np.ndarray, np.ndarray]
SMALL: dict[str, Any] = {"n_estimators": 2, "max_depth": 2, **OPEN}


def state(model: SecureBoostClassifier) -> dict[str, bytes]:
    return {name: pickle.dumps(value) for name, value in vars(model).items()}


def test_a_fit_that_fails_leaves_the_earlier_model(numbers: Numbers) -> None:
    X, y = numbers
    model = SecureBoostClassifier(**SMALL).fit(X, y, eval_set=(X, y))
    before = state(model)
    other = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    words = np.where(y == 1, "yes", "no")
    weights, parties = -np.ones(len(X)), {"a": ["a"], "b": ["none"]}
    refusals: list[tuple[Code, str, dict[str, Any]]] = [
        ("range", "sample_weight", {"y": words, "sample_weight": weights}),  # after the columns were learned
        ("unknown", "parties: 'b'", {"y": words, "parties": parties}),  # after the classes
        ("labels", "y", {"y": np.full(len(X), "yes")}),
        ("labels", "eval_set", {"y": words, "eval_set": (other, np.full(len(X), "yes"))}),
    ]
    for code, field, bad in refusals:
        with refused(InvalidInputError, code, field=field):
            model.fit(other, **bad)
        assert state(model) == before
    assert model.classes_.tolist() == [0, 1]
    model.fit(other, words)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert not hasattr(model, "best_score_")


@pytest.mark.parametrize("warm", [False, True])
def test_an_interrupted_fit_leaves_the_earlier_model(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    X, y = numbers
    model = SecureBoostClassifier(**SMALL, warm_start=warm).fit(X, y)
    model.set_params(n_estimators=4)
    before = state(model)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_model_mixins, "train_parties", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y if warm else np.where(y == 1, "yes", "no"))
    assert state(model) == before
    assert model.fit(X, y).n_estimators_ == 4


def test_a_first_fit_that_fails_leaves_an_unfitted_estimator(numbers: Numbers) -> None:
    X = numbers[0]
    model = SecureBoostClassifier(**SMALL)
    with refused(InvalidInputError, "labels", field="y", value=0):
        model.fit(X, np.zeros(len(X), dtype=int))
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "n_features_in_")
    with pytest.raises(NotFittedError):
        model.predict(X)
