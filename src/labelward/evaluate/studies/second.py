"""Appendix E's second step: what inferred labels tell of a further attribute, which nobody brought to the training.

The attacker knows that attribute of a few rows and learns it from its own columns, once without and once with what it
inferred of the labels.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.data import VerticalDataset, load_dataset, load_tables
from labelward.data.labels import encode_regression_targets, quantile_edges
from labelward.errors import FileFormatError
from labelward.evaluate.studies.plan import ATTACKER, SECOND, Study, Task
from labelward.federation.adapter import attacker_data
from labelward.federation.components import make_attack, model_adapter, with_defaults
from labelward.federation.simulation import MODEL, VIEW
from labelward.job import Job
from labelward.leakage.baselines import fit_logistic, predict_known
from labelward.leakage.run_attack import run_attack, sample_known_rows, score_label_guess
from labelward.party.view import View
from labelward.runs.schema import run_folder
from labelward.runs.secure_files import atomic_write

__all__ = ["SECOND_FILE", "ensure_second", "further_attribute", "read_second", "with_labels"]

Labels = NDArray[np.int64]

SECOND_FILE = "second.json"
KNOWN = 40
"""Rows of which the attacker knows the attribute."""
_LAYERS = (32, 16)


def further_attribute(
    own: AttackerData, labels: Mapping[str, Labels], aux: AuxiliaryKnowledge, *, classes: int, seed: int
) -> dict[str, LabelGuess]:
    """Return the attribute of all rows, as a network and logistic regression learn it from a few.

    Setting: a party that holds columns of its own, guesses the labels of all its rows, and is told an attribute of some
    of them.

    Reference: Appendix E of the label inference paper. It does not say by which model the attribute is inferred: a
    network of three layers here, as its bottom models have, and logistic regression beside it.

    Args:
        own: the party's columns.
        labels: by name, int64 [rows], what may be taken for the rows' labels: class numbers.
        aux: the attribute's classes, and the rows of which it is known.
        classes: of the labels.
        seed: of the network's start.

    Returns:
        ``"network"`` and ``"logistic"``: from own columns alone; ``"network, NAME"`` and ``"logistic, NAME"``: from
        these and the labels of that name.
    """
    found: dict[str, LabelGuess] = {}
    for name, given in {
        "": own,
        **{f", {name}": with_labels(own, each, classes) for name, each in labels.items()},
    }.items():
        found[f"network{name}"] = _network(given, aux, seed)
        found[f"logistic{name}"] = fit_logistic(given, aux)
    return found


def with_labels(own: AttackerData, labels: Labels, classes: int) -> AttackerData:
    """Return a party's columns with one more, categorical, of class numbers int64 [rows]; rows outside fall away."""
    name = "label"
    while name in own.columns:
        name += "_"
    return replace(
        own,
        features=np.column_stack([own.features, labels]),
        columns=[*own.columns, name],
        categories={**own.categories, name: classes},
        outside=None,
    )


def ensure_second(study: Study, task: Task, job: Job, folder: Path) -> None:
    """Work out the second step of a finished task, where the study shows one of it and it is not there yet.

    The attack on the stored view is run again, with the draws that it had.

    Args:
        folder: of the task's audit.
    """
    kinds = [study.attack(each, task.table) for each in study.columns_of(task.setting) if each.of == SECOND]
    if not kinds or not task.table.secret or (folder / SECOND_FILE).exists():
        return
    job = with_defaults(job)
    source = load_tables(job)
    data = load_dataset(job, task.seed, source)
    quantities = encode_regression_targets(source.tables[0], task.table.secret, f"table {source.name!r}")
    rows = data.table_rows.train
    secret = np.searchsorted(quantile_edges(quantities[rows], 2), quantities[rows])
    attack = make_attack(kinds[0])
    run = run_folder(folder, [], task.seed) / ATTACKER
    scores = _second(attack, View.load(run / VIEW), data, secret, model=run / MODEL, job=job, seed=task.seed)
    with atomic_write(folder / SECOND_FILE) as file:
        file.write(json.dumps({"format": 1, "attribute": task.table.secret, "accuracy": scores}).encode())


def read_second(folder: Path) -> dict[str, float]:
    """Return the share of rows whose attribute was inferred, by model and what it had; empty where nothing is stored.

    Raises:
        FileFormatError: the file is damaged.
    """
    path = folder / SECOND_FILE
    if not path.exists():
        return {}
    try:
        return {str(name): float(value) for name, value in json.loads(path.read_bytes())["accuracy"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"no figures can be read ({error})", code="damaged", field=str(path)) from error


def _second(
    attack: Attack, view: View, data: VerticalDataset, secret: Labels, *, model: Path, job: Job, seed: int
) -> dict[str, float]:
    columns = attacker_data(next(party for party in data.parties if party.name == view.party))
    own = model_adapter(job.model).own(view, columns, model)
    classes = len(data.classes)
    told = sample_known_rows(data.train_labels, attack.labels_needed, seed=seed)
    aux = AuxiliaryKnowledge(classes=classes, known_rows=told, known_labels=data.train_labels[told])
    inferred = run_attack(attack, view, own, aux, seed=seed).values
    known = sample_known_rows(secret, KNOWN, seed=seed)
    further = AuxiliaryKnowledge(classes=2, known_rows=known, known_labels=secret[known])
    labels = {"inferred label": inferred, "true label": data.train_labels}
    found = further_attribute(columns, labels, further, classes=classes, seed=seed)
    return {name: score_label_guess(guess, secret, further)["accuracy"] for name, guess in found.items()}


def _network(own: AttackerData, aux: AuxiliaryKnowledge, seed: int) -> LabelGuess:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    made: Any = MLPClassifier(_LAYERS, random_state=seed, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so many steps are the recipe
        return predict_known(made, own, aux)
