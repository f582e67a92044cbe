"""Fitted tree models: leaves, importances, explanations, drawings, exports."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from labelward.errors import InputError, OutputError, unknown_name
from labelward.estimators._columns import column_names, transform_columns
from labelward.estimators._columns import read_columns as read
from labelward.estimators._errors import InvalidInputError, value_errors
from labelward.estimators._explanation import TableExplanation, in_table_order
from labelward.estimators._model_mixins import FittedModelMixin
from labelward.federation.model import AlignedRows, FederatedModel
from labelward.protocols.secureboost.family import TreeFamily
from labelward.protocols.secureboost.share import ModelShare

Floats = NDArray[np.float64]


class FittedTreesMixin(FittedModelMixin[ModelShare]):
    """A federated tree model with the shares and columns of all parties."""

    n_features_in_: int

    def apply(self, X: Any) -> NDArray[np.int64]:
        """Return for each row the number of the leaf that it reaches in each tree: [rows, trees].

        The root is 0; the children of node i are 2i + 1 (left) and 2i + 2 (right).
        """
        check_is_fitted(self)
        with value_errors({}):
            reached = self._model.leaves(self._rows(X))
        leaves = [np.asarray(tree.leaves, dtype=np.int64) for tree in self._lead.trees]
        return np.stack([leaves[number][reached[:, number]] for number in range(len(leaves))], axis=1)

    def _held(self, party: str, X: Any) -> Floats:
        return self._block(read(self, X, reset=False), party)

    def explain(
        self, X: Any, background: Any = None, *, most: int = 100, names: Collection[str] | None = None
    ) -> TableExplanation:
        """Return SHAP values: what each column adds to the margin of each row, compared with background rows.

        All parties are in this process and all answer, as ``labelward explain rows`` has it between companies; see
        :mod:`labelward.protocols.secureboost.explain`. Costs rows x background x trees descents.

        Args:
            X: the rows that are explained, with the columns of the training.
            background: the rows that they are compared with; None: ``X``.
            most: how many background rows are taken; of more, so many, evenly spaced.
            names: parties that disclose their column names; the others' columns are numbered. None: all
                parties, since one user holds all columns here.

        Returns:
            ``features``, all columns of X in their order, ``values`` [rows, features, outputs], ``expected`` [outputs]
            and ``margins`` [rows, outputs]; ``values`` add up to ``margins - expected`` over the features.
            ``to_shap()`` makes a ``shap.Explanation`` of them.

        Raises:
            ValueError: other columns than in training, or no such party.
        """
        check_is_fitted(self)
        with value_errors({}):
            named = self._consenting(names)
            rows = self._rows(X)
            if isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1:
                raise InvalidInputError(
                    f"must be an integer ≥ 1 but got {most!r}", code="range", field="most", value=most
                )
            behind = (rows if background is None else self._behind(background)).sample(int(most))
            found = self._model.explain(rows, behind, named)
            names = column_names(self)
            return in_table_order(found, rows.columns, self.shares_, self._places, names, named)

    def draw_tree(self, number: int, *, svg: bool = False, names: Collection[str] | None = None) -> str:
        """Return a tree as the active party can draw it: its own splits in words, the others by owner and column.

        Args:
            number: of the tree, from 0; with a tree for each class these are consecutive.
            svg: whether an SVG picture is wanted in place of lines of text.
            names: parties that disclose their column names; None: all.

        Raises:
            ValueError: no such tree or party.
        """
        check_is_fitted(self)
        with value_errors({}):
            if isinstance(number, bool) or not isinstance(number, int | np.integer):
                raise InvalidInputError(
                    f"must be an integer but got {number!r}", code="type", field="number", value=number
                )
            return self._model.draw(int(number), self._consenting(names))[svg]

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the joined model as XGBoost's JSON, with mode 0600; every party consents, since all are this user.

        Its columns are those of ``parties_``, one party after the other, and categories are codes as :meth:`held_by`
        returns them; :mod:`labelward.protocols.secureboost.xgboost_json` says what differs from the federated model.

        Args:
            path: a file ending in ``.json``, in an existing folder.
            overwrite: whether an existing file may be replaced.

        Raises:
            OutputError: the file exists already, or cannot be written.
        """
        check_is_fitted(self)
        path = Path(path)
        if path.exists() and not overwrite:
            raise OutputError("exists already; overwrite=True replaces it", code="exists", field=str(path))
        everyone = tuple(self.shares_)
        return self._model.export(path, consent=everyone, names=everyone, purpose="an estimator's export")

    @staticmethod
    def _load_share(folder: Path) -> ModelShare:
        return ModelShare.load(folder)

    @property
    def n_estimators_(self) -> int:
        """Rounds of boosting, or trees of a forest, that the model has."""
        lead = self._lead
        return len(lead.trees) // (lead.outputs if lead.trees[0].output >= 0 else 1)

    @property
    def feature_importances_(self) -> Floats:
        """Share of each column of X in the total gain of all splits: float64 [columns], zeros without a split."""
        check_is_fitted(self)
        gains = np.zeros(self.n_features_in_)
        lead = self._lead
        for tree in lead.trees:
            for owner, record, gain in zip(tree.owners, tree.records, tree.gains, strict=True):
                party = lead.parties[owner]
                gains[self._places[party][self.shares_[party].own.columns[record]]] += gain
        total = gains.sum()
        return gains / total if total > 0 else gains

    def _block(self, table: Any, party: str) -> Floats:
        share = self.shares_[party]
        return transform_columns(share.columns, self._places[party], share.categories, table)

    def _rows(self, X: Any) -> AlignedRows:
        table = read(self, X, reset=False)
        return AlignedRows(columns={party: self._block(table, party) for party in self.shares_})

    def _behind(self, background: Any) -> AlignedRows:
        """Return background rows; errors name the argument, not X."""
        if isinstance(background, np.ndarray) and not len(background):
            raise InvalidInputError("has no rows; give at least one", code="rows", field="background", value=0)
        try:
            return self._rows(background)
        except InputError as error:
            field = f"background{error.field.removeprefix('X')}"
            raise InvalidInputError(error.reason, code=error.code, field=field, value=error.value) from error

    def _consenting(self, names: Collection[str] | None) -> Collection[str]:
        """Return the parties that disclose their column names: all of them for None."""
        if names is None:
            return tuple(self.shares_)
        if isinstance(names, str) or not isinstance(names, Collection):
            raise InvalidInputError(
                f"must be a list of parties but got {names!r}", code="type", field="names", value=names
            )
        for name in names:
            if name not in self.shares_:
                raise InvalidInputError(
                    unknown_name("party", str(name), self.shares_), code="unknown", field="names", value=name
                )
        return names

    @property
    def _model(self) -> FederatedModel:
        return FederatedModel(programs=TreeFamily(), shares=self.shares_)
