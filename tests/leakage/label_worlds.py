"""Rows with known label probabilities, mechanisms with a known epsilon, and the bounds that views of them show."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from labelward.attacks.base import LabelGuess
from labelward.leakage.label_model import LabelModel, fit_label_model
from labelward.leakage.observational_audit import epsilon_evidence
from labelward.metrics.epsilon_bound import EpsilonEvidence
from labelward.privacy import Budget, RandomizedResponse
from labelward.privacy.stages import multi_stage
from labelward.rng import SecureRandom

Labels = NDArray[np.int64]
Floats = NDArray[np.float64]


def world(rows: int, classes: int, rng: np.random.Generator) -> tuple[Floats, Floats, Labels]:
    """Return columns, the probability of each class (no linear function of them), and labels."""
    columns = rng.normal(size=(rows, 5))
    scores = columns @ rng.normal(size=(5, classes)) + 0.5 * np.abs(columns[:, :1]) * rng.normal(size=(1, classes))
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    labels = (rng.random((rows, 1)) >= np.cumsum(shares, axis=1)[:, :-1]).sum(axis=1)
    return columns, shares, labels


def randomized_response(columns: Floats, labels: Labels, classes: int, epsilon: float, seed: int) -> Labels:
    return RandomizedResponse(epsilon=epsilon, classes=classes).release(labels, SecureRandom(seed))


def lp_mst(columns: Floats, labels: Labels, classes: int, epsilon: float, seed: int) -> Labels:
    def prior(rows: Labels, noisy: Labels, following: Labels) -> Floats:
        found = np.zeros((len(following), classes))
        model = LogisticRegression().fit(columns[rows], noisy)
        found[:, model.classes_] = model.predict_proba(columns[following])
        return found

    halves = np.array_split(np.random.default_rng(0).permutation(len(labels)), 2)
    budget = Budget(epsilon=epsilon, rows=len(labels))
    return multi_stage(labels, classes, halves, prior, budget=budget, protection=SecureRandom(seed))


def learned(columns: Floats, noisy: Labels, classes: int, epsilon: float) -> LabelGuess:
    """Return what a better attacker concludes from noisy labels: it learns from those of the other rows, too."""
    wide, scores = np.hstack([columns, np.abs(columns)]), np.zeros((len(noisy), classes))
    model = LogisticRegression().fit(wide, noisy)
    scores[:, model.classes_] = model.predict_proba(wide)
    return LabelGuess.of_scores(scores * np.where(np.eye(classes)[noisy] > 0, math.exp(epsilon), 1.0))


def as_labels(columns: Floats, noisy: Labels, classes: int, epsilon: float) -> LabelGuess:
    return LabelGuess(values=noisy, kind="labels")


Mechanism = Callable[[Floats, Labels, int, float, int], Labels]
"""The last argument is the seed of its noise: a right bound exceeds epsilon by chance, once in 20 times at most."""
Attacker = Callable[[Floats, Labels, int, float], LabelGuess]
MECHANISMS = [randomized_response, lp_mst]
ATTACKS = [as_labels, learned]


@lru_cache(maxsize=512)
def modeled(rows: int, classes: int, seed: int) -> tuple[Floats, Floats, Labels, LabelModel]:
    """Return a world and its label model, which repetitions with other noise share."""
    columns, shares, labels = world(rows, classes, np.random.default_rng(seed))
    return columns, shares, labels, fit_label_model(columns, labels, classes, rng=np.random.default_rng(seed))


def measured(
    rows: int,
    classes: int,
    epsilon: float,
    seed: int,
    mechanism: Mechanism,
    attack: Attacker = as_labels,
    worlds: int = 1 << 30,
) -> EpsilonEvidence:
    columns, _, labels, model = modeled(rows, classes, seed % worlds)
    noisy = mechanism(columns, labels, classes, epsilon, seed + 1)  # with seed 1 a bound of 2 is 2.007, as may be
    guess = attack(columns, noisy, classes, epsilon)
    return epsilon_evidence(guess, None, labels, model, rng=np.random.default_rng(seed))


def with_exact_probabilities(rows: int, epsilon: float, seed: int) -> EpsilonEvidence:
    """Return what randomized response on two classes shows to who knows the probability of each label."""
    columns, shares, labels = world(rows, 2, np.random.default_rng(seed))
    guess = as_labels(columns, randomized_response(columns, labels, 2, epsilon, seed), 2, epsilon)
    return epsilon_evidence(guess, None, labels, LabelModel(probabilities=shares), rng=np.random.default_rng(seed))
