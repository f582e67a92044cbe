"""Split networks, a passive party: it has columns and a bottom model, and no label.

Setting: it sends embeddings of each batch and receives the gradients of the loss with respect to them; in an honest
run it does nothing else. These gradients, and the bottom model that they train, are what the label inference attacks
read. Without a top model its embeddings are its part of the logits, and one batch's gradients reveal the labels
(Section 3.5). Of validation rows it sends embeddings and gets nothing back; it hears which epoch was the best.

Reference: ParticipantForwardProp and ParticipantBackProp of Algorithms 2 and 3 (Appendix A) of the label inference
paper.
"""

from __future__ import annotations

from typing import Literal

from labelward.errors import HandshakeError, PeerError, wrong_message
from labelward.messages.base import Array, Released
from labelward.messages.splitnn import (
    BatchEmbeddings,
    BatchGradients,
    EmbeddingAnswer,
    EmbeddingRequest,
    EpochEnd,
    EpochOrder,
    EpochStart,
    OwnEmbeddings,
    ValidationEmbeddings,
)
from labelward.party.context import Context
from labelward.policy.net_points import OutgoingEmbedding
from labelward.protocols.common.row_batches import batches, epoch_order, order_digest
from labelward.protocols.splitnn._torch import nn, torch
from labelward.protocols.splitnn.bottom_model import BottomModel, embed_batches
from labelward.protocols.splitnn.checkpointing import PassiveState, restore, snapshot_weights
from labelward.protocols.splitnn.inputs import Rows
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.tensors import as_array, as_tensor, diverged, is_finite, pack_tensor, unpack_array

Purpose = Literal["training", "validation", "prediction"]


def train_passive_net(
    ctx: Context, params: SplitNet, bottom: BottomModel, rows: int, *, resume: int | None = None
) -> int:
    """Take part in training until the active party ends it; the bottom model then has the best epoch's weights.

    Args:
        rows: training rows.
        resume: the checkpoint from which an interrupted training resumes; its number is that of the epochs
            that are done.

    Returns:
        The number of epochs.

    Raises:
        FileFormatError: the checkpoint is damaged, or does not fit the bottom model.
        HandshakeError: the active party drew another order of the rows.
        JobError: the bottom model left the numbers; names party, epoch and batch.
        OutputError: a checkpoint cannot be written.
        PeerError: the active party failed, stayed silent or sent something that cannot be.
        PolicyError: a policy cannot act.
    """
    done, last = resume or 0, False
    if resume:
        state, _ = ctx.checkpoints.load(resume, PassiveState)
        ctx.policies.resume(state.policies)
        restore(bottom, state.bottom)
        last = state.last
    while not last:
        last = _epoch(ctx, params, bottom, rows, done)
        done += 1
        if done == params.epochs and not last:
            raise PeerError(
                ctx.active,
                f"did not end training after the {done} epochs that were agreed on",
                code="peer-message",
                value=done,
            )
        if not bottom.finite:
            raise diverged(ctx.party, "a weight", done - 1, None, params)
        if ctx.checkpoints.kept:
            ctx.save(done, PassiveState(bottom=snapshot_weights(bottom), last=last, policies=ctx.policies.state()))
    ctx.progress("epochs", done, done)
    bottom.finish()
    return done


def _epoch(ctx: Context, params: SplitNet, bottom: BottomModel, rows: int, epoch: int) -> bool:
    """Train on all rows once and embed the validation rows; return whether this was the last epoch."""
    ctx.progress("epochs", epoch, params.epochs)
    start = ctx.recv(ctx.active, EpochStart, (epoch,))
    order = epoch_order(ctx.seed, epoch, rows)
    if start.order != order_digest(order):
        raise HandshakeError(
            f"parties {ctx.active!r} and {ctx.party!r} drew different orders of the rows of epoch {epoch + 1} from the "
            "same seed: their versions of labelward or numpy differ",
            code="disagreement",
            field="order of batches",
            value=epoch,
        )
    ctx.observe(EpochOrder(epoch, Array.pack(order)))
    places = torch.from_numpy(order).long().to(bottom.device)
    bottom.begin(epoch)
    for batch, piece in enumerate(batches(rows, params.batch_size)):
        step = (epoch, batch)
        with ctx.phase("forward"):
            values = bottom.forward(places[piece])
            array = protected_embedding(ctx, params, values, "training", step)
        ctx.send(ctx.active, BatchEmbeddings(array), step)
        gradients = ctx.recv(ctx.active, BatchGradients, step).values.value
        with ctx.blaming(ctx.active, "BatchGradients", step):
            returned = unpack_array(gradients, params, (len(values), bottom.outputs), bottom.device)
        with ctx.phase("backward"):
            bottom.update(returned)
    if ctx.observes_epochs:
        ctx.observe(OwnEmbeddings(epoch, Array.pack(as_array(bottom.training()))))
    for part, values in enumerate(bottom.validation()):
        array = protected_embedding(ctx, params, values, "validation", (epoch, part))
        ctx.send(ctx.active, ValidationEmbeddings(array), (epoch, part))
    end = ctx.recv(ctx.active, EpochEnd, (epoch,))
    if end.best and params.patience:
        bottom.keep()
    return end.last


def protected_embedding(
    ctx: Context,
    params: SplitNet,
    values: torch.Tensor,
    purpose: Purpose,
    step: tuple[int, int],
) -> Released[Array]:
    """Return the embeddings to send: finite, and with the policies applied."""
    numbers = as_array(values)
    if not is_finite(numbers):
        raise diverged(ctx.party, f"an embedding of {purpose} rows", *step, params)
    outgoing = OutgoingEmbedding(
        party=ctx.active,
        purpose=purpose,
        epoch=step[0],
        piece=step[1],
        values=numbers,
        draw=lambda what: ctx.private.learning(ctx.seed, step[0], what),
        protection=ctx.protection,
    )
    return ctx.policies.before_embedding(outgoing).map(lambda numbers: pack_tensor(numbers, params))


def answer_requests(ctx: Context, params: SplitNet, model: str, module: nn.Module, x: Rows) -> None:
    """Answer until the active party requests no more rows.

    Args:
        model: identifier of the model that the share is of.
        module: the bottom model.
        x: this party's rows, in the agreed order.

    Raises:
        PeerError: the active party failed, holds a share of another model, or asks for rows that are not there, or
            that it asked for already: each answer of a defense that draws noise would be drawn anew.
    """
    number = done = 0
    device = next(module.parameters()).device
    while True:
        request = ctx.recv(ctx.active, EmbeddingRequest, (number,))
        reason = ""
        if request.model != model:
            reason = f"predicts with model {request.model!r}; the share here is of {model!r}"
        elif not 0 <= request.start <= request.stop <= len(x):
            reason = f"asks for rows {request.start} to {request.stop} of {len(x)}"
        elif request.start != done and request.start != request.stop:
            reason = f"asks for rows {request.start} to {request.stop} after row {done}"
        if reason:
            raise wrong_message(ctx.active, "EmbeddingRequest", reason, (number,))
        if request.start == request.stop:
            return
        rows = as_tensor(x[request.start : request.stop], params, device)
        values = torch.cat(list(embed_batches(module, rows, params)))
        array = protected_embedding(ctx, params, values, "prediction", (0, number))
        ctx.send(ctx.active, EmbeddingAnswer(array), (number,))
        number, done = number + 1, request.stop
