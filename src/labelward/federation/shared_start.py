"""Initial weights of split networks as version 0.1.0 drew them: from the seed that all parties share.

Attacks compare them with what was received. Weights are drawn by torch's generator, in the order of that version.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import SharedStart
from labelward.party.view import View
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.bottom_model import torch_generator
from labelward.protocols.splitnn.models.presets import ModelSpec, build
from labelward.protocols.splitnn.params import SplitNet

_TABLES = ("linear", "mlp", "fcnn-3")


def shared_start(view: View) -> SharedStart:
    """Return what the shared seed of a view's run would have given; see :class:`SharedStart`."""
    stored = {each.name: view.parameter(f"model.{each.name}", each.default) for each in fields(SplitNet)}
    params = SplitNet(**stored | {"class_weights": tuple(stored["class_weights"])})
    return SharedStart(
        tops=partial(_tops, params, view),
        bottom=partial(_bottom, params, view) if params.bottom in _TABLES else None,
    )


def _tops(params: SplitNet, view: View, classes: int) -> list[NDArray[np.float64]]:
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
    return build(spec, torch_generator(_seed(view), party, "bottom"), getattr(torch, params.dtype)).eval()


def _seed(view: View) -> int:
    return int(view.parameter("run.seed", 0))
