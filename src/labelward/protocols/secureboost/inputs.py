"""Inputs of one party: columns, labels, and the parameters on which all parties agreed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from labelward.party.handshake import Agreement
from labelward.protocols.secureboost.params import TreeModel

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """A party's columns.

    Attributes:
        names: of the columns.
        x: float64 [rows, columns]; NaN is a missing value. A categorical column holds codes.
        categories: for each categorical column (by position) the names of its categories, by code.
        monotone: for some columns (by position) 1 or -1: predictions may only rise, or only fall, with the column.
    """

    names: tuple[str, ...]
    x: Floats
    categories: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    monotone: Mapping[int, int] = field(default_factory=dict)

    def first(self, rows: int) -> Columns:
        """Return the columns of the first rows."""
        return Columns(self.names, self.x[:rows], self.categories, self.monotone)

    def category_names(self) -> dict[str, tuple[str, ...]]:
        """Return the categories of each categorical column by column name, as a share stores them."""
        return {self.names[column]: names for column, names in self.categories.items()}


@dataclass(frozen=True, kw_only=True)
class TrainingTask:
    """A model's parameters, and what the handshake agreed on."""

    params: TreeModel
    agreed: Agreement


@dataclass(frozen=True, kw_only=True)
class TreeInputs:
    """One party's columns of all rows of a run.

    Attributes:
        train: of the training rows, then of the validation rows.
        test: float64 [rows, columns] of the rows that are predicted after training.
        validation: how many of the last rows of ``train`` are validation rows.
    """

    train: Columns
    test: Floats
    validation: int = 0
