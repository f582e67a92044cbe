"""Two runs have equal views; what travels has the agreed precision; policies act before anything leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from splitnets import Net, blobs

from labelward.errors import CodecError
from labelward.messages.codec import decode_fields, encode_fields, redacted
from labelward.messages.splitnn import (
    BatchEmbeddings,
    BatchGradients,
    EmbeddingAnswer,
    EpochEnd,
    EpochOrder,
    ValidationEmbeddings,
)
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.net_points import OutgoingEmbedding, ReturnedGradient
from labelward.protocols.splitnn.params import SplitNet
from labelward.rng import SecureRandom
from refusals import refused


def net(parties: int = 3, **params: Any) -> Net:
    widths = dict(list({"bank": 3, "telco": 2, "shop": 4}.items())[:parties])
    parts, y = blobs(2, 120, widths, 3)
    settings = {"epochs": 4, "batch_size": 16, "bottom": "fcnn-3", **params}
    return Net(parts=parts, labels=y, classes=("a", "b", "c"), params=SplitNet(**settings), validation=30)


@pytest.mark.parametrize("params", [{}, {"top": False}, {"patience": 1, "learning_rate": 0.5}], ids=str)
def test_two_runs_have_equal_views(tmp_path: Path, params: dict[str, Any]) -> None:
    """In memory and on disk, whatever the process's own generator of torch has drawn meanwhile."""
    first = net(**params).run()
    torch.rand(7)
    second = net(**params).run(folder=tmp_path)
    for party in ("bank", "telco", "shop"):
        assert first.views[party].digest() == second.views[party].digest()
    assert np.array_equal(first.active.outputs, second.active.outputs)
    assert first.active.history == second.active.history
    assert first.views["telco"].digest() != net(**params).run(seed=2).views["telco"].digest()


def test_every_epoch_takes_each_row_once_in_another_order() -> None:
    run = net().run()
    orders = [each.rows.unpack() for each in run.views["telco"].observed(EpochOrder)]
    assert len(orders) == 4
    assert all(np.array_equal(np.sort(order), np.arange(90)) for order in orders)
    assert not np.array_equal(orders[0], orders[1])


def test_validation_rows_send_nothing_back() -> None:
    """What a passive party receives does not depend on their labels, but for which epoch was the best."""
    first = net()
    second = net()
    second.labels = np.concatenate([second.labels[:90], (second.labels[90:] + 1) % 3])
    assert first.run().views["telco"].digest() == second.run().views["telco"].digest()


def test_the_weights_of_the_best_epoch_are_kept() -> None:
    """A run that stops predicts as the run that had only as many epochs as were useful."""
    stopping = net(2, patience=2, epochs=30, learning_rate=0.3).run()
    losses = [epoch.validation.loss for epoch in stopping.active.history if epoch.validation]
    best = int(np.argmin(losses))
    assert len(losses) == best + 3 < 30
    ends = [each.message for each in stopping.views["telco"].received(EpochEnd)]
    assert [end.best for end in ends][best:] == [True, False, False]
    assert [end.last for end in ends][-2:] == [False, True]
    short = net(2, epochs=best + 1, learning_rate=0.3).run()
    assert np.array_equal(stopping.active.outputs, short.active.outputs)
    for party in ("bank", "telco"):
        assert all(np.array_equal(stopping.state(party)[name], value) for name, value in short.state(party).items())


@pytest.mark.parametrize(("dtype", "wire"), [("float32", "same"), ("float64", "same"), ("float64", "float16")])
def test_what_travels_has_the_agreed_precision(dtype: Any, wire: Any) -> None:
    run = net(2, dtype=dtype, wire_dtype=wire).run()
    expected = dtype if wire == "same" else wire
    bank, telco = run.views["bank"], run.views["telco"]
    kinds = {
        each.message.values.value.dtype for kind in (BatchEmbeddings, EmbeddingAnswer) for each in bank.received(kind)
    }
    assert kinds == {expected}
    assert {each.message.values.value.dtype for each in bank.received(ValidationEmbeddings)} == {expected}
    assert {each.message.values.value.dtype for each in telco.received(BatchGradients)} == {expected}
    assert run.state("telco")["1.weight"].dtype == np.dtype(dtype)


class Gradients(Policy):
    """Answers with constants, and remembers what it was asked."""

    kind = "gradients"

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.setups: list[PolicyContext] = []

    def begin(self, setup: PolicyContext, protection: SecureRandom) -> None:
        self.setups.append(setup)

    def on_returned_gradient(self, returned: ReturnedGradient) -> Any:
        self.asked.append(returned)
        return np.full_like(returned.values, 0.5 if returned.party == "telco" else 0.25)


class Embeddings(Policy):
    """Sends zeros, and remembers what it was asked."""

    kind = "embeddings"

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def before_embedding(self, outgoing: OutgoingEmbedding) -> Any:
        self.asked.append(outgoing)
        return np.zeros_like(outgoing.values)


@pytest.mark.parametrize("top", [True, False])
def test_gradients_leave_as_the_policy_answers(top: bool) -> None:
    policy = Gradients()
    run = net(top=top, learning_rate=0.001).run(policies={"bank": policy})
    for party, value in (("telco", 0.5), ("shop", 0.25)):
        received = [each.message.values.value.unpack() for each in run.views[party].received(BatchGradients)]
        assert len(received) == 4 * 6  # 90 rows: five batches of 16 and one of 10
        assert all((each == value).all() for each in received)
    assert [(each.epoch, each.batch) for each in policy.asked if each.party == "shop"] == [
        (epoch, batch) for epoch in range(4) for batch in range(6)
    ]
    order = next(iter(run.views["bank"].observed(EpochOrder))).rows.unpack()
    assert np.array_equal(policy.asked[0].targets, net().labels[order[:16]])
    assert policy.asked[0].classes == 3
    (setup,) = policy.setups
    assert (setup.model, setup.epochs, setup.batches, setup.separate) == ("splitnn", 4, 6, False)
    (account,) = run.views["bank"].applied()
    assert (account["kind"], account["stage"]) == ("gradients", "end")
    assert account["changed_values"] == 2 * 4 * 90 * policy.asked[0].values.shape[1]


def test_embeddings_leave_as_the_policy_answers() -> None:
    """In training, for validation rows and in prediction: nothing unprotected leaves."""
    policy = Embeddings()
    run = net().run(policies={"telco": policy})
    for kind in (BatchEmbeddings, ValidationEmbeddings, EmbeddingAnswer):
        received = [each for each in run.views["bank"].received(kind) if each.peer == "telco"]
        assert received
        assert all(not each.message.values.value.unpack().any() for each in received)
    assert {each.purpose for each in policy.asked} == {"training", "validation", "prediction"}


def test_a_policy_acts_below_the_wire_precision() -> None:
    policy = Gradients()
    net(2, wire_dtype="float16", dtype="float64", epochs=1, learning_rate=1e-3).run(policies={"bank": policy})
    assert policy.asked[0].values.dtype == np.float64


def test_a_digest_stands_for_an_array() -> None:
    """What a long run may record in place of embeddings and gradients; it can be compared and not be read."""
    run = net(2).run()
    message = next(iter(run.views["telco"].received(BatchGradients))).message
    kept = redacted(message, bulk=True)
    assert kept.values.value.shape == message.values.value.shape
    assert kept.values.value.data == b""
    assert len(kept.values.value.sha256) == 32
    assert decode_fields("BatchGradients", encode_fields(kept)) == kept
    with refused(CodecError, "incomplete", value=message.values.value.shape):
        kept.values.value.unpack()
    assert redacted(message) == message


@pytest.mark.parametrize(
    ("blind", "params", "separate"),
    [
        (True, {"top": False}, True),
        (False, {"top": False}, False),
        (True, {"top": True}, False),
        (True, {"top": False, "loss": "weighted"}, False),
    ],
    ids=str,
)
def test_policies_hear_whether_a_gradient_tells_of_one_label_only(
    blind: bool, params: dict[str, Any], separate: bool
) -> None:
    policy = Gradients()
    given = net(2, epochs=1, learning_rate=1e-3, **params)
    parts = {"bank": np.zeros((120, 0)), "telco": given.parts["telco"]} if blind else given.parts
    given.run(parts=parts, policies={"bank": policy})
    assert policy.setups[0].separate is separate
