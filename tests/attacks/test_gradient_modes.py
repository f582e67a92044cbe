"""Gradient modes: the shipped suite, the cut of known heaps, and defenses that move both heaps together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from splitruns import trained

from labelward.attacks.base import AuxiliaryKnowledge, LabelGuess
from labelward.attacks.gradient_modes import GradientModes, heap_distances
from labelward.attacks.gradient_sign import GradientSign
from labelward.defenses.adversarial import Adversarial
from labelward.defenses.distance_correlation import DistanceCorrelation
from labelward.defenses.marvell import Marvell
from labelward.errors import JobError
from labelward.protocols.splitnn.params import SplitNet
from labelward.testing.label_attacks import LabelAttackContract
from refusals import refused


class TestGradientModes(LabelAttackContract):
    """Either end may be class 1, the rarer of the two; of classes as frequent each heap's is open."""

    reaches = 0.7

    def attack(self) -> GradientModes:
        return GradientModes(epochs=2, cell=200)

    def truth(self) -> NDArray[np.int64]:
        return (np.arange(self.rows) % 4 == 0).astype(np.int64)

    def _accuracy(self, guess: LabelGuess, aux: AuxiliaryKnowledge, truth: NDArray[np.int64]) -> float:
        found = super()._accuracy(guess, aux, truth)
        return max(found, 1 - found)


def test_heaps_are_cut_where_they_lie_apart() -> None:
    low, high = np.array([0.0, 0.2, 0.4, 0.2]), np.array([5.0, 5.2])
    found = heap_distances(np.concatenate([low, high]))
    assert (found[:4] < 0).all()
    assert (found[4:] > 0).all()
    assert heap_distances(-np.concatenate([low, high])) == pytest.approx(found)  # the smaller heap is above 0 anyway
    assert not heap_distances(np.ones(5)).any()
    assert not heap_distances(np.ones(1)).any()


def found(policy: Any) -> tuple[float, float]:
    """Return the AUC of gradient modes and of the sign, under a defense; one class has a quarter of the rows."""
    rng = np.random.default_rng(0)
    labels = (rng.random(1200) < 0.25).astype(np.int64)
    parts = {name: rng.normal(size=(1200, 2)) + 0.4 * labels[:, None] for name in ("bank", "telco", "shop")}
    params = SplitNet(
        top=False, loss="logistic", active_bottom=False, bottom="linear", epochs=3, batch_size=300, learning_rate=0.1
    )
    run = trained(parts, labels, params, train=np.arange(1200), seed=1, policies=[policy] if policy else [])
    aux, areas = AuxiliaryKnowledge(classes=2), []
    for attack in (GradientModes(), GradientSign()):
        guess = attack(run.view, run.own, aux, rng=np.random.default_rng(0))
        assert guess.scores is not None
        areas.append(float(roc_auc_score(run.labels, guess.scores[:, 1])))
    return max(areas[0], 1 - areas[0]), max(areas[1], 1 - areas[1])


def test_defenses_that_follow_the_embedding_move_both_heaps_together() -> None:
    """What the sign hides, the gap shows; noise is no such defense."""
    modes, sign = found(None)
    assert (modes, sign) == (pytest.approx(1.0, abs=0.02), 1.0)
    modes, sign = found(DistanceCorrelation(weight=20.0))
    assert modes > 0.95 > sign + 0.1
    assert found(Adversarial(beta=2.0))[0] > 0.95
    assert found(Marvell(s=4.0))[0] < 0.62


def test_more_than_two_classes_are_refused() -> None:
    with refused(JobError, "unsupported", value=3):
        GradientModes().check_labels(10, 3)
