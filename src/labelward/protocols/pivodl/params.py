"""Hyper-parameters of PIVODL and FederBoost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from labelward.errors import JobError
from labelward.kernels.gain import GainRule
from labelward.parameters import Fraction, NonNegativeFloat, NonNegativeInt, Parameters, PositiveFloat, PositiveInt

KEPT = 0.7
"""Least probability that a row keeps its bucket under noise, if there are more than two; chosen on credit_default."""
MOST_BUCKETS = 1024


@dataclass(frozen=True, kw_only=True)
class GrownTrees(Parameters):
    """Parameters of trees that are grown level by level on binned columns."""

    section: ClassVar[str] = "[model]"

    trees: Annotated[int, Meta(ge=1, le=10_000, description="Number of trees.")] = 5
    depth: Annotated[int, Meta(ge=1, le=16, description="Maximum depth of a tree.")] = 3
    learning_rate: Annotated[Fraction, Meta(description="Shrinkage: factor of each leaf weight.")] = 0.3
    bins: Annotated[int, Meta(ge=2, le=1024, description="Maximum number of bins of a column.")] = 32
    candidates: Annotated[
        Literal["global", "all"],
        Meta(description="Split candidates: 'global' (quantiles of the column) or 'all' (every distinct value)."),
    ] = "global"
    reg_lambda: Annotated[NonNegativeFloat, Meta(description="L2 regularization of leaf weights.")] = 1.0
    gamma: Annotated[NonNegativeFloat, Meta(description="Minimum gain of a split.")] = 0.0
    min_rows: Annotated[PositiveInt, Meta(description="Minimum number of rows in a leaf.")] = 1
    min_node_rows: Annotated[
        PositiveInt, Meta(description="Nodes with fewer rows are leaves (the sample threshold of Algorithm 3).")
    ] = 10

    @property
    def most_bins(self) -> int | None:
        """Maximum number of bins; None: one for each distinct value."""
        return None if self.candidates == "all" else self.bins

    @property
    def rule(self) -> GainRule:
        """How splits are compared."""
        return GainRule(reg_lambda=self.reg_lambda, gamma=self.gamma, min_rows=self.min_rows)


@dataclass(frozen=True, kw_only=True)
class Pivodl(GrownTrees):
    """Gradient-boosted trees where several parties hold the labels of some rows each (PIVODL)."""

    kind: ClassVar[str] = "pivodl"

    aggregation: Annotated[
        Literal["paillier", "masks"],
        Meta(
            description="How sums of several holders are added up: 'paillier' (encrypted for the split client, added "
            "by the source) or 'masks' (pairwise masks, which cancel at the split client)."
        ),
    ] = "paillier"
    exchange: Annotated[
        Literal["codes", "published"],
        Meta(
            description="How label holders learn the bins of others' columns on their rows: 'codes' (once) or "
            "'published' (rows of each bin and node, as in the paper: the same in many times the bytes)."
        ),
    ] = "codes"
    instance_threshold: Annotated[
        NonNegativeInt,
        Meta(description="Least rows of a label holder in a child, else the split is refused (T of Algorithm 2)."),
    ] = 0
    threshold: Annotated[
        Literal["published", "both-sides"],
        Meta(
            description="'published': each holder needs so many rows in the left child. 'both-sides': in each child, "
            "or none."
        ),
    ] = "published"
    common_columns: Annotated[
        Literal["refuse", "allow"],
        Meta(
            description="Whether two parties may have a column that orders the rows alike, with which either reads "
            "labels of others: 'refuse' (label holders end the training, unless 'label-dp-sums' acts) or 'allow'."
        ),
    ] = "refuse"
    opened_sums: Annotated[
        Literal["refuse", "allow"],
        Meta(
            description="Whether companies may train on sums without noise, from which any party reads labels of "
            "others exactly: 'refuse' (a party does not begin, unless 'label-dp-sums' acts) or 'allow'. Audits and "
            "other runs on one machine begin either way."
        ),
    ] = "refuse"

    def check_parameters(self) -> None:
        """Refuse a reading of a threshold that is not set."""
        if self.threshold != "published" and not self.instance_threshold:
            raise self.error("threshold", "is of an instance_threshold above 0 only; set that, or remove it")

    def check_holders(self, rows: Mapping[str, int]) -> None:
        """Refuse an instance threshold that a label holder's number of rows never reaches.

        Args:
            rows: training rows by label holder.
        """
        party, least = min(rows.items(), key=lambda each: each[1])
        if self.instance_threshold > least:
            reason = f"must be at most the {least} training rows that {party!r} labels, not {self.instance_threshold}"
            raise JobError(reason, code="range", field="[model] instance_threshold", value=self.instance_threshold)


@dataclass(frozen=True, kw_only=True)
class FederBoost(GrownTrees):
    """Gradient-boosted trees on buckets that passive parties send once, without encryption (FederBoost)."""

    kind: ClassVar[str] = "federboost"

    epsilon: Annotated[
        PositiveFloat | None,
        Meta(
            description="Local differential privacy of each bucket that a passive party sends, of a row and column; it "
            "adds up over the columns of a row. Where the party does not state edges, these follow from all rows, so "
            "that a cell moves buckets of other rows and is protected less against who knows these. With epsilon a "
            "column has so few buckets that a row's is kept with probability .7. Default: exact buckets."
        ),
    ] = None

    @property
    def sent_bins(self) -> int | None:
        """Maximum number of buckets of a column that a passive party sends; None: one for each distinct value.

        With ``epsilon`` at most so many that each row's is kept with probability :data:`KEPT`: noise spreads a row over
        all other buckets, so that fewer buckets tell more (Wang et al. 2017 on randomized response of many answers).
        """
        if self.epsilon is None:
            return self.most_bins
        few = 1 + int(min(math.exp(min(self.epsilon, 30.0)) * (1 - KEPT) / KEPT, MOST_BUCKETS))
        return max(2, few if self.most_bins is None else min(few, self.most_bins))
