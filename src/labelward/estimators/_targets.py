"""Targets of estimators: classes, or continuous values for regression."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from labelward.estimators._errors import InvalidInputError
from labelward.estimators._trees import FederatedTrees
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.predict import to_predictions

Floats = NDArray[np.float64]


class ClassTargets:
    """Class labels, encoded as positions in their sorted list."""

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class: float64 [rows, classes], in the order of ``classes_``."""
        raise NotImplementedError

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of :meth:`predict_proba`; -inf where it is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _learn_targets(self, y: ArrayLike, rows: NDArray[np.int64]) -> Floats:
        values = _labels(y)
        self.classes_, numbers = np.unique(values[rows], return_inverse=True)
        self.n_classes_ = len(self.classes_)
        if self.n_classes_ < 2:
            weighted = "" if len(rows) == len(values) else " with positive weight"
            reason = f"all rows{weighted} are of one class, {self.classes_.tolist()[0]!r}; at least two are needed"
            raise InvalidInputError(reason, code="labels", field="y", value=self.classes_.tolist()[0])
        return numbers.astype(np.float64)

    def _targets(self, y: ArrayLike) -> Floats:
        values = _labels(y)
        unknown = np.setdiff1d(values, self.classes_)
        if len(unknown):
            known = ", ".join(map(repr, self.classes_.tolist()))
            reason = f"label {unknown.tolist()[0]!r} is not one of the training classes {known}"
            raise InvalidInputError(reason, code="labels", field="eval_set", value=unknown.tolist()[0])
        return np.searchsorted(self.classes_, values).astype(np.float64)

    def _check_validation(self, values: Floats) -> None:
        missing = np.setdiff1d(np.arange(self.n_classes_), values)
        if len(missing):
            label = self.classes_.tolist()[int(missing[0])]
            reason = f"no row with positive weight is of class {label!r}; each class needs one"
            raise InvalidInputError(reason, code="labels", field="eval_set", value=label)

    def _class_names(self) -> tuple[str, ...]:
        return tuple(str(label) for label in self.classes_.tolist())


class FederatedClassifierMixin(ClassifierMixin, ClassTargets, FederatedTrees):  # type: ignore[misc]
    """Classifiers of tree models."""

    objectives: ClassVar[tuple[str, ...]] = ("auto", "binary:logistic", "multi:softprob")

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row: [rows], values of ``classes_``."""
        margins = self._ask(X)
        chosen = margins[:, 0] > 0 if margins.shape[1] == 1 else margins.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen.astype(np.int64)]
        return labels

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class: float64 [rows, classes], in the order of ``classes_``."""
        return to_predictions(self._lead, self._ask(X))

    def _several_outputs(self, params: TreeModel) -> str:
        if params.kind == "forest":
            return "a forest has one output for each class"
        several = self.n_classes_ > 2 or params.objective == "multi:softprob"
        return f"boosting of {self.n_classes_} classes has one output for each" if several else ""


class RegressionTargets:
    """Continuous targets of regression."""

    def _learn_targets(self, y: ArrayLike, rows: NDArray[np.int64]) -> Floats:
        return self._targets(y)[rows]

    def _targets(self, y: ArrayLike) -> Floats:
        values: Floats = check_array(
            column_or_1d(y, warn=True), ensure_2d=False, dtype=np.float64, input_name="y", estimator=self
        )
        return values


class FederatedRegressorMixin(RegressorMixin, RegressionTargets, FederatedTrees):  # type: ignore[misc]
    """Regressors of tree models."""

    objectives: ClassVar[tuple[str, ...]] = ("auto", "reg:squarederror", "count:poisson", "reg:tweedie")
    idle: ClassVar[tuple[str, ...]] = ("scale_pos_weight", "multi_strategy")

    def predict(self, X: Any) -> Floats:
        """Return the predicted mean of each row: float64 [rows]."""
        return to_predictions(self._lead, self._ask(X))


def _labels(y: ArrayLike) -> NDArray[Any]:
    """Return labels as an array whose values can be sorted."""
    values: NDArray[Any] = column_or_1d(y, warn=True)
    assert_all_finite(values, input_name="y")
    if values.dtype.kind == "O" and len({type(value) for value in values.tolist()}) > 1:
        raise InvalidInputError("some labels are missing, or their types differ", code="labels", field="y")
    check_classification_targets(values)
    return values
