"""Gradients in a passive party's view of a split network, by training row."""

from __future__ import annotations

import sys
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

    Those of a coalition's members stand side by side.

    Args:
        view: of a passive party, or of several.
        epochs: so many of the first ones count.
        own_loss: of each row's own loss, that is times the rows of its batch; otherwise of the batch's mean loss.

    Returns:
        float64 [rows, outputs] and bool [rows]; [rows, 0] where nothing arrived.

    Raises:
        DataError: the view keeps digests of gradients only.
        FileFormatError: orders and gradients do not fit each other.
    """
    if len(view.members) > 1:
        parts = [gradients_by_row(member, epochs, own_loss=own_loss) for member in view.members]
        return np.hstack([part for part, _ in parts]), np.any([each for _, each in parts], axis=0)
    found = gradient_batches(view, epochs)
    total, seen = np.zeros((view.rows, found[0][1].shape[1] if found else 0)), np.zeros(view.rows, dtype=np.bool_)
    for rows, values in found:
        total[rows] += values * len(values) if own_loss else values  # an epoch names each row once
        seen[rows] = True
    return total, seen


def gradients_by_epoch(view: View, epochs: int | None) -> list[NDArray[np.float64]]:
    """Return each row's gradient in each of the first epochs: float64 [rows, outputs], zeros for a row without one.

    Args:
        view: of a passive party, or of several, whose gradients stand side by side.
        epochs: so many of the first ones; None: all.

    Raises:
        DataError, FileFormatError: as :func:`gradient_batches`.
    """
    found: list[NDArray[np.float64]] = []
    seen = np.zeros(view.rows, dtype=np.bool_)
    for rows, values in gradient_batches(view, sys.maxsize if epochs is None else epochs):
        if not found or seen[rows].any():  # an epoch names each row once
            found.append(np.zeros((view.rows, values.shape[1])))
            seen[:] = False
        found[-1][rows], seen[rows] = values, True
    return found


def unit_rows(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows scaled to length 1; zeros stay zeros."""
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(values / np.where(lengths > 0, lengths, 1.0))


def gradient_batches(view: View, epochs: int) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return rows and gradients, float64 [rows of the batch, outputs], of each batch of the first epochs, in order.

    Those of a coalition's members stand side by side.

    Raises:
        DataError: the view keeps digests of gradients only.
        FileFormatError: orders and gradients do not fit each other.
    """
    if len(view.members) > 1:
        return _side_by_side([gradient_batches(member, epochs) for member in view.members], view)
    pieces: dict[int, list[tuple[int, NDArray[np.generic]]]] = defaultdict(list)
    batches: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
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
                pieces[epoch].append((batch, received.message.values.value.unpack()))
        for epoch, found in sorted(pieces.items()):
            at = 0
            for _, values in sorted(found, key=lambda one: one[0]):
                rows = orders[epoch][at : at + len(values)].astype(np.int64)
                at += len(values)
                if len(rows) != len(values) or (len(rows) and not 0 <= rows.min() <= rows.max() < view.rows):
                    raise ValueError(f"{len(values)} gradients of {len(rows)} rows")
                batches.append((rows, values.astype(np.float64)))
        if len({values.shape[1] for _, values in batches}) > 1:
            raise ValueError("gradients of different widths")
    except (CodecError, KeyError, ValueError, IndexError) as error:
        raise FileFormatError(
            f"the view of party {view.party!r} contradicts itself: {error}", code="damaged", value=view.party
        ) from error
    return batches


def _side_by_side(
    found: list[list[tuple[NDArray[np.int64], NDArray[np.float64]]]], view: View
) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return the batches of all members, of the same rows in the same order."""
    joined = []
    for parts in zip(*found, strict=False):
        if any(not np.array_equal(rows, parts[0][0]) for rows, _ in parts):
            raise FileFormatError("the members' batches have different rows", code="damaged", value=view.party)
        joined.append((parts[0][0], np.hstack([values for _, values in parts])))
    return joined
