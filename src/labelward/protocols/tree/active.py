"""Federated trees, the active party: it holds the labels, and may hold columns of its own.

Setting: semi-honest parties. The active party encrypts gradients and hessians (or, for a forest, labels) and, where a
policy needs them, the classes of each row, decrypts the sums of each candidate bin, and decides. It learns those sums,
how many bins each column has and which are categorical or monotone, which party owns which split, and on which side of
every split those rows lie that a tree did not grow on; all of it is in its own view. What leaves: ciphertexts, the rows
of nodes that a party needs, and which of a party's own candidates won.

Reference: Cheng et al., SecureBoost (2021); Algorithms 2, 5 and 6 of the ID2Graph paper. Differences: level-wise, one
message per party and level; the larger of two siblings follows by subtraction after decryption, and so does one bin of
each column without gaps; rows leave in blocks; the active party's own sums are of the same integers, unencrypted, so
that a split never depends on the engine.

This module goes from tree to tree; :mod:`.growth` grows them, :mod:`.rows` makes the integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError
from labelward.he.base import PrivateKey
from labelward.kernels.objectives import evaluation_metric
from labelward.messages.tree import TrainingEnd
from labelward.party.context import Context
from labelward.policy.base import TREE_POINTS
from labelward.protocols.tree.beginning import Beginning, Fitted, begin_with
from labelward.protocols.tree.columns import Columns, Labels, Splitter
from labelward.protocols.tree.exposure import Exposure
from labelward.protocols.tree.fit import check_model, class_weighted, fitted_objective, gain_rule
from labelward.protocols.tree.graft import Clean, repaired
from labelward.protocols.tree.growth import Growth, grow_together
from labelward.protocols.tree.level import Judge
from labelward.protocols.tree.opening import Opening
from labelward.protocols.tree.params import TreeModel
from labelward.protocols.tree.plan import Ensemble, Plan, begin
from labelward.protocols.tree.predict import leaf_weights
from labelward.protocols.tree.records import RecordBook
from labelward.protocols.tree.routing import reached_leaves
from labelward.protocols.tree.rows import Drawn, Encoded, Encoder, draw_rows
from labelward.protocols.tree.state import Keeper, Start, State
from labelward.protocols.tree.trained import Trained, Warm

__all__ = ["VISITED", "train_active"]

VISITED = frozenset(TREE_POINTS)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def train_active(
    ctx: Context,
    params: TreeModel,
    blocks: Mapping[str, Columns],
    labels: Labels,
    private: PrivateKey | None,
    *,
    validation: int = 0,
    precision: int = 30,
    start: Start | None = None,
) -> Trained:
    """Train with all peers of the context.

    Args:
        blocks: own columns; one block for a party. Several blocks train on joined tables, each as if a party held it.
        labels: of the training rows, then of the validation rows, as the rows of ``blocks`` are.
        private: the key; None where there is no peer.
        validation: how many of the last rows are validation rows.
        precision: bits behind the binary point of gradients and hessians.
        start: where training begins; None: with nothing.

    Raises:
        DataError: the labels do not fit the objective.
        JobError: parameters do not fit the labels or the parties.
        OutputError: a checkpoint cannot be written.
        PeerError: a peer failed, stayed silent or sent something that cannot be.
        PolicyError: a policy cannot act.
    """
    start = start or Start()
    trainer = _Trainer(ctx, params, blocks, labels, private, validation=validation, precision=precision, start=start)
    schedule, state = trainer.schedule, trainer.state
    together = params.trees_at_once if params.kind == "forest" else 1
    try:
        while (done := state.batches * together) < len(schedule) and not trainer.stopped:
            ctx.progress("trees", done, len(schedule))
            batch = schedule[done : done + together]
            if params.kind == "forest":
                trainer.grow_forest(batch)
            else:
                trainer.grow_round(batch[0])
            state.batches += 1
            trainer.ensemble.exposure.finished(len(state.trees) - 1)
            trainer.keeper.save()
    finally:
        if private is not None:
            private.prepare(0)  # no tree follows: nothing more is to be prepared
    ctx.progress("trees", len(schedule), len(schedule))
    return trainer.finish()


class _Trainer:
    """One training: what is fixed in it, its state, and how a batch of trees changes that."""

    def __init__(
        self,
        ctx: Context,
        params: TreeModel,
        blocks: Mapping[str, Columns],
        labels: Labels,
        private: PrivateKey | None,
        *,
        validation: int,
        precision: int,
        start: Start,
    ) -> None:
        self.ctx, self.params, self.private, self.blocks = ctx, params, private, blocks
        self.n, self.labels, self.classes = len(labels.values) - validation, labels, len(labels.classes)
        self.objective = fitted_objective(params, self.classes)
        check_model(params, validation, len(next(iter(blocks.values())).names))
        warm, kept = start.warm, start.stored
        beginning = kept.beginning if kept else self._beginning(precision, start.model)
        self.targets = Fitted.of(beginning)
        self.schedule = [frozenset(peers) for peers in beginning.schedule]
        with ctx.phase("binning"):
            self.splitters = {
                name: Splitter(name, columns.first(self.n), params, ctx.seed) for name, columns in blocks.items()
            }
        self.rule = gain_rule(params, self.objective.name)
        self.ensemble = self._ensemble(warm)
        self.base = self._base(warm)
        margins = np.tile(self.base, (len(labels.values), 1)) if warm is None else warm.margins.copy()
        self.clean = self._clean(margins)
        self.repairs = (self.clean is not None and params.kind == "forest") or bool(warm and warm.share.records)
        trees = list(warm.share.trees) if warm else []
        self.state = State(
            trees=trees,
            margins=margins,
            clean=self.clean.margins if self.clean else None,
            taken_part=dict.fromkeys(ctx.peers, 0) | dict.fromkeys(blocks, warm.share.grown if warm else 0),
            rounds=[(len(trees), dict(self.ensemble.records))],
            grafted=len(warm.share.own.columns) - warm.share.records_of(ctx.party) if warm else 0,
        )
        self.encoder = self._encoder(precision)
        self.forest: Encoded | None = None
        self.opening = Opening(ctx, private, once=params.kind == "forest")
        self.keeper = Keeper(ctx, self.ensemble, self.state)
        if kept:
            self.keeper.restore(kept)
        else:
            self.keeper.begin(beginning)

    @property
    def apart(self) -> bool:
        """Whether a round grows one tree for each class."""
        return self.params.multi_strategy == "one_output_per_tree" and self.objective.outputs > 1

    @property
    def stopped(self) -> bool:
        """Whether the validation rows say that further rounds are of no use."""
        patience, history = self.params.early_stopping_rounds, self.state.history
        return bool(patience and history) and len(history) - 1 - self._best_round() >= patience

    def grow_round(self, participants: frozenset[str]) -> None:
        """Grow one tree, or one for each class, with these peers, and update all margins."""
        n, objective, state = self.n, self.objective, self.state
        g, h = objective.gradients(state.margins[:n], self.targets.values)
        if self.clean:
            self.clean.gradients = objective.gradients(self.clean.margins[:n], self.clean.values)
        apart = self.apart
        self.sizes, self.first = np.abs(g).max(axis=1, initial=0.0) * self.targets.weights, len(state.trees)
        for output in range(objective.outputs) if apart else (-1,):
            chosen = slice(output, output + 1) if apart else slice(None)
            self._boost(g[:, chosen], h[:, chosen], output, participants)
        state.rounds.append((len(state.trees), dict(self.ensemble.records)))
        if n < len(state.margins):
            rest = slice(n, None)
            value, state.larger = evaluation_metric(
                self.params.eval_metric,
                objective,
                (state.margins if state.clean is None else state.clean)[rest],
                self.labels.values[rest],
                self.labels.weights[rest],
            )
            state.history.append(value)

    def grow_forest(self, batch: Sequence[frozenset[str]]) -> None:
        """Grow trees side by side; all rows are encrypted once, with the first of them."""
        if self.forest is None:
            g, h = self.objective.gradients(self.state.margins[: self.n], self.targets.values)
            self.forest = self.encoder.encode(g, h, self.targets.weights, np.arange(self.n), self.objective.outputs)
        encoded = self.forest
        first = len(self.state.trees)
        drawn = [self._sampled(np.ones(self.n), first + position) for position in range(len(batch))]
        plans = [
            self._plan(first + position, encoded, each.counts, participants, -1)
            for position, (each, participants) in enumerate(zip(drawn, batch, strict=True))
        ]
        growths = [Growth(self.ensemble, plan) for plan in plans]
        self.opening.start(growths, encoded, np.arange(self.n), route=False, further=False)
        shapes = grow_together(growths)
        if self.clean:
            own = len(self.ensemble.own[self.ctx.party])
            g, h = self.objective.gradients(self.state.margins[: self.n], self.clean.values)
            clean = self.encoder.encode(g, h, self.clean.weights, np.arange(self.n), self.objective.outputs)
            shapes = [
                repaired(each, shape, self._clean_plan(each.plan, clean))
                for each, shape in zip(growths, shapes, strict=True)
            ]
            self.state.grafted += len(self.ensemble.own[self.ctx.party]) - own
        self.state.trees += shapes

    def finish(self) -> Trained:
        """Tell all peers that training ends, record what policies did, and return what stays here."""
        state = self.state
        kept, owned = len(state.trees), self.ensemble.records
        if self.params.early_stopping_rounds and state.history:
            kept, owned = state.rounds[self._best_round() + 1]
        ensemble = self.ensemble
        for peer in self.ctx.peers:
            trees = state.taken_part[peer]
            self.ctx.send(peer, TrainingEnd(trees, owned[peer]), (trees,))
        for account in self.ctx.policies.accounts():
            self.ctx.applied({"stage": "end", **account})
        own = {name: ensemble.own[name].records().first(owned[name]) for name in self.blocks}
        return Trained(
            trees=tuple(state.trees[:kept]),
            owners=ensemble.owners,
            own=own,
            tally=self.ctx.policies.tally(),
            objective=self.objective.name,
            base=tuple(self.base.tolist()),
            grown=state.taken_part[next(iter(self.blocks))],
            history=tuple(state.history),
            records=owned | {self.ctx.party: owned[self.ctx.party] - state.grafted} if self.repairs else {},
        )

    def _best_round(self) -> int:
        """Return the best round; a metric that is not a number counts as worst."""
        values = np.array(self.state.history)
        return int(np.argmin(np.nan_to_num(-values if self.state.larger else values, nan=np.inf)))

    def _beginning(self, precision: int, model: str) -> Beginning:
        self.objective.check(self.labels.values)
        n, given = self.n, self.labels
        labels = Labels(values=given.values[:n], weights=given.weights[:n], classes=given.classes)
        own = self.blocks[self.ctx.party].first(n)
        return begin_with(self.ctx, self.params, own, labels, train=train_active, precision=precision, model=model)

    def _ensemble(self, warm: Warm | None) -> Ensemble:
        share = warm.share if warm else None
        true = self.labels.values[: self.n].astype(np.int64) if self.classes else None
        counted = self.ctx.policies.bins if true is None else true
        totals = np.zeros(0, np.int64) if counted is None else np.bincount(counted, minlength=self.classes)
        own = {name: RecordBook(share.own if share and name == self.ctx.party else None) for name in self.blocks}
        ensemble = Ensemble(
            ctx=self.ctx,
            params=self.params,
            blocks=tuple(self.blocks),
            private=self.private,
            labels=true,
            class_totals=totals.astype(np.int64),
            own=own,
            exposure=Exposure(self.ctx, self.n),
        )
        if share:
            ensemble.records |= {peer: share.records_of(peer) for peer in self.ctx.peers}
        return ensemble

    def _base(self, warm: Warm | None) -> Floats:
        if warm:
            if warm.share.objective != self.objective.name or warm.share.outputs != self.objective.outputs:
                raise JobError(
                    f"the model that goes on was fitted to {warm.share.objective!r}",
                    code="other-run",
                    field="[model] objective",
                    value=warm.share.objective,
                )
            return np.array(warm.share.base)
        score = None if self.params.kind == "forest" else self.params.base_score
        return self.objective.start(self.targets.values, self.targets.weights, score)

    def _encoder(self, precision: int) -> Encoder:
        policies, n = self.ctx.policies, self.n
        true, purities = policies.bins if self.ensemble.labels is None else self.ensemble.labels, policies.purities
        flags = np.zeros((n, 0), dtype=np.int64)
        derivable = self.objective.implied == "count" and np.array_equal(
            self.targets.values, self.labels.values[: self.n]
        )
        weighted = bool((self.targets.weights != 1.0).any())
        weighted |= self.params.sampling == "goss" or self.params.scale_pos_weight != 1.0
        if true is not None and purities and (weighted or not derivable):
            flags = (true[:, None] == np.arange(1, len(self.ensemble.class_totals))).astype(np.int64)
        return Encoder(self.objective, flags, precision, weighted=weighted)

    def _boost(self, g: Floats, h: Floats, output: int, participants: frozenset[str]) -> None:
        """Grow one tree on gradients [rows, outputs of the tree]."""
        tree, state = len(self.state.trees), self.state
        drawn = self._drawn(tree)
        sample = np.flatnonzero(drawn.counts)
        encoded = self.encoder.encode(g, h, drawn.weigh(self.targets.weights), sample, g.shape[1])
        plan = self._plan(tree, encoded, drawn.counts, participants, output)
        others = bool((drawn.counts == 0).any()) or self.n < len(state.margins)
        before = dict(self.ensemble.records)
        growth = Growth(self.ensemble, plan)
        further = self._further(output, participants)
        self.opening.start([growth], encoded, sample, route=others, further=further)
        shape = grow_together([growth])[0]
        into = slice(output, output + 1) if output >= 0 else slice(None)
        reached = reached_leaves(growth, shape, before, self.blocks)
        state.margins[:, into] += leaf_weights(shape)[reached]
        if self.clean:
            g, h = (each[:, into] for each in self.clean.gradients)
            clean = self.encoder.encode(g, h, drawn.weigh(self.clean.weights), sample, g.shape[1])
            shape = repaired(growth, shape, self._clean_plan(plan, clean))
            self.clean.margins[:, into] += leaf_weights(shape)[reached]
        state.trees.append(shape)

    def _further(self, output: int, participants: frozenset[str]) -> bool:
        """Whether peers may take part in a tree after this one: of a further class, or of a later round."""
        same_round = 0 <= output < self.objective.outputs - 1 and bool(participants)
        return same_round or any(self.schedule[self.state.batches + 1 :])

    def _drawn(self, tree: int) -> Drawn:
        """Draw the rows of a tree; by gradients once for all trees of a round, so that none tells of its own class."""
        draw = self.first if self.params.sampling == "goss" else tree
        return self._sampled(self.sizes, draw)

    def _sampled(self, sizes: Floats, tree: int) -> Drawn:
        ctx = self.ctx
        return draw_rows(self.params, sizes, seed=ctx.seed, party=ctx.party, tree=tree, private=ctx.private)

    def _clean(self, margins: Floats) -> Clean | None:
        """Return what repairs go by, where a policy may want some."""
        if not self.ctx.policies.at("after_tree"):
            return None
        values, weights = self.labels.values[: self.n], self.labels.weights[: self.n]
        weights = class_weighted(self.params, weights, values, self.classes)
        return Clean(values, weights, margins.copy())

    def _clean_plan(self, plan: Plan, encoded: Encoded) -> Plan:
        """Return the plan of a tree on true labels and own columns."""
        return replace(
            plan,
            values=self._summed(encoded, plan.counts),
            classes=self.clean.values if self.clean and self.classes else None,
            judge=replace(plan.judge, numbers=encoded.numbers, scales=encoded.scales),
            layout=None,
            seen_as={},
            turns=(frozenset(self.blocks),),
        )

    def _plan(self, tree: int, encoded: Encoded, counts: Integers, participants: frozenset[str], output: int) -> Plan:
        turns = self._turns(tree, counts, participants)
        playing = frozenset[str]().union(*turns)
        taken_part, splitters = self.state.taken_part, {}
        for name, splitter in self.splitters.items():
            if name in playing:
                splitters[name] = splitter.for_tree(taken_part[name])
                taken_part[name] += 1
        seen_as = {peer: taken_part[peer] for peer in self.ctx.peers if peer in playing}
        for peer in seen_as:
            taken_part[peer] += 1
        judge = Judge(
            rule=self.rule,
            numbers=encoded.numbers,
            scales=encoded.scales,
            onehot=self.params.max_cat_to_onehot,
            threshold=self.params.max_cat_threshold,
        )
        return Plan(
            tree=tree,
            values=self._summed(encoded, counts),
            classes=self.targets.values if self.classes else None,
            counts=counts,
            judge=judge,
            learning_rate=1.0 if self.params.kind == "forest" else self.params.learning_rate,
            output=output,
            splitters=splitters,
            layout=encoded.layout,
            seen_as=seen_as,
            turns=turns,
        )

    def _summed(self, encoded: Encoded, counts: Integers) -> Integers:
        """Return what a tree sums: of a forest, which encodes all rows once, each row as often as it was drawn."""
        return encoded.values * counts[:, None] if self.params.kind == "forest" else encoded.values

    def _turns(self, tree: int, counts: Integers, participants: frozenset[str]) -> tuple[frozenset[str], ...]:
        """Return who may own the splits of each level."""
        able = [name for name in self.ensemble.owners if name not in self.blocks or self.blocks[name].names]
        number = tree // self.objective.outputs if self.apart else tree
        turn = able[number % len(able)] if able else self.ctx.party
        return begin(self.ensemble, tree, turn, participants, counts > 0)
