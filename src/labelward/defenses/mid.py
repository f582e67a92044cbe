"""Mutual information regularization (MID): a noisy bottleneck between embeddings and what is made of them.

Setting: a curious passive party reads labels from the gradients that it gets, and from the bottom model that they
train. The active party puts a variational bottleneck behind each passive party's embeddings and adds to its loss
``weight`` times the divergence of what passes from standard normal numbers, which bounds their mutual information in
the mean of the training. It is no bound on what one row's gradient tells. At prediction the means pass.

Reference: Zou et al., "Mutual information regularization for vertical federated learning" (2023). Difference: mean and
deviation are one linear layer each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from msgspec import Meta

from labelward.errors import PolicyError
from labelward.parameters import NonNegativeFloat
from labelward.policy.base import Policy, PolicyContext
from labelward.policy.net_points import ActiveModel


@dataclass(frozen=True, kw_only=True)
class Mid(Policy):
    """Put a variational bottleneck behind embeddings."""

    kind: ClassVar[str] = "mid"

    weight: Annotated[
        NonNegativeFloat,
        Meta(description="Weight of the bottleneck's divergence, against the training loss; 0: no bottleneck."),
    ]

    def check(self, setup: PolicyContext) -> None:
        """Refuse a second bottleneck."""
        if sum("active_model" in policy.points for policy in setup.chain) > 1:
            raise PolicyError("there is another one in the chain", code="inapplicable", field="defense 'mid'", value=2)

    def active_model(self, model: ActiveModel) -> ActiveModel:
        """Add the bottleneck."""
        return replace(model, bottleneck=self.weight) if self.weight else model
