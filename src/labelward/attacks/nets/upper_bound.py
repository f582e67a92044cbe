"""Upper bound of label inference: the attacker's own network, trained on the labels of all rows but the guessed one."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, LabelGuess

if TYPE_CHECKING:
    from labelward.attacks.passive_completion import Completion

FOLDS = 5

_EPOCHS, _BATCH, _MIN_STEPS, _MAX_STEPS = 20, 64, 512, 4096


def oracle_upper_bound(
    attack: Completion,
    own: AttackerData,
    truth: NDArray[np.int64],
    *,
    classes: int,
    folds: int = FOLDS,
    rng: np.random.Generator,
) -> LabelGuess:
    """Return cross-fitted guesses of a network that knows the labels of all other rows.

    For each fold, the untrained bottom model and a head are trained together on all other folds and predict this one.
    Rows outside the training set get the mean over the folds.

    Reference: Figure 2 of the label inference paper. Difference: cross-fitting, since a model that was trained on a
    row's label does not show what the row's columns reveal.

    Args:
        attack: its hyperparameters are used, except for 20 epochs in batches of 64 (512 to 4,096 steps) and no
            unlabeled rows.
        own: with ``untrained``.
        truth: int64 [rows], class numbers; at least one class has as many rows as there are folds.
        classes: number of classes, absent ones included.
        folds: at least 2.
        rng: source of all draws.
    """
    from sklearn.model_selection import StratifiedKFold

    assert own.untrained is not None
    outside = own.outside if own.outside is not None else own.features[:0]
    scores, others = np.zeros((len(truth), classes)), np.zeros((len(outside), classes))
    splitter = StratifiedKFold(folds, shuffle=True, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer rows than folds is missing in some of them
        parts = list(splitter.split(truth, truth))
    for train, test in parts:
        steps = int(np.clip(_EPOCHS * len(train) // _BATCH, _MIN_STEPS, _MAX_STEPS))
        supervised = replace(
            attack,
            fine_tune=True,
            labels="told",
            steps=steps,
            batch_size=_BATCH,
            auxiliary=len(train),
            average=0.99,
            unlabeled_weight=0.0,
        )
        known = np.arange(len(train)), truth[train]
        model = supervised.learned(own.untrained(), own, own.features[train], known, classes, rng=rng)
        scores[test] = model.probabilities(own.features[test])
        if len(outside):
            others += model.probabilities(outside) / folds
    return LabelGuess.of_scores(scores, others)
