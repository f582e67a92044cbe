"""The sample of large gradients: what it tells, without a look at any column, and what it does not."""

from __future__ import annotations

import numpy as np
import pytest
from tree_runs import cancer, own_of, trained

from labelward.attacks import ATTACKS, fitting_attacks
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.goss_sample import GossSample
from labelward.errors import DataError, JobError
from labelward.party.view import View
from labelward.protocols.secureboost.params import SecureBoost
from labelward.testing.attacks import planted_view
from refusals import refused

RARE = (np.arange(200) % 8 == 0).astype(np.int64)


def found(view: View, truth: np.ndarray) -> float:
    own = AttackerData(features=np.empty((view.rows, 0)), columns=[])
    attack = GossSample()
    guess = attack(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(1))
    return attack.score(guess, truth)["auc_either"]


def samples(trees: int, *, told: bool) -> np.ndarray:
    """Return leaves of trees that are grown on half of the rows, with all rows of the rare class where that is told."""
    rng = np.random.default_rng(2)
    drawn = rng.random((trees, 200)) < 0.5
    return np.where(drawn | (told & (RARE == 1)), 0, -1).astype(np.int32)


def test_rows_that_are_in_every_sample_stand_out() -> None:
    assert found(planted_view(samples(8, told=True)), RARE) > 0.99
    assert found(planted_view(samples(1, told=True)), RARE) == pytest.approx(0.75, abs=0.05)
    assert found(planted_view(samples(8, told=False)), RARE) < 0.65  # 25 rows of the class: a deviation of .06


def test_trees_of_one_round_share_a_sample_that_counts_once() -> None:
    leaves = samples(3, told=True)
    assert found(planted_view(np.repeat(leaves, 3, axis=0)), RARE) == found(planted_view(leaves), RARE)


def test_without_trees_nothing_is_known() -> None:
    assert found(planted_view(np.empty((0, 200), np.int32)), RARE) == 0.5


@pytest.mark.parametrize(("weight", "least"), [(1.0, 0.65), (5.0, 0.99)])
def test_a_passive_party_without_a_useful_column_reads_the_rare_class(weight: float, least: float) -> None:
    """With class weights from the first tree on, and all of it."""
    parts, labels = cancer()
    keep = np.sort(np.concatenate([np.flatnonzero(labels == 1), np.flatnonzero(labels == 0)[:60]]))
    noise = np.random.default_rng(3).normal(size=(len(keep), 3))
    columns, rare = {"active": parts["active"][keep], "passive": noise}, 1 - labels[keep]
    params = SecureBoost(trees=10, sampling="goss", scale_pos_weight=weight)
    view = trained(columns, rare, params).views["passive"]
    assert found(view, rare) > least
    attack, own = GossSample(), own_of(columns)
    scores = attack(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(1)).scores
    assert scores is not None
    assert scores[rare == 1, 1].mean() > scores[rare == 0, 1].mean()


def test_what_it_does_not_read() -> None:
    view = planted_view(samples(2, told=True))
    own = AttackerData(features=np.empty((view.rows, 0)), columns=[])
    with refused(JobError, "unsupported", value=3):
        GossSample()(view, own, AuxiliaryKnowledge(classes=3), rng=np.random.default_rng(1))
    with refused(DataError, "rows"):
        short = AttackerData(features=np.empty((5, 0)), columns=[])
        GossSample()(view, short, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(1))
    for model in (SecureBoost(), SecureBoost(row_fraction=0.5)):
        with refused(JobError, "unsupported", value=model.sampling):
            GossSample().check_model({"kind": model.kind, **model.parameters()})
    GossSample().check_model({"kind": "secureboost", **SecureBoost(sampling="goss").parameters()})
    assert "goss-sample" in ATTACKS.classes()
    assert "goss-sample" not in fitting_attacks("secureboost")
