"""Forest: trees that are fitted to the labels themselves, several side by side, on rows drawn for each.

No tree depends on another, so all rows are encoded and encrypted once, with the first tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from labelward.party.context import Context
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.checkpointing import TrainingState
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.row_encoding import EncodedGradients, TreeDraft, sample_rows
from labelward.protocols.secureboost.share import TreeShape
from labelward.protocols.secureboost.targets import Fitting

Floats = NDArray[np.float64]


class Forest:
    """The strategy of ``kind = "forest"``; arguments as for :class:`~.boosting.Boosting`."""

    stopped = False
    trees_per_round = 1
    learning_rate = 1.0

    def __init__(
        self, ctx: Context, params: TreeModel, fitting: Fitting, labels: LabelVector, state: TrainingState
    ) -> None:
        self.ctx, self.params, self.fitting, self.state = ctx, params, fitting, state
        self.together = params.trees_at_once

    def drafts(self, participants: Sequence[frozenset[str]], *, more: bool) -> Iterator[list[TreeDraft]]:
        """Yield one group of trees that grow side by side; ``participants`` are the peers of each."""
        first, ctx, sizes = len(self.state.trees), self.ctx, np.ones(self.fitting.rows)
        samples = [
            sample_rows(self.params, sizes, seed=ctx.seed, party=ctx.party, tree=tree, private=ctx.private)
            for tree in range(first, first + len(participants))
        ]
        yield [
            TreeDraft(
                tree=first + position,
                output=-1,
                participants=peers,
                counts=sample.counts,
                encoded=self._encoded,
                repairs=self._true_encoded if self.state.clean is not None else None,
                shared=True,
            )
            for position, (sample, peers) in enumerate(zip(samples, participants, strict=True))
        ]

    def add(self, tree: TreeShape, added: Floats, leaves: NDArray[np.int32]) -> None:
        """Add a tree to the model; there are no margins to update."""
        self.state.trees.append(tree)

    def end_round(self) -> None:
        """Close a group of trees."""

    def kept(self) -> tuple[int, dict[str, int]]:
        """Return how many trees the model keeps, and how many splits of each owner: all."""
        return len(self.state.trees), self.state.records

    @cached_property
    def _encoded(self) -> EncodedGradients:
        return self._encode(self.fitting.values, self.fitting.weights)

    @cached_property
    def _true_encoded(self) -> EncodedGradients:
        return self._encode(self.fitting.true_values, self.fitting.true_weights)

    def _encode(self, values: Floats, weights: Floats) -> EncodedGradients:
        """Encode all rows for a tree that starts at the base, as every tree of a forest does."""
        fitting, n = self.fitting, self.fitting.rows
        g, h = fitting.objective.gradients(self.state.margins[:n], values)
        return fitting.encoder.encode(g, h, weights, np.arange(n), fitting.objective.outputs)
