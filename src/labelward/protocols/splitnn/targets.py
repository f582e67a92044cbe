"""Targets of a split network: what it is fitted to in place of the labels, decided once, before anything leaves.

Policies may train models of the active party's columns alone: as a prior of noisy labels, or as the part of the joined
model that needs no other party (LPSC). What they decided lies in checkpoint 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.data import OwnRows
from labelward.errors import PolicyError
from labelward.messages.base import Array
from labelward.party.context import Context
from labelward.party.in_process import standalone_context
from labelward.policy.base import TrainingTargets
from labelward.protocols.splitnn.active import TrainingSetup, train_active_net
from labelward.protocols.splitnn.bottom_model import BottomModel, make_bottom, start_key
from labelward.protocols.splitnn.inputs import NetInputs, NetLabels
from labelward.protocols.splitnn.losses import EpochRecord, NetObjective, objective_of
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.share import LocalPart, NetTargets, stored_model
from labelward.protocols.splitnn.tensors import as_array

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TrainedLocally:
    """A model of the active party's columns.

    Attributes:
        logits: of class 1, float64 [training rows].
    """

    bottom: BottomModel
    logits: Floats


@dataclass(kw_only=True)
class OwnColumnsNet:
    """Trains the run's bottom model on the active party's columns alone, with the run's parameters and learning draws.

    Attributes:
        inputs: of training and validation rows, of which only the training rows are read, and unaligned rows, from
            which :meth:`fitted` and :meth:`out_of_fold` learn besides.
        labels: weights and names of the classes of the same rows; their values are not read.
        epochs: of :meth:`fitted`; after :meth:`out_of_fold` the mean number after which held-out rows were predicted
            best.
    """

    ctx: Context
    params: SplitNet
    inputs: NetInputs
    labels: NetLabels
    epochs: int = field(init=False)

    def __post_init__(self) -> None:
        self.epochs = self.params.epochs

    def probabilities(self, values: Floats, rows: NDArray[np.bool_]) -> Floats:
        """See :class:`labelward.policy.base.LocalLearner`; rows of one class only give that class."""
        classes = len(self.labels.classes)
        found = np.unique(values[rows])
        if len(found) < 2:
            return np.tile(np.eye(classes)[found.astype(np.int64)[:1]], (len(values), 1))
        objective = NetObjective("cross_entropy", classes)
        bottom, _ = self._trained(objective, values, rows, np.zeros_like(rows), self.params.epochs)
        return objective.predicted(self._outputs(bottom, np.ones_like(rows)))

    def fitted(self, values: Floats, rows: NDArray[np.bool_]) -> TrainedLocally:
        """See :class:`labelward.policy.base.LocalLearner`."""
        apart = self.inputs.unaligned
        bottom, _ = self._trained(_LOGISTIC, values, rows, np.zeros_like(rows), self.epochs, apart)
        return TrainedLocally(bottom=bottom, logits=self._outputs(bottom, np.ones_like(rows))[:, 0])

    def out_of_fold(self, values: Floats, folds: int) -> Floats:
        """See :class:`labelward.policy.base.LocalLearner`; a training stops where it predicts its fold best."""
        fold = self.ctx.private.learning(self.ctx.seed, 0, "folds").permutation(len(values)) % folds
        logits, stopped = np.empty(len(values)), []
        for number in range(folds):
            held = fold == number
            apart = self.inputs.unaligned
            bottom, history = self._trained(_LOGISTIC, values, ~held, held, self.params.epochs, apart)
            logits[held] = self._outputs(bottom, held)[:, 0]
            losses = [each.validation.loss for each in history if each.validation is not None]
            stopped.append(1 + int(np.argmin(losses)))
        self.epochs = round(float(np.mean(stopped)))
        return logits

    def _trained(
        self,
        objective: NetObjective,
        values: Floats,
        rows: NDArray[np.bool_],
        held: NDArray[np.bool_],
        epochs: int,
        apart: OwnRows | None = None,
    ) -> tuple[BottomModel, tuple[EpochRecord, ...]]:
        """Train on some rows; where others are held out, the epoch counts that predicts them best."""
        ctx, x, weights = self.ctx, self.inputs.train[: len(rows)], self.labels.weights[: len(rows)]
        parts = [(x[rows], values[rows], weights[rows])]
        if apart is not None:
            parts.append((apart.features, apart.values, apart.weights))
        parts.append((x[held], values[held], weights[held]))
        train, targets, weights = (np.concatenate(each) for each in zip(*parts, strict=True))
        params = replace(
            self.params,
            top=False,
            top_model="fcnn-4",
            embedding=None,
            active_bottom=True,
            loss="auto",
            class_weights=(),
            epochs=epochs,
            patience=epochs if held.any() else 0,
        )
        inputs = replace(self.inputs, train=train, validation=int(held.sum()))
        labels = replace(self.labels, values=targets, weights=weights)
        start = start_key(ctx.private, ctx.seed, ctx.party, "local")
        bottom = make_bottom(ctx.party, inputs, params, objective.outputs, start=start)
        alone = standalone_context(ctx.party, seed=ctx.seed, rows=inputs.rows, private=ctx.private)
        fit = TrainingSetup(model="", objective=objective, labels=labels, rows=inputs.rows, sizes={})
        return bottom, train_active_net(alone, params, fit, bottom, None).history

    def _outputs(self, bottom: BottomModel, rows: NDArray[np.bool_]) -> Floats:
        """Return the outputs for some training rows."""
        found = bottom.embed(self.inputs.train[: len(rows)][rows])
        return as_array(found).astype(np.float64)


_LOGISTIC = NetObjective("logistic", 1)


def decide_targets(ctx: Context, params: SplitNet, inputs: NetInputs, labels: NetLabels) -> NetTargets | None:
    """Ask the policies what the network is fitted to; None where none has a say.

    Args:
        inputs: the active party's.
        labels: of the training rows, then of the validation rows.

    Raises:
        DataError: the labels do not fit the loss.
        JobError: parameters do not fit the labels, or the training of a model of the own columns left the numbers.
        PolicyError: a policy cannot act, or asks for what a network cannot be fitted to.
    """
    if not ctx.policies.at("before_targets"):
        return None
    rows, objective = inputs.rows, objective_of(params, labels, inputs.rows)
    values = labels.values[:rows]
    given = TrainingTargets(
        values=values,
        labels=values,
        weights=labels.weights[:rows].copy(),
        offset=np.zeros(rows),
        loss=objective.loss,
        classes=objective.classes,
        learner=OwnColumnsNet(ctx=ctx, params=params, inputs=inputs, labels=labels),
        draw=lambda purpose: ctx.private.learning(ctx.seed, 0, purpose),
        protection=ctx.protection,
        validation=labels.values[rows:] if params.patience else np.zeros(0),
    )
    with ctx.phase("targets"):
        targets = ctx.policies.before_targets(given)
    _check(targets, objective)
    for account in ctx.policies.accounts():
        ctx.applied({"stage": "start", **account})
    local = None
    if targets.local is not None:
        term: Any = targets.local
        scale = 1.0 if targets.scale is None else targets.scale
        model = stored_model(term.model.bottom)
        local = LocalPart(model=model, form=term.form, weight=term.weight, scale=scale)
    return NetTargets(
        values=Array.pack(targets.values),
        labels=Array.pack(targets.labels),
        weights=Array.pack(targets.weights),
        offset=Array.pack(targets.offset),
        loss=targets.loss,
        local=local,
        decoder=tuple(map(Array.pack, targets.decoder)),
        validated=targets.scale is None,
        validation=Array.pack(targets.validation) if params.patience else None,
    )


def _check(targets: TrainingTargets, objective: NetObjective) -> None:
    """Refuse targets that a network of these outputs cannot be fitted to."""
    one, shares = objective.loss == "logistic", targets.values.ndim == 2
    if targets.loss != objective.loss and not (one and targets.loss == "residuals"):
        raise PolicyError(
            f"a network with loss {objective.loss!r} cannot be fitted with {targets.loss!r}",
            code="inapplicable",
            value=targets.loss,
        )
    if not one and (targets.local is not None or targets.offset.any()):
        raise PolicyError("needs [model] loss = 'logistic'", code="inapplicable", value=objective.loss)
    if shares and (objective.loss != "cross_entropy" or targets.values.shape[1] != objective.outputs):
        raise PolicyError(
            f"shares of classes are for [model] loss = 'cross_entropy', one for each of {objective.outputs} classes",
            code="inapplicable",
            value=targets.values.shape,
        )
    if targets.decoder and not shares:
        raise PolicyError("a decoder is of shares of classes", code="inapplicable", value=len(targets.decoder))
    if targets.weights.min(initial=0.0) < 0.0 or not targets.weights.any():
        raise PolicyError("weights of targets must be at least 0, and not all 0", code="inapplicable")
