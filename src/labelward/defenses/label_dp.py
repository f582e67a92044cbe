"""Label differential privacy: training on noisy labels, so that every message satisfies epsilon-label DP.

Setting: the passive parties are curious, and may know everything but one label. The active party draws noisy labels
once, before anything derived from labels leaves, and whatever is encrypted, chosen or shown follows from the noisy
ones alone (post-processing). What the active party keeps (metrics, a tree that it repairs afterwards) may use the
true ones.

What it does not cover: row weights of the user (they count as public), how many classes there are, which rows are in
training, and labels of test rows, from which nothing leaves. Early stopping tells passive parties how many trees the
validation rows want: an attacker who knows all columns and the noisy trees could work out the score after every tree
for either value of one label, and compare. So the labels that decide are noisy, too, by plain randomized response with
epsilon for each, drawn once with the others; no row is in both sets, so that no label costs more than epsilon. What the
active party is told of its validation rows is by these. The model that it ends up with is private only as long as
nobody repairs it on true labels; see :mod:`.grafting`. Repaired trees do not decide when to stop.

Reference: Ghazi et al., "Deep Learning with Label Differential Privacy" (NeurIPS 2021), Algorithms 1 to 3, with the
model of the run, trained on the active party's columns alone, as the source of priors (ID2Graph paper, Section 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.parameters import NonNegativeFloat, PositiveInt
from labelward.policy.base import READS_CLASSES, BudgetScope, Policy, PolicyContext, TrainingTargets
from labelward.privacy import Budget, RandomizedResponse, multi_stage
from labelward.privacy.stages import LabelPrior

Classes = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NoisyLabels(Policy):
    """Base class of defenses that train on noisy labels."""

    label_private: ClassVar[bool] = True

    epsilon: Annotated[
        NonNegativeFloat,
        Meta(description="Privacy budget (label differential privacy) of each label; smaller values add more noise."),
    ]

    @classmethod
    def scopes(cls, parameters: Mapping[str, Any]) -> dict[str, BudgetScope]:
        """Epsilon bounds what passive parties learn of each label that is trained on, or decides when to stop."""
        excludes = (
            "labels of test rows; row weights; the number of classes; whether a class has enough rows for a run to "
            "begin; parameters that were tuned on these labels; other trainings on them; what a model that was "
            "repaired on true labels predicts"
        )
        return {"epsilon": BudgetScope(covers="per training or validation label", excludes=excludes, private="labels")}

    @property
    def promise(self) -> float | None:
        """The budget: each label is used by one release."""
        return self.epsilon

    def check(self, setup: PolicyContext) -> None:
        """Refuse regression, and settings that would use labels without noise."""
        if not setup.classes:
            raise PolicyError(
                f"defense {self.kind!r} draws among classes; it does not apply to regression", code="inapplicable"
            )
        if setup.continues:
            raise PolicyError(
                f"defense {self.kind!r} does not support a warm start: the label information of both trainings adds up",
                code="inapplicable",
            )
        for place, other in enumerate(setup.chain):
            if other is not self and other.label_private:
                raise PolicyError(
                    f"defense {self.kind!r} cannot be combined with {other.kind!r}: the labels already have noise",
                    code="inapplicable",
                    value=other.kind,
                )
            if "before_targets" in other.points and self in setup.chain[place + 1 :]:
                raise PolicyError(
                    f"defense {self.kind!r} adds noise to labels as they are; {other.kind!r} before it may carry them "
                    "on to other rows, or past the noise in weights; put it behind",
                    code="inapplicable",
                    field=f"defense {self.kind!r}",
                    value=other.kind,
                )
            if other.purities or other.points & READS_CLASSES:
                raise PolicyError(
                    f"defense {self.kind!r} cannot be combined with {other.kind!r}, which decides by true classes "
                    "what is shown: the labels would not be hidden up to epsilon",
                    code="inapplicable",
                    value=other.kind,
                )

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        """Replace the classes by noisy ones, and record the budget spent."""
        values = targets.values.astype(np.int64)
        if not targets.classes or (values != targets.values).any():
            raise PolicyError(
                f"defense {self.kind!r} draws among classes; it does not apply to regression", code="inapplicable"
            )
        budget = Budget(epsilon=self.epsilon, rows=len(values))
        noisy = self._noisy(values, targets, budget)
        account: dict[str, Any] = {"spent": budget.spent, "labels_used": [spend.rows for spend in budget.spends]}
        given, validation = noisy.astype(np.float64), targets.validation
        if len(validation):
            draw = RandomizedResponse(epsilon=self.epsilon, classes=targets.classes)
            validation = draw.release(validation.astype(np.int64), targets.protection).astype(np.float64)
            account["validation_labels_used"] = len(validation)
        return replace(targets, values=given, labels=given, validation=validation, account=account)

    def _noisy(self, values: Classes, targets: TrainingTargets, budget: Budget) -> Classes:
        """Return noisy classes, int64 [n], and record their cost in the budget."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class RandomizedLabels(NoisyLabels):
    """Randomized response: keep each label with odds e^epsilon to 1 against each other class (LP-1ST)."""

    kind: ClassVar[str] = "randomized-response"

    def _noisy(self, values: Classes, targets: TrainingTargets, budget: Budget) -> Classes:
        budget.spend(np.arange(len(values)), self.epsilon)
        return RandomizedResponse(epsilon=self.epsilon, classes=targets.classes).release(values, targets.protection)


@dataclass(frozen=True, kw_only=True)
class LpMst(NoisyLabels):
    """Randomized response in stages, with priors from a model trained on the stages before (LP-MST).

    The rows are split at random into as many equal parts. The first gets plain randomized response. For each further
    part the run's kind of model is trained on all noisy labels so far, with the active party's columns alone; its
    probabilities say among which classes each label is drawn. Then training starts from scratch on all noisy labels.
    """

    kind: ClassVar[str] = "lp-mst"

    stages: Annotated[
        PositiveInt,
        Meta(
            description="Number of stages; 1 is randomized-response. Each label is used in one stage, so that all "
            "stages cost epsilon together."
        ),
    ] = 2

    def check(self, setup: PolicyContext) -> None:
        """As :class:`NoisyLabels`; also refuse priors without a column to train them on."""
        super().check(setup)
        if self.stages > 1 and not setup.active_columns:
            raise PolicyError(
                "without columns of the active party there are no priors; set stages to 1",
                code="inapplicable",
                field="defense 'lp-mst'",
                value=self.stages,
            )

    def _noisy(self, values: Classes, targets: TrainingTargets, budget: Budget) -> Classes:
        if self.stages > len(values):
            raise PolicyError(
                f"{len(values)} rows cannot be split into {self.stages} stages",
                code="inapplicable",
                field="defense 'lp-mst'",
                value=self.stages,
            )
        order = targets.draw("stages").permutation(len(values))
        return multi_stage(
            values,
            targets.classes,
            np.array_split(order, self.stages),
            _prior(targets, len(values)),
            budget=budget,
            protection=targets.protection,
        )


def _prior(targets: TrainingTargets, total: int) -> LabelPrior:
    """Return a function that asks the learner for priors, with noisy labels only."""

    def prior(rows: Classes, noisy: Classes, following: Classes) -> NDArray[np.float64]:
        values, known = np.zeros(total), np.zeros(total, dtype=np.bool_)
        values[rows], known[rows] = noisy, True
        found = np.maximum(targets.learner.probabilities(values, known)[following], 0.0)
        found /= found.sum(axis=1, keepdims=True)
        return found

    return prior
