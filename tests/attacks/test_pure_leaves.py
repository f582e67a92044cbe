"""Pure nodes by the sums that were not requested: all of them in views of earlier versions, none in current ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.metrics import v_measure_score

from labelward.api import simulate
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.clustering import Clustering
from labelward.attacks.id2graph import ID2Graph
from labelward.attacks.pure_leaves import PureLeaves
from labelward.errors import JobError
from labelward.job import parse_job
from labelward.messages.handshake import RowSplit
from labelward.party.view import View
from labelward.testing.attacks import AttackContract
from refusals import refused

STORED = Path(__file__).parent.parent / "assets" / "unsummed-nodes"
"""Views of the passive party telco, recorded while no sums of pure nodes were requested: breast cancer, half of the
columns each, Paillier 2048, 5 trees of depth 6. boosted-node: in-node candidates, seeds 1 to 3. forest-all: every value
as a candidate, so that one of two siblings is summed for both."""


class TestPureLeaves(AttackContract):
    def attack(self) -> PureLeaves:
        return PureLeaves()


class TestUnsplitNodes(AttackContract):
    def attack(self) -> PureLeaves:
        return PureLeaves(evidence="splits")


def opened(view: View) -> tuple[AttackerData, NDArray[np.int64]]:
    """Return the party's columns and the labels of the training rows."""
    table, (begin,) = datasets.load_breast_cancer(as_frame=True), [each.message for each in view.received(RowSplit)]
    labels = table.target.to_numpy()
    train = ~(begin.test.unpack(len(labels)) | begin.validation.unpack(len(labels)))
    columns = view.header.columns
    return AttackerData(features=table.data[list(columns)].to_numpy(float)[train], columns=columns), labels[train]


def score(attack: Any, view: View, own: AttackerData, labels: NDArray[np.int64]) -> float:
    guess = attack(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(0))
    return float(v_measure_score(labels, guess.values))


def purities(attack: PureLeaves, view: View, labels: NDArray[np.int64]) -> list[bool]:
    """Return of each node that the attack takes for pure whether it is."""
    trees, _ = attack.pure_nodes(view)
    return [len(set(labels[tree == node])) == 1 for tree in trees for node in np.unique(tree[tree >= 0])]


def test_every_node_without_sums_was_pure() -> None:
    found = []
    for folder in STORED.glob("*/*"):
        view = View.load(folder)
        found += purities(PureLeaves(), view, opened(view)[1])
    assert all(found)
    assert len(found) == 71


def test_nodes_that_a_run_did_not_come_to_are_not_taken_for_pure() -> None:
    """Their rows are known one record before their sums are requested."""
    view = View.load(STORED / "boosted-node" / "1")
    labels, found = opened(view)[1], []
    for records in range(sum(1 for _ in view.entries())):
        found.append(purities(PureLeaves(), view.first(records), labels))
        assert all(found[-1])
    assert len(found[-1]) == 14  # of 20 in the whole view


@pytest.mark.parametrize(("seed", "least"), [("1", 0.9), ("2", 0.99), ("3", 0.9)])
def test_views_without_these_sums_give_the_labels_away(seed: str, least: float) -> None:
    view = View.load(STORED / "boosted-node" / seed)
    own, labels = opened(view)
    assert score(PureLeaves(), view, own, labels) >= least
    assert score(PureLeaves(smoothing=0), view, own, labels) >= 0.8
    assert score(ID2Graph(), view, own, labels) <= least - 0.1


def test_labels_of_other_rows_are_not_found() -> None:
    view = View.load(STORED / "boosted-node" / "1")
    own, labels = opened(view)
    assert score(PureLeaves(), view, own, np.random.default_rng(1).permutation(labels)) < 0.02


def test_a_view_of_nothing_gives_the_clusters_of_the_columns() -> None:
    view = View.load(STORED / "boosted-node" / "1").without_records()
    own, _ = opened(View.load(STORED / "boosted-node" / "1"))
    aux = AuxiliaryKnowledge(classes=2)
    guesses = [each(view, own, aux, rng=np.random.default_rng(0)).values for each in (PureLeaves(), Clustering())]
    assert np.array_equal(*guesses)


@pytest.mark.parametrize(
    "model",
    [
        {"kind": "secureboost", "candidates": "node", "min_rows": 3},
        {"kind": "secureboost", "candidates": "node", "min_child_weight": 1.0, "gamma": 0.5},
        {"kind": "secureboost", "mode": "layered", "passive_depth": 3, "candidates": "node"},
        {"kind": "secureboost", "row_fraction": 0.1},
        {"kind": "forest", "candidates": "all", "row_fraction": 0.8},
        {"kind": "forest", "candidates": "node", "row_fraction": 0.1},
    ],
    ids=lambda model: "-".join(map(str, model.values())),
)
@pytest.mark.parametrize("defense", ["none", "purity-threshold"])
def test_sums_of_pure_nodes_are_requested(model: dict[str, Any], defense: str) -> None:
    job = parse_job(
        {
            "data": {"table": "breast_cancer"},
            "parties": {"active": 0.4, "telco": 0.3, "shop": 0.3},
            "model": {"trees": 3, "depth": 5, **model},
            "encryption": {"engine": "plain", "insecure": True},
            "defense": [] if defense == "none" else [{"kind": defense, "threshold": 0.999}],
            "leakage": {"meter": False},
        }
    )
    for seed in range(3):
        for party, view in simulate(job, seed=seed, defense=job.variants()[-1].slug).views.items():
            if party != "active":
                assert purities(PureLeaves(), view, opened(view)[1]) == []


def test_nodes_that_seem_not_to_be_split_are_seldom_pure() -> None:
    """What remains: nodes without a split that the party knows of. Many of them were split into leaves."""
    job = parse_job(
        {
            "data": {"table": "breast_cancer"},
            "parties": {"active": 0.5, "telco": 0.5},
            "model": {"kind": "secureboost", "trees": 5, "depth": 6, "candidates": "node"},
            "encryption": {"engine": "plain", "insecure": True},
            "leakage": {"meter": False},
        }
    )
    unsplit, gained = [], []
    for seed in range(5):
        view = simulate(job, seed=seed).views["telco"]
        own, labels = opened(view)
        unsplit += purities(PureLeaves(evidence="splits"), view, labels)
        unjoined = score(PureLeaves(), view, own, labels)
        gained.append(score(PureLeaves(evidence="splits"), view, own, labels) - unjoined)
    assert 0.2 < np.mean(unsplit) < 0.6
    assert np.mean(gained) + 3 * np.std(gained) / np.sqrt(5) < 0.1, gained


@pytest.mark.parametrize(
    ("params", "code", "field"),
    [({"smoothing": -1}, "range", "smoothing"), ({"evidence": "gains"}, "choice", "evidence")],
)
def test_parameters_that_cannot_be(params: dict[str, Any], code: Any, field: str) -> None:
    with refused(JobError, code, field=field):
        PureLeaves(**params)
