"""Split training is the joined network's training: the same gradients, and in the end the same weights, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from splitnets import Net, Run, blobs
from torch import nn

from labelward.messages.splitnn import BatchGradients, EpochOrder
from labelward.protocols.splitnn.params import SplitNet

TOLERANCE = 1e-12
"""Both add up the same float64 numbers, some in another order: a few units of 2^-52, times the steps."""

UNDER_ADAM = 1e-9
"""Adam divides by the gradient's own size plus 1e-8: where a gradient is 0 but for rounding (a bias before a batch
normalization), the rounding, some 1e-17, is made 1e-9 times a step."""

WIDTHS = {"bank": 4, "telco": 3, "shop": 5}


def bottoms(parties: tuple[str, ...], outputs: int) -> dict[str, nn.Module]:
    made = {}
    for number, party in enumerate(parties):
        torch.manual_seed(number)
        first, last = nn.Linear(WIDTHS[party], 6), nn.Linear(6, outputs)
        made[party] = nn.Sequential(first, nn.BatchNorm1d(6), nn.Tanh(), last).double()
    return made


def top_model(inputs: int, outputs: int) -> nn.Module:
    torch.manual_seed(99)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs)).double()


class Joined(nn.Module):
    """The whole network in one place."""

    def __init__(self, parts: dict[str, nn.Module], top: nn.Module | None) -> None:
        super().__init__()
        self.parts, self.top = nn.ModuleDict(parts), top

    def forward(self, xs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        embeddings = {party: module(xs[party]) for party, module in self.parts.items()}
        for each in embeddings.values():
            each.retain_grad()
        if self.top is None:
            return sum(embeddings.values(), torch.zeros(())), embeddings
        return self.top(torch.cat(list(embeddings.values()), 1)), embeddings


def loss_of(net: Net, out: torch.Tensor, rows: NDArray[Any]) -> torch.Tensor:
    """Return the loss as torch itself has it."""
    y, w = torch.from_numpy(net.labels[rows]), torch.ones(len(rows)).double()
    if net.weights is not None:
        w = torch.from_numpy(net.weights[rows])
    if not net.classes:
        return (w * (out[:, 0] - y).square()).sum() / w.sum()
    if net.params.loss == "weighted" and not net.weights:
        train = np.bincount(net.labels, minlength=len(net.classes))
        each = len(net.labels) / (len(net.classes) * train)
        return nn.functional.cross_entropy(out, y, weight=torch.from_numpy(each))
    return (w * nn.functional.cross_entropy(out, y, reduction="none")).sum() / w.sum()


def train_joined(net: Net, run: Run) -> tuple[Joined, list[dict[str, NDArray[Any]]]]:
    """Train on the batches that the run took; return the model and each batch's gradients of the embeddings."""
    from copy import deepcopy

    model = Joined(deepcopy(dict(net.bottoms)), deepcopy(net.top))
    params = net.params
    if params.optimizer == "adam":
        optimizer: Any = torch.optim.Adam(model.parameters(), lr=params.learning_rate)
    else:
        optimizer = torch.optim.SGD(
            model.parameters(), lr=params.learning_rate, momentum=params.momentum, weight_decay=params.weight_decay
        )
    xs = {party: torch.from_numpy(x) for party, x in net.parts.items()}
    found = []
    for epoch, order in enumerate(each.rows.unpack() for each in run.views["telco"].observed(EpochOrder)):
        for group in optimizer.param_groups:
            group["lr"] = params.learning_rate * (0.5**epoch if params.schedule == "step" else 1)
        for start in range(0, net.rows, params.batch_size):
            rows = np.asarray(order[start : start + params.batch_size], dtype=np.int64)
            out, embeddings = model({party: xs[party][rows] for party in net.bottoms})
            optimizer.zero_grad()
            loss_of(net, out, rows).backward()
            optimizer.step()
            found.append({party: each.grad.numpy().copy() for party, each in embeddings.items()})  # type: ignore[union-attr]
    return model, found


def same_training(net: Net) -> None:
    run = net.run()
    model, gradients = train_joined(net, run)
    close = UNDER_ADAM if net.params.optimizer == "adam" else TOLERANCE
    for party in run.passive:
        received = [each.message.values.value.unpack() for each in run.views[party].received(BatchGradients)]
        assert len(received) == len(gradients)
        for ours, theirs in zip(received, gradients, strict=True):
            np.testing.assert_allclose(ours, theirs[party], rtol=0, atol=close)
    for party, module in model.parts.items():
        for name, weight in module.state_dict().items():
            np.testing.assert_allclose(run.state(party)[name], weight.numpy(), rtol=0, atol=close)
    if model.top is not None:
        for name, weight in model.top.state_dict().items():
            np.testing.assert_allclose(run.state(net.active, "top")[name], weight.numpy(), rtol=0, atol=close)
    model.eval()
    with torch.no_grad():
        out, _ = model_outputs(model, net)
    np.testing.assert_allclose(run.active.outputs, out, rtol=0, atol=10 * close)


def model_outputs(model: Joined, net: Net) -> tuple[NDArray[Any], None]:
    parts = [module(torch.from_numpy(net.parts[party])) for party, module in model.parts.items()]
    out = sum(parts, torch.zeros(())) if model.top is None else model.top(torch.cat(parts, 1))
    return out.numpy(), None


def make(parties: tuple[str, ...], *, top: bool, blind: bool = False, quantities: bool = False, **params: Any) -> Net:
    """Return a run of these parties; ``blind``: the active party has no column."""
    outputs = 1 if quantities else 3
    parts, y = blobs(3, 90, {party: WIDTHS[party] for party in parties}, 3)
    holding = parties[1:] if blind else parties
    made = bottoms(holding, 5 if top else outputs)
    if blind:
        parts[parties[0]] = np.zeros((90, 0))
    labels: NDArray[Any] = y
    if quantities:
        labels = parts["telco"].sum(axis=1) + 0.1 * y
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 16, "dtype": "float64", "standardize": False, "top": top}
    settings |= {"bottom": "module", **({"top_model": "module"} if top else {}), **params}
    return Net(
        parts=parts,
        labels=labels,
        classes=() if quantities else ("a", "b", "c"),
        params=SplitNet(**settings),
        bottoms=made,
        top=top_model(5 * len(holding), outputs) if top else None,
    )


@pytest.mark.parametrize("top", [True, False])
@pytest.mark.parametrize("parties", [("bank", "telco"), ("bank", "telco", "shop")])
@pytest.mark.parametrize("blind", [True, False])
def test_gradients_and_weights_are_the_joined_networks(parties: tuple[str, ...], top: bool, blind: bool) -> None:
    same_training(make(parties, top=top, blind=blind))


@pytest.mark.parametrize(
    "params",
    [
        {"optimizer": "adam", "learning_rate": 0.01},
        {"weight_decay": 0.01, "momentum": 0.5},
        {"schedule": "step", "step_epochs": 1, "step_factor": 0.5},
        {"loss": "weighted"},
        {"loss": "nll"},
        {"quantities": True, "learning_rate": 0.01},
    ],
    ids=str,
)
@pytest.mark.parametrize("top", [True, False])
def test_the_same_with_other_optimizers_and_losses(params: dict[str, Any], top: bool) -> None:
    same_training(make(("bank", "telco"), top=top, **params))


def test_the_same_with_row_weights() -> None:
    net = make(("bank", "telco"), top=True)
    net.weights = np.random.default_rng(0).uniform(0.5, 2.0, 90)
    same_training(net)


def test_modules_of_different_sizes_join() -> None:
    """With a top model of one's own the bottoms may embed in as many numbers as they like."""
    net = make(("bank", "telco"), top=True)
    net.bottoms = {"bank": bottoms(("bank",), 5)["bank"], "telco": nn.Linear(3, 2).double()}
    net.top = top_model(7, 3)
    same_training(net)


def test_models_handed_in_are_not_changed() -> None:
    net = make(("bank", "telco"), top=True)
    assert net.top is not None
    before = {name: weight.clone() for name, weight in net.top.state_dict().items()}
    net.run()
    assert all(bool((weight == before[name]).all()) for name, weight in net.top.state_dict().items())


def test_last_batch_of_one_row_joins_the_one_before() -> None:
    """Batch normalization cannot learn from a single row; 33 rows in batches of 16 are 16 and 17."""
    parts, y = blobs(0, 33, {"bank": 2, "telco": 2})
    run = Net(parts=parts, labels=y, params=SplitNet(epochs=1, batch_size=16, bottom="fcnn-3")).run()
    sizes = [each.message.values.value.shape[0] for each in run.views["telco"].received(BatchGradients)]
    assert sizes == [16, 17]
