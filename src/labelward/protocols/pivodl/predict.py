"""Prediction: owners tell the asker the sides of their splits; keepers of leaves sum weights under pairwise masks.

Setting: the coordinator asks, and is curious. It learns on which side of every split each row lies, and the margin of
each row; of leaf weights it learns sums over trees. An asker with many rows can solve these sums for the weights: masks
hide single rows' leaf weights, not those of a table. A keeper learns which of its leaves each row reaches.

Reference: PIVODL (2023), Section IV-B, after Bonawitz et al. (2017) without dropouts. Difference: one round for each
batch.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from labelward.errors import DataError, wrong_message
from labelward.kernels.node_rows import route_rows
from labelward.messages.base import Array
from labelward.messages.pivodl import MaskedMargins, PartyKeys, ReachedLeaves, SplitSides
from labelward.party.context import Context
from labelward.protocols.common.pairwise_masks import PairwiseMasks
from labelward.protocols.pivodl.agreed_sizes import expect_predictions
from labelward.protocols.pivodl.share import PUBLIC, PivodlShare

Floats = NDArray[np.float64]
Leaves = NDArray[np.int32]

_BATCH = 1 << 16
_ONE = 2.0**40
"""Fixed point of margins under masks."""


def predict_rows(ctx: Context, share: PivodlShare, x: Floats) -> Floats:
    """Return the margins of rows at the coordinator, float64 [rows, 1]; elsewhere answer, and return float64 [0, 0].

    Raises:
        PeerError: a peer failed, or sent what does not fit the model.
    """
    expect_predictions(ctx, share, min(len(x), _BATCH))
    masks = _exchange(ctx)
    parts = [
        _batch(ctx, share, x[start : start + _BATCH], masks, number)
        for number, start in enumerate(range(0, len(x), _BATCH))
    ]
    if ctx.party != ctx.topology.coordinator:
        return np.empty((0, 0))
    return share.scale.restored(np.concatenate([np.zeros(0), *parts]))[:, None]


def _exchange(ctx: Context) -> PairwiseMasks:
    """Agree on masks with all parties, anew for each conversation."""
    private = X25519PrivateKey.from_private_bytes(ctx.protection.bytes(32))
    for peer in ctx.peers:
        ctx.send(peer, PartyKeys("", None, private.public_key().public_bytes_raw()), (0,))
    return PairwiseMasks(private, ctx.party, {peer: ctx.recv(peer, PartyKeys, (0,)).masks for peer in ctx.peers})


def _batch(ctx: Context, share: PivodlShare, x: Floats, masks: PairwiseMasks, number: int) -> Floats:
    asker, step, purpose = ctx.topology.coordinator, (number,), f"margins {number}"
    if ctx.party != asker:
        send_sides(ctx, share, x, step)
        message = ctx.recv(asker, ReachedLeaves, step)
        with ctx.blaming(asker, "ReachedLeaves", step):
            reached = message.leaves.value.unpack().astype(np.int32)
        values = _kept(share, reached, ctx.party, len(x), asker)
        masked = masks.masked(values, share.parties, purpose)
        ctx.send(asker, MaskedMargins(Array.pack(masked)), step)
        return np.zeros(0)
    answers = {ctx.party: share.sides(x)} | {peer: received_sides(ctx, share, peer, len(x), step) for peer in ctx.peers}
    leaves = route(share, answers, len(x))
    for peer in ctx.peers:
        own = _of_keeper(share, leaves, share.parties.index(peer))
        ctx.send(peer, ReachedLeaves(ctx.policies.release_opened(Array.pack(own))), step)
    mine = _of_keeper(share, leaves, share.parties.index(ctx.party), public=True)
    total = masks.masked(_kept(share, mine, ctx.party, len(x), ctx.party), share.parties, purpose)
    for peer in ctx.peers:
        answer = ctx.recv(peer, MaskedMargins, step)
        with ctx.blaming(peer, "MaskedMargins", step):
            total = total + answer.margins.unpack_as("int64", len(x))
    return total / _ONE


def send_sides(ctx: Context, share: PivodlShare, x: Floats, step: tuple[int, ...]) -> None:
    """Tell the coordinator the side of each row at each own split."""
    sides = share.sides(x)
    bits = np.packbits(sides, bitorder="little").tobytes()
    ctx.send(ctx.topology.coordinator, SplitSides(len(sides), len(x), bits), step)


def received_sides(ctx: Context, share: PivodlShare, peer: str, rows: int, step: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return bool [records, rows]: a peer's answer; PeerError where it is for other splits or rows."""
    message = ctx.recv(peer, SplitSides, step)
    records = share.record_count(share.parties.index(peer))
    size = records * rows
    if (message.records, message.rows, len(message.bits)) != (records, rows, (size + 7) // 8):
        raise wrong_message(peer, "SplitSides", "answered for other splits or rows", step)
    bits = np.unpackbits(np.frombuffer(message.bits, np.uint8), count=size, bitorder="little")
    return bits.view(np.bool_).reshape(records, rows)


def route(share: PivodlShare, answers: dict[str, NDArray[np.bool_]], rows: int) -> Leaves:
    """Return int32 [trees, rows]: the position among its leaves that each row reaches."""
    reached = np.zeros((len(share.trees), rows), dtype=np.int32)
    for tree, out in zip(share.trees, reached, strict=True):
        if tree.nodes:
            sides = np.stack(
                [answers[share.parties[owner]][record] for owner, record in zip(tree.owners, tree.records, strict=True)]
            )
            out[:] = route_rows(*tree.branches(), sides)
    return reached


def _of_keeper(share: PivodlShare, leaves: Leaves, keeper: int, *, public: bool = False) -> Leaves:
    """Return the leaves of one keeper, -1 elsewhere; ``public``: those that everybody knows, too."""
    own = np.full(leaves.shape, -1, dtype=np.int32)
    for tree, reached, out in zip(share.trees, leaves, own, strict=True):
        keepers = np.array(tree.keepers)[reached]
        of_keeper = keepers == keeper
        if public:
            of_keeper |= keepers == PUBLIC
        out[of_keeper] = reached[of_keeper]
    return own


def _kept(share: PivodlShare, leaves: Leaves, party: str, rows: int, asker: str) -> NDArray[np.int64]:
    """Return the summed weights of the leaves that rows reach at a keeper, in fixed point: int64 [rows]."""
    mine = share.parties.index(party)
    if leaves.shape != (len(share.trees), rows):
        raise wrong_message(asker, "ReachedLeaves", "asks for other rows")
    total = np.zeros(rows)
    for tree, reached in zip(share.trees, leaves, strict=True):
        here = reached >= 0
        keepers = np.array(tree.keepers)
        if (reached[here] >= len(keepers)).any() or not np.isin(keepers[reached[here]], (mine, PUBLIC)).all():
            raise wrong_message(asker, "ReachedLeaves", "asks for leaves of others")
        total[here] += np.array(tree.weights)[reached[here]]
    scaled = np.rint(total * _ONE)
    if (np.abs(scaled) >= 2.0**62).any():
        raise DataError("a margin is too large for its fixed point", code="values", value=float(np.abs(total).max()))
    return scaled.astype(np.int64)
