"""CoAE: soft labels that look like other classes, and a decoder that the active party keeps.

Setting: passive parties are curious. The active party learns, from nothing but the number of classes, a soft label for
each class and a decoder of soft labels: 10·CE(decoded, y) - ``weight``·H(soft) - CE(soft, y), the mean over classes. So
a soft label gives its own class as little as it can, and is as mixed as ``weight`` makes it. Then the numbers of all
soft labels are put in an order that the active party draws, and the decoder reads them in that order: otherwise the
least number would name the class. The network is fitted to the soft labels, and what it predicts is decoded.

Rows of one class have one soft label, so that gradients group the rows by class as before: what is hidden is the names,
from who knows no label of a group. No bound follows.

Reference: Zou et al., "Defending batch-level label inference and replacement attacks in vertical federated learning"
(2022). Differences: a table of soft labels stands for the encoder, which sees nothing but classes; the order. Without
it whoever knows of the defense undoes it: with two classes the names are exchanged, with more the least number names
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.defenses._perceptron import Adam, Weights, cross_entropy_gradients, drawn_perceptron
from labelward.errors import PolicyError
from labelward.kernels.objectives import softmax
from labelward.parameters import NonNegativeFloat, PositiveFloat, PositiveInt
from labelward.policy.base import Policy, PolicyContext, TrainingTargets

Floats = NDArray[np.float64]

_LOSSES = ("auto", "cross_entropy")
_DECODED = 10.0
_STARTS = 0.1  # deviation of the logits of soft labels at first


@dataclass(frozen=True, kw_only=True)
class Coae(Policy):
    """Fit the network to soft labels that look like other classes, and decode what it predicts."""

    kind: ClassVar[str] = "coae"
    repeatable: ClassVar[bool] = True

    weight: Annotated[
        NonNegativeFloat, Meta(description="Weight of the entropy of soft labels; 0: labels stay as they are.")
    ]
    width: Annotated[PositiveInt, Meta(description="Width of the decoder's hidden layer.")] = 32
    steps: Annotated[PositiveInt, Meta(description="Number of steps in which soft labels are learned (Adam).")] = 500
    learning_rate: Annotated[PositiveFloat, Meta(description="Learning rate of soft labels and decoder.")] = 0.01

    def check(self, setup: PolicyContext) -> None:
        """Refuse quantities, losses without a share for each class, and other policies that replace labels."""
        if not setup.classes or setup.loss not in _LOSSES:
            raise PolicyError(
                "needs labels that are classes, and [model] loss = 'cross_entropy'",
                code="inapplicable",
                field="defense 'coae'",
                value=setup.loss if setup.classes else setup.classes,
            )
        for other in setup.chain:
            if other is not self and "before_targets" in other.points and not other.label_private:
                raise PolicyError(
                    f"cannot be combined with {other.kind!r}, which replaces targets, too",
                    code="inapplicable",
                    field="defense 'coae'",
                    value=other.kind,
                )

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        """Replace each label by the soft label of its class."""
        if not targets.classes:
            raise PolicyError("defense 'coae' softens classes", code="cannot-act", value=targets.classes)
        if not self.weight:
            return targets
        draw = targets.draw("soft labels")
        soft, (first, *rest) = self.learned(targets.classes, draw)
        order = draw.permutation(targets.classes)
        values = soft[:, order][targets.values.astype(np.int64)]
        account = {"own_share": float(np.diag(soft).max())}
        return replace(targets, values=values, decoder=(first[order], *rest), account=account)

    def learned(self, classes: int, rng: np.random.Generator) -> tuple[Floats, Weights]:
        """Return soft labels [classes, classes], with a class's own share at its own number, and the decoder."""
        trained = Adam(
            [_STARTS * rng.normal(size=(classes, classes)), *drawn_perceptron(classes, self.width, classes, rng)]
        )
        for _ in range(self.steps):
            trained.step(loss_gradients(trained.weights, self.weight), self.learning_rate)
        return softmax(trained.weights[0]), trained.weights[1:]


def loss_gradients(weights: Weights, weight: float) -> list[Floats]:
    """Return the gradients of the loss by the logits of soft labels, and by the decoder's weights."""
    soft, classes = softmax(weights[0]), len(weights[0])
    by_soft, by_decoder = cross_entropy_gradients(weights[1:], soft, np.arange(classes))
    by_soft = _DECODED * by_soft + weight * (np.log(np.maximum(soft, np.finfo(np.float64).tiny)) + 1) / classes
    by_logits = soft * (by_soft - (by_soft * soft).sum(axis=1, keepdims=True))
    by_logits += (np.eye(classes) - soft) / classes  # of log(soft) at its own class
    return [by_logits, *(_DECODED * each for each in by_decoder)]
