"""The direct attack against gradients made by hand, and against whole runs without a top model."""

from __future__ import annotations

import numpy as np
import pytest
from splitruns import attacked, trained

from blames import refused_about
from labelward.attacks import ATTACKS
from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from labelward.attacks.gradient_sign import GradientSign
from labelward.errors import DataError, InputError, JobError
from labelward.messages.base import Array
from labelward.messages.splitnn import BatchGradients, EpochOrder
from labelward.party.view import View
from labelward.protocols.splitnn.params import SplitNet
from labelward.testing.attacks import planted_view
from labelward.testing.label_attacks import LabelAttackContract, gradient_view, gradients_of
from refusals import refused


class TestDirect(LabelAttackContract):
    reaches = 1.0
    exact = True

    def attack(self):
        return GradientSign()


class TestFirstNegativeOfThreeClasses(TestDirect):
    classes = 3

    def attack(self):
        return GradientSign(rule="first-negative")


def direct(view, classes=3, **parameters):
    own = AttackerData(features=np.empty((view.rows, 0)), columns=[])
    return GradientSign(**parameters)(view, own, AuxiliaryKnowledge(classes=classes), rng=np.random.default_rng(1))


def test_reads_by_hand():
    gradients = np.array([[[0.2, -0.9, 0.7], [-0.1, -0.5, 0.6], [0.5, 0.1, 0.4]]])
    view = gradient_view(gradients)
    assert direct(view).values.tolist() == [1, 1, 1]
    first = direct(view, rule="first-negative")
    assert first.values[:2].tolist() == [1, 0]
    assert first.notes == {"rows without a gradient": 0, "rows left open": 1}
    assert first.scores is None
    np.testing.assert_allclose(direct(view).scores, -gradients[0] / 3, rtol=1e-6)  # float32 on the way


def test_each_gradient_belongs_to_the_row_that_the_epoch_put_there():
    truth = np.random.default_rng(3).integers(4, size=101)
    orders = np.stack([np.random.default_rng(seed).permutation(101) for seed in (1, 2)])
    view = gradient_view(gradients_of(truth, 4, 5), batch=20, order=orders)
    assert direct(view, 4).values.tolist() == truth.tolist()


def test_more_epochs_see_through_noise():
    truth = np.random.default_rng(3).integers(4, size=400)
    noisy = gradients_of(truth, 4, 5, epochs=20)
    noisy += np.random.default_rng(6).laplace(scale=1.0, size=noisy.shape)
    once, often = (np.mean(direct(gradient_view(noisy), 4, epochs=epochs).values == truth) for epochs in (1, 20))
    assert once < 0.7 < 0.9 < often


def test_a_row_that_says_nothing_is_drawn():
    guess = direct(gradient_view(np.zeros((1, 3000, 3))))
    assert guess.notes["rows left open"] == 3000
    # Each share has a standard error of .0086.
    np.testing.assert_allclose(np.bincount(guess.values) / 3000, 1 / 3, atol=0.03)


def test_a_view_that_was_cut_off_is_read_as_far_as_it_goes():
    truth = np.arange(90) % 3
    whole = gradient_view(gradients_of(truth, 3, 1), batch=30)
    records = [record for record in whole._entries if record.step in [(0,), (0, 0), (0, 1)]]
    guess = direct(View(whole.header, records))
    assert guess.notes == {"rows without a gradient": 30, "rows left open": 0}
    assert guess.values[:60].tolist() == truth[:60].tolist()


def test_nothing_arrived():
    guess = direct(gradient_view(gradients_of(np.arange(3000) % 3, 3, 1)).without_records())
    assert guess.notes["rows without a gradient"] == 3000
    assert abs(np.mean(guess.values == np.arange(3000) % 3) - 1 / 3) < 0.03


@pytest.mark.parametrize(
    "view", [gradient_view(np.zeros((1, 9, 3)), top=True), planted_view(np.zeros((1, 9), np.int32))]
)
def test_refuses_gradients_that_are_not_of_logits(view):
    with refused(DataError, "unsupported", value="passive"):
        direct(view)


def test_refuses_another_number_of_logits_than_classes():
    with refused_about("2 classes", DataError, "unsupported", value=3):
        direct(gradient_view(np.zeros((1, 9, 3))), 2)


def test_refuses_digests():
    view = gradient_view(gradients_of(np.arange(9) % 3, 3, 1))
    from labelward.messages.codec import decode_fields, encode_fields, redacted
    from labelward.party.transcript import TranscriptEntry

    digested = [
        TranscriptEntry(
            e.kind, e.peer, e.type, e.step, encode_fields(redacted(decode_fields(e.type, e.payload), bulk=True))
        )
        for e in view._entries
    ]
    with refused(DataError, "incomplete", value="passive"):
        direct(View(view.header, digested))


@pytest.mark.parametrize("rows", [[0, 1], [0, 1, 9]])
def test_a_view_that_contradicts_itself_is_refused(rows):
    view = gradient_view(np.zeros((1, 3, 3)))
    from labelward.messages.codec import encode_fields
    from labelward.party.transcript import TranscriptEntry

    order = EpochOrder(0, Array.pack(np.array(rows, np.int32)))
    changed = [
        TranscriptEntry(e.kind, e.peer, e.type, e.step, encode_fields(order)) if e.type == "EpochOrder" else e
        for e in view._entries
    ]
    with refused(InputError, "damaged", value="passive"):
        direct(View(view.header, changed))
    assert BatchGradients.__name__ in {e.type for e in changed}


@pytest.mark.parametrize(
    ("parameters", "code"),
    [({"rule": "sign"}, "choice"), ({"epochs": 0}, "range"), ({"epochs": True}, "type")],
)
def test_parameters_that_cannot_be_are_refused_by_name(parameters, code):
    ((name, value),) = parameters.items()
    with refused(JobError, code, field=name, value=value):
        ATTACKS.make("direct", parameters)


def rows_of_classes(seed, rows, classes, columns=4):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(rows) % classes)
    centers = rng.normal(size=(classes, 2 * columns))
    x = centers[labels] + rng.normal(size=(rows, 2 * columns))
    return {"active": x[:, :columns], "telco": x[:, columns:]}, labels


@pytest.mark.parametrize("loss", ["cross_entropy", "weighted", "nll"])
def test_argmin_is_exact_over_the_first_epoch_of_a_run(loss):
    parts, labels = rows_of_classes(1, 300, 4)
    params = SplitNet(top=False, bottom="mlp", loss=loss, epochs=2, batch_size=32)
    run = trained(parts, labels, params, train=np.arange(250), seed=1)
    assert np.array_equal(attacked(run, GradientSign(), 1).values, run.labels)
    assert np.mean(attacked(run, GradientSign(rule="first-negative"), 1).values == run.labels) >= 0.98
