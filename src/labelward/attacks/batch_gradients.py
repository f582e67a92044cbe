"""Labels from the gradients of a party's weights in vertical logistic regression.

A passive party learns for each batch the sum of residual times column, one number a column. In the first epochs the
probabilities are nearly the same for all rows, so that these are linear equations in the labels. A batch with no more
rows than the party has columns is solved exactly; of a larger one the solution of least length ranks the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import validate_rows
from labelward.attacks.row_ranking import TwoClassRanking
from labelward.errors import DataError
from labelward.messages.logistic import BatchRows, WeightGradient
from labelward.parameters import PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]

_CUT = 16.0
"""Standardized values beyond it are cut."""


@dataclass(frozen=True, kw_only=True)
class BatchGradientGuess(TwoClassRanking):
    """Rows ranked by the residuals of least length that explain the gradients of each batch.

    Setting: a curious passive party of a logistic regression. It knows no label, its own columns as they were encoded,
        the rows of every batch, and the gradients of its own weights. A residual is probability less label; its least
        squares solution ranks the rows by their labels, up to the probabilities, which differ little at first. What
        several epochs tell of a row is added up.

    Reference: none for sums over batches; the equations are those of Section 3.5 of the label inference paper where a
        batch has one row.
    """

    kind: ClassVar[str] = "batch-gradients"
    models: ClassVar[tuple[str, ...]] = ("logistic",)

    epochs: Annotated[PositiveInt, Meta(description="Number of first epochs whose gradients are read.")] = 1

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a score for every training row; without gradients scores are drawn at random.

        Raises:
            DataError: ``own`` does not hold the view's rows, or not the columns of the gradients.
            JobError: not two classes.
        """
        validate_rows(view, own)
        self.check_labels(view.rows, aux.classes)
        gradients: dict[tuple[int, int], list[Floats]] = {}
        for step in view.observed(WeightGradient):
            if step.epoch < self.epochs:  # of several members, each in turn
                found = step.values.unpack().astype(np.float64)
                gradients.setdefault((step.epoch, step.batch), []).append(found)
        if not gradients:
            return self.guess_of(rng.normal(size=view.rows), {})
        x, scores, told = standardized_columns(own), np.zeros(view.rows), float(len(gradients))
        for each in view.observed(BatchRows):
            parts = gradients.pop((each.epoch, each.batch), None)
            if parts is None:
                continue
            values = np.concatenate(parts)
            if len(values) != x.shape[1]:
                reason = f"{len(values)} numbers of a gradient for {x.shape[1]} encoded columns"
                raise DataError(reason, code="columns", value=len(values))
            rows = each.rows.unpack()
            scores[rows] -= np.linalg.lstsq(x[rows].T, values, rcond=None)[0]
        return self.guess_of(scores, {"gradients": told})


def standardized_columns(own: AttackerData) -> Floats:
    """Return a party's columns as the model encodes them but for rounding, float64 [rows, encoded columns]."""
    x, at = own.numbers(), 0
    for name in own.columns:
        count = own.categories.get(name, 0)
        if not count:
            deviation = float(np.nanstd(own.features[:, list(own.columns).index(name)]))
            x[:, at] = np.clip((x[:, at] - x[:, at].mean()) / (deviation or 1.0), -_CUT, _CUT)
        at += max(count, 2) - 1 if count else 1
    return x
