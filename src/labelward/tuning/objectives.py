"""Objectives: what a search minimizes, computed from the figures of one setting.

- ``utility``: 1 - AUC for two classes, 1 - accuracy for more (Equation 4 of the CMOSB paper), 1 - R² for quantities.
- ``cost``: seconds of ciphertext operations (Equation 5), or what ``[tune] cost`` says.
- ``leakage``: of the strongest attack in balanced accuracy, best matching, a scale that all guesses of labels share; or
  ``"ica"``, the accuracy of instance clustering (Equation 6).
- any metric of a result row by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelward.errors import JobError, unknown_name
from labelward.job import ComponentSpec, Job, TuneSection
from labelward.metrics.registry import MATCHED, METRICS, find_metric
from labelward.tuning.pareto import Points

ICA = "instance-clustering"
_COSTS = ("seconds", "bytes", "messages", "encryptions", "additions", "decryptions")
_MOST_LOSS = 0.5
_DIGITS = 10

Leakage = Mapping[tuple[str, ComponentSpec], Mapping[str, Any]]
"""By party and attack its metrics."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one setting gave: metrics of utility, the cost that is minimized and all others, leakage by attacker."""

    utility: Mapping[str, float]
    cost: float
    costs: Mapping[str, float]
    leakage: Leakage


@dataclass(frozen=True)
class Objectives:
    """The objectives of a job.

    Raises:
        JobError: one that no result row has, or leakage without attacks.
    """

    job: Job
    section: TuneSection
    classes: int

    def __post_init__(self) -> None:
        kinds = [attack.kind for attack in self.job.attacks]
        known = ["utility", "cost", "leakage", *METRICS, *_COSTS]
        for name in self.section.objectives:
            kind, dot, metric = name.partition(".")
            if name not in known and not (dot and kind in kinds and metric):
                field = "[tune] objectives"
                raise JobError(unknown_name("objective", name, known), code="unknown", field=field, value=name)
        if "leakage" in self.section.objectives:
            if not kinds:
                reason = "required, since leakage is an objective"
                raise JobError(reason, code="missing", field="[[attack]]")
            if self.section.leakage not in ("strongest", "ica", *kinds):
                known = ["strongest", "ica", *kinds]
                reason = unknown_name("leakage", self.section.leakage, known)
                raise JobError(reason, code="unknown", field="[tune] leakage", value=self.section.leakage)
            if self.section.leakage == "ica" and ICA not in kinds:
                reason = f"required for [tune] leakage = 'ica': the attack {ICA!r}"
                raise JobError(reason, code="missing", field="[[attack]]", value=ICA)

    def check_limits(self) -> None:
        """Refuse limits that cannot bind; :class:`JobError`."""
        for name, limit in self.section.constraints.items():
            if limit > 1 and self._at_most_one(name):
                reason = f"must be at most 1, since {name!r} never is above it, not {limit:g}"
                raise JobError(reason, code="range", field=f"[tune] constraints {name}", value=limit)

    def _at_most_one(self, name: str) -> bool:
        """Return whether an objective is known never to be above 1; 1 - R², for quantities, may be."""
        if name in ("utility", "leakage"):
            return name == "leakage" or bool(self.classes)
        metric = METRICS.get(name.rpartition(".")[2])
        return metric is not None and metric.unit_scale and metric.name != "r2"

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return self.section.objectives

    @property
    def utility_metric(self) -> str:
        """The metric whose complement is the loss of utility."""
        return "auc" if self.classes == 2 else "accuracy" if self.classes else "r2"

    def values(self, figures: Figures) -> tuple[float, ...]:
        """Return them for one setting, all to be minimized, with as many digits as a ledger keeps.

        Raises:
            JobError: a metric that the rows of this job do not have.
        """
        return tuple(float(f"{self._value(name, figures):.{_DIGITS}g}") for name in self.names)

    def bounds(self, dearest: Figures) -> Points:
        """Return fixed bounds, float64 [2, objectives]: they depend on no other setting than the dearest one.

        Raises:
            JobError: an objective that this job does not give.
        """
        best, worst = [], []
        for name in self.names:
            value, low, high = self._value(name, dearest), 0.0, 1.0
            if name == "utility":
                high = _MOST_LOSS
            elif name == "leakage":
                low = 1.0 / self.classes if self.classes else 0.0
            elif name == "cost" or name in dearest.costs or not find_metric(name.rpartition(".")[2]).unit_scale:
                high = max(value, np.finfo(np.float64).tiny)
            best.append(low)
            worst.append(high)
        return np.array([best, worst])

    def strongest(self, leakage: Leakage) -> float:
        """Return the leakage of the attack that finds the most."""
        found = [scores for _, scores in self._counted(leakage)]
        if not found:
            reason = f"no attack gives {self.section.leakage!r}"
            raise JobError(reason, code="unsupported", field="[tune] leakage", value=self.section.leakage)
        return max(found)

    def _counted(self, leakage: Leakage) -> list[tuple[str, float]]:
        wanted = ICA if self.section.leakage == "ica" else self.section.leakage
        metric = "accuracy" if self.section.leakage == "ica" else MATCHED
        return [
            (party, float(metrics[metric]))
            for (party, attack), metrics in leakage.items()
            if wanted in ("strongest", attack.kind) and metric in metrics
        ]

    def _value(self, name: str, figures: Figures) -> float:
        if name == "utility":
            return 1.0 - self._utility(figures)
        if name == "cost":
            return figures.cost
        if name == "leakage":
            return self.strongest(figures.leakage)
        if name in figures.costs:
            return float(figures.costs[name])
        if name in figures.utility:
            metric, value = find_metric(name), figures.utility[name]
            return value if not metric.higher_is_better else 1.0 - value if metric.unit_scale else -value
        kind, _, metric_name = name.rpartition(".")
        found = [
            float(metrics[metric_name])
            for (_, attack), metrics in figures.leakage.items()
            if kind in ("", attack.kind) and metric_name in metrics
        ]
        if not found:
            reason = f"no result row of this job has {name!r}"
            raise JobError(reason, code="unknown", field="[tune] objectives", value=name)
        return max(found)

    def _utility(self, figures: Figures) -> float:
        if self.utility_metric not in figures.utility:
            reason = (
                "'utility' cannot be measured, since the scored rows with known labels lack a class; use a larger "
                "[tune] validation"
            )
            raise JobError(reason, code="unsupported", field="[tune] objectives", value="utility")
        return figures.utility[self.utility_metric]
