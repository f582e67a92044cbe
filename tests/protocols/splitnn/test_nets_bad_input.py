"""What cannot be trained is refused by name; a training that leaves the numbers stops at once and says where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from splitnets import Net, blobs
from torch import nn

from labelward.errors import DataError, JobError, PeerError, PolicyError
from labelward.messages.base import Array
from labelward.messages.splitnn import BatchEmbeddings, BatchGradients, EmbeddingRequest, NetReady
from labelward.party.outgoing import OutgoingEmbedding, ReturnedGradient
from labelward.party.policy import Policy, VisibleRows
from labelward.protocols.splitnn.held import Held, Labels
from labelward.protocols.splitnn.params import SplitNet


def small(**params: Any) -> Net:
    parts, y = blobs(0, 40, {"bank": 3, "telco": 2})
    return Net(parts=parts, labels=y, params=SplitNet(**{"epochs": 2, "batch_size": 8, **params}))


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({"top": 1}, "top"),
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 1}, "batch_size"),
        ({"batch_size": 2.0}, "batch_size"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"momentum": 1.5}, "momentum"),
        ({"optimizer": "lbfgs"}, "optimizer"),
        ({"optimizer": "adam", "momentum": 0.5}, "momentum"),
        ({"schedule": "step", "step_factor": 0.0}, "step_factor"),
        ({"step_epochs": 3}, "step_epochs"),
        ({"bottom": "resnet-21"}, "did you mean 'resnet-2"),
        ({"top_model": "mlp"}, "top_model"),
        ({"top": False, "top_model": "linear"}, "top_model"),
        ({"top": False, "embedding": 4}, "embedding"),
        ({"embedding": 0}, "embedding"),
        ({"loss": "hinge"}, "loss"),
        ({"class_weights": (1.0, 2.0)}, "class_weights"),
        ({"loss": "weighted", "class_weights": (1.0, -2.0)}, "class_weights"),
        ({"dtype": "float16"}, "dtype"),
        ({"wire_dtype": "int8"}, "wire_dtype"),
        ({"patience": -1}, "patience"),
        ({"device": "tpu"}, "device"),
        ({"device": "cuda:x"}, "device"),
    ],
    ids=str,
)
def test_parameters_are_checked_on_construction(params: dict[str, Any], names: str) -> None:
    with pytest.raises(JobError, match=names):
        SplitNet(**params)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"params": {"batch_size": 41}}, JobError, "batch_size: 41 is more than the 40 training rows"),
        ({"params": {"patience": 2}}, JobError, "patience: needs validation rows"),
        ({"params": {"loss": "mse"}}, JobError, "loss: 'mse' does not fit labels that are classes"),
        ({"params": {"loss": "nll"}, "classes": ()}, JobError, "loss: 'nll' does not fit labels that are quantities"),
        ({"params": {"loss": "weighted", "class_weights": (1.0,)}}, JobError, "1 weights for 2 classes"),
        ({"params": {"loss": "weighted"}, "classes": ("a", "b", "c")}, DataError, "no training row has the class 'c'"),
        ({"labels": np.zeros(40, np.int64)}, DataError, "one class only"),
        ({"params": {"bottom": "resnet-20"}}, JobError, "'resnet-20' takes rows of channels x height x width, not of"),
        ({"params": {"bottom": "module"}}, JobError, "bottom: 'module' needs a torch.nn.Module"),
        ({"params": {"top_model": "module"}}, JobError, "top_model: 'module' needs a torch.nn.Module"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    net = small(**changes.pop("params", {}))
    with pytest.raises(error, match=words):
        net.run(**changes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_where_there_is_none() -> None:
    with pytest.raises(JobError, match="device: 'cuda' is not there: torch finds 0 CUDA devices"):
        small(device="cuda").run()


class Odd(nn.Module):
    """Gives what no bottom model may give."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).sum()


@pytest.mark.parametrize(
    ("telco", "top", "words"),
    [
        (nn.Linear(3, 4), nn.Linear(8, 2), r"party 'telco' does not take rows of shape \(2,\)"),
        (nn.Linear(2, 4), nn.Linear(9, 2), r"does not take the 8 numbers a row \(4 \+ 4\)"),
        (nn.Linear(2, 4), nn.Linear(8, 3), r"the module gives \[3\] a row; 2 outputs are needed"),
        (nn.Flatten(), nn.Linear(8, 2), "the module Flatten of party 'telco' has no weights to train"),
        (nn.Linear(2, 4), nn.Flatten(), "the module Flatten has no weights to train"),
        (None, nn.Linear(8, 2), "bottom: 'module' needs a torch.nn.Module to be handed in, and there is none of party"),
        (3, nn.Linear(8, 2), "bottom: needs a torch.nn.Module, and 3 of party 'telco' is none"),
        (Odd(), nn.Linear(8, 2), r"must give \[rows, numbers\] but gave \[\]"),
    ],
    ids=["input", "joined", "output", "no weights", "no weights on top", "nothing", "no module", "no rows"],
)
def test_modules_that_do_not_fit_each_other(telco: Any, top: nn.Module, words: str) -> None:
    net = small(bottom="module", top_model="module")
    net.bottoms, net.top = {"bank": nn.Linear(3, 4), "telco": telco}, top
    with pytest.raises(JobError, match=words):
        net.run()


def test_without_a_top_model_each_bottom_gives_all_outputs() -> None:
    net = small(bottom="module", top=False)
    net.bottoms = {"bank": nn.Linear(3, 2), "telco": nn.Linear(2, 3)}
    with pytest.raises(JobError, match="'telco' gives 3 numbers a row; 2 are needed"):
        net.run()


class Bomb(nn.Module):
    """A linear layer that gives infinity from a certain batch on."""

    def __init__(self, inputs: int, at: int) -> None:
        super().__init__()
        self.inner, self.at, self.seen = nn.Linear(inputs, 2), at, -1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += self.training
        return self.inner(x) + (float("inf") if self.seen == self.at else 0.0)


@pytest.mark.parametrize("party", ["bank", "telco"])
def test_numbers_that_are_none_stop_training_at_once(party: str) -> None:
    """Party, epoch and batch are named; batches are counted from 1."""
    net = small(bottom="module", top=False)
    net.bottoms = {"bank": nn.Linear(3, 2), "telco": nn.Linear(2, 2)}
    net.bottoms[party] = Bomb(3 if party == "bank" else 2, at=7)  # type: ignore[index]
    with pytest.raises(JobError, match=f"party '{party}': an embedding .* not finite in epoch 2, batch 3: training"):
        net.run()


def test_a_rate_that_is_too_large_is_told() -> None:
    parts, y = blobs(0, 40, {"bank": 3, "telco": 2})
    params = SplitNet(epochs=30, batch_size=8, top=False, bottom="linear", learning_rate=1e12, loss="mse")
    with pytest.raises(JobError, match=r"not finite in epoch \d+, batch \d+: .* learning_rate 1e\+12"):
        Net(parts=parts, labels=y * 1.5, classes=(), params=params).run()


@pytest.mark.parametrize(
    ("kind", "field", "value", "words"),
    [
        (BatchEmbeddings, "values", Array.pack(np.zeros((7, 10), np.float32)), r"float32 \[8, 10\] was agreed on"),
        (BatchEmbeddings, "values", Array.pack(np.zeros((8, 10))), r"sent float64 \[8, 10\]"),
        (BatchGradients, "values", Array.pack(np.zeros((8, 11), np.float32)), r"float32 \[8, 10\] was agreed on"),
        (BatchGradients, "values", Array("float32", (8, 10), b"abc"), "has 3 bytes"),
        (NetReady, "outputs", 3, "embeds in 3 numbers a row; 10 are needed"),
        (EmbeddingRequest, "stop", 99, "asks for rows 0 to 99 of 40"),
        (EmbeddingRequest, "model", "other", "predicts with model 'other'"),
    ],
)
def test_a_peer_that_says_what_cannot_be_is_named(kind: Any, field: str, value: Any, words: str) -> None:
    def change(party: str, message: Any) -> Any:
        return msgspec.structs.replace(message, **{field: value}) if isinstance(message, kind) else message

    with pytest.raises(PeerError, match=words):
        small().run(change=change)


def test_half_precision_that_overflows_is_refused() -> None:
    net = small(wire_dtype="float16", bottom="module", top=False)
    net.bottoms = {"bank": nn.Linear(3, 2), "telco": nn.Linear(2, 2)}
    net.parts = {party: x * 1e7 for party, x in net.parts.items()}
    with pytest.raises(JobError, match=r"wire_dtype: .* is beyond the range of 'float16'"):
        net.run()


def test_missing_values_where_a_model_takes_none() -> None:
    net = small(bottom="module", top_model="linear")
    net.bottoms = {"bank": nn.Linear(3, 4), "telco": nn.Linear(2, 4)}
    parts = dict(net.parts)
    parts["telco"] = np.where(np.arange(40)[:, None] == 5, np.nan, parts["telco"])
    with pytest.raises(DataError, match="party 'telco': bottom model 'module' takes no missing values"):
        net.run(parts=parts)


class Wrong(Policy):
    """Answers with what cannot leave."""

    kind = "wrong"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def on_returned_gradient(self, returned: ReturnedGradient) -> Any:
        return self.answer(returned.values)


@pytest.mark.parametrize(
    "answer", [lambda v: None, lambda v: v[:-1], lambda v: v.astype(np.float64), lambda v: v * np.nan]
)
def test_a_policy_that_cannot_act_stops_the_run(answer: Any) -> None:
    with pytest.raises(PolicyError, match="defense 'wrong'"):
        small().run(policies={"bank": Wrong(answer)})


def test_rows_and_labels_are_checked() -> None:
    x = np.zeros((4, 2))
    with pytest.raises(DataError, match="rows to predict of shape"):
        Held(train=x, test=np.zeros((4, 3)))
    with pytest.raises(DataError, match="no row is left"):
        Held(train=x, test=x, validation=4)
    with pytest.raises(DataError, match="3 column names"):
        Held(train=x, test=x, names=("a", "b", "c"))
    with pytest.raises(DataError, match="1 numbers of the training rows are not finite"):
        Held(train=np.array([[np.inf, 1.0]]), test=x)
    good = Labels(values=np.array([0.0, 1.0]), weights=np.ones(2), classes=("a", "b"))
    for change, words in (
        ({"values": np.array([0.0, 2.0])}, "class numbers from 0 to 1"),
        ({"values": np.array([0.0, np.nan])}, "must be finite"),
        ({"weights": np.array([1.0, -1.0])}, "not negative"),
        ({"weights": np.ones(3)}, "with weights of shape"),
    ):
        with pytest.raises(DataError, match=words):
            replace(good, **change)


class ForEmbeddings(Policy):
    """Acts where the active party sends nothing."""

    kind = "for-embeddings"

    def before_embedding(self, outgoing: OutgoingEmbedding) -> Any:
        return outgoing.values


class ForTrees(Policy):
    """Acts where only trees are grown."""

    kind = "for-trees"

    def after_rows(self, rows: VisibleRows) -> None:
        pass


@pytest.mark.parametrize(
    ("party", "policy"),
    [
        ("bank", ForEmbeddings()),
        ("telco", Wrong(lambda v: v)),
        ("bank", ForTrees()),
    ],
    ids=["active", "passive", "trees"],
)
def test_a_policy_whose_point_is_never_reached_is_refused(party: str, policy: Policy) -> None:
    with pytest.raises(PolicyError, match=f"defense '{policy.kind}' acts at .* which splitnn never reaches"):
        small().run(policies={party: policy})
