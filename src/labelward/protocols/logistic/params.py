"""Hyper-parameters of vertical logistic regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

from msgspec import Meta

from labelward.errors import JobError
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

    def check_batches(self, positives: Sequence[int], rows: int, columns: int) -> None:
        """Refuse batches whose labels the passive parties could solve for.

        The labels of a batch need more bits than its equations have, which are fewer than the rows where a class is
        rare: few positives are found by linear programming. And they need so many rows that lattice reduction is out of
        reach where some labels are known: it needs blocks of several hundred where rows² = 4,096 · columns.

        Args:
            positives: rows of the second class in each batch of :meth:`batches`.
            rows: training rows.
            columns: encoded columns of all passive parties, who may pool what they learn.

        Raises:
            JobError: a batch has fewer rows than :attr:`rows_per_column` asks for.
        """
        if not self.rows_per_column:
            return
        sizes = [each.stop - each.start for each in self.batches(rows)]
        bits = min(label_bits(size, count) for size, count in zip(sizes, positives, strict=True))
        needed, least = self.rows_per_column * columns, math.ceil(64 * math.sqrt(columns))
        if bits >= needed and min(sizes) >= least:
            return
        wanted = math.ceil(max(needed * min(sizes) / max(bits, 1), least))  # at the same share of positives
        fitting = -(-rows // (rows // wanted)) if wanted <= rows else MOST_ROWS + 1
        reason = (
            f"gives batches of {min(sizes)} rows, whose labels have {bits:.0f} bits; the {columns} encoded columns of "
            f"the passive parties need {needed} bits (rows_per_column = {self.rows_per_column}) and {least} rows, "
            "since these could solve for the labels of fewer; "
        )
        reason += f"set it to some {fitting} or more" if fitting <= MOST_ROWS else "leave columns out"
        raise JobError(reason, code="range", field="[model] batch_size", value=self.batch_size)


def label_bits(rows: int, positives: int) -> float:
    """Return the bits of so many labels, of which the number of positives is known."""
    return (math.lgamma(rows + 1) - math.lgamma(positives + 1) - math.lgamma(rows - positives + 1)) / math.log(2)
