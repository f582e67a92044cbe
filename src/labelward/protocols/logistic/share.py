"""Model shares of logistic regression: each party knows the weights of its own columns."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError
from labelward.kernels.encoded_columns import column_values
from labelward.party.evidence import Evidence
from labelward.protocols.common.json_share import JsonShare
from labelward.protocols.logistic.columns import ColumnScale, encoded_columns

Floats = NDArray[np.float64]


class LogisticShare(JsonShare, frozen=True, kw_only=True):
    """One party's part of a model.

    Attributes:
        model: random identifier of the training.
        parties: all parties, the active one first.
        columns: names of the party's columns, in the order in which prediction expects them.
        scales: how each column is encoded.
        weights: of the encoded columns.
        intercept: at the active party; elsewhere 0.
        classes: names of the two classes, at the active party.
        categories: for each of its categorical columns the categories, by code.
        evidence: of the training; None in a share that was not saved with a view.
    """

    format: Literal[1] = 1
    kind: Literal["logistic"] = "logistic"
    model: str
    party: str
    parties: tuple[str, ...]
    columns: tuple[str, ...] = ()
    scales: tuple[ColumnScale, ...] = ()
    weights: tuple[float, ...] = ()
    intercept: float = 0.0
    classes: tuple[str, ...] = ()
    categories: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    evidence: Evidence | None = None

    def scores(self, x: Floats) -> Floats:
        """Return the party's part of the scores of rows, float64 [rows], without the intercept.

        Raises:
            DataError: rows of another number of columns.
        """
        if x.shape[1:] != (len(self.scales),):
            reason = f"{x.shape[1]} columns where the share of party {self.party!r} has {len(self.scales)}"
            raise DataError(reason, code="columns", value=x.shape[1])
        return np.asarray(column_values(encoded_columns(self.scales, x)) @ np.array(self.weights))
