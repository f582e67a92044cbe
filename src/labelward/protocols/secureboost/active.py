"""SecureBoost, the active party: it holds the labels, and may hold columns of its own.

Setting: semi-honest parties. The active party encrypts gradients and hessians (for a forest, labels) and, where a
policy needs them, the class of each row; it decrypts the sums of each candidate bin, and decides. It learns those sums,
the number of bins and the kind of each column, which party owns which split, and on which side of every split the rows
outside a tree's sample lie; all of it is in its own view. What leaves: ciphertexts, the rows of nodes that a party
needs, and which of a party's own candidates won.

A round (:meth:`_Training._round`): sample rows and encode their gradients; send the rows encrypted; level by level
request histograms, collect them, select the best splits, and apply them; weigh the leaves. Trees of a forest grow side
by side, so that one party sums for one tree while another decides on the next.

A node is a leaf when its classes are all equal, at the maximum depth, or when no split gains. The policies decide who
may see a node's children before the owner of its split is informed, since an owner learns its split's children; where
the owner may not see them, the active party takes the best of its own columns.

Which nodes a passive party sums follows from what it knows already: every node whose rows it knows, above the maximum
depth and with rows enough for two leaves. A node of one class is summed like any other, and so is one in a tree that
has all its leaves; these sums are not used. A split of another party is disclosed only if one of its children can be
split: so a node that seems to be a leaf may as well have been split into leaves.

Reference: Cheng et al., SecureBoost (2021); Algorithms 2, 5 and 6 of the ID2Graph paper. Differences: level-wise, one
message per party and level; the larger of two siblings follows by subtraction after decryption, and so does one bin of
each column without missing values; rows leave in blocks; the active party's own sums are of the same integers,
unencrypted, so that a split never depends on the engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, wrong_message
from labelward.he.base import Layout, LevelWork, PrivateKey
from labelward.kernels.gain import leaf_weights
from labelward.kernels.histogram import row_range, row_sums
from labelward.kernels.node_rows import NodeRows, children, depth_of, leaves_below, parent
from labelward.messages.base import RowMask
from labelward.messages.tree import (
    InstanceSpaces,
    LevelRequest,
    NodeSplit,
    PredictAnswers,
    SplitMasks,
    TrainingEnd,
    WinningSplits,
)
from labelward.party.context import Context
from labelward.policy.base import FinishedTree
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.boosting import Boosting, turns_of_tree
from labelward.protocols.secureboost.checkpointing import Checkpointer, StartPoint, TrainingState
from labelward.protocols.secureboost.column_binner import ColumnBinner, LevelBins, TreeBinner
from labelward.protocols.secureboost.forest import Forest
from labelward.protocols.secureboost.histogram_message import (
    HistogramRequest,
    PartyHistograms,
    add_siblings,
    nodes_to_sum,
    own_histograms,
    receive_histograms,
)
from labelward.protocols.secureboost.inputs import Columns
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.policy_hooks import PolicyHooks
from labelward.protocols.secureboost.predict import leaves_reached, unpack_answers
from labelward.protocols.secureboost.repair import (
    class_counts,
    leaves_at_or_below,
    replace_subtrees,
    with_records,
    with_weights,
)
from labelward.protocols.secureboost.row_encoding import EncodedGradients, LevelRows, RowDistributor, TreeDraft
from labelward.protocols.secureboost.share import TrainingResult, TreeShape
from labelward.protocols.secureboost.split_finding import BestSplit, Bounds, PartyCandidates, SplitFinder
from labelward.protocols.secureboost.targets import (
    OwnColumnsLearner,
    base_margins,
    check_model,
    fit_to,
    fitted_objective,
    gain_rule,
    prepare_targets,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Allowed = Mapping[str, Sequence[NDArray[np.bool_]]]


def train_active(
    ctx: Context,
    params: TreeModel,
    blocks: Mapping[str, Columns],
    labels: LabelVector,
    private: PrivateKey | None,
    *,
    validation: int = 0,
    precision: int = 30,
    start: StartPoint | None = None,
    columns: Mapping[str, int] | None = None,
) -> TrainingResult:
    """Train with all peers of the context.

    Args:
        blocks: own columns; one block for a party. Several blocks train on joined tables, as if each were a party's.
        labels: of the training rows, then of the validation rows, in the order of the rows of ``blocks``.
        private: the key; None where there is no peer.
        validation: how many of the last rows are validation rows.
        precision: bits after the binary point of gradients and hessians.
        start: where training starts; None: from nothing.
        columns: the most columns of each peer, as agreed; peers that it lacks may have any number.

    Raises:
        DataError: the labels do not fit the objective.
        JobError: parameters do not fit the labels or the parties.
        OutputError: a checkpoint cannot be written.
        PeerError: a peer failed, stayed silent or sent something impossible.
        PolicyError: a policy cannot act.
    """
    training = _Training(
        ctx,
        params,
        blocks,
        labels,
        private,
        validation=validation,
        precision=precision,
        start=start or StartPoint(),
        columns=columns or {},
    )
    try:
        training.run()
    finally:
        if private is not None:
            private.prepare(0)  # no tree follows: nothing more is to be prepared
    return training.finish()


class _Training:
    """One training: what is fixed, its state, and its rounds."""

    def __init__(
        self,
        ctx: Context,
        params: TreeModel,
        blocks: Mapping[str, Columns],
        labels: LabelVector,
        private: PrivateKey | None,
        *,
        validation: int,
        precision: int,
        start: StartPoint,
        columns: Mapping[str, int],
    ) -> None:
        warm, checkpoint, n = start.warm, start.checkpoint, len(labels.values) - validation
        training_labels, classes = labels.first(n), len(labels.classes)
        objective = fitted_objective(params, classes)
        check_model(params, validation, len(next(iter(blocks.values())).names))
        self.ctx, self.params, self.blocks, self.private = ctx, params, blocks, private
        self.columns = columns
        self.owners = (*blocks, *ctx.peers)
        true_classes = training_labels.values.astype(np.int64) if classes else None
        self.hooks = PolicyHooks(ctx, tuple(blocks), true_classes, classes=classes, rows=n)
        # Targets and schedule are decided once, and never again where a training resumes.
        if checkpoint:
            targets = checkpoint.targets
        else:
            learner = OwnColumnsLearner(
                ctx=ctx,
                params=params,
                columns=blocks[ctx.party].first(n),
                labels=training_labels,
                precision=precision,
                train=train_active,
            )
            targets = prepare_targets(
                ctx, params, self.hooks, training_labels, learner, model=start.model, validation=labels.values[n:]
            )
        self.schedule = [frozenset(peers) for peers in targets.schedule]
        with ctx.phase("binning"):
            self.binners = {
                name: ColumnBinner(name, columns.first(n), params, ctx.seed) for name, columns in blocks.items()
            }
        fitting = fit_to(params, self.hooks, targets, training_labels, precision)
        self.rule, self.objective = gain_rule(params, objective.name), objective
        self.classes = fitting.values if classes else None
        self.true_classes = fitting.true_values if classes else None
        self.base = base_margins(params, objective, fitting, warm)
        self.state = TrainingState.first(
            self.base, len(labels.values), tuple(blocks), ctx.peers, warm, repairs=self.hooks.repairs
        )
        strategy = Forest if params.kind == "forest" else Boosting
        if targets.validation is not None:
            labels = replace(labels, values=np.r_[training_labels.values, targets.validation.unpack()])
        self.strategy: Forest | Boosting = strategy(ctx, params, fitting, labels, self.state)
        # Peers are never told which of their splits a repaired tree still uses: the share keeps all of them.
        self.keeps_records = (self.hooks.repairs and params.kind == "forest") or bool(warm and warm.share.records)
        self.rows = RowDistributor(ctx, private, self.hooks.release_sample)
        self.checkpointer = Checkpointer(ctx, self.hooks, self.state, boosted=params.kind != "forest")
        if checkpoint:
            self.checkpointer.restore(checkpoint)
        else:
            self.checkpointer.save_targets(targets)

    def run(self) -> None:
        """Grow all trees; a checkpoint after each round."""
        ctx, state, strategy, schedule = self.ctx, self.state, self.strategy, self.schedule
        while (done := state.batches * strategy.together) < len(schedule) and not strategy.stopped:
            ctx.progress("trees", done, len(schedule))
            following = done + strategy.together
            self._round(schedule[done:following], more=any(schedule[following:]))
            state.batches += 1
            self.hooks.after_round(len(state.trees) - 1)  # policies: after_rows
            self.checkpointer.save()
        ctx.progress("trees", len(schedule), len(schedule))

    def _round(self, participants: Sequence[frozenset[str]], *, more: bool) -> None:
        """Grow the trees of a round: from sampled rows to leaf weights."""
        for drafts in self.strategy.drafts(participants, more=more):  # sample rows, encode gradients
            before = dict(self.state.records)
            trees = [TreeGrower(self, self._plan(draft)) for draft in drafts]  # policies: before_rows
            self.rows.start([(tree.plan.seen_as, tree.plan.draft) for tree in trees])  # send TreeStart
            for tree in trees:
                tree.request()  # send Level
            listening = {peer: request.tree for tree in trees for peer, request in tree.requests.items()}
            self.rows.send(drafts[0], listening)  # encrypt; send TreeRows, or ForestRows
            grow(trees)
            weights = [tree.weigh(tree.plan) for tree in trees]  # policies: before_leaf_weights
            for tree, values in zip(trees, weights, strict=True):
                shape = tree.finish(values)
                leaves = self._reached_leaves(tree, shape, before)  # receive PredictAnswers
                repaired = self._repair(tree, shape)  # policies: after_tree
                self.strategy.add(repaired, values[leaves], leaves)
        self.strategy.end_round()

    def finish(self) -> TrainingResult:
        """Send TrainingEnd to all peers, record what policies did, and return what stays here."""
        state, hooks = self.state, self.hooks
        kept, owned = self.strategy.kept()
        for peer in self.ctx.peers:
            trees = state.taken_part[peer]
            self.ctx.send(peer, TrainingEnd(trees, owned[peer]), (trees,))
        hooks.record("end")
        party = self.ctx.party
        return TrainingResult(
            trees=tuple(state.trees[:kept]),
            owners=self.owners,
            own={name: state.own[name].records().first(owned[name]) for name in self.blocks},
            tally=hooks.policies.tally(),
            objective=self.objective.name,
            base=tuple(self.base.tolist()),
            grown=state.taken_part[next(iter(self.blocks))],
            history=tuple(state.history),
            records=owned | {party: owned[party] - state.grafted} if self.keeps_records else {},
        )

    # -- before a tree grows ------------------------------------------------------------------------------------------

    def _plan(self, draft: TreeDraft) -> TreePlan:
        """Decide who takes part in a tree; each party counts its trees on its own."""
        params, taken_part = self.params, self.state.taken_part
        turns = self._turns(draft)
        playing = frozenset[str]().union(*turns)
        binners = {name: self.binners[name].for_tree(taken_part[name]) for name in self.blocks if name in playing}
        seen_as = {peer: taken_part[peer] for peer in self.ctx.peers if peer in playing}
        for name in (*binners, *seen_as):
            taken_part[name] += 1
        finder = SplitFinder(
            rule=self.rule,
            numbers=draft.encoded.numbers,
            scales=draft.encoded.scales,
            onehot=params.max_cat_to_onehot,
            threshold=params.max_cat_threshold,
        )
        return TreePlan(
            draft=draft,
            values=draft.summed(draft.encoded),
            classes=self.classes,
            finder=finder,
            binners=binners,
            seen_as=seen_as,
            turns=turns,
        )

    def _turns(self, draft: TreeDraft) -> tuple[frozenset[str], ...]:
        """Return who may own the splits of each level, of the peers that the policies admit to the tree."""
        able = [name for name in self.owners if name not in self.blocks or self.blocks[name].names]
        turn = able[draft.tree // self.strategy.trees_per_round % len(able)] if able else self.ctx.party
        turns = turns_of_tree(self.params, tuple(self.blocks), turn, draft.participants)
        peers = frozenset(self.ctx.peers) & frozenset[str]().union(*turns)
        admitted = self.hooks.participants(draft.tree, peers, draft.counts > 0)
        return turns if admitted == peers else turns_of_tree(self.params, tuple(self.blocks), turn, admitted)

    # -- after a tree has grown ---------------------------------------------------------------------------------------

    def _reached_leaves(self, tree: TreeGrower, shape: TreeShape, before: Mapping[str, int]) -> NDArray[np.int32]:
        """Return int32 [rows]: the position of each row's leaf, validation rows last.

        Of the rows on which the tree did not grow, every owner answers on which side of its new splits they lie.

        Args:
            before: number of splits of each owner before the tree.
        """
        ctx, state, draft = self.ctx, self.state, tree.plan.draft
        reached = np.zeros(len(state.margins), dtype=np.int32)
        for position, leaf in enumerate(shape.leaves):
            reached[tree.rows.rows(leaf)] = position
        if not draft.route:
            return reached
        others = np.ones(len(reached), dtype=np.bool_)
        others[: len(draft.counts)] = draft.counts == 0
        rows, answers = int(others.sum()), {}
        for name, columns in self.blocks.items():
            answers[name] = state.own[name].since(before[name]).answers(columns.x[others])
        for peer, number in tree.plan.seen_as.items():
            new = state.records[peer] - before[peer]
            answers[peer] = unpack_answers(peer, ctx.recv(peer, PredictAnswers, (number,)), new, rows)
        first = [before[self.owners[owner]] for owner in shape.owners]
        new_records = tuple(record - start for record, start in zip(shape.records, first, strict=True))
        reached[others] = leaves_reached(with_records(shape, new_records), self.owners, answers, rows)
        return reached

    def _repair(self, tree: TreeGrower, shape: TreeShape) -> TreeShape:
        """Return the tree as the policies want it: subtrees grown anew on true labels, leaves weighed by them."""
        draft = tree.plan.draft
        if draft.repairs is None:
            return shape
        total = len(self.hooks.class_totals)
        finished = FinishedTree(
            tree=draft.tree,
            nodes=shape.nodes,
            leaves=shape.leaves,
            clean=class_counts(tree.rows, shape.leaves, self.true_classes, draft.counts, total),
            fitted=class_counts(tree.rows, shape.leaves, self.classes, draft.counts, total),
            alone=self.params.kind == "forest",
        )
        answer, plan = self.hooks.after_tree(finished), self._true_plan(tree.plan, draft.repairs)
        if answer.regrow:
            nodes, ledger = sorted(answer.regrow), self.state.own[self.ctx.party]
            known, regrown = len(ledger), []
            for node in nodes:
                limit = leaves_at_or_below(shape, node) if self.params.max_leaves else 0
                tree.rows.merge(node)
                regrown.append(TreeGrower(self, plan, RegrowSpec(tree, node, limit)))
            grow(regrown)
            weights = [each.weigh(plan) for each in regrown]  # policies: before_leaf_weights
            subtrees = [each.finish(values) for each, values in zip(regrown, weights, strict=True)]
            shape = replace_subtrees(shape, nodes, subtrees)
            self.state.grafted += len(ledger) - known
        if answer.refit:
            shape = with_weights(shape, tree.weigh(plan, shape.leaves))
        return shape

    def _true_plan(self, plan: TreePlan, encoded: EncodedGradients) -> TreePlan:
        """Return the plan of a tree on true labels and own columns, in which no peer takes part."""
        return replace(
            plan,
            values=plan.draft.summed(encoded),
            classes=self.true_classes,
            finder=replace(plan.finder, numbers=encoded.numbers, scales=encoded.scales),
            seen_as={},
            turns=(frozenset(self.blocks),),
        )


# -- one tree ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TreePlan:
    """A tree that is about to grow, or to be repaired.

    Attributes:
        draft: its rows.
        values: int64 [training rows, k]: what is summed.
        classes: float64 [training rows] to which the tree is fitted: a node of one class is a leaf; None: regression.
        finder: how candidates are compared.
        binners: candidates of each block of own columns.
        seen_as: the tree's number at each peer that takes part.
        turns: see :func:`~.boosting.turns_of_tree`.
    """

    draft: TreeDraft
    values: Integers
    classes: Floats | None
    finder: SplitFinder
    binners: dict[str, TreeBinner]
    seen_as: dict[str, int]
    turns: tuple[frozenset[str], ...]

    def may_own(self, owner: str, depth: int) -> bool:
        """Return whether a party's columns may split the nodes of a level."""
        return owner in self.turns[min(depth, len(self.turns) - 1)]


@dataclass(frozen=True)
class RegrowSpec:
    """A subtree to grow anew.

    Attributes:
        onto: the tree, which has grown; the node is a leaf of it now.
        node: the root of the subtree.
        max_leaves: of the subtree; 0 for no limit.
    """

    onto: TreeGrower
    node: int
    max_leaves: int


class OwnedSplit(NamedTuple):
    """A split of the tree so far: whose, under which record number, and its gain."""

    owner: str
    record: int
    gain: float


def grow(trees: Iterable[TreeGrower]) -> None:
    """Grow trees side by side, level by level, to their end; the first level of each has been requested."""
    growing = [tree for tree in trees if tree.level]
    while growing:
        for tree in growing:
            tree.collect()  # receive LevelSums, decrypt
        for tree in growing:
            tree.select()  # policies: split_candidates, before_instance_space; send ChosenSplits
        for tree in growing:
            tree.apply()  # receive SplitRows
        for tree in growing:
            tree.next_level()  # policies: before_rows
        for tree in growing:
            tree.request()  # send Level
        growing = [tree for tree in growing if tree.level]


class TreeGrower:
    """A tree that grows, or a subtree that is grown anew.

    Attributes:
        rows: the rows of each leaf.
        level: the nodes that may be split next.
        requests: what was requested of each peer for this level; a peer without a request has no part in it any more.
    """

    rows: NodeRows
    bounded: bool

    def __init__(self, training: _Training, plan: TreePlan, regrow: RegrowSpec | None = None) -> None:
        self.training, self.plan, self.ctx, self.params = training, plan, training.ctx, training.params
        self.hooks = training.hooks.for_tree(plan.draft.tree, plan.seen_as, plan.finder.numbers)
        onto, root = (regrow.onto, regrow.node) if regrow else (None, 0)
        self.root, self.regrown = root, regrow is not None
        self.max_leaves = regrow.max_leaves if regrow else self.params.max_leaves
        self.rows = onto.rows if onto else NodeRows(len(plan.values), np.flatnonzero(plan.draft.counts))
        # What is known of each node: who sees its rows, the sums over these, and the bounds of its weight.
        self.viewers: dict[int, frozenset[str]] = {root: frozenset(plan.seen_as)}
        self.totals: dict[int, Integers] = {root: row_sums(plan.values, self.rows.rows(root))}
        self.bounds: dict[int, Bounds] = onto.bounds if onto else {root: (-math.inf, math.inf)}
        self.bounded = onto is not None and onto.bounded  # whether any column is monotone
        self._pure: dict[int, bool] = {}  # whether all rows of a node have one class, once that was asked
        self._ranges: dict[int, tuple[Integers, Integers]] = {}  # of the numbers of its rows, likewise
        self.splits: dict[int, OwnedSplit] = {}
        # The level that grows: its candidates, own bins, winners, and the rows that these send left.
        self.candidates: dict[str, PartyCandidates] = {}
        self.bins: dict[str, LevelBins] = {}
        self.best: dict[int, BestSplit] = {}
        self.masks: dict[int, RowMask] = {}
        self.admitted: dict[str, list[int]] = {}  # for each peer the splits of others that it may be told
        self.requests: dict[str, HistogramRequest] = {}
        self.listening = tuple(plan.seen_as)
        self.depth = depth_of(root)
        self.level = self._splittable_of([root])

    # -- request ------------------------------------------------------------------------------------------------------

    def request(self) -> None:
        """Send each peer the rows that it needs and the nodes to sum; where there are none, its part in the tree ends.

        Every peer of the last level gets a message, so that it knows of its end.
        """
        requests, again = {}, dict[tuple[tuple[int, ...], Layout], dict[str, int]]()
        for peer in self.listening:
            wanted, step = self._wanted(peer), (self.plan.seen_as[peer], self.depth)
            nodes, parents = self._nodes_to_sum(peer, wanted), {parent(node) for node in wanted}
            splits = [NodeSplit(node, self.masks[node]) for node in self.admitted.get(peer, ()) if node in parents]
            owned = sum(split.owner == peer for split in self.splits.values())
            sides = (1 + owned) * len(self.training.state.margins)  # new splits of rows of the tree, or all of others
            spacing = 0
            if wanted:
                spacing = self._spacing(peer, nodes)
                requests[peer] = self._histogram_request(peer, wanted, nodes, spacing)
            self.training.rows.expect(peer, requests[peer].most_sums if wanted else 0, sides)
            released = self.hooks.release_splits(peer, tuple(splits))
            self.ctx.send(peer, LevelRequest(*step, released, nodes, spacing), step)
            if spacing:
                again.setdefault((nodes, requests[peer].layout), {})[peer] = self.plan.seen_as[peer]
        self.requests, self.listening = requests, tuple(requests)
        for (nodes, layout), peers in again.items():
            values = self.plan.draft.encoded.values[np.concatenate([self.rows.rows(node) for node in nodes])]
            self.training.rows.send_level(LevelRows(self.depth, values, layout), peers)  # send LevelRows

    def _spacing(self, peer: str, nodes: Sequence[int]) -> int:
        """Return the spacing at which the rows of these nodes are encrypted again for a peer; 0: it has them.

        This is decided by what the peer knows: the sizes of the nodes, and its own columns.
        """
        parents, private = self._parents(peer), self.training.private
        if parents is None or private is None:
            return 0
        bins = tuple(size for size, _ in parents.described().values())
        work = LevelWork(self.plan.draft.encrypted_rows(), tuple(self.rows.size(node) for node in nodes), bins)
        return private.level_spacing(self.plan.draft.encoded.layout, work)

    def _wanted(self, owner: str) -> list[int]:
        """Return the nodes of the level whose sums a party gives: of a peer all that it knows, leaves included.

        A peer would otherwise learn which nodes are pure: those that it is not asked for.
        """
        if not self.plan.may_own(owner, self.depth):
            return []
        if owner in self.ctx.peers:
            return [node for node in self.level if owner in self.viewers[node]]
        return [node for node in self.level if not self._ends(node)]

    def _nodes_to_sum(self, owner: str, wanted: Sequence[int]) -> tuple[int, ...]:
        above = {parent(node) for node in wanted if node != self.root}
        size = {node: self.rows.size(node) for each in above for node in children(each)}
        subtract = self.params.candidates != "node" and owner in self.candidates
        return nodes_to_sum(wanted, size, subtract=subtract)

    def _histogram_request(
        self, peer: str, wanted: Sequence[int], nodes: tuple[int, ...], spacing: int
    ) -> HistogramRequest:
        plan, params = self.plan, self.params
        layout = plan.draft.encoded.layout
        return HistogramRequest(
            peer=peer,
            tree=plan.seen_as[peer],
            depth=self.depth,
            wanted=tuple(wanted),
            nodes=nodes,
            layout=msgspec.structs.replace(layout, spacing=spacing) if spacing else layout,
            max_bins=len(plan.values) if params.candidates == "all" else params.bins,
            parents=self._parents(peer),
            totals={node: self.totals[node] for node in {*wanted, *nodes}},
            range_of={node: self._range(node) for node in wanted},
            count=plan.finder.numbers.count,
            columns=self.training.columns.get(peer),
        )

    def _range(self, node: int) -> tuple[Integers, Integers]:
        """Return the least and the largest of each number among a node's rows, int64 [k], each row as drawn once."""
        if node not in self._ranges:
            self._ranges[node] = row_range(self.plan.draft.encoded.values, self.rows.rows(node))
        return self._ranges[node]

    def _parents(self, owner: str) -> PartyHistograms | None:
        """Return a party's histograms of the level above."""
        return self.candidates[owner].histograms if owner in self.candidates else None

    # -- collect ------------------------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Get the histograms of every party: own ones first, while the peers compute theirs."""
        histograms: dict[str, PartyHistograms] = {}
        with self.ctx.phase("own sums"):
            for name in self.plan.binners:
                if wanted := self._wanted(name):
                    histograms[name] = self._own_histograms(name, wanted)
        for peer, request in self.requests.items():
            assert self.training.private is not None
            histograms[peer] = receive_histograms(self.ctx, request, self.training.private)
        with self.ctx.phase("choose"):
            self.candidates = {
                name: self.plan.finder.candidates(each, np.stack([self.totals[node] for node in each.nodes]))
                for name, each in histograms.items()
            }
        for name, each in histograms.items():
            self._check_monotone(name, each)

    def _own_histograms(self, name: str, wanted: Sequence[int]) -> PartyHistograms:
        nodes = self._nodes_to_sum(name, wanted)
        slot = self.rows.slots(nodes)
        bins = self.bins[name] = self.plan.binners[name].level(slot, len(nodes))
        return add_siblings(wanted, own_histograms(bins, slot, self.plan.values, nodes), self._parents(name))

    def _check_monotone(self, owner: str, histograms: PartyHistograms) -> None:
        if not histograms.monotone:
            return
        self.bounded = True
        if self.plan.finder.numbers.outputs > 1 or self.plan.draft.output >= 0:
            raise DataError(
                "monotone constraints need a model with a single output: boosted trees for two classes or regression, "
                "or a regression forest",
                code="unsupported",
                field=f"party {owner!r}",
            )

    # -- select -------------------------------------------------------------------------------------------------------

    def select(self) -> None:
        """Decide on the best splits that the policies admit, and send each peer those of its own candidates."""
        with self.ctx.phase("choose"):
            self.best = self._best_splits()
        for peer in self.requests:
            self._send_winners(peer, self._best_of(peer))

    def _best_splits(self) -> dict[int, BestSplit]:
        """Return the winners, and record who may see their children, with the sums and bounds of these."""
        allowed = self.hooks.allowed(self.candidates, self.totals, self.depth)
        best, room = self._find_best(self.candidates, allowed), self._remaining_splits()
        if room is not None and len(best) > room:
            largest = sorted(best, key=lambda node: (-best[node].gain, node))[:room]
            best = {node: best[node] for node in largest}
        own: dict[int, BestSplit] | None = None
        for node in sorted(best):
            viewers = self._viewers(best[node])
            if best[node].owner in self.viewers[node] - viewers:
                # The owner may not see the children of its own split: the best of own columns takes its place.
                if own is None:
                    of_own = {name: each for name, each in self.candidates.items() if name in self.plan.binners}
                    own = self._find_best(of_own, allowed)
                if node not in own:
                    del best[node]
                    continue
                best[node] = own[node]
                viewers = self._viewers(best[node])
            self._record_children(best[node], viewers)
        return dict(sorted(best.items()))

    def _find_best(self, parties: Mapping[str, PartyCandidates], allowed: Allowed) -> dict[int, BestSplit]:
        best = self.plan.finder.best(parties, allowed, self.totals, self.bounds if self.bounded else None)
        return {node: split for node, split in best.items() if not self._ends(node)}

    def _viewers(self, split: BestSplit) -> frozenset[str]:
        node = split.node
        return self.hooks.viewers(split, self.viewers[node], self.totals[node], self.rows.rows(node), self.depth)

    def _record_children(self, split: BestSplit, viewers: frozenset[str]) -> None:
        left, right = children(split.node)
        self.viewers[left] = self.viewers[right] = viewers
        self.totals[left], self.totals[right] = split.left, self.totals[split.node] - split.left
        self.bounds[left], self.bounds[right] = split.child_bounds(self.bounds[split.node])

    def _remaining_splits(self) -> int | None:
        """Return how many more splits the tree may have; None for no limit."""
        return max(0, self.max_leaves - 1 - len(self.splits)) if self.max_leaves else None

    def _best_of(self, owner: str) -> dict[int, BestSplit]:
        return {node: split for node, split in self.best.items() if split.owner == owner}

    def _send_winners(self, peer: str, mine: Mapping[int, BestSplit]) -> None:
        step = (self.plan.seen_as[peer], self.depth)
        splits = tuple(split.chosen(self._add_split(split)) for split in mine.values())
        self.ctx.send(peer, WinningSplits(*step, self.hooks.release_winners(peer, splits)), step)

    def _add_split(self, split: BestSplit) -> int:
        """Add a split to the tree; return its owner's record number."""
        records = self.training.state.records
        record = records[split.owner]
        self.splits[split.node] = OwnedSplit(split.owner, record, split.gain)
        records[split.owner] += 1
        return record

    # -- apply --------------------------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Split the rows of the winners' nodes: own ones here, the others as their owners answer."""
        for node, split in self.best.items():
            if split.owner in self.plan.binners:
                self._split_rows(node, self._own_mask(split))
        for peer in self.requests:
            self._receive_masks(peer, self._best_of(peer))
        if self.best and not self.regrown:
            spaces = tuple(NodeSplit(node, self.masks[node]) for node in self.best)
            owners = tuple(split.owner for split in self.best.values())
            self.ctx.observe(InstanceSpaces(self.plan.draft.tree, self.depth, spaces, owners))

    def _own_mask(self, split: BestSplit) -> NDArray[np.bool_]:
        owner, slot = split.owner, self.candidates[split.owner].histograms.nodes.index(split.node)
        chosen, rows = split.chosen(self._add_split(split)), self.rows.rows(split.node)
        ledger = self.training.state.own[owner]
        return self.plan.binners[owner].split(self.bins[owner], slot, rows, chosen, ledger)

    def _receive_masks(self, peer: str, mine: Mapping[int, BestSplit]) -> None:
        """Receive which rows of a peer's splits go left; all their sums are known."""
        if not mine:
            return
        step = (self.plan.seen_as[peer], self.depth)
        answer = self.ctx.recv(peer, SplitMasks, step)
        if tuple(split.node for split in answer.splits.value) != tuple(mine):
            raise wrong_message(peer, "SplitRows", "answered for other nodes than were chosen", step)
        for node, packed in ((split.node, split.left) for split in answer.splits.value):
            with self.ctx.blaming(peer, "SplitRows", step):
                left = packed.unpack(self.rows.size(node))
            if (row_sums(self.plan.values, self.rows.rows(node)[left]) != mine[node].left).any():
                reason = f"splits node {node} otherwise than its sums say"
                raise wrong_message(peer, "SplitRows", reason, step, value=node)
            self._split_rows(node, left)
            self.hooks.learned(peer, node, self._spaces(node))

    def _split_rows(self, node: int, left: NDArray[np.bool_]) -> None:
        self.masks[node] = RowMask.pack(left)
        self.rows.split(node, left)

    def _spaces(self, node: int) -> dict[int, NDArray[np.int32]]:
        """Return the rows of a node's children."""
        return {child: self.rows.rows(child) for child in children(node)}

    # -- next level ---------------------------------------------------------------------------------------------------

    def next_level(self) -> None:
        """Go down one level, and decide which splits of others each peer may be told, of those that it must know.

        It must know those above the nodes that its columns may split. Where it may not, it has no part in these nodes;
        nor where both children are leaves.
        """
        self.depth += 1
        self.level = self._splittable_of([child for node in sorted(self.best) for child in children(node)])
        self.admitted, withheld = {}, False
        for peer in self.listening:
            wanted = self._wanted(peer)
            needed = {parent(node) for node in wanted if not self._ends(node)}
            self.admitted[peer] = []
            for node in sorted({parent(node) for node in wanted}):
                if self.splits[node].owner == peer:
                    continue
                if node in needed and self.hooks.may_learn(peer, node, self._spaces(node)):
                    self.admitted[peer].append(node)
                    continue
                withheld = True
                for child in children(node):
                    self.viewers[child] -= {peer}
        if withheld:
            self.level = [node for node in self.level if self._splittable(node)]

    def _splittable_of(self, nodes: Sequence[int]) -> list[int]:
        return [node for node in nodes if self._splittable(node)] if self.depth < self.params.depth else []

    def _splittable(self, node: int) -> bool:
        plan, depth = self.plan, self.depth
        if int(self.totals[node][plan.finder.numbers.count]) < 2 * self.params.min_rows:
            return False
        if any(plan.may_own(peer, depth) for peer in self.viewers[node]):
            return True
        own = any(len(each.sample) and plan.may_own(name, depth) for name, each in plan.binners.items())
        return own and not self._ends(node)

    def _ends(self, node: int) -> bool:
        """Return whether a node is a leaf for a reason that no peer knows: all one class, or no split remains."""
        if self._remaining_splits() == 0:
            return True
        if self.plan.classes is None:
            return False
        if node not in self._pure:
            classes = self.plan.classes[self.rows.rows(node)]
            self._pure[node] = bool((classes == classes[0]).all())
        return self._pure[node]

    # -- finish -------------------------------------------------------------------------------------------------------

    def leaves(self) -> list[int]:
        """Return the leaves, ascending."""
        return leaves_below(self.splits, self.root)

    def weigh(self, plan: TreePlan, leaves: Sequence[int] = ()) -> Floats:
        """Return the weights of the leaves, float64 [leaves, outputs], on which the policies have the last word.

        Args:
            plan: the tree's own, or that on true labels.
            leaves: of the repaired tree; empty: those that grew.
        """
        finder = plan.finder
        if leaves:
            totals = np.stack([row_sums(plan.values, self.rows.rows(leaf)) for leaf in leaves])
        else:
            leaves = self.leaves()
            totals = np.stack([self.totals[leaf] for leaf in leaves])
        bounds = np.array([self.bounds[leaf] for leaf in leaves]) if self.bounded else None
        rate = self.training.strategy.learning_rate
        weights = leaf_weights(totals, finder.numbers, finder.scales, finder.rule, rate, bounds=bounds)
        return self.hooks.leaf_weights(weights, [self.rows.rows(leaf) for leaf in leaves])

    def finish(self, weights: Floats) -> TreeShape:
        """Return the tree with these leaf weights: float64 [leaves, outputs]."""
        finder, owners, leaves = self.plan.finder, self.training.owners, self.leaves()
        nodes = tuple(sorted(self.splits))
        splits = [self.splits[node] for node in nodes]
        hessians = finder.numbers.full(np.stack([self.totals[node] for node in (*nodes, *leaves)]))[1]
        return TreeShape(
            nodes=nodes,
            owners=tuple(owners.index(split.owner) for split in splits),
            records=tuple(split.record for split in splits),
            leaves=tuple(leaves),
            weights=tuple(weights.reshape(-1).tolist()),
            output=self.plan.draft.output,
            gains=tuple(split.gain for split in splits),
            covers=tuple((hessians.mean(axis=1) / finder.scales.h).tolist()),
        )
