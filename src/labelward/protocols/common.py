"""What all model families share: the labels as a role program takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelVector:
    """Labels and weights of the rows that the active party trains on: training rows, then validation rows.

    Attributes:
        values: float64 [rows]: class numbers, or regression targets.
        weights: float64 [rows], at least 0.
        classes: names of the classes; empty for regression.
    """

    values: Floats
    weights: Floats
    classes: tuple[str, ...]

    def first(self, rows: int) -> LabelVector:
        """Return the labels of the first rows."""
        return LabelVector(values=self.values[:rows], weights=self.weights[:rows], classes=self.classes)
