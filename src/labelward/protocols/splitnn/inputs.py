"""One party's inputs to a split network: rows, labels, and the user's modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.data import OwnRows
from labelward.errors import DataError
from labelward.protocols.splitnn._torch import nn

Floats = NDArray[np.float64]
Rows = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class NetInputs:
    """One party's rows of a run, in the agreed order.

    Attributes:
        train: of the training rows, then of the validation rows: [rows, columns] for a table, [rows, channels, height,
            width] for images, [rows, tokens] for texts as token numbers (0 is padding); [rows, 0] for a party without
            columns.
        test: of the rows that are predicted in the end.
        validation: number of validation rows, the last rows of ``train``.
        names: of a table's columns.
        categories: of a table, by position, number of categories of a column; its values are codes.
        unaligned: of a table, rows that only the active party holds; None: none.
        bottom: the party's own bottom model, for ``bottom = "module"``. It is copied; its weights are where training
            starts.
        top: the active party's own top model, for ``top_model = "module"``; likewise.
    """

    train: Rows
    test: Rows
    validation: int = 0
    names: tuple[str, ...] = ()
    categories: Mapping[int, int] = field(default_factory=dict)
    unaligned: OwnRows | None = None
    bottom: nn.Module | None = None
    top: nn.Module | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return self.train.shape[1:]

    @property
    def rows(self) -> int:
        """Training rows, without validation rows."""
        return len(self.train) - self.validation

    def __post_init__(self) -> None:
        if self.train.ndim < 2 or self.test.shape[1:] != self.shape:
            raise DataError(
                f"rows to predict of shape {self.test.shape[1:]} where training rows have {self.shape}",
                code="columns",
                value=self.test.shape[1:],
            )
        if not 0 <= self.validation < len(self.train):
            raise DataError(
                f"{self.validation} validation rows of {len(self.train)}: no row is left to learn from",
                code="rows",
                value=self.validation,
            )
        if self.names and (len(self.names),) != self.shape:
            raise DataError(
                f"{len(self.names)} column names for rows of shape {self.shape}", code="columns", value=len(self.names)
            )
        missing = self.train.ndim == 2  # columns of tables may miss values
        for what, values in (("training", self.train), ("prediction", self.test)):
            bad = np.isinf(values) if missing else ~np.isfinite(values)
            if bad.any():
                raise DataError(
                    f"{int(bad.sum())} numbers of the {what} rows are not finite", code="values", value=int(bad.sum())
                )


@dataclass(frozen=True, kw_only=True)
class NetLabels:
    """Labels and weights of the rows, at the active party.

    Attributes:
        values: float64 [rows], of the training rows, then of the validation rows: class numbers, or regression targets.
        weights: float64 [rows], as ``values``; none negative.
        classes: names of the classes in the order of their numbers; empty for regression.
    """

    values: Floats
    weights: Floats
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.shape != self.weights.shape:
            raise DataError(
                f"labels of shape {self.values.shape} with weights of shape {self.weights.shape}",
                code="labels",
                value=self.values.shape,
            )
        if not np.isfinite(self.values).all() or not np.isfinite(self.weights).all() or (self.weights < 0).any():
            raise DataError("labels must be finite, and weights finite and not negative", code="labels")
        numbers = self.values.astype(np.int64) if self.classes else self.values
        if self.classes and ((numbers != self.values).any() or not set(numbers) <= set(range(len(self.classes)))):
            raise DataError(f"labels must be class numbers from 0 to {len(self.classes) - 1}", code="labels")
