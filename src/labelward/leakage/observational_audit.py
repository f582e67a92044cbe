"""Observational audit: evidence about epsilon from one recorded view, without training again.

Setting: in scoring, with the true labels. :mod:`labelward.metrics.epsilon_bound` states the game and what it
proves; here it is played. Counterfactual labels come from :mod:`.label_model`. An attack's guess becomes evidence of
each class: how often its cluster, or its guessed class, has the class among a third of the rows, relative to the label
model, and the scores where it gives some. So do the visible leaves of trees, as the mean over trees: splits were fitted
to the labels of a leaf's own rows. A logistic regression on differences of evidence, fitted to that third, decides
between the two labels of each pair of the other rows; so the attacker knows the labels of a third of the rows. The best
attacker without the view has the same regression, on the label model, its parts and the guess without the view. Rows
whose labels the attack was told are among the third.

A pair is left out where the label model gives one of its labels less than 1%: there, the odds are least certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, LabelGuess
from labelward.kernels.spectral import one_thread
from labelward.leakage.label_model import Floats, LabelModel, Labels
from labelward.metrics.epsilon_bound import SHARES, EpsilonEvidence, GuessTrial
from labelward.party.view import View

_FITTED = 1 / 3
_MOST_FITTED = 20_000
_RARE = 0.01
_PRIOR_ROWS = 2.0
_MOST_CHANGED = 20


def epsilon_evidence(
    guess: LabelGuess,
    blind: LabelGuess | None,
    labels: Labels,
    model: LabelModel,
    *,
    known: Labels | None = None,
    leaves: NDArray[np.int32] | None = None,
    delta: float = 0.0,
    rng: np.random.Generator,
) -> EpsilonEvidence:
    """Play the game with one guess from a view.

    Args:
        guess: of all rows.
        blind: guess of the same attack without the view; None: the label model is the best attacker without.
        labels: int64 [rows], the true classes.
        model: of the same rows.
        known: positions of rows whose labels the attack was told.
        leaves: int32 [trees, rows], what the view shows of trees, as of
            :func:`labelward.attacks.instance_spaces.observed_leaves`; None: the guess only.
        delta: of the hypothesis.
        rng: draws counterfactual labels and the rows of the game.
    """
    rows = len(labels)
    drawn = _draw(model.probabilities, rng)
    place = rng.permutation(rows)
    if known is not None:
        place[known] = -1
    fitted = place < _FITTED * rows
    likely = np.take_along_axis(model.probabilities, np.stack([labels, drawn], axis=1), axis=1).min(axis=1) >= _RARE
    pairs = np.flatnonzero(~fitted & (labels != drawn) & likely)
    shape = (np.flatnonzero(fitted), labels, model.probabilities)
    without = [np.log(np.maximum(model.probabilities, 1e-9))]
    without += [] if blind is None else _evidence(blind, *shape)
    seen = _evidence(guess, *shape)
    if leaves is not None and len(leaves):
        seen.append(np.mean([_group_evidence(tree, *shape) for tree in leaves], axis=0))
    found = [_differences([*without, *more], shape, pairs, drawn) for more in (seen, model.parts)]
    coin = rng.random(len(pairs))
    counts = [_right(each, coin, rng.permutation(len(pairs))) for each in found]
    sizes = dict.fromkeys(round(share * len(pairs)) for share in SHARES)
    trials = tuple(
        GuessTrial(guesses=size, right=int(counts[0][size - 1]), blind=int(counts[1][size - 1]))
        for size in sizes
        if size
    )
    return EpsilonEvidence(rows=int((~fitted).sum()), pairs=len(pairs), trials=trials, delta=delta)


def count_contradictions(
    attack: Attack, view: View, own: AttackerData, labels: Labels, classes: int, *, rng: np.random.Generator
) -> tuple[int, int]:
    """Return of how many rows one label was changed, and for how many of them the view is impossible then.

    Both are 0 unless the part of the view that the attack reads follows from the true labels
    (:meth:`labelward.attacks.base.Attack.follows_from`).

    Args:
        attack: whose part of the view is examined.
        view: the attacker's.
        own: the attacker's.
        labels: int64 [all rows], class numbers in the order that all parties share.
        classes: number of classes.
        rng: draws up to 20 rows, and the labels that they get.
    """
    if not attack.follows_from(view, own, labels):
        return 0, 0
    rows = rng.permutation(len(labels))[:_MOST_CHANGED]
    contradicted = 0
    for row in rows:
        changed = labels.copy()
        changed[row] = (labels[row] + rng.integers(1, classes)) % classes
        contradicted += not attack.follows_from(view, own, changed)
    return len(rows), contradicted


def _draw(probabilities: Floats, rng: np.random.Generator) -> Labels:
    limits = np.cumsum(probabilities, axis=1)
    return np.asarray((rng.random((len(limits), 1)) * limits[:, -1:] >= limits).sum(axis=1), np.int64)


def _evidence(guess: LabelGuess, fitted: Labels, labels: Labels, probabilities: Floats) -> list[Floats]:
    """Return evidence of each class, float64 [rows, classes] each: by cluster or guessed class, and by score."""
    found = [_group_evidence(guess.values, fitted, labels, probabilities)]
    scores = guess.scores
    if scores is not None and scores.shape[1] == probabilities.shape[1]:
        found.append(scores)
        if scores.min() >= 0:
            found.append(np.log(scores + 1e-6))
    return found


def _group_evidence(groups: NDArray[np.integer[Any]], fitted: Labels, labels: Labels, probabilities: Floats) -> Floats:
    """Return float64 [rows, classes]: how much more frequent the class is in a row's group than the model says."""
    values = np.unique(groups, return_inverse=True)[1]
    size, classes = int(values.max()) + 1, probabilities.shape[1]
    counted = np.bincount(values[fitted] * classes + labels[fitted], minlength=size * classes).reshape(size, classes)
    expected = np.zeros((size, classes))
    np.add.at(expected, values[fitted], probabilities[fitted])
    evidence: Floats = np.log((counted + _PRIOR_ROWS) / (expected + _PRIOR_ROWS))[values]
    return evidence


def _differences(
    features: Sequence[Floats], shape: tuple[Labels, Labels, Floats], pairs: Labels, drawn: Labels
) -> Floats:
    """Return for each pair how much more a regression on the fitted rows believes in the real label than in the other.

    A fitted row is compared with each other class, weighted by the probability that this class is drawn.
    """
    from sklearn.linear_model import LogisticRegression

    fitted, labels, probabilities = shape
    rows = fitted[:_MOST_FITTED]
    row, other = np.nonzero(np.arange(probabilities.shape[1]) != labels[rows][:, None])
    weights = probabilities[rows][row, other]
    kept = weights > _RARE
    row, other, weights = rows[row[kept]], other[kept], weights[kept]
    if not len(row):
        return np.zeros(len(pairs))
    learned = np.stack([each[row, labels[row]] - each[row, other] for each in features], axis=1)
    played = np.stack([each[pairs, labels[pairs]] - each[pairs, drawn[pairs]] for each in features], axis=1)
    scale = np.sqrt(np.average(np.square(learned), axis=0, weights=weights))
    scale = np.where(scale > 0, scale, 1.0)
    answers = np.repeat([1, 0], len(row))
    with one_thread():
        model = LogisticRegression(fit_intercept=False, max_iter=200)
        model.fit(np.concatenate([learned, -learned]) / scale, answers, np.tile(weights, 2))
        found: Floats = (played / scale) @ model.coef_[0]
    return found


def _right(difference: Floats, coin: Floats, order: Labels) -> Labels:
    """Return int64 [pairs]: the number of right guesses among the surest, ties of sureness in a drawn order."""
    right = np.where(difference == 0, coin < 0.5, difference > 0)
    surest = order[np.argsort(-np.abs(difference[order]), kind="stable")]
    return np.cumsum(right[surest], dtype=np.int64)
