"""Supervised models of the labels, or the values, that an attacker knows, on columns of its own: without the view.

They are baselines of label inference. The label inference paper has none, and a supervised model of the known labels
often outperforms its attack.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.errors import DataError
from labelward.kernels.spectral import one_thread
from labelward.party.view import View

Known = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Positions of rows, and their class numbers."""


def checked_known(view: View, aux: AuxiliaryKnowledge, kind: str) -> Known:
    """Return the rows and labels that an attacker knows.

    Args:
        kind: of the attack, for errors.

    Raises:
        DataError: rows are not different ones of the view, a label is no class number, or a class has no row.
    """
    rows, labels = aux.known_rows, aux.known_labels
    if len(rows) != len(labels) or len(np.unique(rows)) != len(rows) or not _within(rows, view.rows):
        raise DataError(
            f"the {len(rows)} known rows are not different rows of the {view.rows} of the view",
            code="rows",
            value=len(rows),
        )
    if not _within(labels, aux.classes):
        raise DataError(
            f"the labels of known rows must be class numbers below {aux.classes}", code="labels", value=aux.classes
        )
    absent = np.setdiff1d(np.arange(aux.classes), labels)
    if len(absent):
        raise DataError(
            f"none of the {len(rows)} known rows has class {absent[0]}; {kind} needs one of each of the "
            f"{aux.classes} classes",
            code="labels",
            value=int(absent[0]),
        )
    return rows, labels


def _within(values: NDArray[np.int64], bound: int) -> bool:
    """Return whether all numbers are at least 0 and below a bound."""
    return bool(np.all((values >= 0) & (values < bound)))


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
