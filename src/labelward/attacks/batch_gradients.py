"""Labels from the gradients of a party's weights in vertical logistic regression.

A passive party learns for each batch the sum of residual times column, one number a column. These are linear equations
in the residuals (probability less label). Rows that the equations of a batch single out are as good as certain: their
residual is that of the shortest solution, and negative where the label is the second class. Such are all rows of a
batch with no more rows than the party has columns; of a larger one the only row with a category, with a value far
beyond all others, or in which a combination of columns has one.

In the first batch each residual is ½ or −½, so that the equations are of integers and hold exactly. Where the batch has
few rows for the columns, lattice reduction finds all of its labels.

All others are ranked by the equations of all batches together. The residuals change from batch to batch, but of the
change a party knows what its own weights make, and the rest is small beside the label. With batches that are drawn anew
in every epoch, as up to the first versions of 0.2.0, the equations of enough epochs determine every label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lsqr
from scipy.special import expit

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import validate_rows
from labelward.attacks.row_ranking import TwoClassRanking
from labelward.errors import DataError
from labelward.kernels.encoded_columns import (
    FRACTION,
    column_codes,
    column_values,
    least_rows,
    scale_of_numbers,
    standardized,
)
from labelward.kernels.lattice_reduction import only_solution
from labelward.messages.logistic import BatchRows, EncodedCategories, WeightGradient
from labelward.parameters import PositiveInt
from labelward.party.view import View

Floats = NDArray[np.float64]

_SURE = 0.05
"""Part of a row that the equations may leave open where its residual counts as certain.

The rest of it is then more than four deviations of what the other rows add, whose residuals are as large as its own.
"""

_DRIFT = 0.2
"""Variance of the part of a residual that changes by the weights of others, beside that of the part by the label."""
_ITERATIONS = 200


class _Equations(NamedTuple):
    """The equations of a batch: its rows, and the sum of residual times column of each encoded column."""

    epoch: int
    rows: NDArray[Any]
    sums: Floats


@dataclass(frozen=True, kw_only=True)
class BatchGradientGuess(TwoClassRanking):
    """Rows ranked by the residuals that explain the gradients of all batches best.

    Setting: a curious passive party of a logistic regression. It knows no label, its own columns as they were encoded,
        the rows of every batch, and the gradients of its own weights. Rows whose residual follows from the equations of
        any batch of any epoch, but for a twentieth, come first and last in the ranking; the note ``determined_rows`` is
        their share. The others are ranked by least squares over all equations, less what the party's own weights
        explain, where each row has one residual for all epochs.

    Reference: none for sums over batches; the equations are those of Section 3.5 of the label inference paper where a
        batch has one row.
    """

    kind: ClassVar[str] = "batch-gradients"
    models: ClassVar[tuple[str, ...]] = ("logistic",)

    epochs: Annotated[
        PositiveInt | None,
        Meta(description="Number of first epochs whose gradients rank rows that are not certain. Left out: all."),
    ] = None

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
        equations = _equations(view)
        if not equations:
            return self.guess_of(rng.normal(size=view.rows), {})
        x, sure = own_encoded_columns(view, own), np.zeros(view.rows)
        for each in equations:
            if len(each.sums) != x.shape[1]:
                reason = f"{len(each.sums)} numbers of a gradient for {x.shape[1]} encoded columns"
                raise DataError(reason, code="columns", value=len(each.sums))
        first = _labels_of_first_batch(x, equations[0])
        if first is not None:
            sure[equations[0].rows] = np.where(first, 1.0, -1.0)
        for each in _first_of_rows(equations):
            residuals, determined = shortest_solution(x[each.rows], each.sums)
            sure[each.rows[determined]] = -np.sign(residuals[determined])
        read = [each for each in equations if self.epochs is None or each.epoch < self.epochs]
        rate, penalty = (float(view.parameter(f"model.{name}")) for name in ("learning_rate", "l2"))
        scores = -_joint_solution(x, _first_of_rows(_less_own_part(x, read, rate, penalty)))
        ranked = np.where(sure != 0, sure * (1 + np.abs(scores).max()), scores)
        return self.guess_of(ranked, {"determined_rows": float((sure != 0).mean())})


def _equations(view: View) -> list[_Equations]:
    """Return the equations of every batch with a gradient, in order; of several members all columns."""
    gradients: dict[tuple[int, int], list[Floats]] = {}
    for step in view.observed(WeightGradient):  # of several members, each in turn
        gradients.setdefault((step.epoch, step.batch), []).append(step.values.unpack().astype(np.float64))
    rows = {(each.epoch, each.batch): each.rows.unpack() for each in view.observed(BatchRows)}
    return [
        _Equations(place[0], rows[place], np.concatenate(parts))
        for place, parts in sorted(gradients.items())
        if place in rows
    ]


def _labels_of_first_batch(x: Floats, first: _Equations) -> NDArray[np.bool_] | None:
    """Return the labels of the first batch, whose residuals are ½ less the label: integer equations, solved exactly."""
    if first.epoch:
        return None
    codes = np.rint(x[first.rows] * 2.0**FRACTION).astype(np.int64)
    twice = codes.sum(axis=0) - 2.0 ** (FRACTION + 1) * first.sums
    told = np.rint(twice / 2).astype(np.int64)
    return only_solution(codes, told) if np.abs(twice / 2 - told).max() < 1e-3 else None


def _first_of_rows(equations: Iterable[_Equations]) -> list[_Equations]:
    """Leave out batches whose rows are those of an earlier one, whose sums told their labels more exactly."""
    found: dict[bytes, _Equations] = {}
    for each in equations:
        found.setdefault(each.rows.tobytes(), each)
    return list(found.values())


def _less_own_part(x: Floats, equations: Sequence[_Equations], rate: float, penalty: float) -> Iterator[_Equations]:
    """Take off each sum what the party's own scores explain of it, which change by the same gradients."""
    weights = np.zeros(x.shape[1])
    for each in equations:
        columns = x[each.rows]
        yield each._replace(sums=each.sums - columns.T @ (expit(columns @ weights) - 0.5))
        weights -= rate * (each.sums / len(each.rows) + penalty * weights)


def _joint_solution(x: Floats, equations: Sequence[_Equations]) -> Floats:
    """Return the residual of each row that explains the sums of all batches best, float64 [rows]."""
    rows, columns = x.shape
    if not equations:  # of a view that has later epochs alone
        return np.zeros(rows)

    def sums_of(residuals: Floats) -> Floats:
        return np.concatenate([x[each.rows].T @ residuals[each.rows] for each in equations])

    def spread(sums: Floats) -> Floats:
        total = np.zeros(rows)
        for each, own in zip(equations, sums.reshape(len(equations), columns), strict=True):
            total[each.rows] += x[each.rows] @ own
        return total

    system = LinearOperator((len(equations) * columns, rows), matvec=sums_of, rmatvec=spread, dtype=np.float64)
    told = np.concatenate([each.sums for each in equations])
    damp = np.sqrt(_DRIFT * np.mean([len(each.rows) for each in equations]))
    return np.asarray(lsqr(system, told, damp=float(damp), iter_lim=_ITERATIONS)[0])


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
