"""The whole program of each role after the greeting: exchange the key, train, predict the agreed rows.

Every party calls its role with what it learned from :func:`~labelward.party.handshake.handshake_active` or
:func:`~labelward.party.handshake.handshake_passive`: nobody trains before all have agreed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelward.errors import HandshakeError, JobError
from labelward.he.base import Counts, Engine, PublicKey
from labelward.messages.handshake import KeyOffer
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.policy.base import PolicyContext
from labelward.policy.chain import check_hooks
from labelward.protocols.tree.active import VISITED, train_active
from labelward.protocols.tree.columns import Columns, Labels
from labelward.protocols.tree.fit import objective_name
from labelward.protocols.tree.params import TreeModel
from labelward.protocols.tree.passive import most_trees, train_passive
from labelward.protocols.tree.predict import predict_active, predict_passive
from labelward.protocols.tree.share import ModelShare, Records
from labelward.protocols.tree.state import Start, stored
from labelward.protocols.tree.trained import Warm

__all__ = ["ActiveOutcome", "Held", "PassiveOutcome", "Task", "run_active", "run_passive", "setup_of"]

_STEP = (0,)
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained: a model's parameters, and what the greeting agreed on beside them."""

    params: TreeModel
    agreed: Agreement


@dataclass(frozen=True, kw_only=True)
class Held:
    """One party's columns of all rows of a run.

    Attributes:
        train: of the training rows, then of the validation rows.
        test: float64 [rows, columns] of the rows that are predicted in the end.
        validation: how many of the last rows of ``train`` are validation rows.
    """

    train: Columns
    test: Floats
    validation: int = 0


@dataclass(frozen=True, kw_only=True)
class ActiveOutcome:
    """What a run leaves at the active party.

    Attributes:
        margins: float64 [prediction rows, outputs].
        counts: operations with the key.
        fingerprint: of the public key.
        tally: how often policies acted.
        history: the metric of the validation rows after each round; empty without them.
    """

    share: ModelShare
    margins: Floats
    counts: Counts
    fingerprint: bytes
    tally: dict[str, int]
    history: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class PassiveOutcome:
    """What a run leaves at a passive party; ``fingerprint`` is of the active party's public key."""

    share: ModelShare
    counts: Counts
    fingerprint: bytes


def setup_of(params: TreeModel, *, classes: int, active_columns: int, passive: tuple[str, ...]) -> PolicyContext:
    """Return what policies may check before anything starts; ``classes`` is 0 for quantities."""
    return PolicyContext(
        model=params.kind,
        trees=params.trees,
        classes=classes,
        active_columns=active_columns,
        passive=passive,
        row_fraction=params.row_fraction,
        replace=params.replace,
        sampling=params.sampling,
        stops_early=params.early_stopping_rounds > 0,
    )


def run_active(
    ctx: Context, task: Task, held: Held, labels: Labels, engine: Engine, *, share: ModelShare | None = None
) -> ActiveOutcome:
    """Run the active party's program.

    Args:
        held: its columns (there may be none).
        labels: of the training rows, then of the validation rows.
        engine: makes the key.
        share: of an earlier training that goes on.

    Raises:
        DataError: the labels do not fit the objective.
        HandshakeError: the active party offers a key of another engine or size.
        JobError: the parameters do not fit labels or parties.
        PolicyError: a policy does not fit this model, or cannot act.
        PeerError: a peer failed.
    """
    params, train = task.params, held.train
    objective_name(params, len(labels.classes))
    setup = setup_of(params, classes=len(labels.classes), active_columns=len(train.names), passive=ctx.peers)
    check_hooks(ctx.policies.policies, VISITED, replace(setup, continues=share is not None))
    with ctx.phase("key"):
        private = engine.generate(task.agreed.bits, protection=ctx.protection, insecure=task.agreed.insecure)
    kept = stored(ctx, task.agreed.resume)
    model = kept.beginning.model if kept else ctx.protection.bytes(8).hex()
    for peer in ctx.peers:
        ctx.send(peer, KeyOffer(private.public.material(), model), _STEP)
    warm = None
    if share is not None:
        _check_share(share, task.agreed.parties, ctx.party, train, params)
        if share.classes != labels.classes:
            raise JobError(
                f"the model that goes on has the classes {', '.join(share.classes)}",
                code="other-run",
                value=share.classes,
            )
        warm = Warm(share, _margins_before(ctx, share, train))
    trained = train_active(
        ctx,
        params,
        {ctx.party: train},
        labels,
        private,
        validation=held.validation,
        precision=task.agreed.precision,
        start=Start(model=model, warm=warm, stored=kept),
    )
    done = trained.share(params.kind, train, labels.classes, model=model)
    with ctx.phase("predict"):
        margins = predict_active(ctx, done, {ctx.party: (done.own, held.test)}, len(held.test))
    return ActiveOutcome(
        share=done,
        margins=margins,
        counts=private.public.counts,
        fingerprint=private.public.fingerprint,
        tally=trained.tally,
        history=trained.history,
    )


def _margins_before(ctx: Context, share: ModelShare, train: Columns) -> Floats:
    """Return where further training starts: at the margins of the model so far; in a forest at its base."""
    if share.kind == "forest":
        return np.tile(share.base, (len(train.x), 1))
    return predict_active(ctx, share, {ctx.party: (share.own, train.x)}, len(train.x))


def run_passive(
    ctx: Context, task: Task, held: Held, engine: Engine, *, share: ModelShare | None = None
) -> PassiveOutcome:
    """Run a passive party's program; arguments and errors as for :func:`run_active`."""
    train = held.train
    offered = ctx.recv(ctx.active, KeyOffer, _STEP)
    offer = offered.key
    if offer.engine != engine.name or offer.bits != task.agreed.bits:
        raise HandshakeError(
            f"{ctx.active!r} offers a key of engine {offer.engine!r} with {offer.bits} bits; "
            f"the job says {engine.name!r} with {task.agreed.bits}",
            code="disagreement",
            value=(offer.engine, offer.bits),
        )
    public: PublicKey = engine.public(offer, protection=ctx.protection, insecure=task.agreed.insecure)
    before, grown = Records(), 0
    if share is not None:
        _check_share(share, task.agreed.parties, ctx.party, train, task.params)
        if task.params.kind != "forest":
            predict_passive(ctx, share, train.x)
        before, grown = share.own, share.grown
    records, grown = train_passive(
        ctx,
        task.params,
        train,
        public,
        most=most_trees(task.params, len(task.agreed.sides.train)),
        validation=held.validation,
        before=(before, grown),
        resume=task.agreed.resume,
    )
    done = ModelShare(
        kind=task.params.kind,
        model=offered.model,
        party=ctx.party,
        parties=task.agreed.parties,
        columns=train.names,
        own=records,
        categories=train.category_names(),
        grown=grown,
    )
    with ctx.phase("predict"):
        predict_passive(ctx, done, held.test)
    return PassiveOutcome(share=done, counts=public.counts, fingerprint=public.fingerprint)


def _check_share(share: ModelShare, parties: tuple[str, ...], party: str, train: Columns, params: TreeModel) -> None:
    """Refuse to go on with a share that these columns and parameters do not fit."""
    if share.party != party:
        raise JobError(
            f"the model that goes on is a share of {share.party!r}, not of {party!r}",
            code="other-run",
            value=share.party,
        )
    if share.kind != params.kind:
        raise JobError(
            f"the model that goes on is of kind {share.kind!r}, not {params.kind!r}",
            code="other-run",
            field="[model] kind",
            value=share.kind,
        )
    if share.parties != parties:
        raise JobError(
            f"the model that goes on has the parties {', '.join(share.parties)}, not {', '.join(parties)}",
            code="other-run",
            value=share.parties,
        )
    if share.columns != train.names:
        raise JobError(
            f"the model that goes on has columns {', '.join(share.columns)}",
            code="other-run",
            field=f"party {party!r}",
            value=share.columns,
        )
    if share.categories != train.category_names():
        raise JobError(
            "the model that goes on has other categories",
            code="other-run",
            field=f"party {party!r}",
            value=share.categories,
        )
