"""Trainings that attacks on trees are tried on, and what an attack makes of their views."""

from __future__ import annotations

import json

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import v_measure_score

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
from wiring import Setting, column_names


def trained(parts, labels, params, **more):
    """Return the run, of a job that says what it is of."""
    job = {f"model.{name}": json.dumps(value) for name, value in params.parameters().items()}
    classes = tuple(map(str, range(labels.max() + 1)))
    return Setting(parts, labels, params, classes=classes, job=job | {"run.seed": "1"}, **more).run()


def own_of(parts, party="passive"):
    return AttackerData(features=parts[party], columns=column_names(party, parts[party]))


def guessed(attack, view, own, classes):
    return attack(view, own, AuxiliaryKnowledge(classes=classes), rng=np.random.default_rng(1))


def found(attack, view, own, labels):
    return v_measure_score(labels, guessed(attack, view, own, labels.max() + 1).values)


def cancer():
    x, labels = load_breast_cancer(return_X_y=True)
    return {"active": x[:, ::2].copy(), "passive": x[:, 1::2].copy()}, labels
