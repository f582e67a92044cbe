"""Labels from gradients whose directions turn around from epoch to epoch, with and without a few known labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score, v_measure_score

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.gradient_directions import GradientDirections
from labelward.attacks.gradient_trajectories import GradientCompletion, GradientTrajectories
from labelward.attacks.nets.view_gradients import gradients_by_epoch
from labelward.auditing.audit import audit
from labelward.job import parse_job
from labelward.party.view import View
from labelward.runs.schema import read_rows
from labelward.testing.attacks import AttackContract
from labelward.testing.label_attacks import LabelAttackContract, gradient_view, gradients_of

EPOCHS, ROWS = 8, 400


class TestGradientTrajectories(AttackContract):
    def attack(self):
        return GradientTrajectories()

    def view(self, party: str = "passive", seed: int = 6) -> View:
        return gradient_view(gradients_of(self.truth(), self.classes, seed), party=party)


class TestGradientTrajectoriesOfFourClasses(TestGradientTrajectories):
    classes = 4


class TestGradientCompletion(LabelAttackContract):
    def attack(self):
        return GradientCompletion(auxiliary=8)

    def view(self, party: str = "passive", seed: int = 6) -> View:
        return gradient_view(gradients_of(self.truth(), self.classes, seed), party=party)


def turning(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return gradients of four numbers: in each epoch each class has a direction, in pairs of opposite epochs.

    So the sum over epochs is noise alone.
    """
    directions = rng.normal(size=(EPOCHS // 2, int(labels.max()) + 1, 4))
    directions = np.concatenate([directions, -directions])
    return directions[:, labels] + 0.4 * rng.normal(size=(EPOCHS, len(labels), 4))


def guessed(attack: Attack, view: View, known: NDArray[np.int64], labels: NDArray[np.int64]) -> LabelGuess:
    rng = np.random.default_rng(1)
    own = AttackerData(features=rng.normal(size=(view.rows, 3)), columns=["a", "b", "c"])
    aux = AuxiliaryKnowledge(classes=int(labels.max()) + 1, known_rows=known, known_labels=labels[known])
    guess = attack(view, own, aux, rng=rng)
    assert isinstance(guess, LabelGuess)
    return guess


@pytest.mark.parametrize("classes", [2, 3])
def test_classes_that_turn_around_are_told_apart(classes: int) -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(classes, size=ROWS)
    order = np.array([rng.permutation(ROWS) for _ in range(EPOCHS)])
    view, none = gradient_view(turning(labels, rng), top=True, order=order), np.empty(0, np.int64)
    assert v_measure_score(labels, guessed(GradientTrajectories(), view, none, labels).values) > 0.95
    assert v_measure_score(labels, guessed(GradientDirections(epochs=EPOCHS), view, none, labels).values) < 0.1
    known = np.concatenate([np.flatnonzero(labels == each)[:5] for each in range(classes)])
    completed = guessed(GradientCompletion(auxiliary=len(known)), view, known, labels)
    assert np.mean(completed.values == labels) > 0.95


def test_gradients_that_tell_nothing() -> None:
    """Noise of another direction in each row, in each epoch: both attacks are at chance."""
    rng = np.random.default_rng(5)
    labels, none = rng.integers(2, size=2000), np.empty(0, np.int64)
    view = gradient_view(rng.normal(size=(3, 2000, 4)), top=True)
    assert v_measure_score(labels, guessed(GradientTrajectories(), view, none, labels).values) < 0.01
    scores = guessed(GradientCompletion(), view, np.arange(40), labels).scores
    assert scores is not None
    assert abs(roc_auc_score(labels[40:], scores[40:, 1]) - 0.5) < 5 * 0.013  # of one draw


def test_rows_without_a_number_do_not_matter_to_others() -> None:
    """A gradient that overflowed, as in half precision, and none at all."""
    rng = np.random.default_rng(5)
    labels, none = rng.integers(2, size=ROWS), np.empty(0, np.int64)
    gradients = turning(labels, rng)
    gradients[:, :3], gradients[2, 3:6] = 0.0, np.inf
    guess = guessed(GradientTrajectories(), gradient_view(gradients, top=True), none, labels)
    assert guess.notes["rows without a gradient"] == 3
    assert v_measure_score(labels[3:], guess.values[3:]) > 0.9


def test_each_row_has_one_gradient_of_each_epoch() -> None:
    """Whatever the order of its rows and batches."""
    rng = np.random.default_rng(2)
    gradients = rng.normal(size=(3, 70, 2))
    order = np.array([rng.permutation(70) for _ in range(3)])
    found = gradients_by_epoch(gradient_view(gradients, order=order, batch=7), None)
    np.testing.assert_allclose(np.array(found), gradients / 7, rtol=1e-6)
    assert len(gradients_by_epoch(gradient_view(gradients, batch=7), 2)) == 2


@pytest.mark.slow
def test_adversarial_embeddings_are_read_by_every_audit_of_theirs(tmp_path: Path) -> None:
    """The penalty turns gradients around from epoch to epoch: their sum tells nothing, and side by side most labels.

    The undefended gradients under a nonlinear top model tell nothing either way without a known label. Two of three
    seeds at least: the main direction may be another one.
    """
    made = parse_job(
        {
            "data": {"table": "breast_cancer"},
            "parties": {"active": 0.5, "telco": 0.5},
            "model": {"kind": "splitnn", "epochs": 15, "batch_size": 32},
            "defense": [{"kind": "adversarial", "beta": 0.5}],
            "attack": [{"kind": "gradient-directions", "epochs": 15}],
            "leakage": {"privacy": False},
            "run": {"seeds": [1, 2, 3]},
        }
    )
    audit(made, tmp_path, explained=False)
    found: dict[tuple[str, bool], list[float]] = {}
    for row in read_rows(tmp_path):
        if row.attack is not None and row.leakage is not None:
            measure: Any = row.leakage["v_measure"]
            found.setdefault((row.attack["kind"], bool(row.defense)), []).append(measure)
    assert np.median(found["gradient-trajectories", True]) > 0.75
    assert np.median(found["gradient-directions", True]) < 0.3
    assert np.median(found["gradient-trajectories", False]) < 0.3


def test_an_audit_with_such_a_defense_runs_it() -> None:
    from labelward.federation.components import with_defaults, with_standing

    sections: dict[str, Any] = {
        "data": {"table": "breast_cancer"},
        "parties": {"active": 0.5, "telco": 0.5},
        "model": {"kind": "splitnn"},
        "attack": [{"kind": "norm"}],
    }
    job = with_defaults(parse_job(sections))
    assert "gradient-trajectories" not in {each.kind for each in with_standing(job, 569, 2)}
    defended: list[dict[str, Any]] = [
        {"kind": "adversarial", "beta": 1.0},
        {"kind": "distance-correlation", "weight": 1.0},
    ]
    assert {each["kind"] for each in defended} == {*GradientTrajectories.answers}
    for each in defended:
        job = with_defaults(parse_job(sections | {"defense": [each]}))
        assert "gradient-trajectories" in {each.kind for each in with_standing(job, 569, 2)}
    job = with_defaults(parse_job(sections | {"defense": defended, "run": {"record": "digests"}}))
    assert "gradient-trajectories" not in {each.kind for each in with_standing(job, 569, 2)}
