"""Figures of a study, read from the results of its audits; nothing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.attacks.instance_spaces import observed_leaves
from labelward.attacks.nets.view_embeddings import own_embeddings
from labelward.federation.components import with_defaults
from labelward.federation.simulation import VIEW
from labelward.job import Job
from labelward.kernels.information import joint_information
from labelward.party.view import View
from labelward.runs.directory import data_folder
from labelward.runs.schema import RESULTS_FILE, ResultRow, read_rows, run_folder
from labelward.studies.attribute_inference import read_attribute_inference
from labelward.studies.references import NO_DEFENSE, NUMBERS, SUMS, TIME, TRAFFIC, UTILITY, FigureKey
from labelward.studies.run import StudyResult
from labelward.studies.searches import read_hypervolumes
from labelward.studies.spec import ATTACKER, ATTRIBUTE, MetricColumn, Study, StudyTask

Floats = NDArray[np.float64]
StudyFigures = dict[tuple[str, FigureKey], dict[int, float]]
"""By setting and key: the figure of each seed."""


def study_figures(result: StudyResult, out: Path) -> StudyFigures:
    """Return all figures that the tasks of a study stored.

    Raises:
        FileFormatError: stored results are damaged.
    """
    figures: StudyFigures = {}
    by_party: dict[tuple[str, FigureKey], dict[int, list[float]]] = {}
    means = {column.title for column in result.study.columns if column.of == "passive"}
    for task, job in result.jobs.items():
        folder = out / task.path
        for key, value in _search_figures(task, folder).items():
            figures.setdefault((task.setting.name, key), {})[task.seed] = value
        if not (folder / RESULTS_FILE).exists():
            continue
        full = with_defaults(job)  # rows name every parameter, the study only those that it sets
        defenses = {
            _encode(each.as_list()): name for each, name in zip(full.variants(), task.defense_names, strict=True)
        }
        attacks = {_encode(each.as_dict()): given for each, given in zip(full.attacks, job.attacks, strict=True)}
        inferred = read_attribute_inference(folder)
        for row in read_rows(folder):
            defense = defenses[_encode(list(row.defense))]
            for name, *metrics in task.dataset.metrics():
                for column, value in _row_figures(result.study, task, row, attacks, metrics, inferred).items():
                    key = FigureKey(name, task.model, defense, column)
                    if column in means:
                        by_party.setdefault((task.setting.name, key), {}).setdefault(task.seed, []).append(value)
                    else:
                        figures.setdefault((task.setting.name, key), {})[task.seed] = value
    for place, seeds in by_party.items():
        figures[place] = {seed: float(np.mean(values)) for seed, values in seeds.items()}
    return figures


def figures_by_seed(figures: StudyFigures, setting: str, keys: Sequence[FigureKey]) -> NDArray[np.float64]:
    """Return float64 [keys, seeds] on the seeds that all of the keys have, in their order."""
    found = [figures.get((setting, key), {}) for key in keys]
    seeds = sorted(set.intersection(*map(set, found)))
    return np.array([[each[seed] for seed in seeds] for each in found]).reshape(len(keys), len(seeds))


def study_versions(result: StudyResult, out: Path) -> dict[str, str]:
    """Return the versions of the software that computed the figures; if rows differ, all of them."""
    versions: dict[str, dict[str, None]] = {}
    for task in result.jobs:
        for row in read_rows(out / task.path) if (out / task.path / RESULTS_FILE).exists() else []:
            for name, version in row.versions.items():
                versions.setdefault(name, {})[version] = None
    return {name: ", ".join(each) for name, each in versions.items()}


def information_by_tree(task: StudyTask, out: Path) -> NDArray[np.float64]:
    """Return float64 [trees]: mutual information, in nats, of the labels and the leaves that the attacker observes.

    For each tree on the rows of its sample, in the undefended training of a task.

    Raises:
        FileFormatError: the stored view is damaged.
    """
    folder = out / task.path
    labels = _true_classes(folder, task.seed)
    leaves = observed_leaves(View.load(run_folder(folder, [], task.seed) / ATTACKER / VIEW))
    return np.array([joint_information(tree[tree >= 0], labels[tree >= 0]) for tree in leaves])


def embeddings_by_class(task: StudyTask, job: Job, out: Path) -> dict[str, dict[str, tuple[Floats, Floats]]]:
    """Return the embeddings of the training rows after the last epoch, by defense and passive party.

    Those of class 0, and of class 1, float64 [rows]; of longer embeddings the first number.

    Raises:
        DataError: the task kept no embeddings of epochs.
        FileFormatError: a stored view is damaged.
    """
    folder, full = out / task.path, with_defaults(job)
    labels = _true_classes(folder, task.seed)
    found: dict[str, dict[str, tuple[Floats, Floats]]] = {}
    for variant, name in zip(full.variants(), task.defense_names, strict=True):
        for party in full.passive:
            view = View.load(run_folder(folder, variant.as_list(), task.seed) / party.name / VIEW)
            values = own_embeddings(view, full.model.params["epochs"])
            if values is not None:
                found.setdefault(name, {})[party.name] = (values[labels == 0, 0], values[labels == 1, 0])
    return found


def _true_classes(folder: Path, seed: int) -> NDArray[np.int64]:
    """Return int64 [training rows]: the number of each row's true class, which an audit stored."""
    import pyarrow.parquet as pq

    truth = pq.read_table(data_folder(folder, seed) / "truth.parquet")["label"].to_numpy(zero_copy_only=False)
    return np.asarray(np.unique(truth, return_inverse=True)[1], np.int64)


def _search_figures(task: StudyTask, folder: Path) -> dict[FigureKey, float]:
    """Return the figures of a search; none of an audit, or of a search that did not end."""
    found = read_hypervolumes(folder)
    columns = {} if found is None else {UTILITY: found.utility, **found.final}
    return {FigureKey(task.dataset.name, task.model, NO_DEFENSE, column): value for column, value in columns.items()}


def _row_figures(
    study: Study,
    task: StudyTask,
    row: ResultRow,
    attacks: Mapping[bytes, Any],
    metrics: Sequence[str],
    inferred: Mapping[str, float],
) -> dict[str, float]:
    """Return the figures of a row by column, in a metric of utility and one of leakage.

    A run in which the attacker deviates from the protocol gives the attack's figures only.
    """
    utility, leakage = metrics
    figures: dict[str, Any] = {}
    if row.behavior is None:
        cost = row.cost
        figures = {UTILITY: row.utility[utility], SUMS: cost.logical_sums}
        if cost.logical_rows or not cost.logical_sums:  # earlier versions did not count the rows of sums
            figures[NUMBERS] = cost.logical_sums + cost.logical_rows
        figures |= {TIME: cost.seconds, TRAFFIC: cost.bytes / 1e6}
    if row.attack is not None and row.leakage is not None:
        attack, active = attacks.get(_encode(row.attack)), row.party == "active"  # None: of another version's study
        of = {"attacker": row.party == ATTACKER, "passive": not active, "active": active}
        for column in (each for each in study.columns if of[each.of]):
            applies = "*" in column.metric or leakage == task.dataset.leakage_metric
            if applies and study.attack_of(column, task.dataset) == attack:
                source = _metrics_of(column, row, (utility, leakage), inferred)
                figures[column.title] = source.get(column.metric.replace("*", leakage))
    return {column: float(value) for column, value in figures.items() if value is not None}


def _metrics_of(
    column: MetricColumn, row: ResultRow, metrics: tuple[str, str], inferred: Mapping[str, float]
) -> Mapping[str, Any]:
    """Return the metrics among which a column has its own."""
    scored: Mapping[str, Any] = row.leakage or {}
    utility, leakage = metrics
    if column.source == "model":
        return {leakage: row.utility[utility]}
    if column.source == "utility":
        return row.utility
    if column.source == ATTRIBUTE:
        return inferred if row.behavior is None and not row.defense else {}
    if column.source == "without view":
        return dict(scored["without_view"])
    return dict(scored.get("beside", {}).get(column.source, {})) if column.source else scored


def _encode(configured: Any) -> bytes:
    return msgspec.json.encode(configured, order="deterministic")
