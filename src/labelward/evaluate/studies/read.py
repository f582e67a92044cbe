"""The figures of a study, from the results of its audits: nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.attacks.instance_spaces import observed_leaves
from labelward.evaluate.studies.compared import Place
from labelward.evaluate.studies.plan import ATTACKER, NONE, SECOND, SUMS, UTILITY, Column, Study, Task
from labelward.evaluate.studies.run import Outcome
from labelward.evaluate.studies.second import read_second
from labelward.federation.components import with_defaults
from labelward.federation.simulation import VIEW
from labelward.job import Job
from labelward.kernels.information import joint_information
from labelward.party.view import View
from labelward.runs.directory import data_folder
from labelward.runs.schema import RESULTS_FILE, ResultRow, read_rows, run_folder

__all__ = ["Figures", "figures", "information_by_tree", "versions"]

Figures = dict[tuple[str, Place], dict[int, float]]
"""By setting and place: each seed's figure."""


def figures(outcome: Outcome, out: Path) -> Figures:
    """Return all figures that the tasks of an outcome stored.

    Raises:
        FileFormatError: stored results are damaged.
    """
    found: Figures = {}
    for task, job in outcome.jobs.items():
        done = with_defaults(job) if (out / task.path / RESULTS_FILE).exists() else None
        if done is None:
            continue
        names = [NONE, *(each.name for each in task.setting.defenses.get(task.model, ()))]
        defenses = {_key(each.as_list()): name for each, name in zip(done.variants(), names, strict=True)}
        attacks = {_key(full.as_dict()): given for full, given in zip(done.attacks, job.attacks, strict=True)}
        second = read_second(out / task.path)
        for row in read_rows(out / task.path):
            defense = defenses[_key(list(row.defense))]
            for name, *metrics in task.table.measured_as():
                for column, value in _told(outcome.study, task, row, attacks, metrics, second).items():
                    place = name, task.model, defense, column
                    found.setdefault((task.setting.name, place), {})[task.seed] = value
    return found


def versions(outcome: Outcome, out: Path) -> dict[str, str]:
    """Return the versions of what made the figures; where rows differ, all that occur."""
    found: dict[str, dict[str, None]] = {}
    for task in outcome.jobs:
        rows = read_rows(out / task.path) if (out / task.path / RESULTS_FILE).exists() else []
        for row in rows:
            for name, version in row.versions.items():
                found.setdefault(name, {})[version] = None
    return {name: ", ".join(each) for name, each in found.items()}


def information_by_tree(task: Task, job: Job, out: Path) -> NDArray[np.float64]:
    """Return float64 [trees]: the mutual information, in nats, of the leaves that the attacker knows with the labels.

    Of each tree on its sample's rows, in the undefended run of a task.

    Raises:
        FileFormatError: the stored view is damaged.
    """
    import pyarrow.parquet as pq

    folder = out / task.path
    truth = pq.read_table(data_folder(folder, task.seed) / "truth.parquet")["label"].to_numpy(zero_copy_only=False)
    _, labels = np.unique(truth, return_inverse=True)
    leaves = observed_leaves(View.load(run_folder(folder, [], task.seed) / ATTACKER / VIEW))
    return np.array([joint_information(tree[tree >= 0], labels[tree >= 0]) for tree in leaves])


def _told(
    study: Study,
    task: Task,
    row: ResultRow,
    attacks: Mapping[bytes, Any],
    metrics: Sequence[str],
    second: Mapping[str, float],
) -> dict[str, float]:
    """Return the figures of a row by column, by the metrics of utility and leakage; of a deviating run the attack's."""
    worth, leak = metrics
    told: dict[str, Any] = {}
    if row.behavior is None:
        told = {UTILITY: row.utility[worth], SUMS: row.cost.logical_sums}
    if row.attack is not None and row.leakage is not None and row.party == ATTACKER:
        attack = attacks[_key(row.attack)]
        for each in study.columns:
            fits = "*" in each.metric or leak == task.table.leakage
            if fits and study.attack(each, task.table) == attack:
                told[each.title] = _measured(each, row, (worth, leak), second).get(each.metric.replace("*", leak))
    return {column: float(value) for column, value in told.items() if value is not None}


def _measured(
    column: Column, row: ResultRow, metrics: tuple[str, str], second: Mapping[str, float]
) -> Mapping[str, Any]:
    """Return the metrics from which a column takes its one."""
    leakage: Mapping[str, Any] = row.leakage or {}
    worth, leak = metrics
    if column.of == "model":
        return {leak: row.utility[worth]}
    if column.of == SECOND:
        return second if row.behavior is None and not row.defense else {}
    if column.of == "without view":
        return dict(leakage["without_view"])
    return dict(leakage.get("beside", {}).get(column.of, {})) if column.of else leakage


def _key(configured: Any) -> bytes:
    return msgspec.json.encode(configured, order="deterministic")
