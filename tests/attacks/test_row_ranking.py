"""Norm and spectral attack: the shipped suite, planted values, and whole runs of one output."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from splitruns import attacked, trained

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.gradient_sign import GradientSign
from labelward.attacks.row_ranking import NormAttack, RowRanking, SpectralAttack, area_of_ranking
from labelward.defenses import DEFENSES
from labelward.defenses.lpsc import Lpsc
from labelward.errors import JobError
from labelward.party.view import View
from labelward.protocols.splitnn.params import SplitNet
from labelward.testing.label_attacks import LabelAttackContract, gradient_view
from refusals import refused


class Ranking(LabelAttackContract):
    """Either end may be class 1."""

    def _accuracy(self, guess: LabelGuess, aux: AuxiliaryKnowledge, truth: NDArray[np.int64]) -> float:
        found = super()._accuracy(guess, aux, truth)
        return max(found, 1 - found)


class TestNorm(Ranking):
    reaches = 0.5  # classes of one size: the planted lengths tell nothing; those below do

    def attack(self) -> RowRanking:
        return NormAttack()


class TestSpectral(Ranking):
    def attack(self) -> RowRanking:
        return SpectralAttack()


class TestSpectralOfGradients(Ranking):
    def attack(self) -> RowRanking:
        return SpectralAttack(of="gradients")


def guessed(attack: RowRanking, view: View, classes: int = 2) -> LabelGuess:
    own = AttackerData(features=np.empty((view.rows, 0)), columns=[])
    return attack(view, own, AuxiliaryKnowledge(classes=classes), rng=np.random.default_rng(1))


def planted(rows: int = 300) -> tuple[NDArray[np.int64], View]:
    """Return labels of which one in five is 1, and gradients of one direction, of four times the length where it is."""
    rng = np.random.default_rng(0)
    truth = (rng.random(rows) < 0.2).astype(np.int64)
    along = np.where(truth == 1, -0.8, 0.2) + 0.05 * rng.normal(size=rows)
    return truth, gradient_view(along[None, :, None] * np.array([1.0, -2.0, 0.5]), top=True)


@pytest.mark.parametrize("attack", [NormAttack(of="gradients"), SpectralAttack(of="gradients")])
def test_gradients_of_one_direction_rank_all_rows(attack: RowRanking) -> None:
    truth, view = planted()
    guess = guessed(attack, view)
    assert attack.score(guess, truth) == {"auc_either": 1.0}
    assert guess.scores is not None
    assert roc_auc_score(truth, guess.scores[:, 1]) == 1.0  # the rarer class is further out
    assert guess.values[truth == 1].all()


@pytest.mark.parametrize("kinds", [1, 2, 5, 10**6])
def test_the_area_is_that_of_scikit_learn_to_the_last_bit(kinds: int) -> None:
    draw = np.random.default_rng(kinds)
    for rows in (2, 3, 17, 455, 1000):
        scores = draw.normal(size=kinds)[draw.integers(0, kinds, rows)] * 10.0 ** draw.integers(-300, 300)
        for _ in range(20):
            inside = draw.permutation(np.arange(rows) < draw.integers(1, rows))
            assert area_of_ranking(scores, inside) == roc_auc_score(inside, scores)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_rank_nothing_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        area_of_ranking(np.array([0.0, value]), np.array([True, False]))


def test_one_number_is_ranked_by_itself_or_by_its_size() -> None:
    values = np.array([[3.0], [-9.0], [0.0], [1.0], [5.0]])
    assert SpectralAttack().rule(values)(values) == pytest.approx(-values[:, 0])
    assert SpectralAttack(signed=False).rule(values)(values) == pytest.approx(np.abs(values[:, 0]))
    assert NormAttack().rule(values)(values) == pytest.approx(np.abs(values[:, 0]))
    assert SpectralAttack().rule(values + 2)(np.array([[4.0], [2.0]])) == pytest.approx([-2.0, 0.0])  # others' scale


def test_rows_outside_the_training_set_are_ranked_by_the_same_rule() -> None:
    """Of a trained bottom model alone: no gradient of theirs was seen."""
    parts = {name: np.random.default_rng(at).normal(size=(90, 3)) for at, name in enumerate(("bank", "telco"))}
    labels = (parts["telco"][:, 0] > 0).astype(np.int64)
    params = SplitNet(top=False, bottom="mlp", loss="logistic", epochs=3, batch_size=16)
    run = trained(parts, labels, params, train=np.arange(70), seed=1)
    aux = AuxiliaryKnowledge(classes=2)
    for attack in (SpectralAttack(), NormAttack()):
        guess = attack(run.view, run.own, aux, rng=np.random.default_rng(0))
        same = replace(run.own, outside=run.own.features)
        again = attack(run.view, same, aux, rng=np.random.default_rng(0))
        assert guess.outside is not None
        assert again.outside is not None
        assert len(guess.outside.values) == len(run.outside_labels)
        assert np.array_equal(again.outside.scores, guess.scores)
        assert attack(run.view, replace(run.own, outside=None), aux, rng=np.random.default_rng(0)).outside is None
    gradients = SpectralAttack(of="gradients")
    assert gradients(run.view, run.own, aux, rng=np.random.default_rng(0)).outside is None


def test_either_direction_counts_and_one_class_tells_nothing() -> None:
    guess = LabelGuess.of_scores(np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]))
    assert NormAttack().score(guess, np.array([1, 1, 0])) == {"auc_either": 1.0}
    assert NormAttack().score(guess, np.array([1, 1, 1])) == {"auc_either": 0.5}


def test_more_than_two_classes_are_refused() -> None:
    _, view = planted()
    with refused(JobError, "unsupported", value=3):
        guessed(NormAttack(of="gradients"), view, classes=3)


@pytest.mark.parametrize("coding", [None, "logitboost", "adaboost", "l2", "offset"])
def test_gradients_of_one_output_name_all_labels(coding: str | None) -> None:
    """In the first epoch, under each code: what is left over has the sign of the label. Embeddings tell less.

    But for L2, whose residuals are as small as what a network answers before it has learned anything.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    parts = {party: rng.normal(size=(400, 3)) + 0.7 * labels[:, None] for party in ("bank", "telco")}
    params = SplitNet(top=False, loss="logistic", active_bottom=False, bottom="linear", epochs=2, learning_rate=0.01)
    policies = () if coding is None else (Lpsc(coding=coding),)  # type: ignore[arg-type]
    run = trained(parts, labels, params, train=np.arange(350), seed=1, policies=policies)
    guess = attacked(run, GradientSign(), 1)
    assert np.mean(guess.values == run.labels) > (0.75 if coding == "l2" else 0.99)
    spectral = SpectralAttack(of="gradients")
    assert spectral.score(attacked(run, spectral, 1), run.labels)["auc_either"] > (0.8 if coding == "l2" else 0.97)
    embeddings = SpectralAttack().score(attacked(run, SpectralAttack(), 1), run.labels)["auc_either"]
    assert embeddings < 0.95


VIEWS: dict[str, tuple[list[tuple[str, dict[str, Any]]], float, float]] = {
    "adversarial": ([("adversarial", {})], 0.97, 1.0),
    "vfgboost": ([("lpsc", {}), ("adversarial", {})], 0.97, 1.0),
    "distance-correlation": ([("distance-correlation", {"weight": 0.1})], 0.97, 1.0),
    "mid": ([("mid", {"weight": 0.1})], 0.97, 1.0),
    "marvell": ([("marvell", {"s": 4.0})], 0.5, 0.75),
    "lpsc and marvell": ([("lpsc", {}), ("marvell", {"s": 4.0})], 0.5, 0.75),
    "randomized-response": ([("randomized-response", {"epsilon": 1.0})], 0.5, 0.96),  # .73 ± .06 over private draws
    "lpsc behind noise": ([("randomized-response", {"epsilon": 1.0}), ("lpsc", {})], 0.5, 0.96),  # .75 ± .07
}
"""Defenses, and from where to where the AUC of the gradients of the first epoch lies."""


@pytest.mark.parametrize("name", VIEWS)
def test_the_view_of_every_defense_is_attacked(name: str) -> None:
    """By the same function of the view: noise on labels bounds it, noise on gradients blurs it, others hide little."""
    rng, (chain, least, most) = np.random.default_rng(0), VIEWS[name]
    labels = rng.integers(0, 2, 400)
    parts = {party: rng.normal(size=(400, 3)) + 0.7 * labels[:, None] for party in ("bank", "telco")}
    params = SplitNet(top=False, loss="logistic", active_bottom=False, bottom="linear", epochs=1, learning_rate=0.01)
    policies = tuple(DEFENSES.make(kind, given) for kind, given in chain)
    run = trained(parts, labels, params, train=np.arange(350), seed=1, policies=policies)
    attack = SpectralAttack(of="gradients")
    assert least <= attack.score(attacked(run, attack, 1), run.labels)["auc_either"] <= most
