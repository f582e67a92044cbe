"""The leakage meter within a job, and the same reading from a stored view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.visible import visible_leaves
from labelward.data import Rehearsal
from labelward.defenses.leakage_meter import LeakageBudget, LeakageMeter, Measure, Reading, reading
from labelward.errors import JobError
from labelward.evaluate.kinds import make_programs
from labelward.evaluate.results import MeterReading
from labelward.job import Job
from labelward.party.context import Progress, silent
from labelward.party.policy import Policy
from labelward.party.view import View

__all__ = ["measured", "metered", "readings_of"]


def metered(
    job: Job, data: Rehearsal, policies: Sequence[Policy], *, seed: int, progress: Progress = silent
) -> tuple[Policy, ...]:
    """Return the policies of a run with the meter, or the budget, that ``[leakage]`` asks for behind them.

    There is a meter for trees only; for other models ``meter`` means nothing.

    Args:
        progress: hears of each reading, from the active party's thread.

    Raises:
        JobError: a budget for a model whose leakage the meter cannot read.
    """
    read = make_programs(job.model).metered
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
    measure = Measure.of(job.model.as_dict(), int(labels.max()) + 1, seed)
    if job.leakage.budget is None:
        return (*policies, LeakageMeter(labels, measure, progress))
    budget = LeakageBudget(labels, measure, progress, budget=job.leakage.budget, quantities=not data.classes)
    return (*policies, budget)


def measured(view: View, labels: NDArray[np.int64], *, seed: int) -> Reading:
    """Return what the meter reads at the end, from the stored view of a passive party.

    Args:
        labels: int64 [training rows]: classes; of quantities the bins that they are cut into.
        seed: of the run.

    Raises:
        FileFormatError: records of the view contradict each other.
    """
    model = {name: view.parameter(f"model.{name}") for name in ("kind", "multi_strategy")}
    return reading(visible_leaves(view), labels, view.party, Measure.of(model, int(labels.max()) + 1, seed))


def readings_of(account: Mapping[str, Any]) -> dict[str, tuple[MeterReading, ...]]:
    """Return the readings that stand in a policy's account, by party, in the order of trees; none of other policies."""
    return {
        party: tuple(MeterReading(trees=int(trees), **each) for trees, each in of_trees.items())
        for party, of_trees in account.get("readings", {}).items()
    }
