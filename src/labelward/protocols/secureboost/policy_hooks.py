"""Policy hooks: the one door through which training asks the active party's policies.

Which policies act where is known before the first tree: at a point where none acts, nothing is prepared and nothing is
asked. What each peer knows of the rows (:mod:`.knowledge_tracker`) is tracked where a policy reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.row_layout import RowLayout
from labelward.messages.base import Array, Released, RowMask
from labelward.messages.tree import NodeSplit, WinningSplit
from labelward.party.context import Context
from labelward.party.noise_record import refuse_redraw
from labelward.policy.base import (
    PASSIVE_TREE_POINTS,
    TREE_POINTS,
    BinCounts,
    CandidateSplits,
    FinishedTree,
    KnownInstanceSpaces,
    LeafWeights,
    PendingSplit,
    PolicyContext,
    Schedule,
    SplitReveal,
    TrainingTargets,
    TreeRepair,
)
from labelward.policy.chain import check_hooks
from labelward.protocols.secureboost.knowledge_tracker import KnowledgeTracker
from labelward.protocols.secureboost.split_finding import BestSplit, PartyCandidates

VISITED = frozenset(TREE_POINTS)
"""The points at which this protocol asks policies of the active party."""
VISITED_PASSIVE = frozenset(PASSIVE_TREE_POINTS)
"""The points at which it asks policies of a passive party."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rows = NDArray[np.int32]


def check_policies(ctx: Context, setup: PolicyContext) -> None:
    """Raise :class:`PolicyError` for a policy whose points training never reaches, or that does not fit the set-up."""
    check_hooks(ctx.policies.policies, VISITED, setup)


def release_own_sides(ctx: Context, splits: tuple[NodeSplit, ...]) -> Released[tuple[NodeSplit, ...]]:
    """Return which rows a party's own splits send left, as they may travel."""
    return ctx.policies.release_own_sides(splits)


def merges_bins(ctx: Context) -> bool:
    """Return whether a passive party's policies decide which bins are summed together."""
    return bool(ctx.policies.at("before_histograms"))


def merged_bins(ctx: Context, counts: BinCounts) -> NDArray[np.int32]:
    """Return which bins a passive party sums together: int32 [nodes, columns, bins + 1]."""
    return ctx.policies.before_histograms(counts)


def release_paths(ctx: Context, rows: tuple[RowMask, ...]) -> Released[tuple[RowMask, ...]]:
    """Return which rows of a prediction table reach a peer's splits, as they may travel."""
    return ctx.policies.release_paths(rows)


class PolicyHooks:
    """All questions to the policies of one training.

    Args:
        ctx: the active party's.
        blocks: names of the blocks of own columns.
        labels: int64 [training rows]: the true classes; None for regression.
        classes: number of classes; 0 for regression.
        rows: number of training rows.

    Attributes:
        policies: asked by this class and :class:`TreeHooks` only; checkpoints and results take their state and tally.
        knowledge: what each peer knows; None where no policy reads it.
    """

    def __init__(
        self, ctx: Context, blocks: Sequence[str], labels: Integers | None, *, classes: int, rows: int
    ) -> None:
        self._ctx, self.policies = ctx, ctx.policies
        self.blocks, self.labels = frozenset(blocks), labels
        self._count, self._rows = classes, rows
        self.acting = frozenset(point for point in VISITED if ctx.policies.at(point))
        self.knowledge: KnowledgeTracker | None = None
        if self.acting & {"before_rows", "after_rows"}:
            self.knowledge = KnowledgeTracker(ctx.peers, rows)

    @property
    def purities(self) -> bool:
        """Whether any policy needs class counts, which then travel packed with the gradients."""
        return self.policies.purities

    @property
    def repairs(self) -> bool:
        """Whether any policy may repair finished trees."""
        return "after_tree" in self.acting

    @property
    def classes(self) -> Integers | None:
        """The true classes, int64 [rows]; in regression those that a policy cuts targets into, if any."""
        return self.policies.bins if self.labels is None else self.labels

    @cached_property
    def class_totals(self) -> Integers:
        """Class counts of all training rows, int64 [C]; of length 0 where there are no classes."""
        classes = self.classes
        counts = np.zeros(0, np.int64) if classes is None else np.bincount(classes, minlength=self._count)
        return counts.astype(np.int64)

    # -- once in a training -------------------------------------------------------------------------------------------

    def before_targets(self, targets: TrainingTargets) -> TrainingTargets:
        """Return what is fitted in place of the labels; :class:`PolicyError` where noise would be drawn twice."""
        refuse_redraw(self.policies.at("before_targets"), self._ctx.checkpoints)
        return self.policies.before_targets(targets)

    def schedule(self, rounds: int) -> tuple[frozenset[str], ...]:
        """Return the peers that take part in each round."""
        everyone = Schedule(participants=(frozenset(self._ctx.peers),) * rounds)
        return self.policies.schedule(everyone).participants

    def record(self, stage: str) -> None:
        """Record in the transcript what each policy did."""
        for account in self.policies.accounts():
            self._ctx.applied({"stage": stage, **account})

    def unsaved(self) -> dict[str, Array]:
        """Return what peers learned of the rows since the last call; see :meth:`KnowledgeTracker.unsaved`."""
        return self.knowledge.unsaved() if self.knowledge else {}

    def resume_knowledge(self, tree: int, saved: Sequence[Mapping[str, Array]]) -> None:
        """Take over what peers know after the trees up to this one, and inform the policies."""
        if self.knowledge:
            self.knowledge.restore(saved)
        if saved:
            self.after_round(tree)

    # -- once in a tree -----------------------------------------------------------------------------------------------

    def participants(self, tree: int, peers: frozenset[str], sample: NDArray[np.bool_]) -> frozenset[str]:
        """Return the peers that may learn the rows of a tree (``before_rows``); they count as informed.

        Args:
            sample: bool [training rows]: those on which the tree grows.
        """
        if self.knowledge is None:
            return peers
        admitted = set()
        for peer in sorted(peers):
            self.knowledge.begin(peer, sample)
            if self.before_rows(self.knowledge.visible(peer, tree)):
                admitted.add(peer)
            else:
                self.knowledge.undo_begin(peer)
        return frozenset(admitted)

    def for_tree(self, tree: int, seen_as: Mapping[str, int], numbers: RowLayout) -> TreeHooks:
        """Return the hooks of one tree; ``seen_as`` is its number at each peer that takes part."""
        return TreeHooks(self, tree, seen_as, numbers)

    def release_sample(self, peer: str, tree: int, rows: RowMask) -> Released[RowMask]:
        """Return the rows of a tree as they may travel to a peer that takes part."""
        if not self.acting:
            return self.policies.release_unguarded(rows)
        return self.policies.release_sample(peer, tree, rows)

    def after_tree(self, tree: FinishedTree) -> TreeRepair:
        """Return what is to be repaired of a finished tree."""
        return self.policies.after_tree(tree)

    def after_round(self, tree: int) -> None:
        """Inform the policies of what each peer knows after the trees up to this one (``after_rows``)."""
        if self.knowledge is None:
            return
        for peer in self.knowledge.peers:
            with self._ctx.phase("leakage meter"):
                self.policies.after_rows(self.knowledge.visible(peer, tree))

    def acts(self, point: str) -> bool:
        """Return whether any policy acts at a point."""
        return point in self.acting

    def before_rows(self, rows: KnownInstanceSpaces) -> bool:
        """Return whether a peer may know these instance spaces."""
        with self._ctx.phase("leakage meter"):
            return self.policies.before_rows(rows)


class TreeHooks:
    """The questions to the policies while one tree grows.

    Args:
        hooks: of the training.
        tree: its number.
        seen_as: its number at each peer that takes part.
        numbers: meaning of the integers that are summed.
    """

    def __init__(self, hooks: PolicyHooks, tree: int, seen_as: Mapping[str, int], numbers: RowLayout) -> None:
        self._hooks, self._tree, self._seen_as, self._numbers = hooks, tree, seen_as, numbers

    def allowed(
        self, parties: Mapping[str, PartyCandidates], totals: Mapping[int, Integers], depth: int
    ) -> dict[str, list[NDArray[np.bool_]]]:
        """Return for each party and block bool [nodes, columns, candidates]: which may be chosen; empty: all.

        Args:
            totals: int64 [k] of each node.
        """
        hooks, numbers = self._hooks, self._numbers
        allowed: dict[str, list[NDArray[np.bool_]]] = {}
        if not hooks.acts("split_candidates"):
            return allowed
        for owner, party in parties.items():
            nodes = party.histograms.nodes
            of_nodes = np.stack([numbers.class_counts(totals[node]) for node in nodes])
            for offered in party.blocks:
                candidates = CandidateSplits(
                    tree=self._tree,
                    depth=depth,
                    owner=owner,
                    owner_is_active=owner in hooks.blocks,
                    nodes=nodes,
                    left=np.ascontiguousarray(numbers.class_counts(offered.left)),
                    node=of_nodes,
                    totals=hooks.class_totals,
                    known=self._known(owner),
                )
                allowed.setdefault(owner, []).append(hooks.policies.split_candidates(candidates))
        return allowed

    def viewers(
        self, split: BestSplit, participants: frozenset[str], totals: Integers, rows: Rows, depth: int
    ) -> frozenset[str]:
        """Return the peers that may see the children of a split. Its owner, if among them, counts as informed.

        Args:
            participants: the peers that see the node itself.
            totals: int64 [k] of the node.
            rows: of the node.
        """
        hooks, numbers = self._hooks, self._numbers
        if not participants or not hooks.acts("before_instance_space"):
            return participants
        left = numbers.class_counts(split.left)
        right = numbers.class_counts(totals) - left
        reveal = SplitReveal(
            tree=self._tree,
            depth=depth,
            node=split.node,
            owner=split.owner,
            owner_is_active=split.owner in hooks.blocks,
            left=left,
            right=right,
            totals=hooks.class_totals,
            participants=participants,
            known=self._known(split.owner),
        )
        viewers = hooks.policies.before_instance_space(reveal)
        if hooks.knowledge and split.owner in viewers:
            pending = PendingSplit(rows=rows, left=left, right=right)
            hooks.knowledge.expect(split.owner, self._seen_as[split.owner], split.node, pending)
        return viewers

    def may_learn(self, peer: str, node: int, spaces: Mapping[int, Rows]) -> bool:
        """Return whether a peer may be told the rows of a node's children; if so, it counts as informed."""
        knowledge, at = self._hooks.knowledge, self._seen_as[peer]
        if knowledge is None:
            return True
        knowledge.learn(peer, at, node, spaces)
        if self._hooks.before_rows(knowledge.visible(peer, self._tree, at, node)):
            return True
        knowledge.undo_learn(peer, at, node, spaces)
        return False

    def release_splits(self, peer: str, splits: tuple[NodeSplit, ...]) -> Released[tuple[NodeSplit, ...]]:
        """Return the rows of other parties' splits as they may travel to a peer."""
        if not self._hooks.acting:
            return self._hooks.policies.release_unguarded(splits)
        return self._hooks.policies.release_splits(peer, self._tree, splits)

    def release_winners(self, peer: str, splits: tuple[WinningSplit, ...]) -> Released[tuple[WinningSplit, ...]]:
        """Return the splits that a peer owns as they may travel to it."""
        if not self._hooks.acting:
            return self._hooks.policies.release_unguarded(splits)
        return self._hooks.policies.release_winners(peer, self._tree, splits)

    def learned(self, peer: str, node: int, spaces: Mapping[int, Rows]) -> None:
        """Record that a peer has worked out the rows of its own split's children."""
        if self._hooks.knowledge:
            self._hooks.knowledge.learn(peer, self._seen_as[peer], node, spaces)

    def leaf_weights(self, weights: Floats, rows: Sequence[Rows]) -> Floats:
        """Return the weights that the tree gets.

        Args:
            weights: float64 [leaves, outputs of the tree].
            rows: of each leaf.
        """
        hooks = self._hooks
        if not hooks.acts("before_leaf_weights"):
            return weights
        counts = np.zeros((len(rows), 0), dtype=np.int64)
        if hooks.labels is not None:
            classes, labels = len(hooks.class_totals), hooks.labels
            counts = np.stack([np.bincount(labels[each], minlength=classes) for each in rows]).astype(np.int64)
        return hooks.policies.before_leaf_weights(LeafWeights(tree=self._tree, weights=weights, counts=counts))

    def _known(self, owner: str) -> KnownInstanceSpaces | None:
        """Return what an owner knows of the rows, where it is a peer and a policy reads it."""
        knowledge = self._hooks.knowledge
        if knowledge is None or owner not in self._seen_as:
            return None
        return knowledge.visible(owner, self._tree, self._seen_as[owner])
