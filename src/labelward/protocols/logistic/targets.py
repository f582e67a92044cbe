"""Targets of logistic regression: the labels, or noisy ones where a policy puts noise on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.kernels.encoded_columns import column_values
from labelward.party.context import Context
from labelward.policy.base import LocalModel, TrainingTargets
from labelward.protocols.common import class_probabilities
from labelward.protocols.logistic.descent import OwnWeights, train_together

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OwnColumnsModel:
    """Trains the model on the active party's columns alone, as priors of noisy labels need it."""

    own: OwnWeights
    seed: int

    def probabilities(self, values: Floats, rows: NDArray[np.bool_]) -> Floats:
        """See :class:`labelward.policy.base.LocalLearner`; rows of one class only give that class."""
        found = np.unique(values[rows])
        if len(found) < 2:
            return np.tile(np.eye(2)[found.astype(np.int64)[:1]], (len(values), 1))
        model = train_together(self.own.params, [self.own.codes[rows]], values[rows], self.seed)
        return class_probabilities(column_values(self.own.codes) @ model.weights[0] + model.intercept)

    def fitted(self, values: Floats, rows: NDArray[np.bool_]) -> LocalModel:
        """See :class:`labelward.policy.base.LocalLearner`: there is none."""
        _refuse("a model of the active party's columns")

    def out_of_fold(self, values: Floats, folds: int) -> Floats:
        """See :class:`labelward.policy.base.LocalLearner`: there is none."""
        _refuse("a model of the active party's columns")


def decide_labels(ctx: Context, own: OwnWeights, labels: Floats) -> Floats:
    """Ask the policies what the model is fitted to, float64 [rows].

    Raises:
        PolicyError: a policy wants anything but class numbers.
    """
    if not ctx.policies.at("before_targets"):
        return labels
    given = TrainingTargets(
        values=labels,
        labels=labels,
        weights=np.ones(len(labels)),
        offset=np.zeros(len(labels)),
        loss="logistic",
        classes=2,
        learner=OwnColumnsModel(own, ctx.seed),
        draw=lambda purpose: ctx.private.learning(ctx.seed, 0, purpose),
        protection=ctx.protection,
    )
    with ctx.phase("targets"):
        targets = ctx.policies.before_targets(given)
    if targets.loss != given.loss or targets.local is not None or targets.decoder:
        _refuse("other targets than classes")
    if (targets.weights != 1).any() or targets.offset.any() or not np.isin(targets.values, (0, 1)).all():
        _refuse("weights, offsets or shares of classes")
    for account in ctx.policies.accounts():
        ctx.applied({"stage": "start", **account})
    return targets.values


def _refuse(what: str) -> NoReturn:
    raise PolicyError(f"logistic regression cannot be fitted with {what}", code="inapplicable", value="logistic")
