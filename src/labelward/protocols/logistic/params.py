"""Hyper-parameters of vertical logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

from msgspec import Meta

from labelward.parameters import NonNegativeFloat, NonNegativeInt, Parameters, PositiveFloat, PositiveInt
from labelward.protocols.logistic.fixed_point import MOST_ROWS


@dataclass(frozen=True, kw_only=True)
class LogisticRegression(Parameters):
    """Logistic regression on all parties' columns, by mini-batches under encryption."""

    kind: ClassVar[str] = "logistic"
    section: ClassVar[str] = "[model]"

    epochs: Annotated[PositiveInt, Meta(description="How often training goes through all rows.")] = 5
    batch_size: Annotated[
        int,
        Meta(
            ge=2,
            le=MOST_ROWS,
            description="Most rows of a batch; batches are of equal size. A passive party learns one sum per column "
            "for each batch, so that small batches tell it more, and cost more.",
        ),
    ] = 2048
    rows_per_column: Annotated[
        NonNegativeInt,
        Meta(
            description="Least rows of a batch for each encoded column of all passive parties together, of classes "
            "that are equally frequent (more of others, whose labels have fewer bits), and 64 times the root of their "
            "number at least; 0: no limit. A column tells them some 20 bits of a batch's labels: with fewer rows these "
            "can be solved for, in seconds by lattice reduction where rows² < 700 · columns."
        ),
    ] = 24
    learning_rate: Annotated[PositiveFloat, Meta(description="Step size of gradient descent.")] = 0.5
    l2: Annotated[NonNegativeFloat, Meta(description="Weight of half the squared length of the weights.")] = 1e-4

    def most_rows(self, rows: int) -> int:
        """Return how many of so many training rows a batch has at most."""
        return min(self.batch_size, rows)

    def batches(self, rows: int) -> list[slice]:
        """Return the batches of so many training rows as pieces of their order.

        They differ by one row at most: the sums over a last batch of a few rows would give their labels.
        """
        count = -(-rows // self.batch_size)
        edges = [at * rows // count for at in range(count + 1)]
        return [slice(start, stop) for start, stop in pairwise(edges)]
