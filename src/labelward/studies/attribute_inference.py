"""Attribute inference from inferred labels: the second step of Appendix E of the label inference paper.

The attacker knows an attribute of a few rows, which no party brought to the training, and learns it from its own
columns: once without and once with the labels that it inferred.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.data import VerticalDataset, load_dataset, load_tables
from labelward.data.labels import encode_regression_targets, quantile_edges
from labelward.errors import FileFormatError
from labelward.federation.components import make_attack, model_family, with_defaults
from labelward.federation.simulation import MODEL, VIEW
from labelward.job import Job
from labelward.leakage.baselines import fit_logistic, predict_known
from labelward.leakage.run_attack import run_attack, sample_known_rows, score_label_guess
from labelward.party.view import View
from labelward.protocols.family import attacker_data
from labelward.runs.schema import run_folder
from labelward.runs.secure_files import write_bytes
from labelward.studies.spec import ATTACKER, ATTRIBUTE, Study, StudyTask

Classes = NDArray[np.int64]

ATTRIBUTE_FILE = "second.json"
KNOWN_ROWS = 40
"""Number of rows of which the attacker knows the attribute."""
_HIDDEN_LAYERS = (32, 16)


def infer_attribute(
    own: AttackerData, labels: Mapping[str, Classes], aux: AuxiliaryKnowledge, *, classes: int, seed: int
) -> dict[str, LabelGuess]:
    """Return guesses of an attribute of all rows, by a network and by logistic regression.

    Setting: a party that has columns of its own, guesses the labels of all its rows, and knows an attribute of some.

    Reference: Appendix E of the label inference paper. It does not name the model that infers the attribute: here a
    network of three layers, as its bottom models have, and logistic regression for comparison.

    Args:
        labels: by name, int64 [rows]: class numbers taken for the rows' labels.
        aux: the attribute's classes, and the rows of which it is known.

    Returns:
        ``"network"`` and ``"logistic"``: from own columns alone; ``"network, NAME"`` and ``"logistic, NAME"``: from
        these and the labels of that name.
    """
    inputs = {"": own, **{f", {name}": append_labels(own, each, classes) for name, each in labels.items()}}
    guesses: dict[str, LabelGuess] = {}
    for name, columns in inputs.items():
        guesses[f"network{name}"] = _network(columns, aux, seed)
        guesses[f"logistic{name}"] = fit_logistic(columns, aux)
    return guesses


def append_labels(own: AttackerData, labels: Classes, classes: int) -> AttackerData:
    """Return a party's columns and one more, categorical, of class numbers int64 [rows]; without rows outside."""
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


def ensure_attribute_inference(study: Study, task: StudyTask, job: Job, folder: Path) -> None:
    """Run attribute inference for a finished task and store its scores, if the study shows them and they are missing.

    The attack on the stored view is repeated with the same random draws.
    """
    attacks = [
        study.attack_of(each, task.dataset) for each in study.columns_of(task.setting) if each.source == ATTRIBUTE
    ]
    attribute = task.dataset.hidden_attribute
    if not attacks or not attribute or (folder / ATTRIBUTE_FILE).exists():
        return
    job = with_defaults(job)
    source = load_tables(job)
    data = load_dataset(job, task.seed, source)
    values = encode_regression_targets(source.tables[0], attribute, f"table {source.name!r}")[data.table_rows.train]
    above_median = np.searchsorted(quantile_edges(values, 2), values)
    scores = _score(make_attack(attacks[0]), data, above_median, folder=folder, job=job, seed=task.seed)
    write_bytes(folder / ATTRIBUTE_FILE, json.dumps({"format": 1, "attribute": attribute, "accuracy": scores}).encode())


def read_attribute_inference(folder: Path) -> dict[str, float]:
    """Return the accuracy of attribute inference by model and inputs; empty if nothing is stored.

    Raises:
        FileFormatError: the file is damaged.
    """
    path = folder / ATTRIBUTE_FILE
    if not path.exists():
        return {}
    try:
        return {str(name): float(value) for name, value in json.loads(path.read_bytes())["accuracy"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(f"no figures can be read ({error})", code="damaged", field=str(path)) from error


def _score(
    attack: Attack, data: VerticalDataset, attribute: Classes, *, folder: Path, job: Job, seed: int
) -> dict[str, float]:
    run = run_folder(folder, [], seed) / ATTACKER
    view = View.load(run / VIEW)
    columns = attacker_data(next(party for party in data.parties if party.name == view.party))
    programs = model_family(job.model)
    own = programs.own(view, columns, programs.load(run / MODEL))
    classes = len(data.classes)
    # first the labels, as the attack of the audit inferred them, then the attribute
    label_rows = sample_known_rows(data.train_labels, attack.labels_needed, seed=seed)
    aux = AuxiliaryKnowledge(classes=classes, known_rows=label_rows, known_labels=data.train_labels[label_rows])
    inferred = run_attack(attack, view, own, aux, seed=seed).values
    rows = sample_known_rows(attribute, KNOWN_ROWS, seed=seed)
    known = AuxiliaryKnowledge(classes=2, known_rows=rows, known_labels=attribute[rows])
    labels = {"inferred label": inferred, "true label": data.train_labels}
    guesses = infer_attribute(columns, labels, known, classes=classes, seed=seed)
    return {name: score_label_guess(guess, attribute, known)["accuracy"] for name, guess in guesses.items()}


def _network(own: AttackerData, aux: AuxiliaryKnowledge, seed: int) -> LabelGuess:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(_HIDDEN_LAYERS, random_state=seed, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is fixed
        return predict_known(model, own, aux)
