"""Centralized training of the same network on one table, as a reference for federated training without defenses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from labelward.party.in_process import standalone_context
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.active import TrainingSetup, combine_outputs, train_active_net
from labelward.protocols.splitnn.bottom_model import BottomModel, device_of, embed_batches, make_bottom, start_key
from labelward.protocols.splitnn.inputs import NetInputs, NetLabels
from labelward.protocols.splitnn.losses import objective_of
from labelward.protocols.splitnn.models.presets import ModelSpec
from labelward.protocols.splitnn.params import MODULE, SplitNet
from labelward.protocols.splitnn.session import make_top
from labelward.protocols.splitnn.tensors import as_array, as_tensor
from labelward.rng import PrivateSeed

Floats = NDArray[np.float64]


def train_centralized(
    params: SplitNet,
    parts: Mapping[str, NetInputs],
    labels: NetLabels,
    *,
    seed: int,
    private: Mapping[str, PrivateSeed],
) -> Floats:
    """Train the parties' bottom models and the top model as one, and return its outputs for the test rows.

    Draws are those of the federated training, so that it is the same model but for rounding (and for what
    ``wire_dtype`` rounds).

    Args:
        parts: tables of columns by party, the active one first; one of them at least has a column.
        labels: of the training rows, then of the validation rows.
        seed: of the learning draws.
        private: by party, the seed of its initial weights.

    Returns:
        float64 [test rows, outputs].

    Raises:
        DataError: the labels do not fit the loss.
        JobError: the parameters do not fit rows, labels or machine; the training left the numbers.
    """
    active = next(iter(parts))
    first = parts[active]
    objective = objective_of(params, labels, first.rows)
    outputs = params.bottom_outputs(objective.outputs)
    inputs = {party: each for party, each in parts.items() if 0 not in each.shape}
    if not params.active_bottom:
        inputs.pop(active, None)
    bottoms = [
        make_bottom(party, each, params, outputs, start=start_key(private[party], seed, party, "bottom"))
        for party, each in inputs.items()
    ]
    module = _Parallel(
        [each.module for each in bottoms], [each.shape[0] for each in inputs.values()], added=not params.top
    )
    whole = NetInputs(
        train=np.concatenate([each.train for each in inputs.values()], axis=1),
        test=np.concatenate([each.test for each in inputs.values()], axis=1),
        validation=first.validation,
    )
    spec = ModelSpec(preset=MODULE, inputs=whole.shape, outputs=objective.outputs)
    bottom = BottomModel(module, spec, whole, params)
    ctx = standalone_context(active, seed=seed, rows=first.rows, private=private[active])
    top = make_top(ctx, params, first, objective, [each.outputs for each in bottoms])
    fit = TrainingSetup(model="", objective=objective, labels=labels, rows=first.rows, sizes={})
    train_active_net(ctx, params, fit, bottom, top)
    rows = as_tensor(whole.test, params, device_of(params))
    embeddings = list(embed_batches(module, rows, params))
    if not embeddings:
        return np.empty((0, objective.outputs))
    with torch.no_grad():
        return as_array(combine_outputs([torch.cat(embeddings)], top.module if top else None)).astype(np.float64)


class _Parallel(nn.Module):
    """Parallel bottom models, each over its own columns; their outputs are concatenated or summed."""

    def __init__(self, parts: Sequence[nn.Module], widths: Sequence[int], *, added: bool) -> None:
        super().__init__()
        self.parts, self.widths, self.added = nn.ModuleList(parts), list(widths), added

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [rows, all outputs], or [rows, outputs]."""
        pieces = torch.split(x, self.widths, 1)
        found = [part(piece) for part, piece in zip(self.parts, pieces, strict=True)]
        return combine_outputs(found, None) if self.added else torch.cat(found, 1)
