"""Stored views of versions that leaked, at the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_breast_cancer

from labelward.api import train
from labelward.attacks import ATTACKS
from labelward.attacks.base import LabelGuess
from labelward.job import parse_job
from labelward.leakage.stored_guesses import write_guess
from labelward.party.view import View

ASSETS = Path(__file__).parent.parent / "assets"
VIEWS = ASSETS / "stratified-split" / "breast-cancer"


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
    views = [each for seed in range(1, 6) for each in ("--view", VIEWS / str(seed))]
    shown = call("score", tmp_path / "guess.parquet", "--truth", tmp_path / "truth.parquet", "--json", *views)
    epsilon = json.loads(shown.stdout)["epsilon"]
    assert (epsilon["bound"], epsilon["changed"], epsilon["contradicted"]) == (None, 20, 20)
    told = call("score", tmp_path / "guess.parquet", "--truth", tmp_path / "truth.parquet", *views[:2])
    assert "20 of 20" in told.stdout
    train = table.assign(id=[str(row) for row in range(569)], label=labels).iloc[:300]
    train.to_parquet(tmp_path / "some.parquet")
    few = call("score", tmp_path / "guess.parquet", "--truth", tmp_path / "some.parquet", *views[:2])
    assert few.exit_code == 2


@pytest.mark.slow
def test_a_stored_guess_gives_a_bound_of_epsilon(tmp_path: Path, call: Callable[..., Any]) -> None:
    """Clusters that are the labels, of rows whose columns say little about them."""
    rng = np.random.default_rng(1)
    labels, ids = rng.integers(3, size=900), [f"row {number}" for number in rng.permutation(900)]
    guess = LabelGuess(values=(labels + 1) % 3)
    write_guess(tmp_path / "guess.parquet", ids, guess, {"attack": {"kind": "union"}, "seed": 1, "view": "complete"})
    some, kinds = rng.normal(size=900), np.array(["x", "y"])[rng.integers(2, size=900)]
    order = rng.permutation(900)
    columns = {"id": np.array(ids)[order], "size": np.where(some[order] > 1, np.nan, some[order])}
    pq.write_table(pa.table(columns), tmp_path / "bank.parquet")
    pq.write_table(pa.table({"id": ids, "kind": kinds}), tmp_path / "telco.parquet")
    pq.write_table(pa.table({"id": ids, "label": labels}), tmp_path / "truth.parquet")
    arguments = ["score", tmp_path / "guess.parquet", "--truth", tmp_path / "truth.parquet"]
    tables = ["--columns", tmp_path / "bank.parquet", "--columns", tmp_path / "telco.parquet"]
    epsilon = json.loads(call(*arguments, *tables, "--json").stdout)["epsilon"]
    assert epsilon["pairs"] == epsilon["trials"][0]["right"] > 350
    assert 3 < epsilon["bound"] < np.log(epsilon["pairs"])
    assert f"{epsilon['bound']:.2f}" in call(*arguments, *tables).stdout
    assert "epsilon" not in call(*arguments).stdout
    assert call(*arguments, *tables, "--bins", 3).exit_code == 2
    pq.write_table(pa.table({"id": ids[1:], "kind": kinds[1:]}), tmp_path / "telco.parquet")
    assert call(*arguments, *tables).exit_code == 2


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        ("stratified-split/breast-cancer/1", ["split-posterior"]),
        ("stratified-split/digits/1", ["split-posterior", "gradient-directions"]),
        ("unsummed-nodes/boosted-node/1", ["pure-leaves"]),
        ("unsummed-nodes/forest-all/1", ["pure-leaves"]),
        ("shared-starts/digits-linear", ["gradient-directions"]),
        ("shared-starts/breast-cancer-mlp", ["embedding-inversion"]),
    ],
)
def test_verify_warns_of_views_that_leak(stored: str, named: list[str], call: Callable[..., Any]) -> None:
    assert named_attacks(call("view", "verify", ASSETS / stored)) == set(named)


@pytest.mark.parametrize("model", [{"kind": "secureboost", "candidates": "node"}, {"kind": "splitnn", "epochs": 1}])
def test_verify_does_not_warn_of_views_of_this_version(
    model: dict[str, Any], tmp_path: Path, call: Callable[..., Any]
) -> None:
    """Though there are pure nodes among those of a party, and directions of gradients."""
    made = {"data": {"table": "breast_cancer"}, "parties": {"active": 0.5, "telco": 0.5}, "model": model}
    engine = {} if model["kind"] == "splitnn" else {"encryption": {"engine": "plain", "insecure": True}}
    train(parse_job({**made, **engine}), tmp_path, seed=1)
    for party in ("active", "telco"):
        assert named_attacks(call("view", "verify", tmp_path / party / "view")) == set()


def named_attacks(result: Any) -> set[str]:
    """Return the attacks that the warnings of a command name."""
    assert result.exit_code == 0, result.output
    text, named = "".join(result.stderr.split()), set()
    for kind in sorted(ATTACKS.classes(), key=len, reverse=True):  # lines break within names, and names within names
        if kind in text:
            named.add(kind)
            text = text.replace(kind, "")
    return named
