"""Utility: known answers, and the baselines beside a run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from labelward.data import prepare
from labelward.evaluate.kinds import completed, make_programs
from labelward.evaluate.utility import baselines, probabilities, scores
from labelward.job import Job

Jobs = Callable[..., Job]


def test_metrics_by_hand() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    margins = np.array([-2.0, 1.0, 3.0, -1.0, 0.5])
    found = scores(margins, labels)
    assert found["auc"] == pytest.approx(4 / 6)  # of 6 pairs (0.5 and -1 against 1.0 lose) four are in order
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert found["f1"] == pytest.approx(2 / 3)  # two of three found, two of three guesses right


def test_a_margin_of_zero_is_class_0_and_half_a_chance() -> None:
    assert scores(np.zeros(3), np.array([0, 1, 1])) == {"auc": 0.5, "accuracy": pytest.approx(1 / 3), "f1": 0.0}
    assert probabilities(np.array([0.0, -800.0, 800.0])).tolist() == [0.5, 0.0, 1.0]


def test_alone_is_the_active_party_s_own_model_and_joined_sees_all(job: Jobs) -> None:
    """A label that only the passive party's column tells: useless alone, perfect joined."""
    import pyarrow as pa

    from labelward.data import Source

    n = 200
    rows = {"noise": np.arange(n) * 7 % 31, "signal": np.arange(n) % 2, "label": np.arange(n) % 2}
    chosen = completed(
        job(data={"table": "t.csv", "label": "label"}, parties={"active": ["noise"], "telco": ["signal"]})
    )
    data = prepare(chosen, 1, Source(name="t", tables=(pa.table(rows),)))
    found = baselines(make_programs(chosen.model), data, seed=1, precision=30)
    assert found["joined"] == {"auc": 1.0, "accuracy": 1.0, "f1": 1.0}
    assert found["alone"]["auc"] < 0.75  # noise, on 40 rows: the standard error of an AUC is about 0.09


def test_an_active_party_without_columns_predicts_the_same_for_all(job: Jobs) -> None:
    chosen = completed(job(parties={"active": 0, "telco": 1.0}))
    found = baselines(make_programs(chosen.model), prepare(chosen, 1), seed=1, precision=30)
    assert found["alone"]["auc"] == 0.5
    assert found["joined"]["auc"] > 0.9
