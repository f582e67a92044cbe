"""SecureBoost, the active party: it holds the labels, and may hold columns of its own.

Setting: semi-honest parties. The active party encrypts gradients, hessians (and, where a policy needs them, the
classes) of each row, decrypts the sums of each candidate bin, and decides. It learns those sums and which party owns
which split; both are in its own view. What leaves: ciphertexts, the rows of nodes that a party needs, and which of a
party's own candidates won.

Reference: Cheng et al., SecureBoost (2021); Algorithms 2, 5 and 6 of the ID2Graph paper. Differences: level-wise, one
message per party and level; the larger of two siblings follows by subtraction after decryption; the active party's
own sums are of the same integers, unencrypted, so that a split never depends on the engine.

This module goes from tree to tree; :mod:`.growth` grows one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.he.contract import Layout, PrivateKey
from labelward.kernels.fixed_point import encode
from labelward.kernels.gain import GainRule
from labelward.kernels.loss import logistic_gradients
from labelward.messages.base import RowMask
from labelward.messages.tree import PredictAnswers, TrainingEnd, TreeStart
from labelward.party.context import Context
from labelward.party.policy import Schedule, Targets
from labelward.protocols.tree.columns import Columns, Splitter
from labelward.protocols.tree.growth import Forest, Growth
from labelward.protocols.tree.params import SecureBoost
from labelward.protocols.tree.predict import unpack_answers, walk
from labelward.protocols.tree.share import Records, TreeShape
from labelward.rng import learning

__all__ = ["VISITED", "Trained", "train_active"]

VISITED = frozenset({"schedule", "before_targets", "split_candidates", "before_instance_space", "before_leaf_weights"})

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Trained:
    """What training leaves at the active party.

    Attributes:
        trees: shape and leaf weights.
        owners: names in the order of ``TreeShape.owners``.
        own: for each block of own columns the records of its splits.
        tally: how often policies acted: candidates refused, splits hidden, splits given up.
    """

    trees: tuple[TreeShape, ...]
    owners: tuple[str, ...]
    own: dict[str, Records]
    tally: dict[str, int]


def train_active(
    ctx: Context,
    params: SecureBoost,
    blocks: Mapping[str, Columns],
    labels: Integers,
    private: PrivateKey | None,
    *,
    precision: int = 30,
) -> Trained:
    """Train with all peers of the context.

    Args:
        blocks: own columns; one block for a party. Several blocks train on joined tables, each as if a party held it.
        labels: int64 [rows], 0 or 1.
        private: the key; None where there is no peer.
        precision: bits behind the binary point of gradients and hessians.

    Raises:
        PeerError: a peer failed, stayed silent or sent something that cannot be.
        PolicyError: a policy cannot act.
    """
    trainer = _Trainer(ctx, params, blocks, labels, private, precision)
    everyone = frozenset(ctx.peers)
    schedule = ctx.policies.schedule(Schedule(participants=(everyone,) * params.trees))
    for tree, participants in enumerate(schedule.participants):
        ctx.progress("trees", tree, len(schedule.participants))
        trainer.grow(tree, participants)
    ctx.progress("trees", len(schedule.participants), len(schedule.participants))
    return trainer.finish()


class _Trainer:
    """The active party's state between trees."""

    def __init__(
        self,
        ctx: Context,
        params: SecureBoost,
        blocks: Mapping[str, Columns],
        labels: Integers,
        private: PrivateKey | None,
        precision: int,
    ) -> None:
        self.ctx, self.params, self.private = ctx, params, private
        self.blocks, self.precision = blocks, precision
        n = len(labels)
        given = Targets(values=labels.astype(np.float64), weights=np.ones(n), offset=np.zeros(n), loss="logistic")
        self.targets = ctx.policies.before_targets(given)
        _check_targets(params, self.targets)
        for account in ctx.policies.accounts():
            ctx.applied({"stage": "start", **account})
        self.margins = self.targets.offset.copy()
        with ctx.phase("binning"):
            splitters = {name: Splitter(name, columns, params, ctx.seed) for name, columns in blocks.items()}
        rule = GainRule(
            reg_lambda=params.reg_lambda,
            gamma=params.gamma,
            min_rows=params.min_rows,
            min_child_weight=params.min_child_weight,
        )
        self.forest = Forest(ctx, params, rule, float(1 << precision), splitters, private, self.targets.values, labels)
        self.trees: list[TreeShape] = []
        self.taken_part = dict.fromkeys(ctx.peers, 0)

    def grow(self, tree: int, participants: frozenset[str]) -> None:
        """Grow one tree with these peers, and update all margins."""
        n = len(self.margins)
        sample = self._sample(tree, n)
        values = self._values()
        for splitter in self.forest.splitters.values():
            splitter.start_tree(tree)
        seen_as = {peer: self.taken_part[peer] for peer in self.ctx.peers if peer in participants}
        layout = self._start(values, sample, seen_as)
        before = dict(self.forest.records)
        growth = Growth(self.forest, tree, values, sample, seen_as, layout)
        shape = growth.run()
        for leaf, weight in zip(shape.leaves, shape.weights, strict=True):
            self.margins[growth.partition.rows(leaf)] += weight
        if len(sample) < n:
            self._route_others(shape, sample, seen_as, before)
        self.trees.append(shape)

    def finish(self) -> Trained:
        """Tell all peers that training ends, record what policies did, and return what stays here."""
        for peer, trees in self.taken_part.items():
            self.ctx.send(peer, TrainingEnd(trees), (trees,))
        forest = self.forest
        for account in self.ctx.policies.accounts():
            self.ctx.applied({"stage": "end", **account})
        own = {name: forest.own_records(name) for name in self.blocks}
        return Trained(tuple(self.trees), forest.owners, own, self.ctx.policies.tally())

    def _sample(self, tree: int, n: int) -> Integers:
        if self.params.row_fraction >= 1.0:
            return np.arange(n)
        rng = learning(self.ctx.seed, self.ctx.party, tree, "rows")
        return np.sort(rng.choice(n, max(1, int(self.params.row_fraction * n)), replace=False))

    def _values(self) -> Integers:
        """Return int64 [n, k]: gradient, hessian, one (and the classes but the first, where a policy needs them)."""
        g, h = logistic_gradients(self.margins, self.targets.values)
        classes = self.forest.classes
        values = np.empty((len(g), 3 + classes.shape[1]), dtype=np.int64)
        values[:, 0] = encode(g * self.targets.weights, self.precision)
        values[:, 1] = encode(h * self.targets.weights, self.precision)
        values[:, 2] = 1
        values[:, 3:] = classes
        return values

    def _start(self, values: Integers, sample: Integers, seen_as: dict[str, int]) -> Layout | None:
        """Send every party that takes part the encrypted numbers of the tree's rows."""
        if not seen_as or self.private is None:
            return None
        one, flags = 1 << self.precision, values.shape[1] - 2
        classes = flags if flags > 1 else 0  # an unpacked protocol encrypts g, h and each class; it needs no row count
        layout = Layout(bounds=(one, one, *(1,) * flags), rows=len(sample), logical=2 + classes)
        with self.ctx.phase("encrypt"):
            chosen = values if len(sample) == len(values) else values[sample]
            block = self.private.encrypt(chosen, layout).block()
        mask = np.zeros(len(values), dtype=np.bool_)
        mask[sample] = True
        rows = RowMask.pack(mask)
        for peer, number in seen_as.items():
            self.ctx.send(peer, TreeStart(number, rows, block), (number,))
            self.taken_part[peer] += 1
        return layout

    def _route_others(
        self, shape: TreeShape, sample: Integers, seen_as: dict[str, int], before: dict[str, int]
    ) -> None:
        """Update the margins of the rows out of the tree's sample, which every owner routes at its own splits."""
        others = np.ones(len(self.margins), dtype=np.bool_)
        others[sample] = False
        rows = int(others.sum())
        answers = {
            name: self.forest.own_records(name).answers(columns.x[others]) for name, columns in self.blocks.items()
        }
        for peer, number in seen_as.items():
            new = self.forest.records[peer] - before[peer]
            bits = unpack_answers(peer, self.ctx.recv(peer, PredictAnswers, (number,)), new, rows)
            answers[peer] = np.concatenate([np.zeros((before[peer], rows), dtype=np.bool_), bits])
        self.margins[others] += walk(shape, self.forest.owners, answers, rows)


def _check_targets(params: SecureBoost, targets: Targets) -> None:
    """Raise :class:`PolicyError` for targets that this model would not honor."""
    if targets.loss != "logistic":
        raise PolicyError(f"{params.kind} fits a logistic loss but a defense asks for {targets.loss!r}")
    if targets.offset.any():
        raise PolicyError(f"{params.kind} cannot apply an offset of the targets at prediction")
    for name, values in (("values", targets.values), ("weights", targets.weights)):
        if values.min(initial=0.0) < 0.0 or values.max(initial=1.0) > 1.0:
            raise PolicyError(f"{params.kind} needs {name} of the targets from 0 to 1")
