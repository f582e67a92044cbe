"""Labels from the directions of returned gradients: on views of shared starts also their names, on others not."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import datasets
from sklearn.metrics import v_measure_score

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.gradient_directions import GradientDirections
from labelward.auditing.audit import audit
from labelward.errors import DataError
from labelward.job import parse_job
from labelward.leakage.run_attack import score_values
from labelward.messages.handshake import RowSplit
from labelward.party.view import View
from labelward.protocols.splitnn.attacker_knowledge import shared_start
from labelward.runs.schema import read_rows
from labelward.testing.attacks import AttackContract
from labelward.testing.label_attacks import gradient_view, gradients_of
from refusals import refused
from shared_starts import shared_starts
from standing import listed

STORED = Path(__file__).parent.parent / "assets" / "shared-starts"
"""Views of one epoch, recorded when initial weights came from the seed that all parties share (seed 1).

breast-cancer-linear, digits-linear: of the passive party telco, which has half of the columns, under a linear top
model.
"""


class TestGradientDirections(AttackContract):
    def attack(self):
        return GradientDirections()

    def view(self, party: str = "passive", seed: int = 6) -> View:
        return gradient_view(gradients_of(self.truth(), self.classes, seed), party=party)


class TestGradientDirectionsOfFourClasses(TestGradientDirections):
    classes = 4


def stored(name: str) -> tuple[View, np.ndarray]:
    """Return a view, and the labels of its training rows."""
    table = name.removesuffix("-linear").replace("-", "_")
    labels = getattr(datasets, f"load_{table}")().target
    view = View.load(STORED / name)
    (begin,) = (each.message for each in view.received(RowSplit))
    return view, labels[~(begin.test.unpack(len(labels)) | begin.validation.unpack(len(labels)))]


def attack(view: View, classes: int, *, start: Any = None, **params: Any) -> LabelGuess:
    own = AttackerData(features=np.zeros((view.rows, 1)), columns=["a"], shared_start=start)
    return GradientDirections(**params)(view, own, AuxiliaryKnowledge(classes=classes), rng=np.random.default_rng(1))


@pytest.mark.parametrize("name", ["breast-cancer-linear", "digits-linear"])
def test_views_of_shared_starts_give_all_labels_with_their_names(name: str) -> None:
    view, labels = stored(name)
    classes = int(labels.max()) + 1
    guess = attack(view, classes, start=lambda: shared_start(view))
    assert np.array_equal(guess.values, labels)
    assert guess.notes["share of the gradients that the shared start explains"] > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("shared", [pytest.param(True, marks=pytest.mark.slow), False])
def test_names_follow_from_a_shared_start_and_not_from_a_private_one(shared: bool, tmp_path: Path) -> None:
    """The groups remain under a linear top model; noise above the gradients' size hides them."""
    made = parse_job(
        {
            "data": {"table": "digits"},
            "parties": {"active": 0.5, "telco": 0.5},
            "model": {"kind": "splitnn", "top_model": "linear", "epochs": 1},
            "defense": [{"kind": "noisy-gradients", "scale": 0.01}],
            "attack": [{"kind": "gradient-directions"}],
            "leakage": {"privacy": False},
            "run": {"seeds": [1, 2]},
        }
    )
    with shared_starts() if shared else nullcontext():
        audit(made, tmp_path, explained=False)
    for row in listed(read_rows(tmp_path)):
        assert row.leakage is not None
        if row.defense:
            assert row.leakage["v_measure"] < 0.05 < 0.4 < row.leakage["without_view"]["v_measure"]
        else:
            assert row.leakage["v_measure"] == pytest.approx(1.0)
            # by chance .1 in the mean, and half of the names in one run of 10^4
            assert row.leakage["accuracy_named"] == 1.0 if shared else row.leakage["accuracy_named"] < 0.5


def test_without_the_start_the_clusters_stay_and_their_names_go() -> None:
    view, labels = stored("digits-linear")
    guess = attack(view, 10)
    assert v_measure_score(labels, guess.values) == pytest.approx(1.0)
    # One class of ten keeps its name in the mean over random orders; 8 of them all but never do.
    assert np.mean(guess.values == labels) < 0.8


def test_names_are_scored_by_class_number_whatever_the_order_of_the_texts() -> None:
    numbers = np.arange(24) % 12
    found = score_values(numbers, [str(each) for each in numbers], attack=GradientDirections(), numbers=numbers)
    assert found["accuracy_named"] == 1.0
    assert found["v_measure"] == pytest.approx(1.0)
    assert found["chance"]["accuracy_named"] == pytest.approx(1 / 12, abs=0.03)  # permutations are drawn


def test_quantities_are_grouped_by_the_length_along_their_one_direction() -> None:
    values = np.random.default_rng(2).permutation(400) / 400
    gradients = (0.5 - values)[None, :, None] * np.array([0.3, -0.2, 0.6])
    guess = attack(gradient_view(gradients, top=True), 5)
    assert v_measure_score((values * 5).astype(int), guess.values) > 0.97


@pytest.mark.parametrize("classes", [3, 5])
def test_equal_lengths_are_in_one_group_whatever_the_order_of_the_rows(classes: int) -> None:
    """Two gradients, as a defense may leave them, that have nothing to do with sorted labels; up to rounding."""
    rng = np.random.default_rng(3)
    lengths = np.where(rng.permutation(1200) < 600, 1.0, -1.0) * (1 + 1e-15 * rng.integers(3, size=1200))
    guess = attack(gradient_view(lengths[None, :, None] * np.array([0.3, -0.2, 0.6]), top=True), classes)
    assert len(np.unique(guess.values)) == 2
    assert v_measure_score(np.arange(1200) * classes // 1200, guess.values) < 0.02


def test_rows_without_a_direction_are_drawn() -> None:
    guess = attack(gradient_view(np.zeros((1, 3000, 3))), 3)
    # Each share has a standard error of .0086.
    np.testing.assert_allclose(np.bincount(guess.values) / 3000, 1 / 3, atol=0.03)


def test_the_active_party_has_no_gradients() -> None:
    import msgspec

    view = gradient_view(np.zeros((1, 9, 3)))
    with refused(DataError, "unsupported", value="passive"):
        attack(View(msgspec.structs.replace(view.header, role="active")), 3)
