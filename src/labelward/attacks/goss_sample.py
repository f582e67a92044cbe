"""Who is in the samples of large gradients: rows of the rarer class are drawn more often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.row_ranking import TwoClassRanking
from labelward.messages.tree import TreeStart
from labelward.parameters import Fraction
from labelward.party.view import View


@dataclass(frozen=True, kw_only=True)
class GossSample(TwoClassRanking):
    """Rows of two classes ranked by how many samples of large gradients they are in.

    Gradient-based one-side sampling (``sampling = "goss"``) keeps the rows of the largest gradients and a random part
    of the others, and every party is told which rows a tree grows on. A row has a large gradient as long as the model
    fits it badly, as it does rows of the rarer class in the first trees. Where classes have weights
    (``scale_pos_weight``), gradients differ from the first tree on. Trees of one round share a sample, which counts
    once.

    Setting: a curious passive party, without a known label and without a look at its own columns. From no paper.
    """

    kind: ClassVar[str] = "goss-sample"
    models: ClassVar[tuple[str, ...]] = ("secureboost",)
    needs: ClassVar[Mapping[str, Any]] = {"sampling": "goss"}

    eta: Annotated[
        Fraction, Meta(description="Discount of the samples from round to round, since the first ones tell the most.")
    ] = 0.7

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a score for every training row; the upper half of the ranking is guessed as class 1.

        On a view without trees all rows have one score.

        Raises:
            DataError: the view is the active party's, or ``own`` does not hold its rows.
            FileFormatError: records of the view contradict each other.
            JobError: not two classes.
        """
        self.check_view(view, own, aux)
        told = {each.message.tree: each.message.rows.value.unpack(view.rows) for each in view.received(TreeStart)}
        samples = list({mask.tobytes(): mask for _, mask in sorted(told.items())}.values())
        scores = np.zeros(view.rows)
        for place, mask in enumerate(samples):
            scores += self.eta**place * mask
        return self.guess_of(scores, {"samples": float(len(samples))})
