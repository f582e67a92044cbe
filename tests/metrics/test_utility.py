"""Utility: known answers, and the baselines beside a run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelward.data import RawTables, load_dataset
from labelward.federation.components import model_family, with_defaults
from labelward.job import Job
from labelward.metrics.utility import baselines, class_scores, regression_scores

Jobs = Callable[..., Job]


def logistic(margins: list[float]) -> np.ndarray:
    second = 1 / (1 + np.exp(-np.array(margins)))
    return np.stack([1 - second, second], axis=1)


def test_two_classes_by_hand() -> None:
    labels, margins = np.array([0, 0, 1, 1, 1]), [-2.0, 1.0, 3.0, -1.0, 0.5]
    found = class_scores(np.array(margins)[:, None], logistic(margins), labels)
    assert list(found) == ["auc", "accuracy", "f1", "logloss"]
    assert found["auc"] == pytest.approx(4 / 6)  # of 6 pairs (0.5 and -1 against 1.0 lose) four are in order
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["f1"] == pytest.approx(2 / 3)  # two of three found, two of three guesses right
    signs = np.where(labels == 1, 1, -1)
    assert found["logloss"] == pytest.approx(np.mean(np.log1p(np.exp(-signs * margins))))


def test_half_a_chance_is_the_first_class() -> None:
    found = class_scores(np.zeros((3, 1)), logistic([0, 0, 0]), np.array([0, 1, 1]))
    assert (found["auc"], found["accuracy"], found["f1"]) == (0.5, pytest.approx(1 / 3), 0.0)


def test_margins_rank_where_probabilities_are_all_but_one() -> None:
    """800 and 900 are both a probability of 1: only the margins tell them apart."""
    margins = [800.0, 900.0]
    found = class_scores(np.array(margins)[:, None], logistic(margins), np.array([0, 1]))
    assert found["auc"] == 1.0
    assert found["logloss"] == pytest.approx(-np.log(1e-15) / 2, rel=1e-6)  # bounded, so that a row stays finite


def test_three_classes_by_hand() -> None:
    labels = np.array([0, 1, 2, 2])
    shares = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.2, 0.2, 0.6], [0.0, 0.9, 0.1]])
    found = class_scores(shares, shares, labels)
    # Against the rest: class 0 is first of all (1); class 1 passes two of three; class 2 wins 2 of 4 and ties 2 (3/4).
    assert found["auc"] == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert found["accuracy"] == 0.5
    assert found["f1"] == pytest.approx((2 / 3 + 0 + 2 / 3) / 3)
    assert found["logloss"] == pytest.approx(-np.mean(np.log([0.6, 0.4, 0.6, 0.1])))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8))
def test_a_row_of_weight_two_counts_as_two_rows(rows: list[tuple[int, float, float]]) -> None:
    rows = [*rows, (0, 0.2, 0.4), (1, 0.3, 0.9), (2, 0.5, 0.1)]
    labels, first, second = (np.array(column) for column in zip(*rows, strict=True))
    shares = np.stack([first, second, np.ones(len(rows))], axis=1)
    shares /= shares.sum(axis=1, keepdims=True)
    twice = np.arange(len(rows)) % 2 + 1
    again = np.repeat(np.arange(len(rows)), twice)
    weighted = class_scores(shares, shares, labels, twice.astype(float))
    assert weighted == pytest.approx(class_scores(shares[again], shares[again], labels[again]), abs=1e-12)  # rounding
    weighted = regression_scores(first, second, twice.astype(float), power=1.5)
    repeated = regression_scores(first[again], second[again], power=1.5)
    assert weighted == pytest.approx(repeated, rel=1e-9)  # sums in another order


def test_classes_without_rows_are_not_scored() -> None:
    """The split is drawn without regard to the labels, so that test rows may lack any class."""
    predicted = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.4, 0.5, 0.1]])
    found = class_scores(predicted, predicted, np.array([0, 1, 0]))
    assert found["auc"] == pytest.approx((1 + 0.5) / 2)
    assert found["f1"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    alone = class_scores(predicted, predicted, np.array([0, 0, 0]))
    assert (alone["auc"], alone["accuracy"]) == (0.5, pytest.approx(1 / 3))
    weightless = class_scores(predicted, predicted, np.array([0, 1, 2]), np.array([1.0, 2.0, 0.0]))
    assert weightless == pytest.approx(
        class_scores(predicted[:2], predicted[:2], np.array([0, 1]), np.array([1.0, 2.0]))
    )


def test_quantities_by_hand() -> None:
    predicted, values = np.array([1.0, 2.0, 4.0]), np.array([0.0, 2.0, 6.0])
    found = regression_scores(predicted, values)
    assert list(found) == ["rmse", "mae", "r2"]
    assert found["rmse"] == pytest.approx(np.sqrt(5 / 3))
    assert found["mae"] == pytest.approx(1.0)
    squares = (8 / 3) ** 2 + (2 / 3) ** 2 + (10 / 3) ** 2
    assert found["r2"] == pytest.approx(1 - 5 / squares)
    poisson = [2 * 1.0, 0.0, 2 * (6 * np.log(6 / 4) - 2)]  # 2 (y log(y / m) - y + m)
    assert regression_scores(predicted, values, power=1.0)["deviance"] == pytest.approx(np.mean(poisson))


@pytest.mark.parametrize("size", [1e-300, 2.0**-500, 1e200])
def test_errors_whose_squares_are_no_numbers_are_scored_all_the_same(size: float) -> None:
    predicted, values = np.array([1.0, 2.0, 4.0]), np.array([1.5, 1.0, 5.0])
    plain, scaled = regression_scores(predicted, values), regression_scores(predicted * size, values * size)
    assert scaled["rmse"] / size == pytest.approx(plain["rmse"], rel=1e-12)  # rounding
    assert scaled["r2"] == pytest.approx(plain["r2"], rel=1e-12)


def test_quantities_that_are_all_the_same() -> None:
    assert regression_scores(np.array([3.0]), np.array([3.0])) == {"rmse": 0.0, "mae": 0.0, "r2": 1.0}
    assert regression_scores(np.array([3.0, 3.0]), np.array([2.0, 2.0]))["r2"] == 0.0


@pytest.mark.parametrize("kind", ["secureboost", "forest"])
@pytest.mark.parametrize("classes", [2, 3])
def test_alone_is_the_active_party_s_own_model_and_joined_sees_all(job: Jobs, kind: str, classes: int) -> None:
    """A label that only the passive party's column tells: useless alone, perfect joined."""
    import pyarrow as pa

    n = 300
    rows = {"noise": np.arange(n) * 7 % 31, "signal": np.arange(n) % classes, "label": np.arange(n) % classes}
    chosen = with_defaults(
        job(
            data={"table": "t.csv", "label": "label"},
            parties={"active": ["noise"], "telco": ["signal"]},
            model={"kind": kind, "trees": 2, "depth": 3},
        )
    )
    data = load_dataset(chosen, 1, RawTables(name="t", tables=(pa.table(rows),)))
    found = baselines(model_family(chosen.model), data, seed=1, precision=30)
    assert [found["joined"][name] for name in ("auc", "accuracy", "f1")] == [1.0, 1.0, 1.0]
    assert found["alone"]["auc"] < 0.75  # noise, on 60 rows: the standard error of an AUC is about 0.075


@pytest.mark.parametrize(
    ("model", "metrics"),
    [
        ({}, ["rmse", "mae", "r2"]),
        ({"objective": "count:poisson"}, ["rmse", "mae", "r2", "deviance"]),
        ({"objective": "reg:tweedie", "tweedie_variance_power": 1.2}, ["rmse", "mae", "r2", "deviance"]),
        ({"kind": "forest"}, ["rmse", "mae", "r2"]),
    ],
)
def test_quantities_alone_and_joined(job: Jobs, model: dict[str, object], metrics: list[str]) -> None:
    import pyarrow as pa

    n = 300
    rows = {"noise": np.arange(n) * 7 % 31, "signal": np.arange(n) % 5, "label": np.arange(n) % 5}
    chosen = with_defaults(
        job(
            data={"table": "t.csv", "label": "label", "task": "regression"},
            parties={"active": ["noise"], "telco": ["signal"]},
            model={"trees": 10, "depth": 3, **model},
            defense=None,
        )
    )
    data = load_dataset(chosen, 1, RawTables(name="t", tables=(pa.table(rows),)))
    found = baselines(model_family(chosen.model), data, seed=1, precision=30)
    assert list(found["alone"]) == list(found["joined"]) == metrics
    assert found["joined"]["rmse"] < 0.5 < 1.2 < found["alone"]["rmse"]  # the labels' own deviation is 1.41


def test_an_active_party_without_columns_predicts_the_same_for_all(job: Jobs) -> None:
    chosen = with_defaults(job(parties={"active": 0, "telco": 1.0}))
    found = baselines(model_family(chosen.model), load_dataset(chosen, 1), seed=1, precision=30)
    assert found["alone"]["auc"] == 0.5
    assert found["joined"]["auc"] > 0.9
