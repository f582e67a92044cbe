"""Attribute inference from inferred labels: the second step of Appendix E of the label inference paper.

The attacker knows an attribute of a few rows, which no party brought to the training, and learns it from its own
columns: once without and once with the labels that it inferred.
"""

from __future__ import annotations

import json
from pathlib import Path

from labelward.attacks.attribute_inference import LEARNERS, Classes, append_labels, infer_attribute
from labelward.attacks.base import Attack, AuxiliaryKnowledge
from labelward.data import VerticalDataset, load_dataset, load_tables
from labelward.errors import FileFormatError
from labelward.federation.components import make_attack, model_family, with_defaults
from labelward.federation.simulation import MODEL, VIEW
from labelward.job import Job
from labelward.leakage.attributes import attribute_values
from labelward.leakage.known_rows import sample_known_rows
from labelward.leakage.run_attack import run_attack, score_label_guess
from labelward.party.view import View
from labelward.protocols.family import attacker_data
from labelward.runs.schema import run_folder
from labelward.runs.secure_files import write_bytes
from labelward.studies.spec import ATTACKER, ATTRIBUTE, Study, StudyTask

ATTRIBUTE_FILE = "second.json"
KNOWN_ROWS = 40
"""Number of rows of which the attacker knows the attribute."""


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
    scores = _score(
        make_attack(attacks[0]), data, attribute_values(data, attribute), folder=folder, job=job, seed=task.seed
    )
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
    labels = {", inferred label": inferred, ", true label": data.train_labels}
    inputs = {"": columns} | {name: append_labels(columns, each, classes) for name, each in labels.items()}
    found = {}
    for name, each in inputs.items():
        for learner in LEARNERS:
            guess = infer_attribute(each, known, learner=learner, seed=seed)
            found[f"{learner}{name}"] = score_label_guess(guess, attribute, known)["accuracy"]
    return found
