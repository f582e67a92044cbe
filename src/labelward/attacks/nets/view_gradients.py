"""Gradients in a passive party's view of a split network, by training row."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from labelward.errors import CodecError, DataError, FileFormatError
from labelward.messages.splitnn import BatchGradients, EpochOrder
from labelward.party.view import View


def require_passive_view(view: View, kind: str) -> None:
    """Refuse the active party's view, to which no gradient is returned.

    An empty view of a passive party is accepted: attacks on it give the baseline.

    Args:
        view: of a party of a split network.
        kind: of the attack.

    Raises:
        DataError: the view is the active party's.
    """
    if view.header.role == "active":
        raise DataError(
            f"{kind} reads the view of a passive party, but {view.party!r} is the active party: it has the labels "
            "itself, and no gradient is returned to it",
            code="unsupported",
            value=view.party,
        )


def has_gradients(view: View) -> bool:
    """Return whether the view has any gradient; without one the party's bottom model is untrained."""
    return next(view.received(BatchGradients), None) is not None


def gradients_by_row(
    view: View, epochs: int, *, own_loss: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return each row's gradients, summed over the first epochs, and which rows had one.

    Args:
        view: of a passive party.
        epochs: so many of the first ones count.
        own_loss: of each row's own loss, that is times the rows of its batch; otherwise of the batch's mean loss.

    Returns:
        float64 [rows, outputs] and bool [rows]; [rows, 0] where nothing arrived.

    Raises:
        DataError: the view keeps digests of gradients only.
        FileFormatError: orders and gradients do not fit each other.
    """
    pieces: dict[int, list[tuple[int, NDArray[np.generic]]]] = defaultdict(list)
    try:
        orders = {each.epoch: each.rows.unpack() for each in view.observed(EpochOrder) if each.epoch < epochs}
        for received in view.received(BatchGradients):
            epoch, batch = received.step
            if epoch < epochs:
                if received.message.values.value.sha256:
                    raise DataError(
                        f"the view of party {view.party!r} keeps digests of gradients only; to read them, record the "
                        "run in full",
                        code="incomplete",
                        value=view.party,
                    )
                values = received.message.values.value.unpack()
                pieces[epoch].append((batch, values * len(values) if own_loss else values))
        outputs = {values.shape[1] for each in pieces.values() for _, values in each}
        total = np.zeros((view.rows, outputs.pop() if outputs else 0))
        seen = np.zeros(view.rows, dtype=np.bool_)
        for epoch, found in pieces.items():
            values = np.concatenate([piece for _, piece in sorted(found, key=lambda one: one[0])])
            rows = orders[epoch][: len(values)].astype(np.int64)
            total[rows] += values  # an epoch names each row once
            seen[rows] = True
    except (CodecError, KeyError, ValueError, IndexError) as error:
        raise FileFormatError(
            f"the view of party {view.party!r} contradicts itself: {error}", code="damaged", value=view.party
        ) from error
    return total, seen
