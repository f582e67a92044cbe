"""Columns that should not have been there: an index that pandas stored, and one that alone tells the label."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score

from labelward.data import load_dataset, read_table
from labelward.data.label_proxies import _balanced_accuracy, label_proxies, ordered_by_label, warn_of_label_proxies
from labelward.errors import DataWarning
from labelward.job import parse_job


def made(frame, tmp_path, task="classification"):
    frame.to_parquet(tmp_path / "t.parquet")
    sections = {
        "data": {"table": str(tmp_path / "t.parquet"), "label": "label", "task": task},
        "parties": {"active": ["noise", "row"], "telco": ["hint", "text"]},
        "model": {"kind": "secureboost"},
        "run": {"seeds": [1]},
    }
    return load_dataset(parse_job(sections), 1)


@pytest.fixture
def frame():
    rng = np.random.default_rng(1)
    label = np.sort(rng.integers(0, 3, 600))
    return pd.DataFrame(
        {
            "label": label,
            "noise": rng.normal(size=600),
            "row": np.arange(600.0),
            "hint": label + rng.normal(0, 0.4, 600),
            "text": [f"t{number % 200}" for number in range(600)],
        }
    )


def test_an_index_that_pandas_stored_is_left_out_and_named(tmp_path):
    pd.DataFrame({"x": [1, 2]}, index=[5, 6]).to_parquet(tmp_path / "t.parquet")
    with pytest.warns(DataWarning, match="__index_level_0__"):
        assert read_table(tmp_path / "t.parquet").column_names == ["x"]


def test_a_row_number_of_a_sorted_table_is_named_and_a_good_feature_is_not(frame, tmp_path):
    frame.loc[::50, "row"] = np.nan
    data = made(frame, tmp_path)
    assert label_proxies(data) == [("active", "row")]
    with pytest.warns(DataWarning, match="'row'"), pytest.warns(DataWarning, match="order of the rows"):
        warn_of_label_proxies(data)


def test_a_copy_of_a_quantity_is_named(frame, tmp_path):
    rng = np.random.default_rng(2)
    frame["label"] = rng.gamma(2, size=600)
    frame["hint"] = 3 * frame["label"] + rng.normal(0, 0.05, 600)
    frame["row"] = frame["label"] + rng.normal(0, 0.5, 600)
    assert label_proxies(made(frame, tmp_path, "regression")) == [("telco", "hint")]


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_the_largest_numbers_overflow_no_sum(frame, tmp_path):
    """A warning of NumPy, with the path of its file, stood on stderr."""
    frame["hint"] = np.where(np.arange(600) % 2, 1e150, -1e150)
    assert label_proxies(made(frame, tmp_path)) == [("active", "row")]


def test_a_table_in_the_order_of_its_labels_is_told(frame, tmp_path):
    """No column has the order, but every party knows it."""
    frame["row"] = 0.0
    for task in ("classification", "regression"):
        data = made(frame, tmp_path, task)
        assert not label_proxies(data)
        with pytest.warns(DataWarning, match="order of the rows"):
            warn_of_label_proxies(data)
        assert not ordered_by_label(made(frame.sample(frac=1, random_state=1, ignore_index=True), tmp_path, task))


def test_no_other_column_is_named(frame, tmp_path):
    """Nor an id of each row, which predicts no row that it was not fitted to."""
    frame["row"] = np.random.default_rng(3).permutation(600)
    frame = frame.sample(frac=1, random_state=1, ignore_index=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_label_proxies(made(frame, tmp_path))


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("seed", range(5))
def test_the_accuracy_is_that_of_scikit_learn_to_the_last_bit(classes, seed):
    """Among the classes one does not occur."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(np.delete(np.arange(classes + 1.0), seed % classes), 331)
    guess = np.where(rng.random(331) < 0.7, truth, rng.choice(truth, 331))
    assert _balanced_accuracy(truth, guess) == balanced_accuracy_score(truth, guess)
