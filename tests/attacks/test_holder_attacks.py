"""Attacks of parties that hold some labels on those of the others: node sums, leaf weights, and what defends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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
{defense}
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


def test_node_sums_tell_every_party_of_the_others_labels(rows: dict[tuple[str, str, str], ResultRow]) -> None:
    for party in "abc":
        leakage = rows["", party, "node-sums"].leakage
        assert leakage is not None
        assert leakage["auc"] > 0.7
        assert leakage["without_view"]["auc"] == 0.5
        if party != "c":  # a model of the attacker's own columns on its own labels stands beside
            assert 0.5 < leakage["beside"]["logistic"]["auc"] < leakage["auc"]


def test_partial_dp_hides_weights_and_not_sums(rows: dict[tuple[str, str, str], ResultRow]) -> None:
    clear = np.mean([rows["", party, "leaf-weights"].leakage["auc"] for party in "ab"])  # type: ignore[index]
    hidden = [rows["partial-dp", party, "leaf-weights"].leakage["auc"] for party in "ab"]  # type: ignore[index]
    assert clear > 0.55
    assert abs(np.mean(hidden) - 0.5) < abs(clear - 0.5)
    for party in "abc":
        assert rows["partial-dp", party, "node-sums"].leakage["auc"] > 0.6  # type: ignore[index]


def test_noise_on_sums_hides_both(rows: dict[tuple[str, str, str], ResultRow]) -> None:
    for party in "abc":
        for kind in ("node-sums", "leaf-weights"):
            leakage = rows["label-dp-sums", party, kind].leakage
            assert leakage is not None
            assert abs(leakage["auc"] - 0.5) < 0.08
