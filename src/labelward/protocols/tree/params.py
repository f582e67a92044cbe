"""Parameters of federated boosted trees, named as in XGBoost's scikit-learn face where they mean the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from labelward.errors import JobError

__all__ = ["SecureBoost"]


@dataclass(frozen=True, kw_only=True)
class SecureBoost:
    """Boosted trees for two classes.

    Attributes:
        trees: number of trees.
        depth: most splits between root and leaf.
        learning_rate: factor of each leaf weight.
        feature_fraction: share of each party's columns drawn for each tree (rounded down, at least one).
        row_fraction: share of the rows drawn for each tree, without replacement.
        bins: candidates per column are at most ``bins - 1``.
        candidates: ``"global"``: quantiles of the column, cut once; ``"node"``: percentiles within each node.
        reg_lambda: L2 penalty of leaf weights, as in XGBoost.
        gamma: least gain of a split, as in XGBoost.
        min_rows: least number of rows in a leaf.
        min_child_weight: least sum of hessians in a leaf.
    """

    kind: ClassVar[str] = "secureboost"

    trees: int = 5
    depth: int = 6
    learning_rate: float = 0.3
    feature_fraction: float = 1.0
    row_fraction: float = 1.0
    bins: int = 32
    candidates: Literal["global", "node"] = "global"
    reg_lambda: float = 1.0
    gamma: float = 0.0
    min_rows: int = 1
    min_child_weight: float = 0.0

    def __post_init__(self) -> None:
        _integer(self, "trees", 1, 100_000)
        _integer(self, "depth", 1, 20)
        _integer(self, "bins", 2, 1024)
        _integer(self, "min_rows", 1, None)
        _number(self, "learning_rate", 0.0, 1.0, above=True)
        _number(self, "feature_fraction", 0.0, 1.0, above=True)
        _number(self, "row_fraction", 0.0, 1.0, above=True)
        _number(self, "reg_lambda", 0.0, None)
        _number(self, "gamma", 0.0, None)
        _number(self, "min_child_weight", 0.0, None)
        if self.candidates not in ("global", "node"):
            raise JobError(f"[model] candidates: must be 'global' or 'node' but got {self.candidates!r}")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return asdict(self)


def _integer(params: SecureBoost, name: str, low: int, high: int | None) -> None:
    value = getattr(params, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"{low} to {high}"
        raise JobError(f"[model] {name}: must be a whole number, {bounds}, but got {value!r}")


def _number(params: SecureBoost, name: str, low: float, high: float | None, *, above: bool = False) -> None:
    value = getattr(params, name)
    known = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if (
        not known
        or value < low
        or (above and value == low)
        or (high is not None and value > high)
        or value in _INFINITE
    ):
        bounds = f"{'above' if above else 'at least'} {low:g}" + ("" if high is None else f" and at most {high:g}")
        raise JobError(f"[model] {name}: must be a number {bounds} but got {value!r}")


_INFINITE = (float("inf"), float("-inf"))
