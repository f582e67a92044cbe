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
from labelward.protocols.common.row_batches import batches
from labelward.protocols.logistic.columns import encoded_columns, scales_of
from labelward.protocols.logistic.fixed_point import column_values

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class BatchGradients(TwoClassRanking):
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
        orders = {each.epoch: each.rows.unpack() for each in view.observed(BatchRows)}
        gradients = [each for each in view.observed(WeightGradient) if each.epoch < self.epochs]
        if not gradients:
            return self.guess_of(rng.normal(size=view.rows), {})
        scales = scales_of(own.features, own.columns, own.categories)
        x = column_values(encoded_columns(scales, own.features))
        scores, size = np.zeros(view.rows), view.parameter("model.batch_size", 2048)
        for each in gradients:
            values = each.values.unpack().astype(np.float64)
            if len(values) != x.shape[1]:
                reason = f"{len(values)} numbers of a gradient for {x.shape[1]} encoded columns"
                raise DataError(reason, code="columns", value=len(values))
            order = orders[each.epoch]
            rows = order[batches(len(order), size)[each.batch]]
            scores[rows] -= np.linalg.lstsq(x[rows].T, values, rcond=None)[0]
        return self.guess_of(scores, {"gradients": float(len(gradients))})
