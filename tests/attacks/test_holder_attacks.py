"""Attacks of parties that hold some labels on those of the others: node sums, leaf weights, and what defends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labelward.attacks.split_gains import left_gradients
from labelward.auditing.audit import audit
from labelward.job import parse_job
from labelward.runs.schema import ResultRow

JOB = """
[data]
table = "made.csv"
label = "label"
labels = {{a = 0.3, b = 0.7}}
[parties]
a = 0.3
b = 0.4
c = 0.3
[model]
kind = "pivodl"
aggregation = "masks"
trees = 4
{model}
[encryption]
engine = "plain"
insecure = true
[[attack]]
kind = "node-sums"
[[attack]]
kind = "leaf-weights"
[[attack]]
kind = "split-gains"
[[attack]]
kind = "id2graph"
[[attack]]
kind = "instance-clustering"
{defense}
[leakage]
privacy = false
[run]
seeds = [1]
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], ResultRow]:
    """Result rows by defense, party and attack."""
    folder = tmp_path_factory.mktemp("holders")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 6))
    y = (x.sum(axis=1) + rng.normal(size=3000) * 2 > 0).astype(int)
    lines = [
        "label,a,b,c,d,e,f",
        *(",".join(map(str, [label, *row.round(3)])) for label, row in zip(y, x, strict=True)),
    ]
    (folder / "made.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    defense = '[[defense]]\nkind = "partial-dp"\n[[defense]]\nkind = "label-dp-sums"\nepsilon = 0.5'
    job = parse_job(JOB.format(model="", defense=defense), base=Path(folder))
    found = audit(job, folder / "out")
    return {
        (row.defense[0]["kind"] if row.defense else "", row.party or "", (row.attack or {})["kind"]): row
        for row in found
        if row.attack
    }


@pytest.mark.slow
def test_node_sums_tell_every_party_of_the_others_labels(rows: dict[tuple[str, str, str], ResultRow]) -> None:
    for party in "abc":
        leakage = rows["", party, "node-sums"].leakage
        assert leakage is not None
        assert leakage["auc"] > 0.7
        assert leakage["without_view"]["auc"] == 0.5
        if party != "c":  # a model of the attacker's own columns on its own labels stands beside
            assert 0.5 < leakage["beside"]["logistic"]["auc"] < leakage["auc"]


@pytest.mark.slow
def test_accuracy_stands_beside_what_it_hides(rows: dict[tuple[str, str, str], ResultRow]) -> None:
    for party in "ab":
        leakage = rows["", party, "leaf-weights"].leakage
        assert leakage is not None
        assert leakage["flipped_accuracy"] == max(leakage["accuracy"], 1 - leakage["accuracy"])
        assert leakage["chance"]["balanced_accuracy"] == leakage["beside"]["majority"]["balanced_accuracy"] == 0.5
        assert 0.45 < leakage["beside"]["majority"]["accuracy"] < 0.55


def test_attacks_on_instance_spaces_read_the_views(rows: dict[tuple[str, str, str], ResultRow]) -> None:
    """Rows that the attacker labels are in no cluster that is scored, and a model of them stands beside."""
    for party in "abc":
        for kind in ("id2graph", "instance-clustering"):
            leakage = rows["", party, kind].leakage
            assert leakage is not None
            assert leakage["v_measure"] > leakage["chance"]["v_measure"]
            assert ("logistic" in leakage["beside"]) == (party != "c")
            assert "matched_accuracy" in leakage["beside"]["majority"]


def test_partial_dp_hides_weights_and_not_sums(rows: dict[tuple[str, str, str], ResultRow]) -> None:
    clear = np.mean([rows["", party, "leaf-weights"].leakage["auc"] for party in "ab"])  # type: ignore[index]
    hidden = [rows["partial-dp", party, "leaf-weights"].leakage["auc"] for party in "ab"]  # type: ignore[index]
    assert clear > 0.55
    assert abs(np.mean(hidden) - 0.5) < abs(clear - 0.5)
    for party in "abc":
        assert rows["partial-dp", party, "node-sums"].leakage["auc"] > 0.6  # type: ignore[index]


def test_gains_tell_what_partial_dp_hides(rows: dict[tuple[str, str, str], ResultRow]) -> None:
    """More than sums of nodes (.01 to .03 over five trainings), and nearly as much where weights carry noise."""
    gained = [
        rows["", party, "split-gains"].leakage["auc"] - rows["", party, "node-sums"].leakage["auc"]  # type: ignore[index]
        for party in "ab"
    ]
    assert np.mean(gained) > 0.003, gained
    for party in "ab":
        assert rows["partial-dp", party, "split-gains"].leakage["auc"] > 0.6  # type: ignore[index]
    assert rows["", "c", "split-gains"].leakage["auc"] == rows["", "c", "node-sums"].leakage["auc"]  # type: ignore[index]


@pytest.mark.parametrize("seed", range(5))
def test_a_gain_leaves_two_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    (left, right), hessians = rng.normal(size=2) * 5, tuple(rng.uniform(0.5, 20, size=2))
    gain = left**2 / (hessians[0] + 1) + right**2 / (hessians[1] + 1) - (left + right) ** 2 / (sum(hessians) + 1)
    both = left_gradients(gain, left + right, hessians, 1.0)
    assert min(abs(each - left) for each in both) < 1e-9
    assert both[0] <= both[1]


def test_noise_on_sums_leaves_less_than_own_columns_tell(rows: dict[tuple[str, str, str], ResultRow]) -> None:
    """What remains is learned of the population: AUC .44 to .75 over twenty trainings."""
    for kind in ("node-sums", "leaf-weights"):
        clear = np.mean([rows["", party, kind].leakage["auc"] for party in "ab"])  # type: ignore[index]
        noisy = [rows["label-dp-sums", party, kind].leakage for party in "ab"]
        assert np.mean([each["auc"] for each in noisy if each]) < clear - 0.06
        assert np.mean([each["auc"] - each["beside"]["logistic"]["auc"] for each in noisy if each]) < 0.06
