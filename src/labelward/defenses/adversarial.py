"""Adversarial training: bottom models learn to hide the labels from heads that try to read them.

Setting: a curious passive party reads labels from its embeddings. The active party imitates it: for each passive party
it trains a head (one hidden layer, ReLU, Adam) on each batch's embeddings to tell the class, and returns g - β·g',
where g' is the gradient of the head's mean cross-entropy with respect to the same embeddings, before the head's step.
Behind ``lpsc`` this is VFGBoost. Heads read the labels that policies of targets leave: noisy ones behind noise on
labels. They stay with the active party, and no bound follows from them: an attacker may have a better head. The
gradients that hide labels from embeddings name them themselves to who reads all epochs (``gradient-trajectories``).

Reference: Equation 6 and Algorithm 1 of the LPSC paper, Appendix E. The paper does not describe the heads. Both losses
are means over the batch; Equation 6 can be read so that utility is a sum, or has weights of sum 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from labelward.defenses._class_gradients import check_classes, known_classes
from labelward.defenses._perceptron import Adam, cross_entropy_gradients, drawn_perceptron
from labelward.parameters import NonNegativeFloat, PositiveFloat, PositiveInt
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.net_points import ReturnedGradient, Values


class _Kept(msgspec.Struct):
    arrays: tuple[tuple[tuple[int, ...], bytes], ...]
    steps: int


@dataclass(frozen=True, kw_only=True)
class Adversarial(Policy):
    """Return gradients less those of heads that read labels from embeddings."""

    kind: ClassVar[str] = "adversarial"

    beta: Annotated[
        NonNegativeFloat,
        Meta(description="Weight of what hides labels from the heads, against what is learned; 0: nothing."),
    ] = 0.05
    width: Annotated[PositiveInt, Meta(description="Width of the heads' hidden layer.")] = 64
    learning_rate: Annotated[PositiveFloat, Meta(description="Learning rate of the heads (Adam).")] = 0.01
    _heads: dict[str, Adam] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self, setup: PolicyContext) -> None:
        """Refuse quantities, and a place in the chain where labels are not known any more."""
        check_classes(self, setup)

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the gradient less that of the party's head, which then takes a step."""
        labels = known_classes(self, returned)
        if returned.party not in self._heads:
            rng = returned.draw(f"adversarial head of {returned.party}")
            inputs = returned.embeddings.shape[1]
            self._heads[returned.party] = Adam(drawn_perceptron(inputs, self.width, returned.classes, rng))
        head = self._heads[returned.party]
        gradient, own = cross_entropy_gradients(head.weights, returned.embeddings.astype(np.float64), labels)
        head.step(own, self.learning_rate)
        return np.asarray((returned.values - self.beta * gradient).astype(returned.values.dtype))

    def state(self) -> bytes:
        """Return the heads."""
        return msgspec.msgpack.encode(
            {
                party: _Kept(
                    tuple((each.shape, each.tobytes()) for each in (*head.weights, *head.means, *head.squares)),
                    head.steps,
                )
                for party, head in self._heads.items()
            }
        )

    def resume(self, state: bytes) -> None:
        """See :meth:`Policy.resume`."""
        self._heads.clear()
        for party, kept in msgspec.msgpack.decode(state, type=dict[str, _Kept]).items():
            arrays = [np.frombuffer(data).reshape(shape).copy() for shape, data in kept.arrays]
            self._heads[party] = Adam(arrays[:4], arrays[4:8], arrays[8:], kept.steps)
