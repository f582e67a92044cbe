"""Hyper-parameters of federated trees, named as in XGBoost's scikit-learn interface where they mean the same.

Boosted trees and forests know all names, so that a job can be changed from one to the other; a parameter that is not
supported for a kind is accepted at its default only.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from msgspec import Meta

from labelward.parameters import Fraction, NonNegativeFloat, NonNegativeInt, Parameters, PositiveFloat, PositiveInt

Kind: TypeAlias = Literal["secureboost", "forest"]
ObjectiveName: TypeAlias = Literal[
    "auto", "binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson", "reg:tweedie"
]
MetricName: TypeAlias = Literal["auto", "logloss", "error", "auc", "rmse", "mae"]

OBJECTIVES: tuple[str, ...] = get_args(ObjectiveName)
METRICS: tuple[str, ...] = get_args(MetricName)

_LARGEST_SCORE = 1e150


@dataclass(frozen=True, kw_only=True)
class TreeModel(Parameters):
    """Hyper-parameters of boosted trees and forests."""

    section: ClassVar[str] = "[model]"
    kind: ClassVar[Kind]
    unsupported: ClassVar[tuple[str, ...]] = ()
    """Parameters that this kind accepts at their defaults only."""

    trees: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Number of boosting rounds; a round grows one tree, or one tree per class (multi_strategy).",
        ),
    ] = 5
    depth: Annotated[int, Meta(ge=1, le=20, description="Maximum depth of a tree.")] = 6
    learning_rate: Annotated[Fraction, Meta(description="Shrinkage: factor of each leaf weight.")] = 0.3
    feature_fraction: Annotated[
        Fraction,
        Meta(description="Fraction of each party's columns drawn for each tree (rounded down, at least one)."),
    ] = 1.0
    row_fraction: Annotated[
        Fraction,
        Meta(description="Fraction of the rows drawn for each tree, without replacement unless replace is true."),
    ] = 1.0
    replace: Annotated[bool, Meta(description="Draw rows with replacement (bootstrap).")] = False
    bins: Annotated[
        int, Meta(ge=2, le=1024, description="Maximum number of bins of a column; it has at most bins - 1 candidates.")
    ] = 32
    candidates: Annotated[
        Literal["global", "node", "all"],
        Meta(
            description="Split candidates: 'global' (quantiles of the column, computed once), 'node' (percentiles "
            "within each node) or 'all' (every value, for small data)."
        ),
    ] = "global"
    reg_lambda: Annotated[NonNegativeFloat, Meta(description="L2 regularization of leaf weights.")] = 1.0
    gamma: Annotated[NonNegativeFloat, Meta(description="Minimum gain of a split.")] = 0.0
    min_rows: Annotated[PositiveInt, Meta(description="Minimum number of rows in a leaf.")] = 1
    min_child_weight: Annotated[
        NonNegativeFloat,
        Meta(description="Minimum sum of hessians in a leaf; with several outputs, of their mean."),
    ] = 0.0
    max_leaves: Annotated[
        NonNegativeInt,
        Meta(description="Maximum number of leaves of a tree, kept in order of gain; 0: no limit."),
    ] = 0
    max_delta_step: Annotated[
        NonNegativeFloat | None,
        Meta(
            description="Maximum absolute leaf weight before shrinkage; 0: no limit. Default: 0.7 for 'count:poisson', "
            "as in XGBoost, otherwise 0."
        ),
    ] = None
    objective: Annotated[
        ObjectiveName,
        Meta(
            description="Objective, named as in XGBoost: 'binary:logistic', 'multi:softprob', 'reg:squarederror', "
            "'count:poisson', 'reg:tweedie'; 'auto': one of the first three, by the labels."
        ),
    ] = "auto"
    base_score: Annotated[
        Annotated[float, Meta(ge=-_LARGEST_SCORE, le=_LARGEST_SCORE)] | None,
        Meta(
            description="Initial prediction: a probability or a mean. Default: margin 0 for classification, the mean "
            "of the training targets for regression."
        ),
    ] = None
    scale_pos_weight: Annotated[
        PositiveFloat, Meta(description="Factor of the row weights of the second of two classes.")
    ] = 1.0
    tweedie_variance_power: Annotated[
        float,
        Meta(gt=1, le=2, description="Variance power of 'reg:tweedie', between 1 (Poisson) and 2 (gamma)."),
    ] = 1.5
    multi_strategy: Annotated[
        Literal["multi_output_tree", "one_output_per_tree"],
        Meta(
            description="More than two classes: one tree per round with a weight per class ('multi_output_tree') or "
            "one tree per class ('one_output_per_tree')."
        ),
    ] = "multi_output_tree"
    softmax_hessian: Annotated[
        Literal["doubled", "exact"],
        Meta(
            description="'multi:softprob': hessians 2p(1 - p) as in XGBoost ('doubled'), or p(1 - p), the second "
            "derivative ('exact')."
        ),
    ] = "doubled"
    max_cat_to_onehot: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Columns with fewer categories are split one category against the rest, the others by sets of "
            "categories ordered by gradient (in a forest: by class proportions).",
        ),
    ] = 4
    max_cat_threshold: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum number of categories in the smaller side of a set split.")
    ] = 64
    sampling: Annotated[
        Literal["uniform", "goss"],
        Meta(
            description="Row sampling: 'uniform' or 'goss' (the rows of the largest gradients and a sample of the "
            "others)."
        ),
    ] = "uniform"
    top_rate: Annotated[
        float, Meta(ge=0, le=1, description="GOSS: fraction of the rows kept for their large gradients.")
    ] = 0.2
    other_rate: Annotated[Fraction, Meta(description="GOSS: fraction of the rows sampled from the others.")] = 0.1
    early_stopping_rounds: Annotated[
        NonNegativeInt,
        Meta(
            description="Stop after this many rounds without improvement on the validation rows ([data] "
            "validation_size); 0: never."
        ),
    ] = 0
    eval_metric: Annotated[
        MetricName,
        Meta(
            description="Metric on the validation rows: 'auto' (the training loss), 'logloss', 'error', 'auc' "
            "(classification), 'rmse' or 'mae' (regression)."
        ),
    ] = "auto"
    mode: Annotated[
        Literal["standard", "mixed", "layered"],
        Meta(
            description="Owners of splits: 'standard' (any party at any node), 'mixed' (each tree on one party's "
            "columns, in turn) or 'layered' (upper levels on passive parties' columns, lower levels on the active "
            "party's)."
        ),
    ] = "standard"
    passive_depth: Annotated[
        int, Meta(ge=1, le=19, description="'layered' mode: number of levels on the passive parties' columns.")
    ] = 2
    trees_at_once: Annotated[
        int, Meta(ge=1, le=64, description="Number of trees grown concurrently, so that all parties stay busy.")
    ] = 4

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name; ``softmax_hessian`` only if not at its default, as before it came."""
        found = super().parameters()
        if self.softmax_hessian == "doubled":
            del found["softmax_hessian"]
        return found

    def check_parameters(self) -> None:
        """Refuse parameters that this kind or the other parameters do not support."""
        for each in fields(self):
            if each.name in self.unsupported and getattr(self, each.name) != each.default:
                reason = f"is not supported for {self.kind!r}; remove it"
                raise self.error(each.name, reason, code="unsupported")
        if self.objective != "reg:tweedie" and self.tweedie_variance_power != 1.5:
            raise self.error("tweedie_variance_power", "is for objective 'reg:tweedie' only")
        if self.objective not in ("auto", "multi:softprob") and self.softmax_hessian != "doubled":
            raise self.error("softmax_hessian", "is for objective 'multi:softprob' only")
        if self.max_leaves == 1:
            raise self.error("max_leaves", "must be 0 (no limit) or at least 2, not 1", code="range")
        if self.sampling != "goss" and (self.top_rate, self.other_rate) != (0.2, 0.1):
            raise self.error("top_rate", "and other_rate are for sampling 'goss' only")
        if self.mode != "layered" and self.passive_depth != 2:
            raise self.error("passive_depth", "is for mode 'layered' only")
        if self.mode == "layered" and self.passive_depth >= self.depth:
            raise self.error("passive_depth", f"must be less than depth ({self.depth}), not {self.passive_depth}")
        if self.sampling == "goss" and self.row_fraction < 1.0:
            raise self.error("row_fraction", "is not for sampling 'goss', which draws rows itself; remove it")
        if self.top_rate + self.other_rate > 1.0:
            reason = f"must be at most {1 - self.top_rate:g} with top_rate {self.top_rate:g}, not {self.other_rate:g}"
            raise self.error("other_rate", reason)


@dataclass(frozen=True, kw_only=True)
class SecureBoost(TreeModel):
    """Gradient-boosted trees for classification, regression and counts."""

    kind: ClassVar[Kind] = "secureboost"
    unsupported: ClassVar[tuple[str, ...]] = ("replace", "trees_at_once")


@dataclass(frozen=True, kw_only=True)
class FederatedForest(TreeModel):
    """Random forest: the average of trees on sampled rows and columns."""

    kind: ClassVar[Kind] = "forest"
    unsupported: ClassVar[tuple[str, ...]] = (
        "learning_rate",
        "reg_lambda",
        "max_delta_step",
        "objective",
        "base_score",
        "tweedie_variance_power",
        "multi_strategy",
        "softmax_hessian",
        "sampling",
        "top_rate",
        "other_rate",
        "early_stopping_rounds",
        "eval_metric",
        "mode",
        "passive_depth",
    )

    trees: Annotated[int, Meta(ge=1, le=100_000, description="Number of trees.")] = 5
    gamma: Annotated[
        NonNegativeFloat,
        Meta(description="Minimum gain of a split: decrease of Gini impurity (or variance) times the node's rows."),
    ] = 0.0
    min_child_weight: Annotated[NonNegativeFloat, Meta(description="Minimum sum of row weights in a leaf.")] = 0.0
