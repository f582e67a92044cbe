"""Training targets: the objective that fits labels and parameters, and what is fitted in place of the labels.

Targets and schedule are decided once, before anything derived from labels leaves, and lie in checkpoint 0, so that
noise is never drawn twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, JobError, PolicyError
from labelward.kernels.gain import GainRule
from labelward.kernels.objectives import Objective, objective
from labelward.messages.base import Array
from labelward.party.context import Context
from labelward.party.in_process import standalone_context
from labelward.policy.base import LocalModel, TrainingTargets
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.inputs import Columns
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.policy_hooks import PolicyHooks
from labelward.protocols.secureboost.predict import predict_active, to_predictions
from labelward.protocols.secureboost.row_encoding import GradientEncoder
from labelward.protocols.secureboost.share import TrainingResult, WarmStart
from labelward.rng import learning

Floats = NDArray[np.float64]
Train = Callable[..., TrainingResult]


class FittedTargets(msgspec.Struct, frozen=True, kw_only=True):
    """What a training decides once.

    Attributes:
        model: identifier of the training.
        values: float64 [training rows]: what is fitted, noise included.
        weights: float64 [training rows], class weights included.
        schedule: the peers that take part in each round.
        validation: float64 [validation rows]: the labels that decide when to stop, noise included; None: none do.
    """

    model: str
    values: Array
    weights: Array
    schedule: tuple[tuple[str, ...], ...]
    validation: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """What the trees of a training are fitted to.

    Attributes:
        objective: with its gradients.
        encoder: of these gradients.
        values: float64 [training rows]: the targets.
        weights: float64 [training rows].
        true_values: float64 [training rows]: the labels, by which policies may repair finished trees.
        true_weights: float64 [training rows].
        rows: number of training rows.
    """

    objective: Objective
    encoder: GradientEncoder
    values: Floats
    weights: Floats
    true_values: Floats
    true_weights: Floats
    rows: int


def fit_to(
    params: TreeModel, hooks: PolicyHooks, targets: FittedTargets, labels: LabelVector, precision: int
) -> Fitting:
    """Return what the trees are fitted to.

    Args:
        labels: of the training rows.
        precision: bits after the binary point of gradients and hessians.
    """
    fitted = fitted_objective(params, len(labels.classes))
    values, weights = (each.unpack().astype(np.float64) for each in (targets.values, targets.weights))
    # Class counts follow from the gradients where every row counts once and the labels themselves are fitted.
    implied = fitted.implied == "count" and np.array_equal(values, labels.values)
    weighted = bool((weights != 1.0).any()) or params.sampling == "goss" or params.scale_pos_weight != 1.0
    flags = np.zeros((len(values), 0), dtype=np.int64)
    if hooks.classes is not None and hooks.purities and (weighted or not implied):
        flags = (hooks.classes[:, None] == np.arange(1, len(hooks.class_totals))).astype(np.int64)
    true_weights = labels.weights
    if hooks.repairs:
        true_weights = class_weighted(params, labels.weights, labels.values, len(labels.classes))
    return Fitting(
        objective=fitted,
        encoder=GradientEncoder(fitted, flags, precision, weighted=weighted),
        values=values,
        weights=weights,
        true_values=labels.values,
        true_weights=true_weights,
        rows=len(values),
    )


def prepare_targets(
    ctx: Context,
    params: TreeModel,
    hooks: PolicyHooks,
    labels: LabelVector,
    learner: OwnColumnsLearner,
    *,
    model: str,
    validation: Floats,
) -> FittedTargets:
    """Ask the policies for targets and schedule, and record what they did.

    Args:
        labels: of the training rows.
        learner: for policies that learn a prior from the active party's own columns.
        model: identifier of the training.
        validation: labels of the validation rows; read only where they decide when to stop.

    Raises:
        DataError: the labels do not fit the objective.
        JobError: parameters do not fit the labels.
        PolicyError: a policy cannot act, or would draw again what an earlier attempt drew.
    """
    classes = len(labels.classes)
    fitted = fitted_objective(params, classes)
    fitted.check(labels.values)
    if hooks.purities and hooks.classes is None:
        raise PolicyError("a defense that bounds class counts cannot act in regression", code="inapplicable")
    given = TrainingTargets(
        values=labels.values,
        labels=labels.values,
        weights=labels.weights.copy(),
        offset=np.zeros(len(labels.values)),
        loss=fitted.name,
        classes=classes,
        learner=learner,
        draw=lambda purpose: learning(ctx.seed, ctx.party, 0, purpose),
        protection=ctx.protection,
        validation=validation if params.early_stopping_rounds else np.zeros(0),
    )
    targets = hooks.before_targets(given)
    targets = replace(targets, weights=class_weighted(params, targets.weights, targets.values, classes))
    check_targets(params, fitted, targets, classes)
    hooks.record("start")
    return FittedTargets(
        model=model,
        values=Array.pack(targets.values),
        weights=Array.pack(targets.weights),
        schedule=tuple(tuple(sorted(peers)) for peers in hooks.schedule(params.trees)),
        validation=Array.pack(targets.validation) if params.early_stopping_rounds else None,
    )


@dataclass(frozen=True, kw_only=True)
class OwnColumnsLearner:
    """Trains with the parameters and the learning draws of the run, undefended and on the active party's columns alone.

    Attributes:
        columns: of the training rows.
        labels: of the training rows; only weights and class names are used.
        train: :func:`~labelward.protocols.secureboost.active.train_active`.
    """

    ctx: Context
    params: TreeModel
    columns: Columns
    labels: LabelVector
    precision: int
    train: Train

    def probabilities(self, values: Floats, rows: NDArray[np.bool_]) -> Floats:
        """See :class:`labelward.policy.base.LocalLearner`."""
        party, own = self.ctx.party, self.columns
        ctx = standalone_context(party, seed=self.ctx.seed, rows=len(rows), private=self.ctx.private)
        some = Columns(own.names, own.x[rows], own.categories, own.monotone)
        labels = replace(self.labels, values=values[rows], weights=self.labels.weights[rows])
        params = replace(self.params, early_stopping_rounds=0)
        result = self.train(ctx, params, {party: some}, labels, None, precision=self.precision)
        share = result.share(params.kind, own, self.labels.classes)
        return to_predictions(share, predict_active(ctx, share, {party: (share.own, own.x)}, len(own.x)))

    def fitted(self, values: Floats, rows: NDArray[np.bool_]) -> LocalModel:
        """See :class:`labelward.policy.base.LocalLearner`; trees cannot add one at prediction."""
        raise PolicyError(f"{self.params.kind} adds no model of the active party's columns", code="inapplicable")

    def out_of_fold(self, values: Floats, folds: int) -> Floats:
        """See :meth:`fitted`."""
        raise PolicyError(f"{self.params.kind} adds no model of the active party's columns", code="inapplicable")


# -- objective and checks ----------------------------------------------------------------------------------------------


def objective_name(params: TreeModel, classes: int) -> str:
    """Return the name of the objective; ``classes`` is 0 for regression.

    Raises:
        JobError: the objective does not fit the labels.
    """
    if params.kind == "forest":
        return "gini" if classes else "variance"
    auto = "reg:squarederror" if not classes else "binary:logistic" if classes == 2 else "multi:softprob"
    name = auto if params.objective == "auto" else params.objective
    fits = {"binary:logistic": classes == 2, "multi:softprob": classes >= 2}.get(name, classes == 0)
    if not fits:
        found = f"{classes} classes" if classes else "numbers to regress on"
        reason = f"{name!r} does not fit the labels, which are {found}"
        raise JobError(reason, code="unsupported", field="[model] objective", value=name)
    return name


def fitted_objective(params: TreeModel, classes: int) -> Objective:
    """Return the objective with its gradients; see :func:`objective_name`."""
    name = objective_name(params, classes)
    power, step = params.tweedie_variance_power, _max_delta_step(params, name)
    exact = params.softmax_hessian == "exact"
    return objective(name, classes=classes, variance_power=power, max_delta_step=step, exact_hessian=exact)


def _max_delta_step(params: TreeModel, name: str) -> float:
    """Return the largest size of a leaf weight; 0 for no limit."""
    if params.max_delta_step is not None:
        return params.max_delta_step
    return 0.7 if name == "count:poisson" else 0.0


def base_margins(params: TreeModel, fitted: Objective, fitting: Fitting, warm: WarmStart | None) -> Floats:
    """Return the margin of each output before any tree; :class:`JobError` for a warm start of another objective."""
    if warm is None:
        score = None if params.kind == "forest" else params.base_score
        return fitted.start(fitting.values, fitting.weights, score)
    share = warm.share
    if share.objective != fitted.name or share.outputs != fitted.outputs:
        reason = f"the model to continue was fitted to {share.objective!r}"
        raise JobError(reason, code="other-run", field="[model] objective", value=share.objective)
    return np.array(share.base)


def gain_rule(params: TreeModel, fitted: str) -> GainRule:
    """Return how splits are compared; a forest has no penalty of leaf weights."""
    return GainRule(
        reg_lambda=0.0 if params.kind == "forest" else params.reg_lambda,
        gamma=params.gamma,
        min_rows=params.min_rows,
        min_child_weight=params.min_child_weight,
        max_delta_step=_max_delta_step(params, fitted),
    )


def class_weighted(params: TreeModel, weights: Floats, values: Floats, classes: int) -> Floats:
    """Return row weights times class weights; :class:`JobError` for class weights without two classes."""
    if params.scale_pos_weight == 1.0:
        return weights
    if classes != 2:
        raise JobError("is for two classes only", code="unsupported", field="[model] scale_pos_weight")
    return np.where(values == 1, weights * params.scale_pos_weight, weights)


def check_targets(params: TreeModel, fitted: Objective, targets: TrainingTargets, classes: int) -> None:
    """Raise :class:`PolicyError` for targets that this model cannot fit."""
    values, weights, kind = targets.values, targets.weights, params.kind
    if targets.loss != fitted.name:
        reason = f"{kind} fits {fitted.name!r} but a defense asks for {targets.loss!r}"
        raise PolicyError(reason, code="inapplicable", value=targets.loss)
    if targets.offset.any() or targets.local is not None:
        raise PolicyError(f"{kind} cannot apply an offset of the targets at prediction", code="inapplicable")
    if classes and (values.min(initial=0.0) < 0.0 or values.max(initial=0.0) > classes - 1):
        raise PolicyError(f"{kind} needs target values from 0 to {classes - 1}", code="inapplicable")
    if weights.min(initial=0.0) < 0.0 or not np.isfinite(weights).all():
        raise PolicyError(f"{kind} needs target weights that are finite and at least 0", code="inapplicable")
    if not weights.any():
        raise DataError("every training row has weight 0", code="rows")


def check_model(params: TreeModel, validation: int, active_columns: int) -> None:
    """Raise :class:`JobError` for parameters that do not fit the labels and parties."""
    if params.early_stopping_rounds and not validation:
        raise JobError(
            "there are no validation rows: set [data] validation_size, or remove this",
            code="conflict",
            field="[model] early_stopping_rounds",
            value=params.early_stopping_rounds,
        )
    if params.mode == "layered" and not active_columns:
        reason = "'layered' needs columns of the active party"
        raise JobError(reason, code="conflict", field="[model] mode", value=params.mode)
