"""What the active party decides once, before anything derived from labels leaves: what is fitted, and with whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.messages.base import Array
from labelward.party.context import Context
from labelward.policy.base import Schedule, TrainingTargets
from labelward.policy.chain import refuse_redraw
from labelward.protocols.tree.columns import Columns, Labels
from labelward.protocols.tree.fit import check_targets, class_weighted, fitted_objective
from labelward.protocols.tree.learner import OwnLearner
from labelward.protocols.tree.params import TreeModel
from labelward.protocols.tree.trained import Trained
from labelward.rng import learning

__all__ = ["Beginning", "Fitted", "begin_with"]

Floats = NDArray[np.float64]


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn or decided once in a training.

    Attributes:
        model: identifies it.
        values: float64 [training rows]: what is fitted, noise included.
        weights: float64 [training rows], those of classes included.
        schedule: the peers that take part in each round.
    """

    model: str
    values: Array
    weights: Array
    schedule: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Fitted:
    """What is fitted: float64 [training rows], and the rows' weights."""

    values: Floats
    weights: Floats

    @classmethod
    def of(cls, beginning: Beginning) -> Fitted:
        """Return what a training fits."""
        return cls(*(each.unpack().astype(np.float64) for each in (beginning.values, beginning.weights)))


def begin_with(
    ctx: Context,
    params: TreeModel,
    columns: Columns,
    labels: Labels,
    *,
    train: Callable[..., Trained],
    precision: int,
    model: str,
) -> Beginning:
    """Ask the policies for targets and schedule, and record what they tell of it.

    Args:
        columns: the active party's own, of the training rows.
        labels: of the training rows.
        train: :func:`~labelward.protocols.tree.active.train_active`, for policies that learn from its own columns.
        precision: bits behind the binary point of gradients and hessians.
        model: identifies the training.

    Raises:
        JobError: parameters do not fit the labels.
        PolicyError: a policy cannot act, or would draw anew what an earlier attempt drew.
    """
    refuse_redraw(ctx.policies.at("before_targets"), ctx.checkpoints.damaged)
    policies, values, weights, classes = ctx.policies, labels.values, labels.weights, len(labels.classes)
    objective = fitted_objective(params, classes)
    if policies.purities and not classes and policies.bins is None:
        raise PolicyError(
            "a defense that bounds class counts cannot act where the labels are quantities", code="inapplicable"
        )
    given = TrainingTargets(
        values=values,
        weights=weights.copy(),
        offset=np.zeros(len(values)),
        loss=objective.name,
        classes=classes,
        learner=OwnLearner(
            ctx=ctx,
            params=params,
            columns=columns,
            weights=weights,
            classes=labels.classes,
            precision=precision,
            train=train,
        ),
        draw=lambda purpose: learning(ctx.seed, ctx.party, 0, purpose),
        protection=ctx.protection,
    )
    targets = policies.before_targets(given)
    targets = replace(targets, weights=class_weighted(params, targets.weights, targets.values, classes))
    check_targets(params, objective, targets, classes)
    for account in policies.accounts():
        ctx.applied({"stage": "start", **account})
    everyone = Schedule(participants=(frozenset(ctx.peers),) * params.trees)
    return Beginning(
        model=model,
        values=Array.pack(targets.values),
        weights=Array.pack(targets.weights),
        schedule=tuple(tuple(sorted(each)) for each in policies.schedule(everyone).participants),
    )
