"""Boosting: each round fits one tree, or one for each class, to the gradients at the present margins.

Rows are sampled, encoded and encrypted anew for each tree. Each tree adds its leaf weights, times the learning rate,
to the margins of all rows, so owners are asked for the sides of the rows that were not sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.objectives import evaluation_metric, margins_of_output
from labelward.party.context import Context
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.checkpointing import TrainingState
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.row_encoding import EncodedGradients, RowSample, TreeDraft, sample_rows
from labelward.protocols.secureboost.share import TreeShape
from labelward.protocols.secureboost.targets import Fitting

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Boosting:
    """The strategy of ``kind = "secureboost"``.

    Args:
        ctx: the active party's.
        fitting: objective, targets and encoder.
        labels: of the training rows, then of the validation rows; of these as policies let them decide when to stop.
        state: of the training; margins and history are updated in place.
    """

    together = 1

    def __init__(
        self, ctx: Context, params: TreeModel, fitting: Fitting, labels: LabelVector, state: TrainingState
    ) -> None:
        self.ctx, self.params, self.fitting, self.labels, self.state = ctx, params, fitting, labels, state
        outputs = fitting.objective.outputs
        self._apart = params.multi_strategy == "one_output_per_tree" and outputs > 1
        self.trees_per_round = outputs if self._apart else 1
        self.learning_rate = params.learning_rate

    @property
    def stopped(self) -> bool:
        """Whether the validation metric has not improved for ``early_stopping_rounds``."""
        patience, history = self.params.early_stopping_rounds, self.state.history
        return bool(patience and history) and len(history) - 1 - self._best_round() >= patience

    def drafts(self, participants: Sequence[frozenset[str]], *, more: bool) -> Iterator[list[TreeDraft]]:
        """Yield the trees of a round, one by one.

        Args:
            participants: the peers of the round, in a list of one.
            more: whether peers take part in any later round.
        """
        (peers,), state, fitting, n = participants, self.state, self.fitting, self.fitting.rows
        objective = fitting.objective
        first = len(state.trees)
        g, h = objective.gradients(state.margins[:n], fitting.values)
        true = None if state.clean is None else objective.gradients(state.clean[:n], fitting.true_values)
        sizes = np.abs(g).max(axis=1, initial=0.0) * fitting.weights
        outputs = self._order(first) if self._apart else [-1]
        for output in outputs:
            tree, into = len(state.trees), margins_of_output(output)
            # Rows sampled by gradients are the same for all trees of a round, so that none is specific to its class.
            sample = self._sample(sizes, first if self.params.sampling == "goss" else tree)
            last = output == outputs[-1]
            yield [
                TreeDraft(
                    tree=tree,
                    output=output,
                    participants=peers,
                    counts=sample.counts,
                    encoded=self._encode((g, h), into, fitting.weights, sample),
                    repairs=None if true is None else self._encode(true, into, fitting.true_weights, sample),
                    shared=False,
                    route=n < len(state.margins) or bool((sample.counts == 0).any()),
                    prepare=more or (bool(peers) and not last),
                )
            ]

    def add(self, tree: TreeShape, added: Floats, leaves: NDArray[np.int32]) -> None:
        """Add a tree to the model, and its leaf weights to the margins.

        Args:
            tree: as the model keeps it, perhaps repaired.
            added: float64 [rows, outputs of the tree]: what it adds as it was fitted; later trees are fitted to what
                that leaves over.
            leaves: int32 [rows]: position of the leaf that each row reaches.
        """
        state, into = self.state, margins_of_output(tree.output)
        state.margins[:, into] += added
        if state.clean is not None:
            state.clean[:, into] += tree.leaf_values()[leaves]
        state.trees.append(tree)

    def end_round(self) -> None:
        """Close a round: score the validation rows.

        Where the score decides when to stop, which passive parties see, it is that of the trees as they were fitted:
        repaired ones follow true labels.
        """
        state, n = self.state, self.fitting.rows
        state.rounds.append((len(state.trees), dict(state.records)))
        if n == len(state.margins):
            return
        fitted = state.clean is None or self.params.early_stopping_rounds > 0
        margins = state.margins if fitted or state.clean is None else state.clean
        values, weights = self.labels.values[n:], self.labels.weights[n:]
        score = evaluation_metric(self.params.eval_metric, self.fitting.objective, margins[n:], values, weights)
        state.history.append(score[0])
        state.larger = score[1]

    def kept(self) -> tuple[int, dict[str, int]]:
        """Return how many trees the model keeps, and how many splits of each owner: with early stopping, the best."""
        state = self.state
        if self.params.early_stopping_rounds and state.history:
            return state.rounds[self._best_round() + 1]
        return len(state.trees), state.records

    def _order(self, first: int) -> list[int]:
        """Return the outputs in the order in which the trees of a round grow.

        Peers see one tree after the other. An order that they knew would name the class that each separates.
        """
        draw = self.ctx.private.learning(self.ctx.seed, first, "outputs")
        order: list[int] = draw.permutation(self.fitting.objective.outputs).tolist()
        return order

    def _sample(self, sizes: Floats, tree: int) -> RowSample:
        ctx = self.ctx
        return sample_rows(self.params, sizes, seed=ctx.seed, party=ctx.party, tree=tree, private=ctx.private)

    def _encode(
        self, gradients: tuple[Floats, Floats], into: slice, weights: Floats, sample: RowSample
    ) -> EncodedGradients:
        g, h = (each[:, into] for each in gradients)
        rows = np.flatnonzero(sample.counts)
        return self.fitting.encoder.encode(g, h, sample.weigh(weights), rows, g.shape[1])

    def _best_round(self) -> int:
        """Return the best round; a metric that is not a number counts as worst."""
        values = np.array(self.state.history)
        return int(np.argmin(np.nan_to_num(-values if self.state.larger else values, nan=np.inf)))


def turns_of_tree(
    params: TreeModel, blocks: Sequence[str], turn: str, participants: frozenset[str]
) -> tuple[frozenset[str], ...]:
    """Return who may own the splits of each level, from the root; the last entry holds for all further levels.

    Args:
        blocks: names of the blocks of own columns, the active party's first.
        turn: whose turn it is in the mixed mode.
        participants: the peers that take part.
    """
    active, *others = blocks
    passive = frozenset(others) | participants
    if params.mode == "mixed":
        return (frozenset({turn if turn in passive else active}),)
    if params.mode == "layered" and passive:
        return (passive,) * params.passive_depth + (frozenset({active}),)
    return (passive | {active},)
