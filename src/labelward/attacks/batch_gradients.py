"""Labels from the gradients of a party's weights in vertical logistic regression.

A passive party learns for each batch the sum of residual times column, one number a column. These are linear equations
in the residuals (probability less label), and the solution of least length ranks the rows. Rows that the equations
single out are as good as certain: their residual is the solution's, and negative where the label is the second class.
Such are all rows of a batch with no more rows than the party has columns; of a larger one the only row with a category,
with a value far beyond all others, or in which a combination of columns has one.
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
from labelward.kernels.encoded_columns import column_codes, column_values, least_rows, scale_of_numbers, standardized
from labelward.messages.logistic import BatchRows, EncodedCategories, WeightGradient
from labelward.parameters import PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]

_SURE = 0.05
"""Part of a row that the equations may leave open where its residual counts as certain.

The rest of it is then more than four deviations of what the other rows add, whose residuals are as large as its own.
"""


@dataclass(frozen=True, kw_only=True)
class BatchGradientGuess(TwoClassRanking):
    """Rows ranked by the residuals of least length that explain the gradients of each batch.

    Setting: a curious passive party of a logistic regression. It knows no label, its own columns as they were encoded,
        the rows of every batch, and the gradients of its own weights. Rows whose residual follows from the equations of
        any batch of any epoch, but for a twentieth, come first and last in the ranking; the note ``determined_rows`` is
        their share. What the first epochs tell of the others is added up; there the probabilities are nearly the same
        for all rows.

    Reference: none for sums over batches; the equations are those of Section 3.5 of the label inference paper where a
        batch has one row.
    """

    kind: ClassVar[str] = "batch-gradients"
    models: ClassVar[tuple[str, ...]] = ("logistic",)

    epochs: Annotated[
        PositiveInt, Meta(description="Number of first epochs whose gradients rank rows that are not certain.")
    ] = 1

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
        for step in view.observed(WeightGradient):  # of several members, each in turn
            gradients.setdefault((step.epoch, step.batch), []).append(step.values.unpack().astype(np.float64))
        if not gradients:
            return self.guess_of(rng.normal(size=view.rows), {})
        x, scores, sure = own_encoded_columns(view, own), np.zeros(view.rows), np.zeros(view.rows)
        for each in view.observed(BatchRows):
            parts = gradients.pop((each.epoch, each.batch), None)
            if parts is None:
                continue
            rows, values = each.rows.unpack(), np.concatenate(parts)
            if len(values) != x.shape[1]:
                reason = f"{len(values)} numbers of a gradient for {x.shape[1]} encoded columns"
                raise DataError(reason, code="columns", value=len(values))
            residuals, determined = shortest_solution(x[rows], values)
            if each.epoch < self.epochs:
                scores[rows] -= residuals
            sure[rows[determined]] = -np.sign(residuals[determined])
        beyond = 1 + np.abs(scores).max()
        ranked = np.where(sure != 0, sure * beyond, scores)
        return self.guess_of(ranked, {"determined_rows": float((sure != 0).mean())})


def shortest_solution(x: Floats, sums: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the shortest residuals r with x'r = sums, float64 [rows], and which of them every solution nearly has.

    Args:
        x: float64 [rows, columns].
        sums: float64 [columns].
    """
    left, sizes, right = np.linalg.svd(x, full_matrices=False)
    kept = sizes > sizes.max(initial=0.0) * max(x.shape) * np.finfo(np.float64).eps
    left = left[:, kept]
    found = left @ ((right[kept] @ sums) / sizes[kept])
    return found, (left**2).sum(axis=1) > 1 - _SURE


def own_encoded_columns(view: View, own: AttackerData) -> Floats:
    """Return a party's columns as the model encodes them, float64 [rows, encoded columns].

    Raises:
        DataError: the view does not say which categories were encoded.
    """
    kept = [codes for each in view.observed(EncodedCategories) for codes in each.kept][: len(own.columns)]
    if len(kept) < len(own.columns):
        reason = f"the view of party {view.party!r} does not say which categories of its columns were encoded"
        raise DataError(reason, code="columns", value=len(kept))
    parts = [np.empty((view.rows, 0))]
    least = least_rows(view.rows, min(int(view.parameter("model.batch_size")), view.rows))
    for name, codes, values in zip(own.columns, kept, own.features.T, strict=True):
        if name in own.categories:
            parts.append(values[:, None] == np.array(codes))
        elif scale := scale_of_numbers(values, least):
            parts.append(standardized(values, *scale)[:, None])
    return column_values(column_codes(np.hstack(parts)))
