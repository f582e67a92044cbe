"""What attackers on split networks know besides their view: initial weights, and gradients that they returned.

Version 0.1.0 drew initial weights from the seed that all parties share, by torch's generator. They are drawn here in
the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, SharedStart
from labelward.messages.splitnn import BatchEmbeddings
from labelward.party.view import View
from labelward.protocols.common.row_batches import batches, epoch_order
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.active import combine_outputs
from labelward.protocols.splitnn.bottom_model import (
    BottomModel,
    TrainableModule,
    device_of,
    torch_generator,
)
from labelward.protocols.splitnn.inputs import NetInputs
from labelward.protocols.splitnn.models.presets import ModelSpec, build
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.share import NetShare
from labelward.protocols.splitnn.tensors import as_array, as_tensor

Floats = NDArray[np.float64]

_BY_ROW = ("linear", "mlp")
"""Bottom models over table columns whose embedding of a row depends on that row only."""


def shared_start(view: View) -> SharedStart:
    """Return what the shared seed of a view's run would have given."""
    stored = {each.name: view.parameter(f"model.{each.name}", each.default) for each in fields(SplitNet)}
    params = SplitNet(**stored | {"class_weights": tuple(stored["class_weights"])})
    by_row = params.bottom in _BY_ROW and not params.bottoms
    return SharedStart(
        tops=partial(_tops, params, view),
        bottom=partial(_bottom, params, view) if by_row else None,
    )


def replayed_gradients(share: NetShare, view: View, own: AttackerData) -> Iterator[Mapping[str, Floats]]:
    """Yield the gradients that the active party returned in the first epoch, batch by batch, by peer.

    It computes them again from its share, its columns and labels and the embeddings that it received. They are those
    that left only if no defense changed them.

    Args:
        share: the active party's, of preset models.
        view: its view.
        own: with its labels.
    """
    assert share.objective is not None
    assert own.labels is not None
    params, objective, rows = share.settings, share.objective, view.rows
    device, dtype = device_of(params), getattr(torch, params.dtype)
    weights = objective.weights(own.labels, np.ones(rows) if own.weights is None else own.weights, dtype, device)
    targets = objective.targets(own.labels, dtype, device)
    bottom = top = None
    if share.bottom is not None:
        module = share.bottom.untrained(params, torch_generator(_seed(view), view.party, "bottom"))
        inputs = NetInputs(train=own.features, test=own.features[:0])
        bottom = BottomModel(module, share.bottom.spec, inputs, params)
        bottom.begin(0)
    if share.top is not None:
        module = share.top.untrained(params, torch_generator(_seed(view), view.party, "top"))
        top = TrainableModule(module, share.top.spec, params)
        top.begin(0)
    received = {(each.peer, each.step): each.message.values.value for each in view.received(BatchEmbeddings)}
    order = torch.from_numpy(epoch_order(_seed(view), 0, rows)).long()
    for batch, piece in enumerate(batches(rows, params.batch_size)):
        if any((peer, (0, batch)) not in received for peer in share.sizes):
            return
        parts = {} if bottom is None else {view.party: bottom.forward(order[piece].to(device))}
        parts |= {peer: as_tensor(received[peer, (0, batch)].unpack(), params, device) for peer in share.sizes}
        for part in parts.values():
            part.requires_grad_()
        if top is not None:
            top.forget()
        outputs = combine_outputs(list(parts.values()), None if top is None else top.module)
        objective.mean_loss(outputs, targets[order[piece]], weights[order[piece]]).backward()  # type: ignore[no-untyped-call]
        found = {party: torch.zeros_like(part) if part.grad is None else part.grad for party, part in parts.items()}
        yield {peer: as_array(found[peer]).astype(np.float64) for peer in share.sizes}
        if bottom is not None:
            bottom.update(found[view.party])
        if top is not None:
            top.optimizer.step()


def _tops(params: SplitNet, view: View, classes: int) -> list[Floats]:
    """Return the weights of a linear top model: with an active party that has columns, and with one that has none."""
    if not params.top or params.top_model != "linear" or not params.bottom_outputs(classes):
        return []
    active, *others = view.parameter("parties", [*view.header.peers[:1], view.party])
    width, found = params.bottom_outputs(classes), []
    for holders in ([active, *others], others):
        spec = ModelSpec(preset="top linear", inputs=(width * len(holders),), outputs=classes)
        made = build(spec, torch_generator(_seed(view), active, "top"), getattr(torch, params.dtype))
        at = holders.index(view.party) * width
        weights: torch.Tensor = next(made.parameters())
        found.append(weights[:, at : at + width].detach().numpy().astype(np.float64))
    return found


def _bottom(params: SplitNet, view: View, party: str, columns: int, outputs: int) -> nn.Module:
    spec = ModelSpec(preset=params.bottom, inputs=(columns,), outputs=outputs, width=params.width)
    return build(spec, torch_generator(_seed(view), party, "bottom"), getattr(torch, params.dtype))


def _seed(view: View) -> int:
    return int(view.parameter("run.seed", 0))
