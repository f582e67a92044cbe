"""What a model fits, as its parameters and labels say: objective, gain, and what does not go together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, JobError, PolicyError
from labelward.kernels.gain import GainRule
from labelward.kernels.objectives import Objective, objective
from labelward.policy.base import TrainingTargets
from labelward.protocols.tree.params import TreeModel

__all__ = ["check_model", "check_targets", "class_weighted", "fitted_objective", "gain_rule", "objective_name"]

Floats = NDArray[np.float64]


def objective_name(params: TreeModel, classes: int) -> str:
    """Return what is fitted; ``classes`` is 0 for quantities.

    Raises:
        JobError: the objective does not fit the labels.
    """
    if params.kind == "forest":
        return "gini" if classes else "variance"
    auto = "reg:squarederror" if not classes else "binary:logistic" if classes == 2 else "multi:softprob"
    name = auto if params.objective == "auto" else params.objective
    fits = {"binary:logistic": classes == 2, "multi:softprob": classes >= 2}.get(name, classes == 0)
    if not fits:
        told = f"{classes} classes" if classes else "quantities"
        raise JobError(
            f"{name!r} does not fit labels that are {told}", code="unsupported", field="[model] objective", value=name
        )
    return name


def fitted_objective(params: TreeModel, classes: int) -> Objective:
    """Return what is fitted, with its gradients; see :func:`objective_name`."""
    name = objective_name(params, classes)
    power, step = params.tweedie_variance_power, _step_limit(params, name)
    return objective(name, classes=classes, variance_power=power, max_delta_step=step)


def _step_limit(params: TreeModel, name: str) -> float:
    """Return the largest size of a leaf weight; 0 for no limit."""
    if params.max_delta_step is not None:
        return params.max_delta_step
    return 0.7 if name == "count:poisson" else 0.0


def gain_rule(params: TreeModel, fitted: str) -> GainRule:
    """Return how splits are judged; a forest has no penalty of leaf weights."""
    return GainRule(
        reg_lambda=0.0 if params.kind == "forest" else params.reg_lambda,
        gamma=params.gamma,
        min_rows=params.min_rows,
        min_child_weight=params.min_child_weight,
        max_delta_step=_step_limit(params, fitted),
    )


def class_weighted(params: TreeModel, weights: Floats, values: Floats, classes: int) -> Floats:
    """Return the weights of rows with those of their classes; :class:`JobError` where there are not two of these."""
    if params.scale_pos_weight == 1.0:
        return weights
    if classes != 2:
        raise JobError("is for two classes only", code="unsupported", field="[model] scale_pos_weight")
    return np.where(values == 1, weights * params.scale_pos_weight, weights)


def check_targets(params: TreeModel, fitted: Objective, targets: TrainingTargets, classes: int) -> None:
    """Raise :class:`PolicyError` for targets that this model would not honor."""
    if targets.loss != fitted.name:
        raise PolicyError(
            f"{params.kind} fits {fitted.name!r} but a defense asks for {targets.loss!r}",
            code="inapplicable",
            value=targets.loss,
        )
    if targets.offset.any():
        raise PolicyError(f"{params.kind} cannot apply an offset of the targets at prediction", code="inapplicable")
    values, weights = targets.values, targets.weights
    if classes and (values.min(initial=0.0) < 0.0 or values.max(initial=0.0) > classes - 1):
        raise PolicyError(f"{params.kind} needs values of the targets from 0 to {classes - 1}", code="inapplicable")
    if weights.min(initial=0.0) < 0.0 or not np.isfinite(weights).all():
        raise PolicyError(
            f"{params.kind} needs weights of the targets that are finite and at least 0", code="inapplicable"
        )
    if not weights.any():
        raise DataError("every training row has weight 0", code="rows")


def check_model(params: TreeModel, validation: int, active_columns: int) -> None:
    """Refuse parameters that these labels and parties do not go with; :class:`JobError` names the parameter."""
    if params.early_stopping_rounds and not validation:
        raise JobError(
            "there are no validation rows ([data] validation_size is 0)",
            code="conflict",
            field="[model] early_stopping_rounds",
            value=params.early_stopping_rounds,
        )
    if params.mode == "layered" and not active_columns:
        raise JobError(
            "'layered' needs columns of the active party", code="conflict", field="[model] mode", value=params.mode
        )
