"""Supervised models of the labels, or the values, that an attacker knows, on columns of its own: without the view.

They are baselines of label inference. The label inference paper has none, and a supervised model of the known labels
often outperforms its attack.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.kernels.spectral import one_thread


def fit_logistic(own: AttackerData, aux: AuxiliaryKnowledge) -> LabelGuess:
    """Return the guess of a logistic regression on the known labels, with columns of unit variance."""
    from sklearn.linear_model import LogisticRegression

    return predict_known(LogisticRegression(max_iter=1000), own, aux)


def fit_boosted(own: AttackerData, aux: AuxiliaryKnowledge) -> LabelGuess:
    """Return the guess of boosted trees on the known labels; leaves may hold two rows only, as few labels are known."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return predict_known(HistGradientBoostingClassifier(min_samples_leaf=2, early_stopping=False), own, aux)


def predict_known(model: Any, own: AttackerData, aux: AuxiliaryKnowledge) -> LabelGuess:
    """Return the guess of a scikit-learn classifier fitted to the known labels, with columns of unit variance.

    Where these are of one class, so is the guess.
    """
    from sklearn.dummy import DummyClassifier

    columns = own.numbers()
    center, scale = columns.mean(axis=0), columns.std(axis=0)
    scale[scale == 0] = 1.0
    with one_thread():
        if (aux.known_labels == aux.known_labels[0]).all():
            model = DummyClassifier()
        model.fit((columns[aux.known_rows] - center) / scale, aux.known_labels)
        scores = _probabilities(model, (columns - center) / scale, aux.classes)
        if own.outside is None:
            return LabelGuess.of_scores(scores)
        outside = own.numbers(own.outside)
        return LabelGuess.of_scores(scores, _probabilities(model, (outside - center) / scale, aux.classes))


def _probabilities(model: Any, columns: NDArray[np.float64], classes: int) -> NDArray[np.float64]:
    """Return float64 [rows, classes]: the model's probabilities, 0 for classes without a known row."""
    found = np.zeros((len(columns), classes))
    if len(columns):
        found[:, model.classes_] = model.predict_proba(columns)
    return found
