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

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from labelward.parameters import PositiveFloat
from labelward.policy.base import Policy
from labelward.policy.net_points import ReturnedGradient, Values


@dataclass(frozen=True, kw_only=True)
class SignSgd(Policy):
    """Send only the sign of each value of a returned gradient."""

    kind: ClassVar[str] = "sign-sgd"

    magnitude: Annotated[
        PositiveFloat,
        Meta(
            description="Magnitude sent with each sign, relative to the gradient of the batch's mean loss; 0 stays 0."
        ),
    ] = 1.0

    @property
    def begins_alike(self) -> bool:
        """Each batch is treated alike."""
        return True

    @property
    def row_local(self) -> bool:
        """Each number by itself."""
        return True

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the signs."""
        values = returned.values
        signs: Values = (np.sign(values) * self.magnitude).astype(values.dtype)
        return signs
