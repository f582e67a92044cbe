"""Metrics of leakage and of utility: name, direction, chance level and wording, each listed once.

:mod:`labelward.metrics.leakage` and :mod:`labelward.metrics.utility` compute them; reports get their wording here. An
attack may add metrics of its own (:attr:`labelward.attacks.base.Attack.metrics`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

OUTSIDE = "outside_"
"""Prefix of a metric over rows outside the training set."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric.

    Attributes:
        name: key in results.
        title: name in tables and sentences.
        higher_is_better: direction, for whoever is scored: a higher leakage is better for the attacker.
        unit_scale: whether 1 is a perfect score. Differences are then given in percentage points, otherwise relative to
            the value.
        grouping: whether it compares groups of rows with the labels, whatever the groups are called.
        chance: expected value of a guess without any knowledge, where it is the same for all guesses and labels; None:
            it depends on them.
        article: indefinite article of the title.
        note: explanation below a table of leakage.
    """

    name: str
    title: str
    higher_is_better: bool = True
    unit_scale: bool = True
    grouping: bool = False
    chance: float | None = None
    article: str = "a"
    note: str = ""

    def better(self, value: float) -> float:
        """Return the value, or its negative, so that larger is better."""
        return value if self.higher_is_better else -value


RANKING, MATCHED = COMMON = ("v_measure", "matched_accuracy")
"""What every guess of labels is scored by, whether of groups or of classes: attacks are ranked by the first."""

BALANCED = "balanced_accuracy"
"""What attacks that name classes are judged by: one class for all rows gives 1 / classes, however unbalanced."""

READ, READ_RIGHT = "read", "read_right"
READ_METRICS = (
    Metric(name=READ, title="share of labels read", chance=0.0),
    Metric(name=READ_RIGHT, title="share of these that is right"),
)
"""Metrics of attacks that read single labels and say nothing of the others: figures over all rows do not show it."""

_LISTED = (
    Metric(name="v_measure", title="V-measure", grouping=True),
    Metric(name="ari", title="adjusted Rand index", article="an", grouping=True, chance=0.0),
    Metric(
        name="matched_accuracy",
        title="balanced accuracy, best matching",
        note="Best matching: each class is one of the guessed groups, as fits best.",
    ),
    Metric(name="r2", title="R²", article="an", note="R²: the share of the labels' variance that the groups explain."),
    Metric(name="auc", title="AUC", article="an", chance=0.5),
    Metric(name="recovered", title="cells recovered", note="Cells recovered: the share of other parties' cells."),
    Metric(
        name="recovered_by_splits",
        title="cells recovered by splits alone",
        note="By splits alone: cells that no defense of the sums can hide.",
    ),
    Metric(name="wrong", title="wrong cells", higher_is_better=False),
    Metric(name="correlation", title="correlation", note="Correlation: its absolute mean over the columns guessed."),
    Metric(name="accuracy", title="accuracy", article="an"),
    Metric(
        name=BALANCED, title="balanced accuracy", note="Balanced accuracy: the mean share of each class guessed right."
    ),
    Metric(name="accuracy_majority", title="accuracy, clusters named by the majority", article="an"),
    Metric(name="top5", title="top-5 accuracy"),
    Metric(name="f1", title="F1", article="an"),
    Metric(name="logloss", title="log loss", higher_is_better=False, unit_scale=False),
    Metric(name="loss", title="loss", higher_is_better=False, unit_scale=False),
    Metric(name="error", title="error rate", article="an", higher_is_better=False),
    Metric(name="rmse", title="RMSE", article="an", higher_is_better=False, unit_scale=False),
    Metric(name="mae", title="mean absolute error", higher_is_better=False, unit_scale=False),
    Metric(name="deviance", title="deviance", higher_is_better=False, unit_scale=False),
)
BESIDE_METRICS = ("chance", "without_view", "primary", "alone", "joined", "beside", "target", "epsilon", "advantage")
"""What results hold beside the metrics of leakage, under names of the same kind."""
METRICS = {metric.name: metric for metric in _LISTED}
CHANCE_LEVELS = {metric.name: metric.chance for metric in _LISTED if metric.chance is not None}


def find_metric(name: str, more: Iterable[Metric] = ()) -> Metric:
    """Return a metric by name; an unknown name is taken for a score on a scale from 0 to 1, titled by its name.

    Args:
        name: key in results, with or without the prefix :data:`OUTSIDE`.
        more: metrics that are not listed here, such as those of an attack.
    """
    found = METRICS.get(name) or next((each for each in more if each.name == name), None)
    if found is not None:
        return found
    if name.startswith(OUTSIDE):
        inside = find_metric(name.removeprefix(OUTSIDE), more)
        return replace(inside, name=name, title=f"{inside.title} outside the training rows")
    return Metric(name=name, title=name)
