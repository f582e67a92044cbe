"""Labels that a lying passive party read while trees grew: of some rows exactly, up to the names of the two classes.

Setting: a malicious passive party of boosted trees with two classes, which makes up columns in training
(:mod:`labelward.protocols.secureboost.behavior`). No auxiliary knowledge. An attack of our own, from no paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.errors import JobError
from labelward.messages.tree import ReadRows
from labelward.metrics.registry import READ, READ_METRICS, READ_RIGHT, Metric
from labelward.party.view import View

_UNREAD = 2


@dataclass(frozen=True, kw_only=True)
class LyingSums(Attack):
    """Read labels from which of the splits wins that a lying party made up (active attack; two classes)."""

    kind: ClassVar[str] = "lying-sums"
    primary: ClassVar[str] = READ
    metrics: ClassVar[tuple[Metric, ...]] = READ_METRICS
    models: ClassVar[tuple[str, ...]] = ("secureboost",)

    @property
    def behavior(self) -> dict[str, Any]:
        """Lies about columns, which no check of sums finds."""
        return {"kind": self.kind}

    def check_labels(self, rows: int, classes: int) -> None:
        """See :meth:`Attack.check_labels`; there must be two classes."""
        if classes != 2:
            reason = f"attack {self.kind!r} reads labels of two classes, not of {classes}; remove it"
            raise JobError(reason, code="unsupported", value=classes)

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return for each row the side on which it belongs; rows that were not read have a group of their own."""
        values, trees = np.full(view.rows, _UNREAD, dtype=np.int64), 0
        for found in view.observed(ReadRows):
            rows = found.rows.unpack()
            values[rows] = found.left.unpack(len(rows))
            trees += 1
        return LabelGuess(values=values, notes={"labels": int((values != _UNREAD).sum()), "trees": trees})

    def score(self, guess: LabelGuess, truth: NDArray[np.int64]) -> dict[str, float]:
        """Return the share of rows that were read, and of these the share that is right under the better naming."""
        read = guess.values != _UNREAD
        right = float((guess.values[read] == truth[read]).mean()) if read.any() else 0.5
        return {READ: float(read.mean()), READ_RIGHT: max(right, 1 - right)}
