"""Embeddings in the active party's view of a split network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.errors import CodecError, DataError, FileFormatError
from labelward.messages.splitnn import BatchEmbeddings, EpochOrder, OwnEmbeddings
from labelward.party.view import View

Batches = Sequence[tuple[NDArray[np.int64], NDArray[Any]]]


def embeddings_of_epoch(view: View, epoch: int) -> Mapping[str, Batches]:
    """Return rows and embeddings of each batch of an epoch, by peer.

    Raises:
        DataError: the view keeps digests of embeddings only.
        FileFormatError: orders and embeddings do not fit each other.
    """
    found: dict[str, list[tuple[int, NDArray[Any]]]] = {}
    try:
        order = next((each.rows.unpack() for each in view.observed(EpochOrder) if each.epoch == epoch), None)
        for received in view.received(BatchEmbeddings):
            when, batch = received.step
            if when == epoch:
                values = received.message.values.value
                if values.sha256:
                    raise DataError(
                        f"the view of party {view.party!r} keeps digests of embeddings only; to read them, record the "
                        "run in full",
                        code="incomplete",
                        value=view.party,
                    )
                found.setdefault(received.peer, []).append((batch, values.unpack()))
        batches: dict[str, Batches] = {}
        for peer, pieces in found.items():
            assert order is not None
            ends = np.cumsum([len(values) for _, values in sorted(pieces, key=lambda one: one[0])])
            parts = np.split(order.astype(np.int64), ends)[:-1]
            batches[peer] = [(rows, pieces[at][1]) for at, rows in enumerate(parts)]
    except (CodecError, ValueError, AssertionError, IndexError) as error:
        reason = f"the view of party {view.party!r} contradicts itself: {error}"
        raise FileFormatError(reason, code="damaged", value=view.party) from error
    return batches


def own_embeddings(view: View, epochs: int) -> NDArray[np.float64] | None:
    """Return what a passive party's model gave for the training rows after so many epochs; None: an empty view.

    Those of a coalition's members stand side by side.

    Raises:
        DataError: the view has no embeddings after that epoch.
    """
    if len(view.members) > 1:
        parts = [own_embeddings(member, epochs) for member in view.members]
        return None if any(part is None for part in parts) else np.hstack([part for part in parts if part is not None])
    found = {each.epoch: each.values for each in view.observed(OwnEmbeddings)}
    if not found and next(view.observed(EpochOrder), None) is None:
        return None
    if epochs - 1 not in found:
        reason = f"has the party's embeddings after {len(found)} epochs" if found else "has no embeddings of epochs"
        raise DataError(
            f"the view of party {view.party!r} {reason}; record the run with [run] record = 'epochs'",
            code="range" if found else "incomplete",
            field="[[attack]] epoch",
            value=epochs,
        )
    values = found[epochs - 1].unpack().astype(np.float64)
    if values.ndim != 2 or len(values) != view.rows:
        reason = f"embeddings of shape {values.shape} for {view.rows} rows"
        raise FileFormatError(
            f"the view of party {view.party!r} contradicts itself: {reason}", code="damaged", value=view.party
        )
    return values


def embeddings_by_row(view: View, peer: str, epochs: int | None = None) -> NDArray[np.float64] | None:
    """Return what a peer sent of each training row in an epoch, float64 [rows, numbers]; None: nothing.

    Args:
        epochs: number of the epoch, from 1; None: the last one.

    Raises:
        DataError: the training had no such epoch; or as :func:`embeddings_of_epoch`.
    """
    known = [each.epoch for each in view.observed(EpochOrder)]
    if known and epochs is not None and epochs > max(known) + 1:
        raise DataError(
            f"the training ended after {max(known) + 1} epochs", code="range", field="[[attack]] epoch", value=epochs
        )
    last = max(known) if known and epochs is None else (epochs or 1) - 1
    batches = embeddings_of_epoch(view, last).get(peer) if known else None
    if not batches:
        return None
    found = np.zeros((view.rows, batches[0][1].shape[1]))
    for rows, values in batches:
        found[rows] = values
    return found
