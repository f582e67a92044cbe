"""Prediction with shares, in one round per batch of rows.

Setting: each party holds its columns of the rows to be predicted and its share of the model. A passive party learns
which rows are predicted; the active party learns their embeddings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.errors import FileFormatError, JobError
from labelward.messages.splitnn import EmbeddingAnswer, EmbeddingRequest
from labelward.party.context import Context
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.active import combine_outputs, passed_on
from labelward.protocols.splitnn.bottom_model import device_of, embed_batches
from labelward.protocols.splitnn.inputs import Rows
from labelward.protocols.splitnn.passive import answer_requests
from labelward.protocols.splitnn.share import LocalPart, NetShare, StoredModel, decoded
from labelward.protocols.splitnn.tensors import as_array, as_tensor, is_finite, unpack_array

ROWS_OF_ANSWER = 1 << 13
"""Rows of an answer in prediction, at most."""
DESCRIBED = 1 << 12
"""Bytes of a message beside its numbers."""
Floats = NDArray[np.float64]


def predict_active_net(
    ctx: Context, share: NetShare, x: Rows, *, bottom: nn.Module | None = None, top: nn.Module | None = None
) -> Floats:
    """Return the model's outputs: float64 [rows, outputs], which its objective converts.

    Args:
        share: the active party's share.
        x: its rows, in the agreed order; [rows, 0] for a party without columns.
        bottom, top: for models that were handed in: modules of the same shape, which are copied.

    Raises:
        FileFormatError: the share is not an active party's, its weights do not fit, or its outputs are not finite.
        PeerError: a peer failed, or its answers do not fit.
    """
    if share.objective is None:
        raise FileFormatError(
            f"the share of party {share.party!r} is not that of an active party", code="foreign", value=share.party
        )
    params = share.settings
    device = device_of(params)
    own = share.bottom.module(params, bottom).to(device) if share.bottom else None
    over = share.top.module(params, top).to(device) if share.top else None
    between = share.between.module(params).to(device) if isinstance(share.between, StoredModel) else None
    _check_rows(share, x)
    local = share.local if isinstance(share.local, LocalPart) else None
    if local is not None:
        logits = local.logits(params, x, bottom)
    outputs = np.empty((len(x), share.objective.outputs))
    starts = range(0, len(x), ROWS_OF_ANSWER)
    for peer, size in share.sizes.items():
        ctx.expect(peer, 8 * size * min(len(x), ROWS_OF_ANSWER) + DESCRIBED)
    for number, start in enumerate(starts):
        stop = min(start + ROWS_OF_ANSWER, len(x))
        for peer in share.sizes:
            ctx.send(peer, EmbeddingRequest(share.model, start, stop), (number,))
        parts, received = [], []
        if own is not None:
            parts.append(torch.cat(list(embed_batches(own, as_tensor(x[start:stop], params, device), params))))
        for peer, size in share.sizes.items():
            array = ctx.recv(peer, EmbeddingAnswer, (number,)).values.value
            with ctx.blaming(peer, "EmbeddingAnswer", (number,)):
                received.append(unpack_array(array, params, (stop - start, size), device))
        with torch.no_grad():
            parts += passed_on(received, between)
            outputs[start:stop] = as_array(combine_outputs(parts, over))
        if local is not None:
            outputs[start:stop] = local.joined(outputs[start:stop], logits[start:stop])
        if isinstance(share.decoder, tuple):
            outputs[start:stop] = decoded(share.decoder, outputs[start:stop])
        if not is_finite(outputs[start:stop]):
            raise FileFormatError(
                f"the share of party {share.party!r} gives outputs that are not finite",
                code="values",
                value=share.party,
            )
    for peer in share.sizes:
        ctx.send(peer, EmbeddingRequest(share.model, len(x), len(x)), (len(starts),))
    return outputs


def predict_passive_net(ctx: Context, share: NetShare, x: Rows, *, bottom: nn.Module | None = None) -> None:
    """Answer until the active party requests no more rows; arguments and errors as for :func:`predict_active_net`."""
    params = share.settings
    if share.bottom is None:
        raise FileFormatError(
            f"the share of party {share.party!r} has no bottom model", code="foreign", value=share.party
        )
    _check_rows(share, x)
    ctx.expect(ctx.active, DESCRIBED)
    module = share.bottom.module(params, bottom).to(device_of(params))
    answer_requests(ctx, params, share.model, module, x)


def _check_rows(share: NetShare, x: Rows) -> None:
    """Refuse rows whose shape differs from training; columns that nothing reads may have any."""
    model = share.bottom or (share.local.model if isinstance(share.local, LocalPart) else None)
    if model is None and not share.settings.active_bottom:
        return
    trained = model.spec.inputs if model else (0,)
    if x.shape[1:] != trained:
        raise JobError(
            f"rows of shape {x.shape[1:]}; the model was trained on {trained}",
            code="columns",
            field=f"party {share.party!r}",
            value=x.shape[1:],
        )
