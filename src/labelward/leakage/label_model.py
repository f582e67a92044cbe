"""Model of the labels given the columns of all parties, from which an audit draws counterfactual labels.

Setting: known in scoring only. Logistic regression and boosted trees are fitted out of fold; a logistic regression on
their log-probabilities, out of fold as well, weighs and calibrates the two. The probabilities of a row thus follow from
the labels of other rows alone.

Cost: boosting fits a tree for each class and examines every column at every node. Where that is much, as for counts of
words and 14 classes, randomized trees stand in its place, each of which tells all classes and examines few columns. The
bound of epsilon rests on the probabilities and on the attacker that has them, not on how they were learned: a weaker
model leaves more to chance in both, and the measured correction counts what it misses.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.soft_labels import scaled_columns
from labelward.kernels.spectral import one_thread

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

_FOLDS, _MOST_ROWS, _LEAST_ROWS = 5, 20_000, 1_000
_MOST_CELLS = 10**8  # rows x columns x classes of one fit
_MOST_BOOSTED = 1_000  # columns x trees of a round: one tree, or of more than two classes one for each
_LEAST = 1e-4


@dataclass(frozen=True, kw_only=True)
class LabelModel:
    """Out-of-fold probabilities of the classes.

    Attributes:
        probabilities: float64 [rows, classes]; 0 for a class without rows to learn from.
        parts: log-probabilities of each model, float64 [rows, classes].
    """

    probabilities: Floats
    parts: tuple[Floats, ...] = ()


def fit_label_model(columns: Floats, labels: Labels, classes: int, *, rng: np.random.Generator) -> LabelModel:
    """Return the out-of-fold model; its time is linear in the rows, as each fit takes 20,000 of them at most.

    With many columns and classes a fit takes fewer rows, so that rows x columns x classes stay below 10⁸, but 1,000 at
    least; and randomized trees replace boosted ones where columns x classes (of two classes: columns) exceed 1,000.

    Args:
        columns: float64 [rows, columns], without gaps.
        labels: int64 [rows], class numbers.
        classes: number of classes.
        rng: draws folds.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    rows = len(labels)
    order = rng.permutation(rows)
    fold = np.empty(rows, np.int64)
    fold[order] = np.arange(rows) % _FOLDS
    scaled = scaled_columns(columns)
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        parts = [
            np.log(np.maximum(_out_of_fold(model, scaled, labels, classes, (order, fold)), _LEAST))
            for model in (LogisticRegression(max_iter=200), _trees(columns.shape[1], classes))
        ]
        stacked = np.hstack([each[:, 1:] - each[:, :1] for each in parts])
        probabilities = _out_of_fold(LogisticRegression(max_iter=200), stacked, labels, classes, (order, fold))
    return LabelModel(probabilities=probabilities, parts=tuple(parts))


def _trees(columns: int, classes: int) -> Any:
    """Return an unfitted model of trees whose time stays bounded."""
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    if columns * (classes if classes > 2 else 1) > _MOST_BOOSTED:
        return ExtraTreesClassifier(60, min_samples_leaf=2, random_state=0)
    return HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, early_stopping=False, random_state=0)


def _most_rows(columns: int, classes: int) -> int:
    """Return how many rows a fit takes at most."""
    return min(_MOST_ROWS, max(_LEAST_ROWS, _MOST_CELLS // max(columns * classes, 1)))


def _out_of_fold(model: Any, columns: Floats, labels: Labels, classes: int, folds: tuple[Labels, Labels]) -> Floats:
    """Return float64 [rows, classes]: the probabilities of models that were fitted to the other folds."""
    from sklearn.base import clone

    order, fold = folds
    most = _most_rows(columns.shape[1], classes)
    found = np.zeros((len(labels), classes))
    for number in range(_FOLDS):
        others = order[fold[order] != number][:most]
        present, held_out = np.unique(labels[others]), fold == number
        if not held_out.any():
            continue
        if len(present) < 2:
            found[np.ix_(held_out, present)] = 1.0
            continue
        fitted = clone(model).fit(columns[others], labels[others])
        found[np.ix_(held_out, present)] = fitted.predict_proba(columns[held_out])
    return found
