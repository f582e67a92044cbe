"""SecureBoost, the active party: it holds the labels, and may hold columns of its own.

Setting: semi-honest parties. The active party encrypts gradients, hessians (and, where a policy needs them, the classes) of each
row, decrypts the sums of each candidate bin, and decides. It learns those sums and which party owns which split; both are in its own
view. What leaves: ciphertexts, the rows of nodes that a party needs, and which of a party's own candidates won.

Reference: Cheng et al., SecureBoost (2021); Algorithms 2, 5 and 6 of the ID2Graph paper. Differences: level-wise, one message
per party and level; the larger of two siblings follows by subtraction after decryption; the active party's own sums are
of the same integers, unencrypted, so that a split never depends on the engine. A node stops when its targets are all equal,
at the depth, or when no split gains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PeerError
from labelward.he.contract import CipherBlock, Layout, PrivateKey
from labelward.kernels.fixed_point import encode
from labelward.kernels.gain import GainRule, leaf_weights
from labelward.kernels.histogram import level_sums
from labelward.kernels.histogram import partition as goes_left
from labelward.kernels.loss import logistic_gradients
from labelward.messages.base import Array, RowMask
from labelward.messages.tree import (
    ChosenSplit,
    ChosenSplits,
    DecryptedSums,
    InstanceSpaces,
    Level,
    NodeSplit,
    PredictAnswers,
    SplitRows,
    TrainingEnd,
    TreeStart,
)
from labelward.messages.tree import LevelSums as LevelSumsMessage
from labelward.party.context import Context
from labelward.party.policy import CandidateSplits, LeafWeights, Schedule, SplitReveal, Targets
from labelward.protocols.tree.columns import Columns, LevelCodes, Splitter
from labelward.protocols.tree.level import LevelSums, Winner, builds, candidate_splits, class_counts, complete, winners
from labelward.protocols.tree.params import SecureBoost
from labelward.protocols.tree.partition import Partition, children
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


@dataclass
class _Growing:
    """The tree that grows.

    Attributes:
        seen_as: the tree's number at each peer that takes part.
        viewers: for each node the passive parties that see it.
        totals: for each node int64 [k], its sums.
        sums: for each source the sums of the last level.
    """

    tree: int
    partition: Partition
    values: Integers
    seen_as: dict[str, int]
    viewers: dict[int, frozenset[str]]
    totals: dict[int, Integers]
    sums: dict[str, LevelSums] = field(default_factory=dict)
    splits: dict[int, tuple[str, int]] = field(default_factory=dict)
    told: dict[int, RowMask] = field(default_factory=dict)


def train_active(
    ctx: Context,
    params: SecureBoost,
    blocks: Mapping[str, Columns],
    labels: NDArray[np.int64],
    private: PrivateKey | None,
) -> Trained:
    """Train with all peers of the context.

    Args:
        blocks: own columns; one block for a party. Several blocks train on joined tables, each as if a party held it.
        labels: int64 [rows], 0 or 1.
        private: the key; None where there is no peer.

    Raises:
        PeerError: a peer failed, stayed silent or sent something that cannot be.
        PolicyError: a policy cannot act.
    """
    trainer = _Trainer(ctx, params, blocks, labels, private)
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
        labels: NDArray[np.int64],
        private: PrivateKey | None,
    ) -> None:
        self.ctx, self.params, self.private, self.blocks = ctx, params, private, blocks
        n = len(labels)
        ones, zeros = np.ones(n), np.zeros(n)
        given = Targets(values=labels.astype(np.float64), weights=ones, offset=zeros, loss="logistic")
        self.targets = ctx.policies.before_targets(given)
        self.margins = self.targets.offset.copy()
        with ctx.phase("binning"):
            self.splitters = {name: Splitter(name, columns, params, ctx.seed) for name, columns in blocks.items()}
        self.purities = ctx.policies.purities
        self.classes = np.eye(2, dtype=np.int64)[labels][:, 1:]
        self.class_totals = np.bincount(labels, minlength=2).astype(np.int64)
        self.precision = 30
        self.rule = GainRule(
            reg_lambda=params.reg_lambda,
            gamma=params.gamma,
            min_rows=params.min_rows,
            min_child_weight=params.min_child_weight,
        )
        self.owners = (*blocks, *ctx.peers)
        self.trees: list[TreeShape] = []
        self.taken_part = dict.fromkeys(ctx.peers, 0)
        self.records = dict.fromkeys(self.owners, 0)
        self.own: dict[str, tuple[list[int], list[float]]] = {name: ([], []) for name in blocks}
        self.tally = {"refused_candidates": 0, "hidden_splits": 0, "given_up_splits": 0}

    @property
    def scale(self) -> float:
        """One unit of a gradient in fixed point."""
        return float(1 << self.precision)

    def finish(self) -> Trained:
        """Tell all peers that training ends, and return what stays here."""
        for peer in self.ctx.peers:
            self.ctx.send(peer, TrainingEnd(self.taken_part[peer]), (self.taken_part[peer],))
        for policy in self.ctx.policies.policies:
            account = {"kind": policy.kind, "parameters": policy.parameters(), "points": sorted(policy.points)}
            self.ctx.applied({**account, **self.tally})
        own = {name: Records(tuple(columns), tuple(thresholds)) for name, (columns, thresholds) in self.own.items()}
        return Trained(tuple(self.trees), self.owners, own, self.tally)

    def grow(self, tree: int, participants: frozenset[str]) -> None:
        """Grow one tree, level by level."""
        ctx, n = self.ctx, len(self.margins)
        sample = self._sample(tree, n)
        values = self._values()
        for splitter in self.splitters.values():
            splitter.start_tree(tree)
        seen_as = {peer: self.taken_part[peer] for peer in ctx.peers if peer in participants}
        partition = Partition(n, sample)
        totals = {0: values[sample].sum(axis=0)}
        growing = _Growing(tree, partition, values, seen_as, {0: participants}, totals)
        self._start(growing, sample)
        level, depth = self._open(growing, [0], 0), 0
        waiting = set(seen_as)
        new: list[int] = []
        while level or waiting:
            self._announce(growing, level, new, depth, waiting)
            if not level:
                break
            chosen = self._decide(growing, level, depth)
            self._split(growing, chosen, depth)
            new = sorted(chosen)
            depth += 1
            level = self._open(growing, [child for node in new for child in children(node)], depth)
        self._close(growing, sample)

    def _sample(self, tree: int, n: int) -> Integers:
        if self.params.row_fraction >= 1.0:
            return np.arange(n)
        rng = learning(self.ctx.seed, self.ctx.party, tree, "rows")
        return np.sort(rng.choice(n, max(1, int(self.params.row_fraction * n)), replace=False))

    def _values(self) -> Integers:
        """Return int64 [n, k]: gradient, hessian, one (and the classes but the first, where a policy needs them)."""
        g, h = logistic_gradients(self.margins, self.targets.values)
        k = 3 + (self.classes.shape[1] if self.purities else 0)
        values = np.empty((len(g), k), dtype=np.int64)
        values[:, 0] = encode(g * self.targets.weights, self.precision)
        values[:, 1] = encode(h * self.targets.weights, self.precision)
        values[:, 2] = 1
        if self.purities:
            values[:, 3:] = self.classes
        return values

    def _start(self, growing: _Growing, sample: Integers) -> None:
        """Send every party that takes part the encrypted numbers of the tree's rows."""
        if not growing.seen_as or self.private is None:
            return
        one = 1 << self.precision
        flags = (1,) * (growing.values.shape[1] - 2)
        layout = Layout(bounds=(one, one, *flags), rows=len(sample), logical=1 + len(flags) + int(self.purities))
        everyone = len(sample) == len(self.margins)
        with self.ctx.phase("encrypt"):
            chosen = growing.values if everyone else growing.values[sample]
            block = self.private.encrypt(chosen, layout).block()
        mask = np.zeros(len(self.margins), dtype=np.bool_)
        mask[sample] = True
        for peer, number in growing.seen_as.items():
            self.ctx.send(peer, TreeStart(number, RowMask.pack(mask), block), (number,))
            self.taken_part[peer] += 1

    def _open(self, growing: _Growing, nodes: list[int], depth: int) -> list[int]:
        """Return the nodes that may be split."""
        if depth >= self.params.depth:
            return []
        return [node for node in nodes if self._splittable(growing, node)]

    def _splittable(self, growing: _Growing, node: int) -> bool:
        rows = growing.partition.rows(node)
        someone = growing.viewers[node] or any(len(splitter.sample) for splitter in self.splitters.values())
        if not someone or len(rows) < 2 * self.params.min_rows:
            return False
        values = self.targets.values[rows]
        return bool(values.min() != values.max())

    def _announce(self, growing: _Growing, level: list[int], split: list[int], depth: int, waiting: set[str]) -> None:
        """Tell each party the rows that it needs and the nodes to sum; a party with no node left is done with the tree."""
        sizes = {node: growing.partition.size(node) for parent in split for node in children(parent)}
        for peer in sorted(waiting, key=self.ctx.peers.index):
            wanted = [node for node in level if peer in growing.viewers[node]]
            parents = {(node - 1) // 2 for node in wanted}
            told = tuple(
                NodeSplit(node, growing.told[node])
                for node in split
                if node in parents and growing.splits[node][0] != peer
            )
            build = builds(wanted, sizes, subtract=self.params.candidates == "global")
            step = (growing.seen_as[peer], depth)
            self.ctx.send(peer, Level(*step, told, build), step)
            if not wanted:
                waiting.discard(peer)

    def _decide(self, growing: _Growing, level: list[int], depth: int) -> dict[int, Winner]:
        """Gather all sums of a level and choose each node's split."""
        sources: dict[str, LevelSums] = {}
        sizes = {node: growing.partition.size(node) for node in self._with_siblings(growing, level)}
        self.codes: dict[str, LevelCodes] = {}
        self.level = tuple(level)
        with self.ctx.phase("own sums"):
            for name in self.splitters:
                sources[name] = self._own_sums(growing, name, level, sizes)
        for peer in growing.seen_as:
            wanted = [node for node in level if peer in growing.viewers[node]]
            if wanted:
                sources[peer] = self._peer_sums(growing, peer, wanted, sizes, depth)
        growing.sums = sources
        with self.ctx.phase("choose"):
            return self._choose(growing, sources, depth)

    def _with_siblings(self, growing: _Growing, level: list[int]) -> list[int]:
        return [node for parent in {(n - 1) // 2 for n in level if n} for node in children(parent)]

    def _own_sums(self, growing: _Growing, name: str, level: list[int], sizes: dict[int, int]) -> LevelSums:
        splitter = self.splitters[name]
        build = builds(level, sizes, subtract=self.params.candidates == "global")
        slot = growing.partition.slots(build)
        codes = self.codes[name] = splitter.level(slot, len(build))
        sums = level_sums(codes.codes, slot, growing.values, len(build), codes.bins)
        return complete(level, LevelSums(build, sums), growing.sums.get(name))

    def _peer_sums(
        self, growing: _Growing, peer: str, wanted: list[int], sizes: dict[int, int], depth: int
    ) -> LevelSums:
        step = (growing.seen_as[peer], depth)
        build = builds(wanted, sizes, subtract=self.params.candidates == "global")
        message = self.ctx.recv(peer, LevelSumsMessage, step)
        sealed = message.sums
        fits = isinstance(sealed, CipherBlock) and sealed.kind == "sums" and 1 <= message.bins <= self.params.bins
        if not isinstance(sealed, CipherBlock) or not fits or sealed.shape[1] != len(build) * message.bins:
            raise PeerError(peer, "sent sums of other nodes than were asked", message="LevelSums", step=step)
        if self.private is None:
            raise ValueError("there are peers but no key")
        with self.ctx.phase("decrypt"):
            flat = self.private.decrypt(sealed)
        self.ctx.observe(DecryptedSums(*step, peer, build, Array.pack(flat)))
        sums = flat.reshape(len(flat), len(build), message.bins, -1)
        return complete(wanted, LevelSums(build, sums), growing.sums.get(peer))

    def _choose(self, growing: _Growing, sources: dict[str, LevelSums], depth: int) -> dict[int, Winner]:
        """Return the winners that the policies let stand, and record who may see their children."""
        allowed = self._allowed(growing, sources, depth)
        best = winners(sources, allowed, self.scale, self.rule)
        own = winners({name: sources[name] for name in self.blocks}, allowed, self.scale, self.rule)
        chosen: dict[int, Winner] = {}
        for node, winner in sorted(best.items()):
            viewers = self._viewers(growing, winner, depth)
            if winner.owner not in self.blocks and winner.owner not in viewers:
                self.tally["given_up_splits"] += 1
                if node not in own:
                    continue
                winner = own[node]
                viewers = self._viewers(growing, winner, depth)
            chosen[node] = winner
            if growing.viewers[node] - viewers:
                self.tally["hidden_splits"] += 1
            for child, totals in zip(children(node), (winner.left, growing.totals[node] - winner.left), strict=True):
                growing.viewers[child] = viewers
                growing.totals[child] = totals
        return chosen

    def _allowed(self, growing: _Growing, sources: dict[str, LevelSums], depth: int) -> dict[str, NDArray[np.bool_]]:
        """Ask the policies which candidates may be chosen."""
        if not self.ctx.policies.at("split_candidates"):
            return {}
        allowed = {}
        for owner, level in sources.items():
            if not level.nodes or not len(level.sums):
                continue
            counts = np.stack([class_counts(growing.totals[node], 3) for node in level.nodes])
            empty = np.empty((0, 0, 0, 2), dtype=np.int64)
            frame = CandidateSplits(
                tree=growing.tree,
                depth=depth,
                owner=owner,
                owner_is_active=owner in self.blocks,
                nodes=level.nodes,
                left=empty,
                node=counts,
                totals=self.class_totals,
            )
            answer = self.ctx.policies.split_candidates(candidate_splits(frame, level, 3))
            self.tally["refused_candidates"] += int(answer.size - np.count_nonzero(answer))
            allowed[owner] = answer
        return allowed

    def _viewers(self, growing: _Growing, winner: Winner, depth: int) -> frozenset[str]:
        """Ask the policies who may see the children of a split."""
        participants = growing.viewers[winner.node]
        if not participants or not self.ctx.policies.at("before_instance_space"):
            return participants
        if not self.purities:
            raise ValueError("a policy at before_instance_space must declare purities")
        left = class_counts(winner.left, 3)
        return self.ctx.policies.before_instance_space(
            SplitReveal(
                tree=growing.tree,
                depth=depth,
                node=winner.node,
                owner=winner.owner,
                owner_is_active=winner.owner in self.blocks,
                left=left,
                right=class_counts(growing.totals[winner.node], 3) - left,
                totals=self.class_totals,
                participants=participants,
            )
        )

    def _split(self, growing: _Growing, chosen: dict[int, Winner], depth: int) -> None:
        """Have every owner split its nodes."""
        for node, winner in chosen.items():
            if winner.owner in self.blocks:
                self._split_own(growing, node, winner)
        for peer in growing.seen_as:
            if growing.sums.get(peer) is not None:
                mine = {node: winner for node, winner in chosen.items() if winner.owner == peer}
                self._ask(growing, peer, mine, depth)
        for peer in growing.seen_as:
            mine = {node: winner for node, winner in chosen.items() if winner.owner == peer}
            if mine:
                self._hear(growing, peer, mine, depth)
        if chosen:
            spaces = tuple(NodeSplit(node, growing.told[node]) for node in chosen)
            owners = tuple(chosen[node].owner for node in chosen)
            self.ctx.observe(InstanceSpaces(growing.tree, depth, spaces, owners))

    def _split_own(self, growing: _Growing, node: int, winner: Winner) -> None:
        codes, splitter = self.codes[winner.owner], self.splitters[winner.owner]
        slot = self.level.index(node) if self.params.candidates == "node" else 0
        left = goes_left(codes.codes, growing.partition.rows(node), winner.column, winner.code)
        columns, thresholds = self.own[winner.owner]
        columns.append(int(splitter.sample[winner.column]))
        thresholds.append(codes.threshold(slot, winner.column, winner.code))
        self._keep(growing, node, winner.owner, left)

    def _ask(self, growing: _Growing, peer: str, mine: dict[int, Winner], depth: int) -> None:
        step = (growing.seen_as[peer], depth)
        first = self.records[peer]
        splits = tuple(
            ChosenSplit(node, winner.column, winner.code, first + position)
            for position, (node, winner) in enumerate(mine.items())
        )
        self.ctx.send(peer, ChosenSplits(*step, splits), step)

    def _hear(self, growing: _Growing, peer: str, mine: dict[int, Winner], depth: int) -> None:
        step = (growing.seen_as[peer], depth)
        answer = self.ctx.recv(peer, SplitRows, step)
        if tuple(split.node for split in answer.splits) != tuple(mine):
            raise PeerError(peer, "answered for other nodes than were chosen", message="SplitRows", step=step)
        for split in answer.splits:
            left = split.left.unpack(growing.partition.size(split.node))
            if int(np.count_nonzero(left)) != int(mine[split.node].left[2]):
                raise PeerError(
                    peer, f"splits node {split.node} otherwise than its sums say", message="SplitRows", step=step
                )
            self._keep(growing, split.node, peer, left)

    def _keep(self, growing: _Growing, node: int, owner: str, left: NDArray[np.bool_]) -> None:
        growing.told[node] = RowMask.pack(left)
        growing.partition.split(node, left, owner)
        growing.splits[node] = (owner, self.records[owner])
        self.records[owner] += 1

    def _close(self, growing: _Growing, sample: Integers) -> None:
        """Weigh the leaves, keep the tree, and update the margins of all rows."""
        leaves = sorted({child for node in growing.splits for child in children(node)} - growing.splits.keys()) or [0]
        totals = np.stack([growing.totals[leaf] for leaf in leaves])
        weights = leaf_weights(totals, self.scale, self.params.reg_lambda, self.params.learning_rate)
        counts = np.stack([self._class_counts(growing.partition.rows(leaf)) for leaf in leaves])
        weights = self.ctx.policies.before_leaf_weights(LeafWeights(tree=growing.tree, weights=weights, counts=counts))
        nodes = tuple(sorted(growing.splits))
        shape = TreeShape(
            nodes=nodes,
            owners=tuple(self.owners.index(growing.splits[node][0]) for node in nodes),
            records=tuple(growing.splits[node][1] for node in nodes),
            leaves=tuple(leaves),
            weights=tuple(float(weight) for weight in weights),
        )
        for leaf, weight in zip(leaves, weights, strict=True):
            self.margins[growing.partition.rows(leaf)] += weight
        if len(sample) < len(self.margins):
            self._route_others(growing, shape, sample)
        self.trees.append(shape)

    def _class_counts(self, rows: Integers) -> Integers:
        ones = int(self.classes[rows, 0].sum())
        return np.array([len(rows) - ones, ones], dtype=np.int64)

    def _route_others(self, growing: _Growing, shape: TreeShape, sample: Integers) -> None:
        """Update the margins of the rows out of the tree's sample, which every owner routes at its own splits."""
        others = np.ones(len(self.margins), dtype=np.bool_)
        others[sample] = False
        rows = int(others.sum())
        answers = {}
        for name, (columns, thresholds) in self.own.items():
            answers[name] = Records(tuple(columns), tuple(thresholds)).answers(self.blocks[name].x[others])
        for peer, number in growing.seen_as.items():
            bits = unpack_answers(peer, self.ctx.recv(peer, PredictAnswers, (number,)), rows)
            before = np.zeros((self.records[peer] - len(bits), rows), dtype=np.bool_)
            answers[peer] = np.concatenate([before, bits])
        self.margins[others] += walk(shape, self.owners, answers, rows)
