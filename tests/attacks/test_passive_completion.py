"""Passive completion against planted bottom models, and against whole runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from splitruns import Trained, attacked, known_of, trained

from labelward.attacks import ATTACKS
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.passive_completion import PassiveCompletion
from labelward.errors import DataError, JobError
from labelward.metrics.leakage import score_labels
from labelward.protocols.splitnn.params import SplitNet
from labelward.testing.label_attacks import LabelAttackContract, gradient_view, gradients_of
from refusals import refused

QUICK = PassiveCompletion(auxiliary=12, steps=100, learning_rate=0.01)


class TestPassiveCompletion(LabelAttackContract):
    def attack(self):
        return QUICK


class TestFineTunedOfThreeClasses(LabelAttackContract):
    classes = 3

    def attack(self):
        return replace(QUICK, fine_tune=True, unlabeled_weight=5.0)  # the head alone chooses it, above


class TestFedByTheDirectAttack(LabelAttackContract):
    def attack(self):
        return replace(QUICK, labels="direct", unlabeled_weight=5.0)


def digits(seed: int, *, top: bool = True, epochs: int = 12) -> Trained:
    """Left halves attack right halves: 8 x 4 pixels each, 1,400 training rows."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    halves = (x / 16.0).reshape(-1, 8, 2, 4)
    parts = {"active": halves[:, :, 1].reshape(-1, 32), "telco": halves[:, :, 0].reshape(-1, 32)}
    train = np.sort(np.random.default_rng(seed).permutation(len(y))[:1400])
    params = SplitNet(top=top, bottom="mlp", epochs=epochs, batch_size=32, learning_rate=0.05)
    return trained(parts, y.astype(np.int64), params, train=train, seed=seed)


def accuracies(run: Trained, attack: PassiveCompletion, seed: int, *, blind: bool = False) -> tuple[float, float]:
    """Return the accuracy on training rows that were not known, and on rows outside."""
    guess = attacked(run, attack, seed, run.view.without_records() if blind else None)
    known = known_of(run.labels, attack.labels_needed, seed).known_rows
    left = np.setdiff1d(np.arange(len(run.labels)), known)
    return float(np.mean(guess.values[left] == run.labels[left])), float(
        np.mean(guess.outside.values == run.outside_labels)
    )


@pytest.fixture(scope="module")
def run() -> Trained:
    return digits(1)


@pytest.mark.slow
def test_the_trained_bottom_model_tells_more_than_an_untrained_one(run):
    """Head only, 40 labels; the page has a gap of at least .178 in each of five seeds, and of .36 in the mean."""
    passive, outside = accuracies(run, PassiveCompletion(), 1)
    untrained, _ = accuracies(run, PassiveCompletion(), 1, blind=True)
    assert passive > untrained + 0.15
    assert outside > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_digits_in_further_seeds(seed):
    run = digits(seed)
    assert run.accuracy > 0.93
    assert (
        accuracies(run, PassiveCompletion(), seed)[0] > accuracies(run, PassiveCompletion(), seed, blind=True)[0] + 0.15
    )


@pytest.fixture(scope="module")
def short() -> Trained:
    return digits(1, epochs=1)


def test_the_run_is_not_changed(short):
    before = {name: tensor.clone() for name, tensor in short.own.bottom().state_dict().items()}
    digest = short.view.digest()
    attacked(short, replace(QUICK, fine_tune=True, auxiliary=20, steps=5), 1)
    assert short.view.digest() == digest
    after = short.own.bottom().state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_labels_read_directly_replace_those_that_are_told():
    """Without a top model nobody need tell the attacker anything, and rows outside the training set fall, too."""
    run = digits(1, top=False, epochs=4)
    assert (
        accuracies(run, PassiveCompletion(labels="direct", auxiliary=400, steps=600, unlabeled_weight=1.0), 1)[1] > 0.6
    )


def test_labels_read_directly_need_a_run_without_a_top_model(short):
    with refused(DataError, "unsupported", value="telco"):
        attacked(short, replace(QUICK, labels="direct"), 1)


def test_columns_with_categories_and_gaps_go_through_the_party_s_own_encoding():
    """A categorical column that names the class: its codes mean nothing as numbers, mixed or not."""
    rng = np.random.default_rng(4)
    labels = rng.permutation(np.arange(300) % 2)
    place = np.where(labels, 1.0, rng.choice([0.0, 2.0], size=300))
    place[::10] = np.nan
    telco = np.column_stack([place, rng.normal(size=300)])
    from labelward.protocols.splitnn.models.presets import ModelSpec, build

    spec = ModelSpec(preset="linear", inputs=(2,), outputs=4, categories={0: 3})

    def bottom() -> torch.nn.Module:
        return build(spec, torch.Generator().manual_seed(1), torch.float32).eval()

    view = gradient_view(gradients_of(labels, 2, 1))
    own = AttackerData(features=telco, columns=["place", "x"], categories={"place": 3}, bottom=bottom, untrained=bottom)
    known = np.arange(20)
    guess = QUICK(
        view,
        own,
        AuxiliaryKnowledge(classes=2, known_rows=known, known_labels=labels[known]),
        rng=np.random.default_rng(1),
    )
    there = ~np.isnan(place)
    found = score_labels(guess.values[there], labels[there], classes=2)
    assert found["accuracy"] > 0.95


def test_token_numbers_are_embedded_before_they_are_mixed():
    from labelward.protocols.splitnn.models.bert import bert
    from labelward.protocols.splitnn.models.presets import initialize

    def bottom() -> torch.nn.Module:
        made = bert(50, 6, 8, layers=1, width=16, heads=2).to_empty(device="cpu")
        initialize(made, torch.Generator().manual_seed(1))
        return made.eval()

    labels = np.arange(120) % 2
    tokens = np.random.default_rng(1).integers(1, 50, size=(120, 6))
    tokens[:, 0] = 1 + labels
    view = gradient_view(gradients_of(labels, 2, 1))
    own = AttackerData(features=tokens, columns=[], bottom=bottom, untrained=bottom)
    aux = AuxiliaryKnowledge(classes=2, known_rows=np.arange(20), known_labels=labels[:20])
    guess = replace(QUICK, fine_tune=True, steps=60)(view, own, aux, rng=np.random.default_rng(1))
    assert np.mean(guess.values == labels) > 0.9


@pytest.mark.parametrize("weight", [1.0, None])
def test_a_bottom_model_that_has_overflowed_tells_nothing_and_ends_no_audit(weight):
    """Noise may drive a training to where embeddings are no numbers any more, without a diverged loss."""

    def bottom() -> torch.nn.Module:
        made = torch.nn.Linear(2, 4)
        torch.nn.init.constant_(made.weight, 3e38)
        return made.eval()

    labels = np.arange(60) % 3
    own = AttackerData(features=np.full((60, 2), 9.0), columns=["a", "b"], bottom=bottom, untrained=bottom)
    view = gradient_view(gradients_of(labels, 3, 1))
    aux = AuxiliaryKnowledge(classes=3, known_rows=np.arange(9), known_labels=labels[:9])
    attack = replace(QUICK, unlabeled_weight=weight, steps=20, fine_tune=True)
    guess = attack(view, own, aux, rng=np.random.default_rng(1))
    assert np.array_equal(guess.scores[9:], np.full((51, 3), 1 / 3))
    assert np.array_equal(guess.values[:9], labels[:9])
    assert guess.notes["diverged"]
    assert np.isfinite(list(guess.notes.values())).all()


def view_and_own(rows=20):
    own = AttackerData(features=np.zeros((rows, 2)), columns=["a", "b"], bottom=lambda: torch.nn.Linear(3, 4))
    return gradient_view(np.zeros((1, rows, 2))), own


@pytest.mark.parametrize(
    ("rows", "labels", "code", "value"),
    [
        ([0, 1], [0, 0], "labels", 1),  # which class is absent
        ([0, 0], [0, 1], "rows", 2),
        ([0, 20], [0, 1], "rows", 2),
        ([0, 1], [0, 2], "labels", 2),  # below what it must be
        ([0, 1, 2], [0, 1], "rows", 3),
        ([], [], "labels", 0),
    ],
)
def test_known_rows_that_cannot_be_are_refused(rows, labels, code, value):
    view, own = view_and_own()
    aux = AuxiliaryKnowledge(classes=2, known_rows=np.array(rows, np.int64), known_labels=np.array(labels, np.int64))
    with refused(DataError, code, value=value):
        QUICK(view, own, aux, rng=np.random.default_rng(1))


def test_a_bottom_model_that_is_not_there_or_does_not_fit_is_refused():
    view, own = view_and_own()
    aux = AuxiliaryKnowledge(classes=2, known_rows=np.array([0, 1]), known_labels=np.array([0, 1]))
    with refused(DataError, "columns", value=(2,)):
        QUICK(view, own, aux, rng=np.random.default_rng(1))
    with refused(DataError, "missing", value="passive"):
        QUICK(view, replace(own, bottom=None), aux, rng=np.random.default_rng(1))


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"auxiliary": 0}, "range"),
        ({"steps": 1.0}, "type"),
        ({"batch_size": True}, "type"),
        ({"fine_tune": 1}, "type"),
        ({"labels": "asked"}, "choice"),
        ({"mix": "pixels"}, "choice"),
        ({"temperature": 0.0}, "range"),
        ({"unlabeled_weight": -1.0}, "range"),
        ({"average": 1.0}, "range"),
        ({"alpha": "x"}, "type"),
    ],
)
def test_parameters_that_cannot_be_are_refused_by_name(parameters, code):
    ((name, value),) = parameters.items()
    with refused(JobError, code, field=name, value=value):
        ATTACKS.make("passive-completion", parameters)
