"""The program of each role after the handshake: exchange the key, train, predict the test rows.

Every party runs its role with what :func:`~labelward.party.handshake.handshake_active` or
:func:`~labelward.party.handshake.handshake_passive` returned: no party trains before all have agreed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelward.errors import HandshakeError, JobError, quoted
from labelward.he.base import Counts, Engine, Layout, PublicKey
from labelward.messages.handshake import KeyOffer
from labelward.party.context import HEAD, Context
from labelward.policy.base import PolicyContext
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.active import train_active
from labelward.protocols.secureboost.behavior import SumLies
from labelward.protocols.secureboost.checkpointing import StartPoint, load_checkpoint
from labelward.protocols.secureboost.inputs import Columns, TrainingTask, TreeInputs
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.passive import train_passive
from labelward.protocols.secureboost.policy_hooks import check_policies
from labelward.protocols.secureboost.predict import predict_active, predict_passive
from labelward.protocols.secureboost.row_encoding import BLOCK_ROWS
from labelward.protocols.secureboost.share import ModelShare, Records, WarmStart
from labelward.protocols.secureboost.targets import objective_name

_STEP = (0,)
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ActiveOutcome:
    """What a run returns at the active party.

    Attributes:
        margins: float64 [test rows, outputs].
        counts: operations with the key.
        fingerprint: of the public key.
        tally: how often policies acted.
        history: validation metric after each round; empty without validation rows.
    """

    share: ModelShare
    margins: Floats
    counts: Counts
    fingerprint: bytes
    tally: dict[str, int]
    history: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class PassiveOutcome:
    """What a run returns at a passive party; ``fingerprint`` is of the active party's public key."""

    share: ModelShare
    counts: Counts
    fingerprint: bytes


def setup_of(params: TreeModel, *, classes: int, active_columns: int, passive: tuple[str, ...]) -> PolicyContext:
    """Return what policies may check before anything starts; ``classes`` is 0 for regression."""
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
        candidates=params.candidates,
    )


def run_active(
    ctx: Context,
    task: TrainingTask,
    inputs: TreeInputs,
    labels: LabelVector,
    engine: Engine,
    *,
    share: ModelShare | None = None,
) -> ActiveOutcome:
    """Run the active party's program.

    Args:
        inputs: its columns (there may be none).
        labels: of the training rows, then of the validation rows.
        engine: generates the key.
        share: of an earlier training to continue.

    Raises:
        DataError: the labels do not fit the objective.
        JobError: the parameters do not fit labels or parties.
        PolicyError: a policy does not fit this model, or cannot act.
        PeerError: a peer failed.
    """
    params, train = task.params, inputs.train
    for peer in ctx.peers:
        ctx.expect(peer, 0)
    objective_name(params, len(labels.classes))
    setup = setup_of(params, classes=len(labels.classes), active_columns=len(train.names), passive=ctx.peers)
    check_policies(ctx, replace(setup, continues=share is not None))
    with ctx.phase("key"):
        private = engine.generate(task.agreed.bits, protection=ctx.protection, insecure=task.agreed.insecure)
    checkpoint = load_checkpoint(ctx, task.agreed.resume)
    model = checkpoint.targets.model if checkpoint else ctx.protection.bytes(8).hex()
    ctx.checkpoints.name_model(model, task.agreed.resume)
    for peer in ctx.peers:
        ctx.send(peer, KeyOffer(private.public.material(), model), _STEP)
    warm = None
    if share is not None:
        _check_share(share, task.agreed.parties, ctx.party, train, params)
        if share.classes != labels.classes:
            reason = f"the model to continue has the classes {', '.join(share.classes)}"
            raise JobError(reason, code="other-run", value=share.classes)
        warm = WarmStart(share, _warm_margins(ctx, share, train))
    result = train_active(
        ctx,
        params,
        {ctx.party: train},
        labels,
        private,
        validation=inputs.validation,
        precision=task.agreed.precision,
        start=StartPoint(model=model, warm=warm, checkpoint=checkpoint),
        columns=task.agreed.columns,
    )
    done = result.share(params.kind, train, labels.classes, model=model)
    with ctx.phase("predict"):
        margins = predict_active(ctx, done, {ctx.party: (done.own, inputs.test)}, len(inputs.test))
    return ActiveOutcome(
        share=done,
        margins=margins,
        counts=private.public.counts,
        fingerprint=private.public.fingerprint,
        tally=result.tally,
        history=result.history,
    )


def _warm_margins(ctx: Context, share: ModelShare, train: Columns) -> Floats:
    """Return the margins from which training continues: those of the model so far; in a forest its base."""
    if share.kind == "forest":
        return np.tile(share.base, (len(train.x), 1))
    return predict_active(ctx, share, {ctx.party: (share.own, train.x)}, len(train.x))


def run_passive(
    ctx: Context,
    task: TrainingTask,
    inputs: TreeInputs,
    engine: Engine,
    *,
    share: ModelShare | None = None,
    behavior: SumLies | None = None,
) -> PassiveOutcome:
    """Run a passive party's program; arguments as for :func:`run_active`, and how it lies, if it does.

    Raises:
        HandshakeError: the active party offers a key of another engine or size.
        JobError: the share to continue does not fit columns and parameters.
        PeerError: the active party failed.
    """
    train = inputs.train
    ctx.expect(ctx.active, _largest_message(engine, task))
    offered = ctx.recv(ctx.active, KeyOffer, _STEP)
    offer = offered.key
    if offer.engine != engine.name or offer.bits != task.agreed.bits:
        raise HandshakeError(
            f"{ctx.active!r} offers a key of engine {quoted(offer.engine)!r} with {offer.bits} bits; "
            f"the job says {engine.name!r} with {task.agreed.bits}",
            code="disagreement",
            value=(quoted(offer.engine), offer.bits),
        )
    ctx.checkpoints.name_model(offered.model, task.agreed.resume)
    public: PublicKey = engine.public(offer, protection=ctx.protection, insecure=task.agreed.insecure)
    before, grown = Records(), 0
    if share is not None:
        _check_share(share, task.agreed.parties, ctx.party, train, task.params)
        if task.params.kind != "forest":
            predict_passive(ctx, share, train.x)
        before, grown = share.own, share.grown
    records, grown = train_passive(ctx, task, inputs, public, before=(before, grown), behavior=behavior)
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
        predict_passive(ctx, done, inputs.test)
    return PassiveOutcome(share=done, counts=public.counts, fingerprint=public.fingerprint)


def _largest_message(engine: Engine, task: TrainingTask) -> int | None:
    """Return the most bytes of a message of the active party: a block of rows, or masks of rows; None: not agreed."""
    agreed = task.agreed
    if not agreed.classes:
        return None
    numbers = 3 * agreed.classes + 2  # g, h and the count of each class, the weight and the count of a row
    size = engine.ciphertext_format(Layout((1,), 1, 1), agreed.bits).size
    block = BLOCK_ROWS * numbers * size + 2 * len(agreed.sides.train)
    return max(block, engine.key_bytes(agreed.bits)) + HEAD


def _check_share(share: ModelShare, parties: tuple[str, ...], party: str, train: Columns, params: TreeModel) -> None:
    """Raise :class:`JobError` for a share to continue that does not fit these columns and parameters."""
    checks = (
        (share.party, party, f"is a share of {share.party!r}, not of {party!r}", ""),
        (share.kind, params.kind, f"is of kind {share.kind!r}, not {params.kind!r}", "[model] kind"),
        (share.parties, parties, f"has the parties {', '.join(share.parties)}, not {', '.join(parties)}", ""),
        (share.columns, train.names, f"has columns {', '.join(share.columns)}", f"party {party!r}"),
        (share.categories, train.category_names(), "has other categories", f"party {party!r}"),
    )
    for found, expected, reason, field in checks:
        if found != expected:
            raise JobError(f"the model to continue {reason}", code="other-run", field=field, value=found)
