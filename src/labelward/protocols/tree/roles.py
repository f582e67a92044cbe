"""The whole program of each role: agree, exchange the key, train, predict the agreed rows.

Every party calls its role with the same :class:`Task`; the handshake refuses any difference in its shared part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.errors import HandshakeError
from labelward.he.contract import Counts, Engine, PublicKey
from labelward.messages.setup import KeyOffer
from labelward.party.context import Context
from labelward.party.handshake import Agreed, greet_active, greet_passives
from labelward.party.policy import Setup, require_points
from labelward.protocols.tree.active import VISITED, train_active
from labelward.protocols.tree.columns import Columns
from labelward.protocols.tree.params import SecureBoost
from labelward.protocols.tree.passive import train_passive
from labelward.protocols.tree.predict import predict_active, predict_passive
from labelward.protocols.tree.share import ModelShare

__all__ = ["ActiveOutcome", "PassiveOutcome", "Task", "run_active", "run_passive"]

_STEP = (0,)
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained: a model's parameters, and what all parties agree on beside them."""

    params: SecureBoost
    agreed: Agreed


@dataclass(frozen=True, kw_only=True)
class ActiveOutcome:
    """What a run leaves at the active party.

    Attributes:
        margins: float64 of the prediction rows.
        counts: operations with the key.
        fingerprint: of the public key.
        tally: how often policies acted.
    """

    share: ModelShare
    margins: Floats
    counts: Counts
    fingerprint: bytes
    tally: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class PassiveOutcome:
    """What a run leaves at a passive party."""

    share: ModelShare
    counts: Counts


def run_active(
    ctx: Context,
    task: Task,
    train: Columns,
    test: Floats,
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
    engine: Engine,
) -> ActiveOutcome:
    """Run the active party's program.

    Args:
        train: its training columns (there may be none).
        test: its columns of the prediction rows.
        labels: int64 [training rows].
        classes: names of the label's values.
        engine: makes the key.

    Raises:
        HandshakeError: the parties disagree; names what differs.
        PolicyError: a policy does not fit this model, or cannot act.
        PeerError: a peer failed.
    """
    setup = Setup(
        model=task.params.kind,
        trees=task.params.trees,
        classes=len(classes),
        active_columns=len(train.names),
        passive=ctx.peers,
        row_fraction=task.params.row_fraction,
    )
    require_points(ctx.policies.policies, VISITED, setup)
    greet_passives(ctx, task.agreed.job, task.agreed.rows, task.agreed.ids)
    with ctx.phase("key"):
        private = engine.generate(task.agreed.bits, protection=ctx.protection, insecure=task.agreed.insecure)
    model = ctx.protection.bytes(8).hex()
    for peer in ctx.peers:
        ctx.send(peer, KeyOffer(private.public.material(), model), _STEP)
    trained = train_active(ctx, task.params, {ctx.party: train}, labels, private, precision=task.agreed.precision)
    share = ModelShare(
        model=model,
        party=ctx.party,
        parties=task.agreed.parties,
        columns=train.names,
        own=trained.own[ctx.party],
        trees=trained.trees,
        classes=classes,
    )
    with ctx.phase("predict"):
        margins = predict_active(ctx, share, {ctx.party: (share.own, test)}, len(test))
    return ActiveOutcome(
        share=share,
        margins=margins,
        counts=private.public.counts,
        fingerprint=private.public.fingerprint,
        tally=trained.tally,
    )


def run_passive(ctx: Context, task: Task, train: Columns, test: Floats, engine: Engine) -> PassiveOutcome:
    """Run a passive party's program; arguments and errors as for :func:`run_active`."""
    greet_active(ctx, task.agreed.job, task.agreed.rows, task.agreed.ids)
    offered = ctx.recv(ctx.active, KeyOffer, _STEP)
    offer = offered.key
    if offer.engine != engine.name or offer.bits != task.agreed.bits:
        raise HandshakeError(
            f"{ctx.active!r} offers a key of engine {offer.engine!r} with {offer.bits} bits; "
            f"the job says {engine.name!r} with {task.agreed.bits}"
        )
    public: PublicKey = engine.public(offer, protection=ctx.protection, insecure=task.agreed.insecure)
    records = train_passive(ctx, task.params, train, public)
    share = ModelShare(
        model=offered.model, party=ctx.party, parties=task.agreed.parties, columns=train.names, own=records
    )
    with ctx.phase("predict"):
        predict_passive(ctx, share, test)
    return PassiveOutcome(share=share, counts=public.counts)
