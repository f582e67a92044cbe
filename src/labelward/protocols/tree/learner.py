"""The model of a run, trained by the active party on its own columns alone: where policies have their priors from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelward.party.context import Context
from labelward.party.in_process import standalone_context
from labelward.protocols.tree.columns import Columns, Labels
from labelward.protocols.tree.params import TreeModel
from labelward.protocols.tree.predict import expected, predict_active
from labelward.protocols.tree.trained import Trained

__all__ = ["OwnLearner"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class OwnLearner:
    """Trains with the parameters and the learning draws of the run, undefended and without a word to anyone.

    Attributes:
        columns: of the training rows.
        weights: float64 [training rows].
        classes: names of the classes.
        train: :func:`~labelward.protocols.tree.active.train_active`.
    """

    ctx: Context
    params: TreeModel
    columns: Columns
    weights: Floats
    classes: tuple[str, ...]
    precision: int
    train: Callable[..., Trained]

    def probabilities(self, values: Floats, rows: NDArray[np.bool_]) -> Floats:
        """See :class:`labelward.policy.base.LocalLearner`."""
        party, here = self.ctx.party, self.columns
        ctx = standalone_context(party, seed=self.ctx.seed, rows=len(rows), private=self.ctx.private)
        some = Columns(here.names, here.x[rows], here.categories, here.monotone)
        labels = Labels(values=values[rows], weights=self.weights[rows], classes=self.classes)
        params = replace(self.params, early_stopping_rounds=0)
        fitted = self.train(ctx, params, {party: some}, labels, None, precision=self.precision)
        share = fitted.share(params.kind, here, self.classes)
        return expected(share, predict_active(ctx, share, {party: (share.own, here.x)}, len(here.x)))
