"""Parameters of federated trees, named as in XGBoost's scikit-learn face where they mean the same.

Both kinds know all names, so that a job can be changed from one kind to the other; what means nothing for a kind is
accepted at its default only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from labelward.errors import JobError, number_code

__all__ = ["METRICS", "OBJECTIVES", "FederatedForest", "SecureBoost", "TreeModel"]

OBJECTIVES = ("auto", "binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson", "reg:tweedie")
Kind = Literal["secureboost", "forest"]
METRICS = ("auto", "logloss", "error", "auc", "rmse", "mae")


@dataclass(frozen=True, kw_only=True)
class TreeModel:
    """What boosted trees and forests have in common."""

    kind: ClassVar[Kind]
    idle: ClassVar[tuple[str, ...]] = ()
    """Names that mean nothing for this kind."""

    trees: int = 5
    depth: int = 6
    learning_rate: float = 0.3
    feature_fraction: float = 1.0
    row_fraction: float = 1.0
    replace: bool = False
    bins: int = 32
    candidates: Literal["global", "node", "all"] = "global"
    reg_lambda: float = 1.0
    gamma: float = 0.0
    min_rows: int = 1
    min_child_weight: float = 0.0
    max_leaves: int = 0
    max_delta_step: float | None = None
    objective: str = "auto"
    base_score: float | None = None
    scale_pos_weight: float = 1.0
    tweedie_variance_power: float = 1.5
    multi_strategy: Literal["multi_output_tree", "one_output_per_tree"] = "multi_output_tree"
    max_cat_to_onehot: int = 4
    max_cat_threshold: int = 64
    sampling: Literal["uniform", "goss"] = "uniform"
    top_rate: float = 0.2
    other_rate: float = 0.1
    early_stopping_rounds: int = 0
    eval_metric: str = "auto"
    mode: Literal["standard", "mixed", "layered"] = "standard"
    passive_depth: int = 2
    trees_at_once: int = 4

    def __post_init__(self) -> None:
        for name, low, high in _WHOLE:
            _integer(self, name, low, high)
        for name, number, most, above in _NUMBERS:
            _number(self, name, number, most, above=above)
        for name, choices in _CHOICES:
            if getattr(self, name) not in choices:
                told = ", ".join(map(repr, choices))
                raise JobError(
                    f"must be one of {told} but got {getattr(self, name)!r}",
                    code="choice",
                    field=f"[model] {name}",
                    value=getattr(self, name),
                )
        if not isinstance(self.replace, bool):
            raise JobError(
                f"must be true or false but got {self.replace!r}",
                code="type",
                field="[model] replace",
                value=self.replace,
            )
        defaults = {one.name: one.default for one in fields(self)}
        for name in self.idle:
            if getattr(self, name) != defaults[name]:
                raise JobError(
                    f"means nothing for {self.kind!r}, so it must be left out",
                    code="unsupported",
                    field=f"[model] {name}",
                    value=getattr(self, name),
                )
        self._check_together()

    def _check_together(self) -> None:
        """Refuse values that contradict each other."""
        if self.objective != "reg:tweedie" and self.tweedie_variance_power != 1.5:
            raise JobError(
                "is for objective 'reg:tweedie' only",
                code="conflict",
                field="[model] tweedie_variance_power",
                value=self.tweedie_variance_power,
            )
        if self.max_leaves == 1:
            raise JobError(
                "must be 0 for no limit, or at least 2, but got 1",
                code="range",
                field="[model] max_leaves",
                value=self.max_leaves,
            )
        if self.sampling != "goss" and (self.top_rate, self.other_rate) != (0.2, 0.1):
            raise JobError(
                "and other_rate are for sampling 'goss' only",
                code="conflict",
                field="[model] top_rate",
                value=self.top_rate,
            )
        if self.mode != "layered" and self.passive_depth != 2:
            raise JobError(
                "is for mode 'layered' only", code="conflict", field="[model] passive_depth", value=self.passive_depth
            )
        if self.mode == "layered" and self.passive_depth >= self.depth:
            raise JobError(
                f"must be below depth {self.depth} but got {self.passive_depth}",
                code="conflict",
                field="[model] passive_depth",
                value=self.passive_depth,
            )
        if self.sampling == "goss" and self.row_fraction < 1.0:
            raise JobError(
                "'goss' draws rows itself, so it must be left out",
                code="conflict",
                field="[model] row_fraction",
                value=self.row_fraction,
            )
        if self.top_rate + self.other_rate > 1.0:
            raise JobError(
                f"with top_rate {self.top_rate:g} it must be at most {1 - self.top_rate:g}",
                code="conflict",
                field="[model] other_rate",
                value=self.other_rate,
            )

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class SecureBoost(TreeModel):
    """Boosted trees, for classes, quantities and counts.

    Attributes:
        trees: number of rounds; a round is one tree, or one for each class (``multi_strategy``).
        depth: most splits between root and leaf.
        learning_rate: factor of each leaf weight.
        feature_fraction: share of each party's columns drawn for each tree (rounded down, at least one).
        row_fraction: share of the rows drawn for each tree, without replacement.
        replace: for forests only.
        bins: candidates per column are at most ``bins - 1``.
        candidates: ``"global"``: quantiles of the column, cut once; ``"node"``: percentiles within each node;
            ``"all"``: every value of the column, for small data.
        reg_lambda: L2 penalty of leaf weights, as in XGBoost.
        gamma: least gain of a split, as in XGBoost.
        min_rows: least number of rows in a leaf.
        min_child_weight: least sum of hessians in a leaf (with several outputs, of their mean).
        max_leaves: most leaves of a tree, those of the largest gains; 0 for no limit.
        max_delta_step: largest size of a leaf weight before ``learning_rate``; 0 for no limit. Without a value 0.7 for
            ``"count:poisson"`` as in XGBoost, else 0.
        objective: as XGBoost calls it; ``"auto"`` is ``"binary:logistic"``, ``"multi:softprob"`` or
            ``"reg:squarederror"``, whichever fits the labels. Besides: ``"count:poisson"``, ``"reg:tweedie"``.
        base_score: where training starts: a probability, or a mean. Without a value a margin of 0 for classes, and the
            mean of the training targets for quantities.
        scale_pos_weight: factor of the weights of the second of two classes.
        tweedie_variance_power: strictly between 1 (like Poisson) and 2 (like gamma).
        multi_strategy: several classes: one tree a round with a weight for each class in its leaves, or one tree for
            each class.
        max_cat_to_onehot: columns of fewer categories than this are split one category against the rest; the others
            by sets, found in the order of their gradients.
        max_cat_threshold: most categories in the smaller side of a set.
        sampling: ``"uniform"``, or ``"goss"``: the rows of the largest gradients, and some of the others.
        top_rate: for ``"goss"``: share of the rows that are kept for their gradients.
        other_rate: for ``"goss"``: share of the rows that are drawn from the others.
        early_stopping_rounds: how many rounds the metric of the validation rows may fail to improve; 0: no stop.
        eval_metric: of the validation rows; ``"auto"`` is the loss itself.
        mode: ``"standard"``: every party may own any split; ``"mixed"``: each tree is grown on one party's columns
            alone, the parties taking turns; ``"layered"``: the upper levels on those of the passive parties, the lower
            ones on those of the active party.
        passive_depth: for ``"layered"``: how many levels the passive parties grow.
        trees_at_once: for forests only.
    """

    kind: ClassVar[Kind] = "secureboost"
    idle: ClassVar[tuple[str, ...]] = ("replace", "trees_at_once")


@dataclass(frozen=True, kw_only=True)
class FederatedForest(TreeModel):
    """A random forest: trees on drawn rows and columns, averaged.

    Attributes:
        trees: number of trees.
        depth: most splits between root and leaf.
        learning_rate: for boosting only.
        feature_fraction: share of each party's columns drawn for each tree (rounded down, at least one).
        row_fraction: share of the rows drawn for each tree.
        replace: whether rows are drawn with replacement.
        bins: candidates per column are at most ``bins - 1``.
        candidates: ``"global"``: quantiles of the column, cut once; ``"node"``: percentiles within each node;
            ``"all"``: every value of the column, for small data.
        reg_lambda: for boosting only.
        gamma: least gain of a split: the decrease of Gini impurity (or of the variance) times the node's rows.
        min_rows: least number of rows in a leaf.
        min_child_weight: least sum of row weights in a leaf.
        max_leaves: most leaves of a tree, those of the largest gains; 0 for no limit.
        max_delta_step: for boosting only.
        objective: for boosting only; a forest takes Gini impurity for classes and variance for quantities.
        base_score: for boosting only.
        scale_pos_weight: factor of the weights of the second of two classes.
        tweedie_variance_power: for boosting only.
        multi_strategy: for boosting only.
        max_cat_to_onehot: columns of fewer categories than this are split one category against the rest; the others
            by sets, found in the order of their class shares.
        max_cat_threshold: most categories in the smaller side of a set.
        sampling: for boosting only.
        top_rate: for boosting only.
        other_rate: for boosting only.
        early_stopping_rounds: for boosting only.
        eval_metric: for boosting only.
        mode: for boosting only.
        passive_depth: for boosting only.
        trees_at_once: how many trees grow side by side, so that the parties work at the same time.
    """

    kind: ClassVar[Kind] = "forest"
    idle: ClassVar[tuple[str, ...]] = (
        "learning_rate",
        "reg_lambda",
        "max_delta_step",
        "objective",
        "base_score",
        "tweedie_variance_power",
        "multi_strategy",
        "sampling",
        "top_rate",
        "other_rate",
        "early_stopping_rounds",
        "eval_metric",
        "mode",
        "passive_depth",
    )


_WHOLE: tuple[tuple[str, int, int | None], ...] = (
    ("trees", 1, 100_000),
    ("depth", 1, 20),
    ("bins", 2, 1024),
    ("min_rows", 1, None),
    ("max_leaves", 0, None),
    ("max_cat_to_onehot", 1, 1000),
    ("max_cat_threshold", 1, 1000),
    ("early_stopping_rounds", 0, None),
    ("passive_depth", 1, 19),
    ("trees_at_once", 1, 64),
)
_NUMBERS: tuple[tuple[str, float, float | None, bool], ...] = (
    ("learning_rate", 0.0, 1.0, True),
    ("feature_fraction", 0.0, 1.0, True),
    ("row_fraction", 0.0, 1.0, True),
    ("reg_lambda", 0.0, None, False),
    ("gamma", 0.0, None, False),
    ("min_child_weight", 0.0, None, False),
    ("scale_pos_weight", 0.0, None, True),
    ("top_rate", 0.0, 1.0, False),
    ("other_rate", 0.0, 1.0, True),
    ("tweedie_variance_power", 1.0, 2.0, True),
    ("max_delta_step", 0.0, None, False),
    ("base_score", -1e150, 1e150, False),
)
_CHOICES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("candidates", ("global", "node", "all")),
    ("objective", OBJECTIVES),
    ("multi_strategy", ("multi_output_tree", "one_output_per_tree")),
    ("sampling", ("uniform", "goss")),
    ("eval_metric", METRICS),
    ("mode", ("standard", "mixed", "layered")),
)
_OPTIONAL = ("max_delta_step", "base_score")


def _integer(params: TreeModel, name: str, low: int, high: int | None) -> None:
    value = getattr(params, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"{low} to {high}"
        raise JobError(
            f"must be a whole number, {bounds}, but got {value!r}",
            code=number_code(value, whole=True),
            field=f"[model] {name}",
            value=value,
        )


def _number(params: TreeModel, name: str, low: float, high: float | None, *, above: bool = False) -> None:
    value = getattr(params, name)
    if value is None and name in _OPTIONAL:
        return
    known = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if (
        not known
        or value < low
        or (above and value == low)
        or (high is not None and value > high)
        or value in _INFINITE
    ):
        bounds = f"{'above' if above else 'at least'} {low:g}" + ("" if high is None else f" and at most {high:g}")
        raise JobError(
            f"must be a number {bounds} but got {value!r}",
            code=number_code(value),
            field=f"[model] {name}",
            value=value,
        )


_INFINITE = (float("inf"), float("-inf"))
