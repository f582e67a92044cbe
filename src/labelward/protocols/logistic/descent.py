"""Gradient descent on one party's columns: the same steps in a federated and in a joined training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from labelward.data import PartyDataset
from labelward.errors import JobError
from labelward.kernels.encoded_columns import Codes, column_values
from labelward.protocols.common.row_batches import epoch_order
from labelward.protocols.logistic.columns import encoded_columns, scales_of_party
from labelward.protocols.logistic.fixed_point import (
    MOST_ROWS,
    fixed_residuals,
    fixed_scores,
    gradient_values,
    products,
    residual_values,
    unfixed_scores,
)
from labelward.protocols.logistic.params import LogisticRegression

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rows = NDArray[np.int32]


def batch_rows(params: LogisticRegression, seed: int, rows: int) -> list[Rows]:
    """Return the rows of each batch, of every epoch the same ones; all parties draw them alike.

    With batches drawn anew each epoch would give a passive party further equations in nearly the same residuals, and
    all of them together determine the labels.
    """
    order = epoch_order(seed, 0, rows)
    return [order[piece] for piece in params.batches(rows)]


def check_batches(params: LogisticRegression, seed: int, labels: Floats, columns: int) -> None:
    """Refuse batches whose labels the passive parties could solve for.

    The labels of a batch need more bits than its equations have, which are fewer than the rows where a class is rare:
    few positives are found by linear programming. And they need so many rows that lattice reduction is out of reach
    where some labels are known: it needs blocks of several hundred where rows² = 4,096 · columns.

    Args:
        labels: float64 [rows], 0 or 1.
        columns: encoded columns of all passive parties, who may pool what they learn.

    Raises:
        JobError: a batch has fewer rows than ``rows_per_column`` asks for.
    """
    if not params.rows_per_column:
        return
    batches = [labels[rows] for rows in batch_rows(params, seed, len(labels))]
    size, bits = min(map(len, batches)), min(label_bits(len(each), int(np.count_nonzero(each))) for each in batches)
    needed, least = params.rows_per_column * columns, math.ceil(64 * math.sqrt(columns))
    if bits >= needed and size >= least:
        return
    wanted = math.ceil(max(needed * size / max(bits, 1), least))  # at the same share of positives
    fitting = -(-len(labels) // (len(labels) // wanted)) if wanted <= len(labels) else MOST_ROWS + 1
    reason = (
        f"gives batches of {size} rows, whose labels have {bits:.0f} bits; the {columns} encoded columns of the "
        f"passive parties need {needed} bits (rows_per_column = {params.rows_per_column}) and {least} rows, since "
        "these could solve for the labels of fewer; "
    )
    reason += f"set it to some {fitting} or more" if fitting <= MOST_ROWS else "leave columns out"
    raise JobError(reason, code="range", field="[model] batch_size", value=params.batch_size)


def label_bits(rows: int, positives: int) -> float:
    """Return the bits of so many labels, of which the number of positives is known."""
    return (math.lgamma(rows + 1) - math.lgamma(positives + 1) - math.lgamma(rows - positives + 1)) / math.log(2)


@dataclass
class OwnWeights:
    """One party's columns and their weights.

    Attributes:
        codes: int32 [training rows, encoded columns].
        weights: float64 [encoded columns].
    """

    params: LogisticRegression
    codes: Codes
    weights: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.weights = np.zeros(self.codes.shape[1])

    def scores(self, rows: Rows) -> Integers:
        """Return the party's part of the scores of some rows, as integers of fixed point."""
        scores = column_values(self.codes[rows]) @ self.weights
        if not (np.abs(scores) < 2.0**20).all():
            raise JobError(
                "the weights diverged; a lower rate may help",
                code="diverged",
                field="[model] learning_rate",
                value=self.params.learning_rate,
            )
        return fixed_scores(scores)

    def step(self, products: Integers, rows: int) -> Floats:
        """Take a step by the products of the columns with the residuals of a batch; return these as numbers."""
        gradient = gradient_values(products)
        self.weights -= self.params.learning_rate * (gradient / rows + self.params.l2 * self.weights)
        return gradient


@dataclass
class Intercept:
    """The constant of the scores, at the active party; no penalty is on it."""

    params: LogisticRegression
    value: float = 0.0

    def residuals(self, scores: Integers, labels: Floats) -> Integers:
        """Return probability less label of some rows from the sum of all parties' scores, in fixed point."""
        return fixed_residuals(expit(unfixed_scores(scores) + self.value) - labels)

    def step(self, residuals: Integers) -> None:
        """Take a step by the residuals of a batch."""
        self.value -= self.params.learning_rate * float(residual_values(residuals).mean())


@dataclass(frozen=True, kw_only=True)
class PooledWeights:
    """Weights of a training on all columns in one place.

    Attributes:
        weights: by party, float64 [encoded columns].
        intercept: the constant.
    """

    weights: tuple[Floats, ...]
    intercept: float


def train_together(params: LogisticRegression, columns: list[Codes], labels: Floats, seed: int) -> PooledWeights:
    """Train without any party or encryption: every weight is that of the federated training.

    Args:
        columns: by party, int32 [training rows, encoded columns].
        labels: float64 [training rows], 0 or 1.
        seed: of the shared draws.
    """
    own, constant = [OwnWeights(params, codes) for codes in columns], Intercept(params)
    batches = batch_rows(params, seed, len(labels))
    for _ in range(params.epochs):
        for rows in batches:
            scores = sum((each.scores(rows) for each in own), np.zeros(len(rows), dtype=np.int64))
            residuals = constant.residuals(scores, labels[rows])
            for each in own:
                each.step(products(each.codes[rows], residuals), len(rows))
            constant.step(residuals)
    return PooledWeights(weights=tuple(each.weights for each in own), intercept=constant.value)


def pooled_scores(
    params: LogisticRegression, parties: list[PartyDataset], labels: Floats, seed: int, rows: int
) -> Floats:
    """Return the scores of the test rows by a model that is trained on these parties' columns: float64 [rows]."""
    scales = [scales_of_party(params, party) for party in parties]
    codes = [encoded_columns(each, party.train) for each, party in zip(scales, parties, strict=True)]
    model = train_together(params, codes, labels, seed)
    parts = [
        column_values(encoded_columns(each, party.test)) @ weights
        for each, party, weights in zip(scales, parties, model.weights, strict=True)
    ]
    return np.asarray(sum(parts, np.full(rows, model.intercept)))
