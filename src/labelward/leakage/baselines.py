"""What label inference reaches without the view: from the known labels and raw columns, and from all labels.

The baselines of the label inference paper, and one that it lacks: a supervised model of the known labels alone often
does better than the attack.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.passive_completion import Completion

__all__ = ["fit_boosted", "fit_logistic", "oracle_upper_bound", "predict_known"]

Labels = NDArray[np.int64]
Floats = NDArray[np.float64]

_EPOCHS, _BATCH, _LEAST_STEPS, _MOST_STEPS = 20, 64, 512, 4096


def fit_logistic(own: AttackerData, aux: AuxiliaryKnowledge) -> LabelGuess:
    """Return what logistic regression on the known labels says, of columns scaled to unit variance."""
    from sklearn.linear_model import LogisticRegression

    return predict_known(LogisticRegression(max_iter=1000), own, aux)


def fit_boosted(own: AttackerData, aux: AuxiliaryKnowledge) -> LabelGuess:
    """Return what boosted trees on the known labels say; a leaf may hold two rows, since few are known."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return predict_known(HistGradientBoostingClassifier(min_samples_leaf=2, early_stopping=False), own, aux)


def oracle_upper_bound(
    attack: Completion, own: AttackerData, truth: Labels, *, classes: int, folds: int, rng: np.random.Generator
) -> LabelGuess:
    """Return what the attacker's own network says where all labels but a row's own are known: the upper bound.

    The untrained bottom model and a head are trained, both, on all folds but one, and say what the rows of that one
    are. Of rows outside the mean of these models counts.

    Reference: Figure 2 of the label inference paper. Difference: cross-fitting, since a model that has seen a row's
    label says nothing of what its columns tell.

    Args:
        attack: whose recipe is used, but for 20 epochs in batches of 64 (512 to 4,096 steps) and no unlabeled rows.
        own: with ``untrained``.
        truth: int64 [rows], class numbers; one class at least has as many rows as there are folds.
        classes: how many there are, absent ones included.
        folds: how many, at least 2.
        rng: gives all draws.
    """
    from sklearn.model_selection import StratifiedKFold

    assert own.untrained is not None
    outside = own.outside if own.outside is not None else own.features[:0]
    scores, others = np.zeros((len(truth), classes)), np.zeros((len(outside), classes))
    cut = StratifiedKFold(folds, shuffle=True, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class of fewer rows than folds is in some of them only
        parts = list(cut.split(truth, truth))
    for seen, held_out in parts:
        told = np.arange(len(seen))
        steps = int(np.clip(_EPOCHS * len(seen) // _BATCH, _LEAST_STEPS, _MOST_STEPS))
        recipe = replace(
            attack, fine_tune=True, labels="told", steps=steps, batch_size=_BATCH, auxiliary=len(seen), average=0.99
        )
        made = recipe.learned(own.untrained(), own, own.features[seen], (told, truth[seen]), classes, rng=rng)
        scores[held_out] = made.probabilities(own.features[held_out])
        if len(outside):
            others += made.probabilities(outside) / folds
    return _guess(scores, others if own.outside is not None else None)


def predict_known(model: Any, own: AttackerData, aux: AuxiliaryKnowledge) -> LabelGuess:
    """Return what a classifier of scikit-learn says that has learned the known labels; columns are scaled as above."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    columns = own.numbers()
    center, scale = columns.mean(axis=0), columns.std(axis=0)
    scale[scale == 0] = 1.0
    with threadpool_limits(1):
        model.fit((columns[aux.known_rows] - center) / scale, aux.known_labels)
        scores = _spread(model, (columns - center) / scale, aux.classes)
        if own.outside is None:
            return _guess(scores, None)
        others = replace(own, features=own.outside).numbers()
        return _guess(scores, _spread(model, (others - center) / scale, aux.classes))


def _spread(model: Any, columns: Floats, classes: int) -> Floats:
    """Return float64 [rows, classes]: the model's probabilities, 0 for classes that it has not met."""
    found = np.zeros((len(columns), classes))
    if len(columns):
        found[:, model.classes_] = model.predict_proba(columns)
    return found


def _guess(scores: Floats, outside: Floats | None) -> LabelGuess:
    beyond = None if outside is None or not len(outside) else _guess(outside, None)
    return LabelGuess(values=scores.argmax(axis=1), kind="labels", scores=scores, outside=beyond)
