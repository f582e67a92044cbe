"""Stored views of version 0.1.0, whose test rows give the labels away, at the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

from labelward.party.view import View

VIEWS = Path(__file__).parent.parent / "assets" / "stratified-split" / "breast-cancer"


def test_a_stored_view_is_attacked_from_the_command_line(tmp_path: Path, call: Callable[..., Any]) -> None:
    table, labels = load_breast_cancer(return_X_y=True, as_frame=True)
    columns = list(View.load(VIEWS / "1").header.columns)
    table[columns].assign(id=[str(row) for row in range(569)]).to_parquet(tmp_path / "telco.parquet")
    arguments = ["attack", VIEWS / "1", "--features", tmp_path / "telco.parquet", "--attack", "split-posterior"]
    more = ["--classes", 2, "--seed", 1, "--out", tmp_path / "guess.parquet"]
    for seed in range(2, 6):
        more += ["--other-view", VIEWS / str(seed)]
    missing = call(*arguments, *more)
    assert missing.exit_code == 2
    assert "class_counts" in missing.stderr
    result = call(*arguments, *more, "--param", f"class_counts={np.bincount(labels).tolist()}")
    assert result.exit_code == 0, result.output
    table.assign(id=[str(row) for row in range(569)], label=labels).to_parquet(tmp_path / "truth.parquet")
    scored = call("score", tmp_path / "guess.parquet", "--truth", tmp_path / "truth.parquet", "--json")
    assert scored.exit_code == 0, scored.output
    assert '"accuracy": 1.0' in scored.stdout


def test_verify_warns_of_views_that_give_the_labels_away(call: Callable[..., Any]) -> None:
    result = call("view", "verify", VIEWS / "1")
    assert result.exit_code == 0
    assert "split-posterior" in result.stderr
