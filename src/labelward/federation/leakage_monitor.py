"""Leakage meter of a job, and the same measurement on a stored view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.instance_spaces import observed_leaves
from labelward.data import VerticalDataset
from labelward.defenses.leakage_meter import (
    LeakageBudget,
    LeakageMeter,
    LeakageReading,
    MonitorConfig,
    measure_leakage,
)
from labelward.errors import JobError
from labelward.federation.components import model_family, policy_chains
from labelward.job import Job, Variant
from labelward.party.context import Progress, no_progress
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.runs.party_record import LeakageFigures
from labelward.runs.schema import MeterReading


def with_monitor(
    job: Job, data: VerticalDataset, policies: Sequence[Policy], *, seed: int, progress: Progress = no_progress
) -> tuple[Policy, ...]:
    """Return the policies of a run, followed by the leakage meter or budget of ``[leakage]``.

    There is a meter for trees only; for other models ``meter`` means nothing.

    Args:
        progress: hears of each reading, from the active party's thread.

    Raises:
        JobError: a budget for a model whose leakage the meter cannot read.
    """
    read = model_family(job.model).metered
    if not read and job.leakage.budget is not None:
        raise JobError(
            f"means nothing for {job.model.kind!r}, whose leakage the meter cannot read",
            code="unsupported",
            field="[leakage] budget",
            value=job.leakage.budget,
        )
    if not read or not job.leakage.meter:
        return tuple(policies)
    labels = data.train_labels
    measure = MonitorConfig.of(job.model.as_dict(), int(labels.max()) + 1, seed)
    if job.leakage.budget is None:
        return (*policies, LeakageMeter(labels, measure, progress))
    budget = LeakageBudget(
        labels,
        measure,
        progress,
        budget=job.leakage.budget,
        quantities=not data.classes,
        collude=job.leakage.collude or (),
    )
    return (*policies, budget)


def monitored_chains(
    job: Job, data: VerticalDataset, variant: Variant, *, seed: int, progress: Progress = no_progress
) -> dict[str, tuple[Policy, ...]]:
    """Return by party the policies of a variant, the active party's followed by the leakage meter.

    Args:
        job: completed.
        data: with the active party's labels.
        progress: hears of each reading of the meter.

    Raises:
        JobError: a defense cannot be made, or a leakage budget is set for a model whose leakage cannot be measured.
    """
    chains = policy_chains(job, variant)
    active = job.active.name
    return {**chains, active: with_monitor(job, data, chains[active], seed=seed, progress=progress)}


def measure_view(view: View, labels: NDArray[np.int64], *, seed: int) -> LeakageReading:
    """Measure leakage at the end of a run, from the stored view of a passive party.

    Args:
        labels: int64 [training rows]: classes, or the bins of regression targets.
        seed: of the run.

    Raises:
        FileFormatError: records of the view contradict each other.
    """
    model = {name: view.parameter(f"model.{name}") for name in ("kind", "multi_strategy")}
    return measure_leakage(
        observed_leaves(view), labels, view.party, MonitorConfig.of(model, int(labels.max()) + 1, seed)
    )


def leakage_figures(policies: Sequence[Policy]) -> dict[str, LeakageFigures]:
    """Return by passive party what the meter among an active party's policies found, after the last tree."""
    meters = [each for each in policies if isinstance(each, LeakageMeter)]
    return {party: LeakageFigures(**asdict(guess)) for meter in meters for party, guess in meter.guesses().items()}


def readings_of(account: Mapping[str, Any]) -> dict[str, tuple[MeterReading, ...]]:
    """Return the readings in a policy's account, by party, in the order of trees; empty for other policies."""
    return {
        party: tuple(MeterReading(trees=int(trees), **each) for trees, each in of_trees.items())
        for party, of_trees in account.get("readings", {}).items()
    }
