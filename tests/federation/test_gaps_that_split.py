"""A column whose gaps tell the label: its best split sends all known values to one side, and has no finite edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from labelward import parse_job, predict, train

KINDS: dict[str, dict[str, Any]] = {
    "secureboost": {"trees": 2, "depth": 2},
    "forest": {"trees": 2, "depth": 2},
    "federboost": {"trees": 2},
    "pivodl": {"trees": 2, "opened_sums": "allow", "common_columns": "allow"},
    "pivot": {"depth": 2, "dealer": "deal"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_with_such_a_split_is_stored_and_predicts(kind: str, tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(0), 120
    labels = rng.random(rows) < 0.5
    known = labels ^ (rng.random(rows) < 0.1)
    table = pd.DataFrame(
        {
            "a": rng.normal(size=rows),
            "gaps": np.where(known, rng.normal(size=rows), np.nan),
            "label": np.where(labels, "p", "q"),
        }
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    engine = {"bits": 512} if kind == "pivot" else {"engine": "plain"}
    job = parse_job(
        {
            "data": {"table": str(tmp_path / "t.csv"), "label": "label"}
            | ({"labels": {"active": 0.5, "telco": 0.5}} if kind == "pivodl" else {}),
            "parties": {"active": ["a"], "telco": ["gaps"]} | ({"deal": []} if kind == "pivot" else {}),
            "model": {"kind": kind, **KINDS[kind]},
            "run": {"seeds": [1]},
        }
        | ({} if kind == "federboost" else {"encryption": {**engine, "insecure": True}})
    )
    train(job, tmp_path / "model")
    predict(tmp_path / "model", tmp_path / "t.csv", tmp_path / "found.csv")
    found = pd.read_csv(tmp_path / "found.csv")
    assert (found["prediction"].to_numpy() == table["label"].to_numpy()).mean() > 0.8
