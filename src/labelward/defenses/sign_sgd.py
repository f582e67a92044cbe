"""signSGD: of each number of a returned gradient only its sign leaves.

Setting: the passive parties are curious. It hides sizes and shows what the direct attack reads: without a top model a
row's only negative number is that of its label. It stands here for comparison; it protects nothing of that kind.

``magnitude`` is what stands for a sign, relative to the gradient of the batch's *mean* loss: rows count alike,
whether the model is sure of them or not, and a batch moves the bottom model by the same amount however well it fits.
That is why networks hardly learn from it (in the paper they do not converge); a magnitude near the usual size of the
gradients' numbers helps.

Reference: Section 6.1 of the label inference paper, after Bernstein et al. (ICML 2018).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from labelward.defenses._keyed_noise import number
from labelward.policy.base import Policy
from labelward.policy.net_points import ReturnedGradient, Values

__all__ = ["SignSgd"]


@dataclass(frozen=True, kw_only=True)
class SignSgd(Policy):
    """Send signs.

    Attributes:
        magnitude: what leaves for a number above 0; below 0 its negative, and 0 for 0.
    """

    kind: ClassVar[str] = "sign-sgd"

    magnitude: float = 1.0

    def __post_init__(self) -> None:
        number("magnitude", self.magnitude)

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the signs."""
        values = returned.values
        signs: Values = (np.sign(values) * self.magnitude).astype(values.dtype)
        return signs

    def parameters(self) -> dict[str, Any]:
        """Return the magnitude."""
        return asdict(self)
