"""What all families share: one party's inputs to a training, and the labels among them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset

__all__ = ["LabelVector", "PartyInputs", "class_probabilities"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelVector:
    """Labels and weights that one party holds: of the training rows, then of the validation rows.

    Attributes:
        values: float64 [rows]: class numbers, or regression targets; NaN where another party holds the label.
        weights: float64 [rows], at least 0.
        classes: names of the classes; empty for regression.
    """

    values: Floats
    weights: Floats
    classes: tuple[str, ...]

    def first(self, rows: int) -> LabelVector:
        """Return the labels of the first rows."""
        return LabelVector(values=self.values[:rows], weights=self.weights[:rows], classes=self.classes)


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyInputs:
    """One party's inputs to a training.

    Attributes:
        data: the party's columns.
        labels: the labels that the party holds; None: none.
        share: share of the model that a warm start continues.
        behavior: malicious behavior of a party, if any (:meth:`labelward.protocols.family.ModelFamily.make_behavior`).
    """

    data: PartyDataset
    labels: LabelVector | None = None
    share: Any = None
    behavior: Mapping[str, Any] | None = None

    def digest(self) -> bytes:
        """Return the SHA-256 of columns and labels; a keyed form is stored, since guesses can be tested against it."""
        data, labels = self.data, self.labels
        arrays = [data.train, data.validation, data.test]
        if data.unaligned is not None:
            arrays += [data.unaligned.features, data.unaligned.values, data.unaligned.weights]
        if labels is not None:
            arrays += [labels.values, labels.weights]
        names = (data.columns, sorted(data.categories.items()), () if labels is None else labels.classes)
        total = hashlib.sha256(repr(names).encode())
        for array in arrays:
            total.update(repr((array.shape, array.dtype.str)).encode())
            total.update(np.ascontiguousarray(array).data)
        return total.digest()

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """For each categorical column its categories, by code."""
        return {self.data.columns[position]: names for position, names in self.data.categories.items()}


def class_probabilities(scores: Floats) -> Floats:
    """Return float64 [rows, 2] for the scores of the second of two classes, float64 [rows]."""
    from scipy.special import expit

    second = expit(scores)
    return np.stack([1 - second, second], axis=1)
