"""Label privacy source coding (LPSC): passive parties learn what the active party's own columns do not tell.

Setting: passive parties are curious; the active party has columns and labels of two classes. Before anything leaves, it
trains a model f of its own columns, and the network of the passive parties (``active_bottom = false``, ``loss =
"logistic"``) is fitted to what f leaves over: other targets, other weights, or the loss behind an offset. f's part is
added at prediction; f itself is in no message.

The codes are no secret: they rank labels, and so do the gradients returned in the first epoch. Without a top model
(``top = false``) the only passive party, or all of them together, solves them for the codes, and so for the labels and
for what f predicts for each training row out of fold ("adaboost": its class). What is smaller is what
trained embeddings tell. Theorem 1 of the paper is no guarantee of the codes as they are computed (in a 2 x 2 example
with H(Y|X0) = .469 bit each of the first three carries 1 bit), and this is no differential privacy.

Reference: "Label privacy source coding in vertical federated learning", Section 4 and Table 6. Choices where the paper
is silent: F of the training rows is out of fold, since in-fold F hides what is left to learn; AdaBoost's network is
fitted with weighted logistic loss, whose best answer is the logit less 2αf, so that the joined logit is 2αf + h;
LogitBoost's h is added to the logit, L2's to the probability; ``"offset"``, logistic loss on F + h, is not in the
paper. Neither is ``"labels"``: the paper's target Label without a bottom model of the active party, its network joined
with f by logistic regression on the validation rows. Weights are not normalized (Table 6), so that LogitBoost's
gradients are those of the logistic loss near F, and ``adversarial``'s β means the same for it as for labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.parameters import PositiveFloat
from labelward.policy.base import LocalTerm, Policy, PolicyContext, TrainingTargets

Floats = NDArray[np.float64]

_MOST_RESIDUAL = 4.0
_LEAST_WEIGHT = 1e-6


@dataclass(frozen=True, kw_only=True)
class Lpsc(Policy):
    """Fit the network to what a model of the active party's own columns leaves over."""

    kind: ClassVar[str] = "lpsc"
    repeatable: ClassVar[bool] = True

    coding: Annotated[
        Literal["logitboost", "adaboost", "l2", "offset", "labels"],
        Meta(
            description="What is left over: weighted residuals of the logit ('logitboost'), weights of labels "
            "('adaboost'), residuals of the probability ('l2'), or the labels beyond the own logit ('offset'); "
            "'labels': no coding, but the network joined with the own columns all the same, for comparison."
        ),
    ] = "logitboost"
    folds: Annotated[
        int, Meta(ge=2, description="Number of folds by which own predictions of training rows are made.")
    ] = 5
    scale: Annotated[
        PositiveFloat | Literal["validation"],
        Meta(
            description="Factor of what the passive parties add; 'validation': the best for the validation rows, which "
            "stays with the active party."
        ),
    ] = 1.0

    @property
    def _validated(self) -> str | None:
        """The parameter that is fitted to validation rows."""
        return "labels" if self.coding == "labels" else "validation" if self.scale == "validation" else None

    def check_parameters(self) -> None:
        """Refuse a factor beside a regression that finds its own."""
        if self.coding == "labels" and self.scale != 1.0:
            raise self.error("scale", "is not for coding 'labels', whose logistic regression finds its own")

    def check(self, setup: PolicyContext) -> None:
        """Refuse all but networks of two classes and one output, beside own columns that are not part of them."""
        classes, columns, fitted = setup.classes or "quantities", setup.active_columns, self._validated
        for reason, wrong, value in (
            (f"needs labels of two classes, not {classes}", classes != 2, classes),
            (f"needs columns of the active party, which has {columns}", not columns, columns),
            ("needs [model] active_bottom = false, not true", setup.active_bottom, True),
            (f"needs [model] loss = 'logistic', not {setup.loss!r}", setup.loss != "logistic", setup.loss),
            (f"needs [data] validation_size for {fitted!r}", fitted and not setup.validates, fitted),
        ):
            if wrong:
                raise PolicyError(reason, code="inapplicable", field="defense 'lpsc'", value=value)
        for other in setup.chain:
            if other is not self and "before_targets" in other.points and not other.label_private:
                raise PolicyError(
                    f"cannot be combined with {other.kind!r}, which replaces targets, too",
                    code="inapplicable",
                    field="defense 'lpsc'",
                    value=other.kind,
                )
            if setup.unaligned and other.label_private:
                raise PolicyError(
                    f"learns from unaligned rows, whose labels {other.kind!r} leaves as they are; remove these "
                    "rows, or one of the defenses",
                    code="inapplicable",
                    field="defense 'lpsc'",
                    value=other.kind,
                )

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        """Replace labels by what the active party's own columns leave over."""
        if targets.classes != 2:
            raise PolicyError("defense 'lpsc' codes two classes", code="inapplicable", value=targets.classes)
        if self.folds > len(targets.values):
            reason = f"{self.folds} is more than the {len(targets.values)} training rows"
            raise PolicyError(reason, code="inapplicable", field="defense 'lpsc': folds", value=self.folds)
        labels, rows = targets.values, np.ones(len(targets.values), dtype=np.bool_)
        logits = targets.learner.out_of_fold(labels, self.folds)
        local = LocalTerm(model=targets.learner.fitted(labels, rows), form="logit")
        given = replace(
            targets,
            local=local,
            scale=None if self._validated else float(self.scale),
            account={"own_error": _error(labels, logits, targets.weights)},
        )
        if self.coding == "labels":
            return replace(given, local=replace(local, form="regression"))
        if self.coding == "offset":
            return replace(given, offset=targets.offset + logits)
        if self.coding == "adaboost":
            alpha = vote_weight(labels, logits, targets.weights)
            weights = adaboost_weights(labels, logits, alpha)
            local = replace(local, form="vote", weight=2 * alpha)
            return replace(given, weights=targets.weights * weights * len(weights), local=local)
        code = logitboost if self.coding == "logitboost" else l2
        weights, residuals = code(labels, logits)
        if self.coding == "l2":
            given = replace(given, local=replace(local, form="probability"))
        return replace(given, values=residuals, weights=targets.weights * weights, loss="residuals")


def logitboost(labels: Floats, logits: Floats) -> tuple[Floats, Floats]:
    """Return weights p(1 - p) and residuals (y - p) / p(1 - p), bounded, for labels 0 and 1 and own logits."""
    p = _probability(logits)
    weights = np.maximum(p * (1 - p), _LEAST_WEIGHT)
    return weights, np.clip((labels - p) / weights, -_MOST_RESIDUAL, _MOST_RESIDUAL)


def l2(labels: Floats, logits: Floats) -> tuple[Floats, Floats]:
    """Return weights 1 and residuals y - p, as :func:`logitboost`."""
    return np.ones(len(labels)), labels - _probability(logits)


def vote_weight(labels: Floats, logits: Floats, weights: Floats) -> float:
    """Return AdaBoost's α = ½ ln((1 - ε) / ε), with the weighted share ε of rows that the sign of a logit has wrong.

    Raises:
        PolicyError: ε is 0 or not below one half, so that there is no such weight.
    """
    error = _error(labels, logits, weights)
    if not 0 < error < 0.5:
        raise PolicyError(
            f"coding 'adaboost': the active party's own model has an error of {error:.4g}; it must "
            "be above 0 and below .5; take another coding",
            code="cannot-act",
            field="defense 'lpsc'",
            value=error,
        )
    return math.log((1 - error) / error) / 2


def adaboost_weights(labels: Floats, logits: Floats, alpha: float) -> Floats:
    """Return weights exp(-α y f), of sum 1, for y and f in -1 and 1."""
    agree = np.where((logits > 0) == (labels > 0.5), 1.0, -1.0)
    weights = np.exp(-alpha * agree)
    return np.asarray(weights / weights.sum())


def _error(labels: Floats, logits: Floats, weights: Floats) -> float:
    return float(np.average((logits > 0) != (labels > 0.5), weights=weights))


def _probability(logits: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0.0, -logits)))
