"""Common base of fitted estimators: each party's share and columns, saving and loading."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from labelward.estimators import _persistence
from labelward.estimators._errors import InvalidInputError, value_errors
from labelward.estimators._federation import TrainingPlan, train_parties

if TYPE_CHECKING:
    from labelward.data import PartyDataset
    from labelward.federation.model import AlignedRows, FederatedModel
    from labelward.federation.simulation import SimulationResult
    from labelward.party.view import View
    from labelward.protocols.common import LabelVector

Floats = NDArray[np.float64]
Share = TypeVar("Share")


class FittedModelMixin(BaseEstimator, Generic[Share]):  # type: ignore[misc]
    """A federated model with the shares of all parties."""

    shares_: dict[str, Share]  # each party's part of the model, the active party's first
    views_: dict[str, View]
    verbose: bool
    _places: dict[str, tuple[int, ...]]

    @property
    def parties_(self) -> dict[str, list[Any]]:
        """Columns of each party, by name, or by position where X has no names; the active party first."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", range(getattr(self, "n_features_in_", 0)))
        return {party: [names[place] for place in places] for party, places in self._places.items()}

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Save each party's share in ``folder/<party>/model``, and beside them what this class needs; no view, no key.

        The folder is that of an estimator alone: ``labelward`` on the command line cannot use it, and :meth:`load` not
        that of ``labelward train``. It takes its place in one piece: a save that fails leaves what was there before. A
        fitted object can be pickled, too, with its views.

        Args:
            folder: a new or an empty one.
            overwrite: whether it may be that of a saved estimator, which is replaced. A folder that holds anything
                else, or lies in that of a run of ``labelward``, is never written into.

        Raises:
            OutputError: the folder may not or cannot be written.
            FileFormatError: it holds an estimator that cannot be read.
            ValueError: a parameter that a file cannot hold, such as a ``torch.nn.Module`` that was handed in.
        """
        check_is_fitted(self)
        return _persistence.save_estimator(self, Path(folder), overwrite=overwrite)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return an estimator that was saved; it predicts as before, and has no ``views_``.

        Raises:
            FileFormatError: a file is missing, damaged, of another version, class or model.
            DependencyError: the model needs a package that is not installed, such as torch.
        """
        estimator: Self = _persistence.load_estimator(cls, Path(folder))
        return estimator

    def held_by(self, party: str, X: Any) -> NDArray[Any]:
        """Return what a party holds of these rows, coded as in training: [rows, ...] of the party's columns.

        This is what an attack on the party's view takes as its own features.

        Raises:
            ValueError: no such party, or other columns than in training.
        """
        check_is_fitted(self)
        if party not in self.shares_:
            raise InvalidInputError(
                f"there is no party {party!r}, only {', '.join(self.shares_)}", code="unknown", value=party
            )
        with value_errors({}):
            return self._held(party, X)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "shares_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _held(self, party: str, X: Any) -> NDArray[Any]:
        raise NotImplementedError

    @staticmethod
    def _load_share(folder: Path) -> Share:
        raise NotImplementedError

    @property
    def _model(self) -> FederatedModel:
        raise NotImplementedError

    def _rows(self, X: Any) -> AlignedRows:
        """Return each party's columns of the rows."""
        raise NotImplementedError

    def _learn_targets(self, y: ArrayLike, rows: NDArray[np.int64]) -> Floats:
        """Learn the classes, if any, from the labels of these rows, and return these labels as numbers."""
        raise NotImplementedError

    def _targets(self, y: ArrayLike) -> Floats:
        """Return labels of validation rows as numbers."""
        raise NotImplementedError

    def _class_names(self) -> tuple[str, ...]:
        return ()

    def _ask(self, X: Any) -> Floats:
        """Return the margins of the rows."""
        check_is_fitted(self)
        with value_errors({}):
            return self._model.predict(self._rows(X))

    def _run(
        self, plan: TrainingPlan, parties: Sequence[PartyDataset], labels: LabelVector, before: Any = None
    ) -> SimulationResult:
        """Train, and keep shares and views."""
        ended = train_parties(plan, parties, labels, before, verbose=bool(self.verbose))
        self.shares_ = ended.shares
        self.views_ = {party: outcome.view for party, outcome in ended.outcomes.items()}
        return ended

    @property
    def _lead(self) -> Share:
        """The active party's share."""
        check_is_fitted(self)
        return next(iter(self.shares_.values()))
