"""Split networks, the active party: it holds the labels, perhaps a top model, and perhaps columns and a bottom model.

Setting: it receives the embeddings of every party, batch by batch, and returns to each the gradient of the batch's mean
loss with respect to that party's embeddings. Besides these gradients it sends: when epochs begin and end, and which
was the best. Policies act on each party's gradients before they leave.

Reference: "Server executes" of Algorithm 2 (with a top model, over the joined embeddings) and of Algorithm 3 (without,
on the sum of the parties' logits), Appendix A of the label inference paper. Differences: the server is the active
party, which may hold a bottom model of its own; all parties take their steps at the same time, from the same batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError, LabelwardError
from labelward.messages.base import Array, Released
from labelward.messages.splitnn import (
    BatchEmbeddings,
    BatchGradients,
    EpochEnd,
    EpochOrder,
    EpochStart,
    ValidationEmbeddings,
)
from labelward.party.context import Context
from labelward.party.noise_record import record_draws
from labelward.policy.net_points import ReturnedGradient
from labelward.protocols.common.row_batches import batches, epoch_order, order_digest
from labelward.protocols.splitnn._torch import torch
from labelward.protocols.splitnn.bottom_model import (
    BottomModel,
    TrainableModule,
    device_of,
    prediction_batches,
)
from labelward.protocols.splitnn.checkpointing import ActiveState, restore, snapshot_weights
from labelward.protocols.splitnn.inputs import NetLabels
from labelward.protocols.splitnn.losses import EpochRecord, EpochScore, NetObjective
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.share import LocalFit, NetTargets, decoded
from labelward.protocols.splitnn.tensors import LARGEST, as_array, diverged, is_finite, pack_tensor, unpack_array


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """Targets and settings of a training.

    Attributes:
        model: the model's identifier.
        objective: the loss.
        labels: of the training rows, then of the validation rows.
        rows: number of training rows among them.
        sizes: embedding size of each peer's bottom model.
        targets: what policies have the labels of the training rows replaced by; None: nothing.
        between: what policies put between the peers' embeddings and the top model, with the weight of its penalty.
        own: logits of the validation rows by the active party's own columns, float64 [rows, 1], where ``targets`` has
            a model of them.
    """

    model: str
    objective: NetObjective
    labels: NetLabels
    rows: int
    sizes: Mapping[str, int]
    targets: NetTargets | None = None
    between: tuple[TrainableModule, float] | None = None
    own: NDArray[np.float64] | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """What a training gives beside the weights.

    Attributes:
        history: how each epoch went.
        local: how a model of the active party's own columns is joined with the network, where there is one.
    """

    history: tuple[EpochRecord, ...]
    local: LocalFit


def train_active_net(
    ctx: Context,
    params: SplitNet,
    fit: TrainingSetup,
    bottom: BottomModel | None,
    top: TrainableModule | None,
    *,
    resume: ActiveState | None = None,
) -> TrainingOutcome:
    """Train with all peers of the context; bottom and top model then have the best epoch's weights.

    Args:
        fit: targets and settings.
        bottom: the own bottom model; None for a party without columns.
        top: None: the parties' outputs are added up.
        resume: the checkpoint from which an interrupted training resumes.

    Raises:
        FileFormatError: the checkpoint does not fit the models.
        JobError: the training left the numbers; names party, epoch and batch.
        OutputError: a checkpoint cannot be written.
        PeerError: a peer failed, stayed silent or sent something that cannot be.
        PolicyError: a policy cannot act.
    """
    server = _Server(ctx, params, fit, bottom, top)
    if resume is None:
        server.save()
    else:
        server.resume(resume)
    record_draws(ctx.policies.drawing, ctx.checkpoints)
    while not server.last:
        ctx.progress("epochs", len(server.history), params.epochs)
        server.epoch(len(server.history))
        server.save()
    for own in server.models:
        own.finish()
    ctx.progress("epochs", params.epochs, params.epochs)
    return TrainingOutcome(history=tuple(server.history), local=server.local)


def combine_outputs(parts: list[torch.Tensor], top: torch.nn.Module | None) -> torch.Tensor:
    """Return the whole model's outputs: of the top model over the joined embeddings, or the sum of the parts."""
    if top is not None:
        out: torch.Tensor = top(torch.cat(parts, 1))
        return out
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def passed_on(parts: list[torch.Tensor], between: torch.nn.Module | None) -> list[torch.Tensor]:
    """Return what passes of received embeddings."""
    return parts if between is None else between(parts)


class _Server:
    """The active party's state between batches."""

    def __init__(
        self,
        ctx: Context,
        params: SplitNet,
        fit: TrainingSetup,
        bottom: BottomModel | None,
        top: TrainableModule | None,
    ) -> None:
        self.ctx, self.params = ctx, params
        self.model, self.objective, self.rows, self.sizes = fit.model, fit.objective, fit.rows, fit.sizes
        self.bottom, self.top = bottom, top
        self.between = fit.between[0] if fit.between else None
        self.between_weight = fit.between[1] if fit.between else 0.0
        self.models = [each for each in (bottom, top, self.between) if each is not None]
        self.device, dtype = device_of(params), getattr(torch, params.dtype)
        self.values = fit.labels.values
        self.targets = fit.objective.targets(self.values, dtype, self.device)
        self.per = fit.objective.weights(self.values, fit.labels.weights, dtype, self.device)
        weights = self.per
        if fit.targets is not None:
            coded = fit.targets.coded(fit.labels).weights
            weights = fit.objective.weights(self.values, coded, dtype, self.device)
        self.weights = None if bool(((weights == 1) & (self.per == 1)).all()) else weights
        self.decided, self.own = fit.targets, fit.own
        self.fitted, self.fitted_to, self.offset = fit.objective, self.targets, None
        if fit.targets is not None:
            self.fitted = msgspec.structs.replace(fit.objective, loss=fit.targets.loss)
            self.fitted_to = self.fitted.targets(fit.targets.values.unpack().astype(np.float64), dtype, self.device)
            offset = torch.from_numpy(fit.targets.offset.unpack()[:, None].copy()).to(self.device, dtype)
            self.offset = offset if bool(offset.any()) else None
        self.history: list[EpochRecord] = []
        self.best, self.last = 0, False
        self.local = fit.targets.local.fit if fit.targets and fit.targets.local else LocalFit()

    def epoch(self, epoch: int) -> None:
        """Run one epoch: train on all rows, score the validation rows, and send the outcome to all peers."""
        patience = self.params.patience
        learned, (validated, local) = self.learn(epoch), self.validate(epoch)
        self.history.append(EpochRecord(learned, validated))
        best = not patience or _loss(self.history[epoch]) < min(map(_loss, self.history[:epoch]), default=math.inf)
        self.best, self.local = (epoch, local) if best else (self.best, self.local)
        self.last = epoch + 1 == self.params.epochs or (patience > 0 and epoch - self.best >= patience)
        for peer in self.ctx.peers:
            self.ctx.send(peer, EpochEnd(best, self.last), (epoch,))
        for own in self.models if best and patience else ():
            own.keep()

    def save(self) -> None:
        """Write the checkpoint between two epochs, of a state that is finite."""
        for own in self.models:
            if not own.finite:
                raise diverged(self.ctx.party, "a weight", len(self.history) - 1, None, self.params)
        if not self.ctx.checkpoints.kept:
            return
        state = ActiveState(
            model=self.model,
            bottom=snapshot_weights(self.bottom) if self.bottom else None,
            top=snapshot_weights(self.top) if self.top else None,
            between=snapshot_weights(self.between) if self.between else None,
            history=tuple(self.history),
            best=self.best,
            last=self.last,
            policies=self.ctx.policies.state(),
            targets=self.decided,
            local=self.local,
        )
        epochs = len(self.history)
        self.ctx.save(epochs, state, peers=dict.fromkeys(self.ctx.peers, epochs))

    def resume(self, state: ActiveState) -> None:
        """Restore a checkpoint's state, before the first epoch of this attempt."""
        self.ctx.policies.resume(state.policies)
        saves = (self.bottom, state.bottom), (self.top, state.top), (self.between, state.between)
        for own, saved in saves:
            if own is not None and saved is not None:
                restore(own, saved)
        self.history, self.best, self.last, self.local = list(state.history), state.best, state.last, state.local

    def learn(self, epoch: int) -> EpochScore:
        """Train on all training rows once."""
        ctx = self.ctx
        order = epoch_order(ctx.seed, epoch, self.rows)
        for peer in ctx.peers:
            ctx.send(peer, EpochStart(order_digest(order)), (epoch,))
        ctx.observe(EpochOrder(epoch, Array.pack(order)))
        places = torch.from_numpy(order).long().to(self.device)
        for own in self.models:
            own.begin(epoch)
        outputs = [
            self._batch(epoch, batch, places[piece], order[piece])
            for batch, piece in enumerate(batches(self.rows, self.params.batch_size))
        ]
        return self.fitted.score(torch.cat(outputs), self.fitted_to[places], self._weights(places), self.per[places])

    def validate(self, epoch: int) -> tuple[EpochScore | None, LocalFit]:
        """Score the validation rows with the current weights; also return how the own columns' model is joined."""
        targets, weights = self.targets[self.rows :], self._weights(slice(self.rows, None))
        if not len(targets):
            return None, self.local
        own = self.bottom.validation() if self.bottom is not None else None
        outputs = []
        for trained in (self.top, self.between):
            if trained is not None:
                trained.module.eval()
        for part, piece in enumerate(prediction_batches(len(targets), self.params)):
            parts, received = [] if own is None else [next(own)], []
            for peer, size in self.sizes.items():
                array = self.ctx.recv(peer, ValidationEmbeddings, (epoch, part)).values.value
                received.append(self._unpacked(peer, array, piece.stop - piece.start, size, (epoch, part)))
            with torch.no_grad():
                parts += passed_on(received, self.between.module if self.between else None)
                outputs.append(combine_outputs(parts, self.top.module if self.top else None))
        found, local = self._joined(torch.cat(outputs), targets, weights)
        self._check_range(self.ctx.party, found, "an output of a validation row", (epoch, None))
        score = self.objective.score(found, targets, weights)
        if not math.isfinite(score.loss):
            raise diverged(self.ctx.party, "the loss of the validation rows", epoch, None, self.params)
        return score, local

    def _joined(
        self, outputs: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None
    ) -> tuple[torch.Tensor, LocalFit]:
        """Return the joined model's outputs of the validation rows, and how the own columns' model is joined."""
        decided, local = self.decided, self.local
        if decided is None or (decided.local is None and not decided.decoder):
            return outputs, local
        joined = as_array(outputs).astype(np.float64)
        if decided.decoder:
            joined = decoded(decided.decoder, joined)
        if decided.local is not None and self.own is not None:
            if decided.validated:
                weighed = None if weights is None else as_array(weights)
                local = decided.local.best_fit(joined, self.own, as_array(targets), weighed)
            joined = decided.local.fitted(local).joined(joined, self.own)
        return torch.from_numpy(joined).to(outputs.device, outputs.dtype), local

    def _batch(self, epoch: int, batch: int, places: torch.Tensor, rows: NDArray[np.int32]) -> torch.Tensor:
        """Train on one batch; return the model's outputs of its rows."""
        ctx, step = self.ctx, (epoch, batch)
        own: dict[str, torch.Tensor] = {}
        if self.bottom is not None:
            with ctx.phase("forward"):
                own[ctx.party] = self.bottom.forward(places)
        received = {peer: ctx.recv(peer, BatchEmbeddings, step).values.value for peer in ctx.peers}
        embeddings = own | {
            peer: self._unpacked(peer, array, len(rows), self.sizes[peer], step) for peer, array in received.items()
        }
        with ctx.phase("loss"):
            parts = [part.requires_grad_() for part in embeddings.values()]
            for each in (self.top, self.between):
                if each is not None:
                    each.forget()
            parts = parts[: len(own)] + self._passed_on(parts[len(own) :], step)
            outputs = combine_outputs(parts, self.top.module if self.top else None)
            if self.offset is not None:
                outputs = outputs + self.offset[places]
            loss = self.fitted.mean_loss(outputs, self.fitted_to[places], self._weights(places), self.per[places])
            if self.between is not None:
                bottleneck: Any = self.between.module
                loss = loss + self.between_weight * bottleneck.penalty
            if not math.isfinite(loss.item()):
                raise self._divergence_error(embeddings, step)
            loss.backward()  # type: ignore[no-untyped-call]
        for peer in ctx.peers:
            ctx.send(peer, BatchGradients(self._returned(peer, embeddings[peer], step, rows)), step)
        with ctx.phase("backward"):
            if self.bottom is not None:
                self.bottom.update(_gradient(own[ctx.party]))
            for trained in (self.top, self.between):
                if trained is not None:
                    trained.optimizer.step()
        return outputs.detach()

    def _passed_on(self, parts: list[torch.Tensor], step: tuple[int, int]) -> list[torch.Tensor]:
        """Return what reaches the top model of a batch's received embeddings, with noise where policies want it."""
        if self.between is None:
            return parts
        bottleneck: Any = self.between.module
        bottleneck.noise = self.ctx.private.learning(self.ctx.seed, step[0], f"bottleneck of batch {step[1]}")
        found = passed_on(parts, bottleneck)
        bottleneck.noise = None
        return found

    def _weights(self, rows: torch.Tensor | slice) -> torch.Tensor | None:
        """Return the weights of some rows; None where all are 1."""
        return None if self.weights is None else self.weights[rows]

    def _divergence_error(self, embeddings: Mapping[str, torch.Tensor], step: tuple[int, int]) -> LabelwardError:
        """Return the error for a loss that is not finite: the responsible party, and the batch."""
        for party, values in embeddings.items():
            if not is_finite(as_array(values)):
                return diverged(party, "an embedding of training rows", *step, self.params)
        return diverged(self.ctx.party, "the loss", *step, self.params)

    def _unpacked(self, peer: str, array: Array, rows: int, size: int, step: tuple[int, int]) -> torch.Tensor:
        with self.ctx.blaming(peer, "embeddings", step):
            found = unpack_array(array, self.params, (rows, size), self.device)
        self._check_range(peer, found, "an embedding", step)
        return found

    def _check_range(self, party: str, values: torch.Tensor, what: str, step: tuple[int, int | None]) -> None:
        """Refuse numbers that make a loss infinite, before the labels of their rows have a part in it."""
        if not bool((values.abs() <= LARGEST).all()):
            raise diverged(party, what, *step, self.params, how=f"is beyond {LARGEST:g}")

    def _returned(
        self, peer: str, embeddings: torch.Tensor, step: tuple[int, int], rows: NDArray[np.int32]
    ) -> Released[Array]:
        """Return the gradient of a peer's embeddings to send, after the policies have been applied."""
        values = as_array(_gradient(embeddings))
        if not is_finite(values):
            raise diverged(self.ctx.party, f"a gradient for {peer!r}", *step, self.params)
        outgoing = ReturnedGradient(
            party=peer,
            epoch=step[0],
            batch=step[1],
            values=values,
            embeddings=as_array(embeddings),
            targets=self.values[rows],
            classes=self.objective.classes,
            draw=lambda what: self.ctx.private.learning(self.ctx.seed, step[0], what),
            protection=self.ctx.protection,
        )
        return self.ctx.policies.on_returned_gradient(outgoing).map(lambda values: pack_tensor(values, self.params))


def _gradient(part: torch.Tensor) -> torch.Tensor:
    """Return the gradient that reached a part; zeros where the top model does not use it."""
    return part.grad if part.grad is not None else torch.zeros_like(part)


def _loss(epoch: EpochRecord) -> float:
    """Return the criterion of early stopping."""
    if epoch.validation is None:
        raise JobError("needs validation rows ([data] validation_size)", code="conflict", field="[model] patience")
    return epoch.validation.loss
