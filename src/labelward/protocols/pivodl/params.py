"""Hyper-parameters of PIVODL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from labelward.kernels.gain import GainRule
from labelward.parameters import Fraction, NonNegativeFloat, Parameters, PositiveInt


@dataclass(frozen=True, kw_only=True)
class Pivodl(Parameters):
    """Gradient-boosted trees where several parties hold the labels of some rows each (PIVODL)."""

    section: ClassVar[str] = "[model]"
    kind: ClassVar[str] = "pivodl"

    trees: Annotated[int, Meta(ge=1, le=10_000, description="Number of trees.")] = 5
    depth: Annotated[int, Meta(ge=1, le=16, description="Maximum depth of a tree.")] = 3
    learning_rate: Annotated[Fraction, Meta(description="Shrinkage: factor of each leaf weight.")] = 0.3
    bins: Annotated[int, Meta(ge=2, le=1024, description="Maximum number of bins of a column.")] = 32
    reg_lambda: Annotated[NonNegativeFloat, Meta(description="L2 regularization of leaf weights.")] = 1.0
    gamma: Annotated[NonNegativeFloat, Meta(description="Minimum gain of a split.")] = 0.0
    min_rows: Annotated[PositiveInt, Meta(description="Minimum number of rows in a leaf.")] = 1
    min_node_rows: Annotated[
        PositiveInt, Meta(description="Nodes with fewer rows are leaves (the sample threshold of Algorithm 3).")
    ] = 10
    aggregation: Annotated[
        Literal["paillier", "masks"],
        Meta(
            description="How sums of several holders are added up: 'paillier' (encrypted for the split client, added "
            "by the source) or 'masks' (pairwise masks, which cancel at the split client)."
        ),
    ] = "paillier"

    @property
    def rule(self) -> GainRule:
        """How splits are compared."""
        return GainRule(reg_lambda=self.reg_lambda, gamma=self.gamma, min_rows=self.min_rows)
