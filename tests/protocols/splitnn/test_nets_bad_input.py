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

from blames import blamed, refused_about
from labelward.errors import Code, DataError, HandshakeError, JobError, LabelwardError, PolicyError
from labelward.messages.base import Array
from labelward.messages.splitnn import (
    BatchEmbeddings,
    BatchGradients,
    EmbeddingAnswer,
    EmbeddingRequest,
    NetReady,
    NetStart,
)
from labelward.policy.base import KnownInstanceSpaces, Policy
from labelward.policy.net_points import OutgoingEmbedding, ReturnedGradient
from labelward.protocols.splitnn import passive
from labelward.protocols.splitnn.inputs import NetInputs, NetLabels
from labelward.protocols.splitnn.params import SplitNet
from refusals import refused


def small(telco: int = 2, **params: Any) -> Net:
    parts, y = blobs(0, 40, {"bank": 3, "telco": telco})
    return Net(parts=parts, labels=y, params=SplitNet(**{"epochs": 2, "batch_size": 8, **params}))


@pytest.mark.parametrize(
    ("params", "code", "name"),
    [
        ({"top": 1}, "type", "top"),
        ({"epochs": 0}, "range", "epochs"),
        ({"batch_size": 1}, "range", "batch_size"),
        ({"batch_size": 2.0}, "type", "batch_size"),
        ({"learning_rate": float("nan")}, "range", "learning_rate"),
        ({"learning_rate": 0.0}, "range", "learning_rate"),
        ({"momentum": 1.5}, "range", "momentum"),
        ({"optimizer": "lbfgs"}, "choice", "optimizer"),
        ({"optimizer": "adam", "momentum": 0.5}, "conflict", "momentum"),
        ({"schedule": "step", "step_factor": 0.0}, "range", "step_factor"),
        ({"step_epochs": 3}, "conflict", "step_epochs"),
        ({"bottom": "resnet-21"}, "unknown", "bottom"),
        ({"top_model": "mlp"}, "unknown", "top_model"),
        ({"top": False, "top_model": "linear"}, "conflict", "top_model"),
        ({"top": False, "embedding": 4}, "conflict", "embedding"),
        ({"embedding": 0}, "range", "embedding"),
        ({"loss": "hinge"}, "choice", "loss"),
        ({"class_weights": (1.0, 2.0)}, "conflict", "class_weights"),
        ({"loss": "weighted", "class_weights": (1.0, -2.0)}, "range", "class_weights"),
        ({"dtype": "float16"}, "choice", "dtype"),
        ({"wire_dtype": "int8"}, "choice", "wire_dtype"),
        ({"patience": -1}, "range", "patience"),
        ({"device": "tpu"}, "choice", "device"),
        ({"device": "cuda:x"}, "choice", "device"),
    ],
    ids=str,
)
def test_parameters_are_checked_on_construction(params: dict[str, Any], code: Code, name: str) -> None:
    with refused(JobError, code, field=f"[model] {name}") as caught:
        SplitNet(**params)
    if code == "unknown" and name == "bottom":
        assert "did you mean 'resnet-2" in caught.value.reason


@pytest.mark.parametrize(
    ("changes", "error", "code", "field", "value"),
    [
        ({"params": {"batch_size": 41}}, JobError, "range", "[model] batch_size", 41),
        ({"params": {"patience": 2}}, JobError, "conflict", "[model] patience", 2),
        ({"params": {"loss": "mse"}}, JobError, "unsupported", "[model] loss", "mse"),
        ({"params": {"loss": "nll"}, "classes": ()}, JobError, "unsupported", "[model] loss", "nll"),
        (
            {"params": {"loss": "weighted", "class_weights": (1.0,)}},
            JobError,
            "conflict",
            "[model] class_weights",
            1,
        ),
        ({"params": {"loss": "weighted"}, "classes": ("a", "b", "c")}, DataError, "labels", "", "c"),
        ({"labels": np.zeros(40, np.int64)}, DataError, "labels", "", None),
        ({"params": {"telco": 3, "bottom": "resnet-20"}}, JobError, "unsupported", "[model]", (3,)),
        ({"params": {"bottom": "module"}}, JobError, "missing", "[model] bottom", None),
        ({"params": {"top_model": "module"}}, JobError, "missing", "[model] top_model", None),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(
    changes: dict[str, Any], error: type[LabelwardError], code: Code, field: str, value: object
) -> None:
    net = small(**changes.pop("params", {}))
    with refused(error, code, field=field, value=value):
        net.run(**changes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_where_there_is_none() -> None:
    with refused_about("0 CUDA devices", JobError, "unsupported", field="[model] device", value="cuda"):
        small(device="cuda").run()


UNTRAINED = nn.Flatten()


class Odd(nn.Module):
    """Gives what no bottom model may give."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).sum()


@pytest.mark.parametrize(
    ("telco", "top", "part", "code", "value", "about"),
    [
        (nn.Linear(3, 4), nn.Linear(8, 2), "bottom", "unsupported", (2,), "'telco'"),
        (nn.Linear(2, 4), nn.Linear(9, 2), "top_model", "unsupported", 8, "(4 + 4)"),
        (nn.Linear(2, 4), nn.Linear(8, 3), "top_model", "unsupported", [3], "2 outputs"),
        (UNTRAINED, nn.Linear(8, 2), "bottom", "unsupported", UNTRAINED, "of party 'telco'"),
        (nn.Linear(2, 4), UNTRAINED, "top_model", "unsupported", UNTRAINED, "Flatten"),
        (None, nn.Linear(8, 2), "bottom", "missing", None, "of party"),
        (3, nn.Linear(8, 2), "bottom", "type", 3, "of party 'telco'"),
        (Odd(), nn.Linear(8, 2), "bottom", "unsupported", [], "[rows, numbers]"),
    ],
    ids=["input", "joined", "output", "no weights", "no weights on top", "nothing", "no module", "no rows"],
)
def test_modules_that_do_not_fit_each_other(
    telco: Any, top: nn.Module, part: str, code: Code, value: object, about: str
) -> None:
    net = small(bottom="module", top_model="module")
    net.bottoms, net.top = {"bank": nn.Linear(3, 4), "telco": telco}, top
    with refused_about(about, JobError, code, field=f"[model] {part}", value=value):
        net.run()


def test_without_a_top_model_each_bottom_gives_all_outputs() -> None:
    net = small(bottom="module", top=False)
    net.bottoms = {"bank": nn.Linear(3, 2), "telco": nn.Linear(2, 3)}
    with refused_about("'telco'", JobError, "unsupported", field="[model] bottom", value=3):
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
    with refused_about("epoch 2, batch 3:", JobError, "diverged", field=f"party {party!r}"):
        net.run()


class Huge(Policy):
    """Asks for one row by an embedding whose loss is infinite for one of two classes, in single precision."""

    kind = "huge"

    def __init__(self, purpose: str, row: int, size: float) -> None:
        self.purpose, self.row, self.size = purpose, row, size

    def before_embedding(self, outgoing: OutgoingEmbedding) -> Any:
        values = np.zeros_like(outgoing.values)
        if (outgoing.purpose, outgoing.piece) == (self.purpose, 0):
            values[self.row] = (self.size, -self.size)
        return values


@pytest.mark.parametrize("size", [1e19, -1e19])
def test_large_weights_tell_no_label_of_a_validation_row(size: float) -> None:
    """As made-up embeddings of training rows grow them: the loss was infinite for the one class alone."""
    top, ends = nn.Linear(4, 2, bias=False), set[str]()
    with torch.no_grad():
        top.weight.copy_(torch.tensor([[0.0, 0.0, 3e19, 0.0], [0.0, 0.0, -3e19, 0.0]]))
    made = small(bottom="linear", top_model="module", embedding=2, epochs=1, learning_rate=1e-30)
    net = replace(made, validation=10, top=top)
    for row in range(10):
        with pytest.raises(JobError) as caught:
            net.run(policies={"telco": Huge("validation", row, size)})
        ends.add(caught.value.reason)
    assert len(ends) == 1


@pytest.mark.parametrize("purpose", ["training", "validation"])
@pytest.mark.parametrize("size", [3e38, 9e19])
def test_whether_a_training_ends_tells_no_label(purpose: str, size: float) -> None:
    """Up to now it went on where the row was of the one class, and ended at all parties where it was of the other."""
    net, ends = replace(small(top=False, epochs=1), validation=10), set[str]()
    for row in range(6):
        try:
            net.run(policies={"telco": Huge(purpose, row, size)})
        except JobError as error:
            ends.add(f"{error.code}, {error.field}")
        else:
            ends.add("went on")
    assert ends == ({"diverged, party 'telco'"} if size > 1e20 else {"went on"})


def test_a_rate_that_is_too_large_is_told() -> None:
    parts, y = blobs(0, 40, {"bank": 3, "telco": 2})
    params = SplitNet(epochs=30, batch_size=8, top=False, bottom="linear", learning_rate=1e12, loss="mse")
    with refused_about("batch", JobError, "diverged", value=1e12):
        Net(parts=parts, labels=y * 1.5, classes=(), params=params).run()


def of(shape: tuple[int, ...]) -> Array:
    return Array.pack(np.zeros(shape, np.float32))


def none(*shape: int) -> Array:
    """Numbers of the agreed shape, one of which is none."""
    values = np.zeros(shape, np.float32)
    values.flat[-1] = np.nan
    return Array.pack(values)


@pytest.mark.parametrize(
    ("kind", "field", "value", "party", "code", "step", "about"),
    [
        (BatchEmbeddings, "values", of((7, 10)), "telco", "peer-message", (0, 0), "sent float32 [7, 10]"),
        (BatchEmbeddings, "values", Array.pack(np.zeros((8, 10))), "telco", "peer-message", (0, 0), "float64"),
        (BatchGradients, "values", of((8, 11)), "bank", "peer-message", (0, 0), "sent float32 [8, 11]"),
        (BatchGradients, "values", Array("float32", (8, 10), b"abc"), "bank", "malformed", (0, 0), "3 bytes"),
        (BatchEmbeddings, "values", none(8, 10), "telco", "values", (0, 0), "finite"),
        (BatchGradients, "values", none(8, 10), "bank", "values", (0, 0), "finite"),
        (EmbeddingAnswer, "values", none(40, 10), "telco", "values", (0,), "finite"),
        (NetStart, "outputs", -5, "bank", "peer-message", None, "-5"),
        (NetStart, "outputs", 50_000_000, "bank", "peer-message", None, "50000000"),
        (NetReady, "outputs", 3, "telco", "peer-message", None, "10 are needed"),
        (EmbeddingRequest, "stop", 99, "bank", "peer-message", (0,), "0 to 99"),
        (EmbeddingRequest, "start", 1, "bank", "peer-message", (0,), "after row 0"),
        (EmbeddingRequest, "model", "other", "bank", "peer-message", (0,), "model 'other'"),
    ],
)
def test_a_peer_that_says_what_cannot_be_is_named(
    kind: Any, field: str, value: Any, party: str, code: Code, step: tuple[int, ...] | None, about: str
) -> None:
    def change(party: str, message: Any) -> Any:
        return msgspec.structs.replace(message, **{field: value}) if isinstance(message, kind) else message

    message = "embeddings" if kind is BatchEmbeddings else kind.__name__  # of a batch, or of rows to predict
    with blamed(party, code, message=message, step=step, about=about):
        small().run(change=change)


@pytest.mark.parametrize("size", [-5, 0, 50_000_000])
def test_a_size_that_no_memory_holds_is_refused_before_it_is_used(size: int) -> None:
    """Of a module handed in by the peer, whose size nobody else knows."""
    net = small(bottom="module")
    net.bottoms = {"bank": nn.Linear(3, 4), "telco": nn.Linear(2, 4)}
    net.change = lambda party, message: NetReady(size) if isinstance(message, NetReady) else message
    with blamed("telco", "peer-message", message="NetReady", value=size):
        net.run()


def test_parties_that_draw_different_orders_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and labels would no longer belong together, and nothing else would tell."""
    order = passive.epoch_order
    monkeypatch.setattr(passive, "epoch_order", lambda seed, epoch, rows: order(seed, epoch, rows)[::-1].copy())
    with refused(HandshakeError, "disagreement", field="order of batches", value=0):
        small().run()


def test_half_precision_that_overflows_is_refused() -> None:
    net = small(wire_dtype="float16", bottom="module", top=False)
    net.bottoms = {"bank": nn.Linear(3, 2), "telco": nn.Linear(2, 2)}
    net.parts = {party: x * 1e7 for party, x in net.parts.items()}
    with refused(JobError, "range", field="[model] wire_dtype"):
        net.run()


def test_missing_values_where_a_model_takes_none() -> None:
    net = small(bottom="module", top_model="linear")
    net.bottoms = {"bank": nn.Linear(3, 4), "telco": nn.Linear(2, 4)}
    parts = dict(net.parts)
    parts["telco"] = np.where(np.arange(40)[:, None] == 5, np.nan, parts["telco"])
    with refused(DataError, "values", field="party 'telco'", value="module"):
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
    with refused(PolicyError, "cannot-act", value="wrong"):
        small().run(policies={"bank": Wrong(answer)})


def test_rows_and_labels_are_checked() -> None:
    x = np.zeros((4, 2))
    with refused(DataError, "columns", value=(3,)):
        NetInputs(train=x, test=np.zeros((4, 3)))
    with refused(DataError, "rows", value=4):
        NetInputs(train=x, test=x, validation=4)
    with refused(DataError, "columns", value=3):
        NetInputs(train=x, test=x, names=("a", "b", "c"))
    with refused_about("training", DataError, "values", value=1):
        NetInputs(train=np.array([[np.inf, 1.0]]), test=x)
    good = NetLabels(values=np.array([0.0, 1.0]), weights=np.ones(2), classes=("a", "b"))
    for change, about in (
        ({"values": np.array([0.0, 2.0])}, "from 0 to 1"),
        ({"values": np.array([0.0, np.nan])}, "finite"),
        ({"weights": np.array([1.0, -1.0])}, "not negative"),
        ({"weights": np.ones(3)}, "weights of shape"),
    ):
        with refused_about(about, DataError, "labels"):
            replace(good, **change)


class ForEmbeddings(Policy):
    """Acts where the active party sends nothing."""

    kind = "for-embeddings"

    def before_embedding(self, outgoing: OutgoingEmbedding) -> Any:
        return outgoing.values


class ForTrees(Policy):
    """Acts where only trees are grown."""

    kind = "for-trees"

    def after_rows(self, rows: KnownInstanceSpaces) -> None:
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
    with refused_about(repr(policy.kind), PolicyError, "inapplicable"):
        small().run(policies={party: policy})
