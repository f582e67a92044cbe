"""The weight of unlabeled rows in model completion, chosen with nothing but what the attacker knows.

Setting: an attacker with a few known labels. With the published weight of 50 the guesses for unlabeled rows agree with
    each other rather than with the labels, so that on two unbalanced classes all rows are given one class. Here each
    weight is tried on a part of the known rows and judged by the others.

Difference from the paper: it has one weight for all data; its published code chooses the best epoch by the true labels,
    which no attacker has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WEIGHTS = (50.0, 5.0, 0.5)
"""What is tried: the published weight, and less."""

FOLDS = 2
_LEAST_SPREAD = 0.5

Floats = NDArray[np.float64]
Known = tuple[NDArray[np.int64], NDArray[np.int64]]


class Trial(NamedTuple):
    """What a weight gave.

    Attributes:
        weight: of the loss on unlabeled rows.
        agreement: mean recall of the classes on known rows that were held out; NaN where none could be.
        spread: entropy of the shares of guessed classes, as a share of the largest possible one; 0: a constant guess.
    """

    weight: float
    agreement: float
    spread: float


def ranked_weights(trials: Sequence[Trial]) -> list[float]:
    """Return the weights, the best one first, and then 0.

    Weights whose guesses are much less spread than those of the most spread one come last. The others are ordered by
    agreement, and then by spread.
    """
    most = max(each.spread for each in trials)

    def worth(trial: Trial) -> tuple[bool, float, float]:
        return trial.spread >= _LEAST_SPREAD * most > 0, np.nan_to_num(trial.agreement), trial.spread

    return [each.weight for each in sorted(trials, key=worth, reverse=True)] + [0.0]


def try_weights(
    scores: Callable[[Known, float], Floats], known: Known, classes: int, *, rng: np.random.Generator
) -> list[Trial]:
    """Return a trial of each weight.

    Args:
        scores: trains on known rows and labels with a weight, and returns float64 [rows, classes] for all rows.
        known: rows and labels. Each half of those of each class is held out once. If a class has a single one,
            nothing is held out.
        classes: number of classes.
        rng: deals the known rows into halves.
    """
    rows, labels = known
    fold = _folds(labels, rng)
    parts = [fold != each for each in range(FOLDS)] if fold is not None else [np.ones(len(rows), np.bool_)]
    trials = []
    for weight in WEIGHTS:
        right, spread = np.zeros(len(rows), np.bool_), 0.0
        for kept in parts:
            guess = scores((rows[kept], labels[kept]), weight).argmax(axis=1)
            right[~kept] = guess[rows[~kept]] == labels[~kept]
            spread += guess_entropy(np.delete(guess, rows), classes) / len(parts)
        agreement = np.nan if fold is None else float(np.mean([right[labels == c].mean() for c in np.unique(labels)]))
        trials.append(Trial(weight, agreement, spread))
    return trials


def guess_entropy(guess: NDArray[np.int64], classes: int) -> float:
    """Return the entropy of the shares of guessed classes, as a share of log(classes)."""
    share = np.bincount(guess, minlength=classes) / max(len(guess), 1)
    share = share[share > 0]
    return float(-np.sum(share * np.log(share)) / np.log(max(classes, 2))) if len(share) > 1 else 0.0


def _folds(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64] | None:
    """Return the part in which each known row is held out, so that each part has rows of each class; None: too few."""
    fold = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        where = np.flatnonzero(labels == label)
        if len(where) < FOLDS:
            return None
        fold[rng.permutation(where)] = np.arange(len(where)) % FOLDS
    return fold
