"""Program of each role of a split network: setup, training, prediction of the agreed rows.

Every party calls its role with the same :class:`NetTask`, after the handshake, which gave the ``Agreement``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError, wrong_message
from labelward.messages.splitnn import NetReady, NetStart
from labelward.party.context import Context
from labelward.party.handshake import Agreement
from labelward.party.noise_record import record_draws, refuse_redraw
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.chain import check_hooks
from labelward.policy.net_points import ActiveModel
from labelward.protocols.common.row_batches import batches
from labelward.protocols.splitnn._torch import torch
from labelward.protocols.splitnn.active import TrainingSetup, train_active_net
from labelward.protocols.splitnn.behavior import Behavior, Honest
from labelward.protocols.splitnn.bottom_model import (
    BottomModel,
    TrainableModule,
    copy_user_module,
    device_of,
    make_bottom,
    start_key,
)
from labelward.protocols.splitnn.checkpointing import ActiveState, PassiveStart
from labelward.protocols.splitnn.inputs import NetInputs, NetLabels
from labelward.protocols.splitnn.losses import EpochRecord, NetObjective, objective_of
from labelward.protocols.splitnn.models.presets import ModelSpec, build
from labelward.protocols.splitnn.params import MODULE, SplitNet
from labelward.protocols.splitnn.passive import train_passive_net
from labelward.protocols.splitnn.predict import DESCRIBED, ROWS_OF_ANSWER, predict_active_net, predict_passive_net
from labelward.protocols.splitnn.share import NetShare, stored_model
from labelward.protocols.splitnn.targets import decide_targets
from labelward.rng import keyed

VISITED = frozenset({"before_targets", "active_model", "on_returned_gradient"})
"""The points of the active party's policies."""

VISITED_PASSIVE = frozenset({"before_embedding"})
"""The points of a passive party's own policies."""

_STEP = (0,)
_MOST_OUTPUTS = 1 << 16
"""Largest embedding of a row; checked before anything is allocated."""


@dataclass(frozen=True, kw_only=True)
class NetTask:
    """A model's parameters and the agreement of all parties."""

    params: SplitNet
    agreed: Agreement


@dataclass(frozen=True, kw_only=True)
class ActiveNetResult:
    """Result of a run at the active party.

    Attributes:
        outputs: float64 [prediction rows, outputs]: logits, or scaled regression outputs.
        history: how each epoch went.
    """

    share: NetShare
    outputs: NDArray[np.float64]
    history: tuple[EpochRecord, ...]


@dataclass(frozen=True, kw_only=True)
class PassiveNetResult:
    """Result of a run at a passive party."""

    share: NetShare


def net_policy_context(
    params: SplitNet,
    *,
    classes: int,
    rows: int,
    active_columns: int,
    passive: tuple[str, ...],
    validation: int = 0,
    unaligned: bool = False,
    policies: Iterable[Policy] = (),
) -> PolicyContext:
    """Return the context that policies check before anything starts.

    Args:
        classes: number of classes; 0 for regression.
        rows: training rows.
        active_columns: numbers in a row of the active party's.
        validation: validation rows.
        unaligned: whether the active party has rows that no other party holds.
        policies: of the same party.
    """
    active_bottom = params.active_bottom and active_columns > 0
    replaced = any(policy.points & {"before_targets", "active_model"} for policy in policies)
    return PolicyContext(
        model=params.kind,
        classes=classes,
        passive=passive,
        active_columns=active_columns,
        active_bottom=active_bottom,
        loss=params.loss,
        stops_early=params.patience > 0,
        validates=validation > 0,
        unaligned=unaligned,
        epochs=params.epochs,
        batches=len(batches(rows, params.batch_size)),
        rows=rows,
        separate=not (params.top or active_bottom or params.loss == "weighted" or replaced) and classes > 0,
    )


def run_active_net(ctx: Context, task: NetTask, inputs: NetInputs, labels: NetLabels) -> ActiveNetResult:
    """Run the active party's program.

    Args:
        inputs: the party's rows (possibly without columns).
        labels: of the training rows, then of the validation rows.

    Raises:
        DataError: the labels do not fit the loss.
        FileFormatError: a checkpoint is damaged.
        JobError: the parameters do not fit rows, labels, modules or machine; the training left the numbers.
        PeerError: a peer failed.
        PolicyError: a policy cannot act.
    """
    params, rows, number = task.params, inputs.rows, task.agreed.resume
    check_rows(params, rows, inputs.validation)
    _begin(ctx, _active_setup(ctx, params, inputs, labels), number)
    saved = None if number is None else ctx.checkpoints.load(number, ActiveState)[0]
    targets = saved.targets if saved else decide_targets(ctx, params, inputs, labels)
    labels = targets.known(labels) if targets else labels
    objective = objective_of(params, labels, rows)
    model = saved.model if saved else ctx.protection.bytes(8).hex()
    ctx.checkpoints.name_model(model, number)
    bottom, sizes = _agree_on_bottoms(ctx, params, inputs, NetStart(model, params.bottom_outputs(objective.outputs)))
    top = make_top(ctx, params, inputs, objective, ([bottom.outputs] if bottom else []) + list(sizes.values()))
    local = targets.local if targets else None
    own = local.logits(params, inputs.train[rows:], inputs.bottom) if local else None
    between = make_between(ctx, params, tuple(sizes.values()))
    fit = TrainingSetup(
        model=model,
        objective=objective,
        labels=labels,
        rows=rows,
        sizes=sizes,
        targets=targets,
        between=between,
        own=own,
    )
    trained = train_active_net(ctx, params, fit, bottom, top, resume=saved)
    for account in ctx.policies.accounts():
        ctx.applied({"stage": "end", **account})
    share = NetShare(
        model=model,
        party=ctx.party,
        parties=task.agreed.parties,
        columns=inputs.names,
        params=params.parameters(),
        bottom=stored_model(bottom) if bottom else None,
        top=stored_model(top) if top else None,
        local=local.fitted(trained.local) if local else msgspec.UNSET,
        between=stored_model(between[0]) if between else msgspec.UNSET,
        decoder=targets.decoder if targets and targets.decoder else msgspec.UNSET,
        objective=objective,
        classes=labels.classes,
        sizes=sizes,
        history=trained.history,
        epochs=len(trained.history),
    )
    with ctx.phase("predict"):
        outputs = predict_active_net(ctx, share, inputs.test, bottom=inputs.bottom, top=inputs.top)
    return ActiveNetResult(share=share, outputs=outputs, history=trained.history)


def _active_setup(ctx: Context, params: SplitNet, inputs: NetInputs, labels: NetLabels) -> PolicyContext:
    """Return what the active party's policies are told; refuse labels, and policies, that do not fit."""
    if len(labels.values) != len(inputs.train):
        raise JobError(
            f"{len(labels.values)} labels for {len(inputs.train)} training and validation rows",
            code="rows",
            value=len(labels.values),
        )
    setup = net_policy_context(
        params,
        classes=objective_of(params, labels, inputs.rows).classes,
        rows=inputs.rows,
        active_columns=_columns(inputs),
        passive=ctx.peers,
        validation=inputs.validation,
        unaligned=inputs.unaligned is not None,
        policies=ctx.policies.policies,
    )
    check_hooks(ctx.policies.policies, VISITED, setup, elsewhere={"passive": VISITED_PASSIVE})
    return setup


def _columns(inputs: NetInputs) -> int:
    """Return how many numbers a row has; 0 for a party without columns."""
    return int(np.prod(inputs.shape))


def _agree_on_bottoms(
    ctx: Context, params: SplitNet, inputs: NetInputs, start: NetStart
) -> tuple[BottomModel | None, dict[str, int]]:
    """Tell the peers the size of an embedding; return the active party's own bottom model, if any, and their sizes."""
    for peer in ctx.peers:
        ctx.expect(peer, DESCRIBED)
        ctx.send(peer, start, _STEP)
    bottom = None
    if _columns(inputs) and params.active_bottom:
        drawn = start_key(ctx.private, ctx.seed, ctx.party, "bottom")
        bottom = make_bottom(ctx.party, inputs, params, start.outputs, start=drawn)
    sizes = {peer: _size(ctx, peer, start.outputs) for peer in ctx.peers}
    for peer, size in sizes.items():
        ctx.expect(peer, _largest_message(params, size))
    if bottom is None and not sizes:
        reason = f"party {ctx.party!r} has no columns in the network, and there is no other party"
        raise JobError(reason, code="columns", value=ctx.party)
    return bottom, sizes


def _begin(ctx: Context, setup: PolicyContext, resume: int | None) -> None:
    """Start the policies; the state of a resumed attempt is restored later."""
    if resume is None:
        refuse_redraw(ctx.policies.drawing, ctx.checkpoints)
    ctx.policies.begin(setup, ctx.protection)


def _begin_passive(ctx: Context, setup: PolicyContext, resume: int | None) -> None:
    """Start a passive party's policies; what they draw is on disk before anything leaves, and drawn once in a run."""
    first = resume is None and 0 in ctx.checkpoints.numbers()
    saved = ctx.checkpoints.load(0, PassiveStart)[0].policies if first else None
    if saved is not None:
        ctx.policies.begin(setup, ctx.protection)
        ctx.policies.resume(saved)
    else:
        _begin(ctx, setup, resume)
        if resume is None and ctx.policies.drawing:
            ctx.save(0, PassiveStart(policies=ctx.policies.state()))
    if resume is None:
        record_draws(ctx.policies.drawing, ctx.checkpoints)


def run_passive_net(
    ctx: Context, task: NetTask, inputs: NetInputs, *, behavior: Behavior | None = None
) -> PassiveNetResult:
    """Run a passive party's program; arguments and errors as for :func:`run_active_net`.

    Args:
        behavior: malicious update rule of the bottom model, if any; recorded in the transcript.
    """
    params, rows = task.params, inputs.rows
    behavior = behavior or Honest()
    check_rows(params, rows, inputs.validation)
    if 0 in inputs.shape:
        raise JobError(
            f"party {ctx.party!r} has no columns; only the active party may have none", code="columns", value=ctx.party
        )
    setup = net_policy_context(params, classes=0, rows=rows, active_columns=0, passive=(ctx.party,))
    check_hooks(ctx.policies.policies, VISITED_PASSIVE, setup, elsewhere={"active": VISITED})
    _begin_passive(ctx, setup, task.agreed.resume)
    ctx.expect(ctx.active, DESCRIBED)
    start = ctx.recv(ctx.active, NetStart, _STEP)
    ctx.checkpoints.name_model(start.model, task.agreed.resume)
    drawn, outputs = start_key(ctx.private, ctx.seed, ctx.party, "bottom"), _wanted(ctx, params, start.outputs)
    bottom = make_bottom(ctx.party, inputs, params, outputs, start=drawn, behavior=behavior)
    ctx.expect(ctx.active, _largest_message(params, bottom.outputs))
    ctx.send(ctx.active, NetReady(bottom.outputs), _STEP)
    settings = {"kind": behavior.kind, "parameters": behavior.parameters()}
    if behavior.kind != Honest.kind:
        ctx.applied({"stage": "behavior", **settings})
    epochs = train_passive_net(ctx, params, bottom, rows, resume=task.agreed.resume)
    for account in ctx.policies.accounts():
        ctx.applied({"stage": "end", **account})
    share = NetShare(
        model=start.model,
        party=ctx.party,
        parties=task.agreed.parties,
        columns=inputs.names,
        params=params.parameters(),
        bottom=stored_model(bottom),
        epochs=epochs,
        behavior=settings,
    )
    with ctx.phase("predict"):
        predict_passive_net(ctx, share, inputs.test, bottom=inputs.bottom)
    return PassiveNetResult(share=share)


def check_rows(params: SplitNet, rows: int, validation: int, *, unaligned: bool = False) -> None:
    """Refuse parameters that do not fit machine or rows; ``unaligned``: the active party has more than these."""
    device_of(params)
    if params.batch_size > rows:
        raise JobError(
            f"{params.batch_size} is more than the {rows} training rows"
            + (" that all parties hold ([data] aligned)" if unaligned else ""),
            code="range",
            field="[model] batch_size",
            value=params.batch_size,
        )
    if params.patience and not validation:
        raise JobError(
            "needs validation rows ([data] validation_size)",
            code="conflict",
            field="[model] patience",
            value=params.patience,
        )


def _largest_message(params: SplitNet, outputs: int) -> int:
    """Return the most bytes of embeddings, or of gradients, of one batch or piece of so many numbers a row."""
    return max(params.batch_size + 1, ROWS_OF_ANSWER) * outputs * 8 + DESCRIBED


def _wanted(ctx: Context, params: SplitNet, wanted: int) -> int:
    """Return the embedding size that the active party asks for, if the agreed parameters allow it."""
    least = 0 if params.top and params.bottom == MODULE else 1
    agreed = params.embedding if params.top else None
    if not least <= wanted <= _MOST_OUTPUTS or agreed not in (None, wanted):
        raise wrong_message(ctx.active, "NetStart", f"asks for {wanted} numbers a row", value=wanted)
    return wanted


def _size(ctx: Context, peer: str, wanted: int) -> int:
    """Return the embedding size of a peer's bottom model."""
    size = ctx.recv(peer, NetReady, _STEP).outputs
    if not 1 <= size <= _MOST_OUTPUTS or (wanted and size != wanted):
        raise wrong_message(
            peer, "NetReady", f"embeds in {size} numbers a row; {wanted or 'some'} are needed", value=size
        )
    return size


def make_between(ctx: Context, params: SplitNet, sizes: tuple[int, ...]) -> tuple[TrainableModule, float] | None:
    """Return what policies put between the peers' embeddings and the top model, with the weight of its penalty."""
    weight = ctx.policies.active_model(ActiveModel()).bottleneck
    if weight is None:
        return None
    spec = ModelSpec(preset="bottleneck", inputs=sizes, outputs=sum(sizes))
    start = start_key(ctx.private, ctx.seed, ctx.party, "between")
    return TrainableModule(build(spec, keyed(start), getattr(torch, params.dtype)), spec, params, start=start), weight


def make_top(
    ctx: Context, params: SplitNet, inputs: NetInputs, objective: NetObjective, sizes: list[int]
) -> TrainableModule | None:
    """Return the active party's top model, over embeddings of these sizes, in this order; None where there is none.

    Raises:
        JobError: the module that was handed in does not fit them.
    """
    if not params.top:
        return None
    spec = ModelSpec(preset=f"top {params.top_model}", inputs=(sum(sizes),), outputs=objective.outputs)
    dtype = getattr(torch, params.dtype)
    if params.top_model != MODULE:
        start = start_key(ctx.private, ctx.seed, ctx.party, "top")
        return TrainableModule(build(spec, keyed(start), dtype), spec, params, start=start)
    module = copy_user_module(inputs.top, "top_model", params)
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            out: Any = module(torch.zeros(2, sum(sizes), dtype=dtype))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        terms = " + ".join(map(str, sizes))
        raise JobError(
            f"the module does not accept the {sum(sizes)} values per row ({terms}) of the bottom models: {error}",
            code="unsupported",
            field="[model] top_model",
            value=sum(sizes),
        ) from error
    module.train(training)
    if not isinstance(out, torch.Tensor) or tuple(out.shape) != (2, objective.outputs):
        gave = list(out.shape[1:]) if isinstance(out, torch.Tensor) else type(out).__name__
        raise JobError(
            f"the module gives {gave} a row; {objective.outputs} outputs are needed",
            code="unsupported",
            field="[model] top_model",
            value=gave,
        )
    return TrainableModule(module, ModelSpec(preset=MODULE, inputs=spec.inputs, outputs=spec.outputs), params)
