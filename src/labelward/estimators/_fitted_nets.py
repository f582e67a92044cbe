"""Fitted split networks: predictions, bottom models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from labelward.errors import unknown_name
from labelward.estimators._columns import read_columns as read
from labelward.estimators._columns import transform_columns
from labelward.estimators._errors import InvalidInputError
from labelward.estimators._federation import resolve_policies
from labelward.estimators._model_mixins import FittedModelMixin

if TYPE_CHECKING:
    from labelward.federation.model import AlignedRows, FederatedModel
    from labelward.protocols.splitnn.share import NetShare

Floats = NDArray[np.float64]


class FittedNetsMixin(FittedModelMixin["NetShare"]):
    """A split network with the shares and rows of all parties."""

    bottom: Any
    top_model: Any
    defenses: Any
    n_features_in_: int
    _names: dict[str, tuple[str, ...]]

    def _held(self, party: str, X: Any) -> NDArray[Any]:
        return self._block(self._given(X, reset=False)[0], party, self._coded())

    def bottom_of(self, party: str) -> Any:
        """Return a copy of a party's trained bottom model, a ``torch.nn.Module``; None for a party without columns."""
        check_is_fitted(self)
        share = self.shares_[party]
        return None if share.bottom is None else share.bottom.module(share.settings, self._modules().get(party))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return an estimator that was saved, as :meth:`SecureBoostClassifier.load` does; it needs torch."""
        estimator = super().load(folder)
        estimator._names = {party: share.columns for party, share in estimator.shares_.items()}
        return estimator

    @staticmethod
    def _load_share(folder: Path) -> NetShare:
        from labelward.protocols.splitnn.share import NetShare

        return NetShare.load(folder)

    @property
    def n_iter_(self) -> int:
        """Epochs of the training."""
        return self._lead.epochs

    def _modules(self) -> dict[str, Any]:
        """Return the user's modules: by party, and the top model as ``""``."""
        if not isinstance(self.bottom, str | Mapping):
            type_name = type(self.bottom).__name__
            reason = f"must name a preset, or hold a module for each party, but is of type {type_name}"
            raise InvalidInputError(reason, code="type", field="bottom", value=type_name)
        modules = {} if isinstance(self.bottom, str) else dict(self.bottom)
        for party in modules:
            if party not in self._places:
                raise InvalidInputError(
                    unknown_name("party", str(party), list(self._places)), code="unknown", field="bottom", value=party
                )
        return modules if isinstance(self.top_model, str) else {**modules, "": self.top_model}

    def _given(self, X: Any, *, reset: bool) -> tuple[Any, int]:
        """Return X as it is read, by party or as one table, and its number of rows."""
        if isinstance(X, Mapping) and not issparse(X):  # some sparse matrices are dictionaries
            blocks = {party: np.asarray(own) for party, own in X.items()}
            if not reset and set(blocks) != set(self._places):
                reason = f"the rows of {', '.join(self._places)} are needed, not of {', '.join(blocks)}"
                raise InvalidInputError(reason, code="missing", field="X", value=tuple(blocks))
            for party, own in blocks.items():
                if own.ndim < 2 or own.dtype.kind not in "fiub":
                    reason = f"the rows of {party!r} must be an array of numbers, one row each"
                    raise InvalidInputError(reason, code="type", field="X", value=party)
            check_consistent_length(*blocks.values())
            return blocks, len(next(iter(blocks.values()))) if blocks else 0
        found = read(self, X, reset=reset)
        return found, len(found)

    def _coded(self) -> dict[str, dict[str, tuple[str, ...]]]:
        return {party: dict(share.categories) for party, share in self.shares_.items()}

    def _block(self, x: Any, party: str, coded: Mapping[str, Mapping[str, tuple[str, ...]]]) -> NDArray[Any]:
        if isinstance(x, dict):
            block: NDArray[Any] = x[party]
            return block
        if not hasattr(self, "n_features_in_"):
            raise InvalidInputError(
                "must be a dictionary with each party's rows, as it was in training", code="type", field="X"
            )
        return transform_columns(self._names[party], self._places[party], coded[party], x)

    @property
    def _model(self) -> FederatedModel:
        from labelward.federation.model import FederatedModel
        from labelward.protocols.splitnn.family import SplitNetFamily

        return FederatedModel(
            programs=SplitNetFamily(modules=self._modules()),
            shares=self.shares_,
            policies=lambda: resolve_policies(self.defenses, tuple(self.shares_)),
        )

    def _rows(self, X: Any) -> AlignedRows:
        from labelward.federation.model import AlignedRows

        x, coded = self._given(X, reset=False)[0], self._coded()
        return AlignedRows(columns={party: self._block(x, party, coded) for party in self.shares_})

    def _expected(self, X: Any) -> Floats:
        margins = self._ask(X)
        return self._model.programs.predicted(margins, self._lead.classes)
