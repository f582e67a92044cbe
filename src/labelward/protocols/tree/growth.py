"""How the active party grows one tree: announce a level, gather its sums, choose, have the owners split.

A node stops when its targets are all equal, at the depth, or when no split gains. Who sees a node's children is asked
before the split's owner is told, since an owner learns its split's children; where the owner may not see them, the
active party goes on with the best of its own columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PeerError, PolicyError
from labelward.he.contract import CipherBlock, Layout, PrivateKey
from labelward.kernels.gain import GainRule, leaf_weights
from labelward.kernels.histogram import level_sums
from labelward.kernels.histogram import partition as goes_left
from labelward.messages.base import Array, RowMask
from labelward.messages.tree import (
    ChosenSplit,
    ChosenSplits,
    DecryptedSums,
    InstanceSpaces,
    Level,
    NodeSplit,
    SplitRows,
)
from labelward.messages.tree import LevelSums as LevelSumsMessage
from labelward.party.context import Context
from labelward.party.policy import CandidateSplits, LeafWeights, SplitReveal
from labelward.protocols.tree.columns import LevelCodes, Splitter
from labelward.protocols.tree.level import LevelSums, Winner, builds, class_counts, complete, left_counts, winners
from labelward.protocols.tree.params import SecureBoost
from labelward.protocols.tree.partition import Partition, children, parent
from labelward.protocols.tree.share import Records, TreeShape

__all__ = ["Forest", "Growth"]

Integers = NDArray[np.int64]


@dataclass
class Forest:
    """What all trees of a run share at the active party.

    Attributes:
        scale: one unit of a gradient in fixed point.
        splitters: for each block of own columns its candidates.
        targets: float64 [rows]: what the trees fit.
        labels: int64 [rows]: the true labels; policies see counts of them.
        classes: int64 [rows, C - 1]: one-hot labels but the first class; no column where no policy needs them.
        owners: all that may own a split, in party order.
        records: how many splits each owner has.
        own: columns and thresholds of own splits, by block.
    """

    ctx: Context
    params: SecureBoost
    rule: GainRule
    scale: float
    splitters: dict[str, Splitter]
    private: PrivateKey | None
    targets: NDArray[np.float64]
    labels: Integers
    classes: Integers = field(init=False)
    class_totals: Integers = field(init=False)
    owners: tuple[str, ...] = field(init=False)
    records: dict[str, int] = field(init=False)
    own: dict[str, tuple[list[int], list[float]]] = field(init=False)

    def __post_init__(self) -> None:
        self.classes = (self.labels == 1).astype(np.int64)[:, None][:, : int(self.ctx.policies.purities)]
        self.class_totals = np.bincount(self.labels, minlength=2).astype(np.int64)
        self.owners = (*self.splitters, *self.ctx.peers)
        self.records = dict.fromkeys(self.owners, 0)
        self.own = {name: ([], []) for name in self.splitters}

    @property
    def subtract(self) -> bool:
        """Whether siblings share their candidates, so that the larger one's sums follow by subtraction."""
        return self.params.candidates == "global"

    def own_records(self, name: str) -> Records:
        """Return the splits of a block of own columns."""
        columns, thresholds = self.own[name]
        return Records(tuple(columns), tuple(thresholds))


class Growth:
    """The tree that grows.

    Args:
        forest: what all trees share.
        tree: its number.
        values: int64 [rows, k]: gradient, hessian, one, classes.
        sample: its rows, ascending.
        seen_as: the tree's number at each peer that takes part.
        layout: of the encrypted values; None where nobody takes part.
    """

    def __init__(
        self,
        forest: Forest,
        tree: int,
        values: Integers,
        sample: Integers,
        seen_as: dict[str, int],
        layout: Layout | None = None,
    ) -> None:
        self.forest, self.ctx, self.tree, self.layout = forest, forest.ctx, tree, layout
        self.values, self.seen_as = values, seen_as
        self.partition = Partition(len(values), sample)
        self.viewers: dict[int, frozenset[str]] = {0: frozenset(seen_as)}
        self.totals: dict[int, Integers] = {0: values[sample].sum(axis=0)}
        self.sums: dict[str, LevelSums] = {}
        self.codes: dict[str, LevelCodes] = {}
        self.splits: dict[int, tuple[str, int]] = {}
        self.told: dict[int, RowMask] = {}

    def run(self) -> TreeShape:
        """Grow to the end and return the tree, its leaves weighed."""
        new: list[int] = []
        level, depth = self._open([0], 0), 0
        growing = list(self.seen_as)
        while level or growing:
            growing = self._announce(level, new, depth, growing)
            if level:
                self._gather(level, depth)
                with self.ctx.phase("choose"):
                    chosen = self._choose(depth)
                self._split(chosen, depth)
                new, depth = sorted(chosen), depth + 1
                level = self._open([child for node in new for child in children(node)], depth)
        return self._weigh()

    def _open(self, nodes: list[int], depth: int) -> list[int]:
        """Return the nodes that may be split."""
        return [node for node in nodes if self._splittable(node)] if depth < self.forest.params.depth else []

    def _splittable(self, node: int) -> bool:
        rows = self.partition.rows(node)
        someone = self.viewers[node] or any(len(splitter.sample) for splitter in self.forest.splitters.values())
        if not someone or len(rows) < 2 * self.forest.params.min_rows:
            return False
        targets = self.forest.targets[rows]
        return bool(targets.min() != targets.max())

    def _builds(self, wanted: list[int]) -> tuple[int, ...]:
        size = {
            node: self.partition.size(node) for above in map(parent, wanted) for node in children(above) if above >= 0
        }
        return builds(wanted, size, subtract=self.forest.subtract)

    def _announce(self, level: list[int], split: list[int], depth: int, growing: list[str]) -> list[str]:
        """Tell each party the rows that it needs and the nodes to sum; return those that have any."""
        going_on = []
        for peer in growing:
            wanted = [node for node in level if peer in self.viewers[node]]
            parents = {parent(node) for node in wanted}
            told = tuple(
                NodeSplit(node, self.told[node]) for node in split if node in parents and self.splits[node][0] != peer
            )
            step = (self.seen_as[peer], depth)
            self.ctx.send(peer, Level(*step, told, self._builds(wanted)), step)
            if wanted:
                going_on.append(peer)
        return going_on

    def _gather(self, level: list[int], depth: int) -> None:
        """Have the sums of every party for a level: own ones first, while the others compute theirs."""
        sources: dict[str, LevelSums] = {}
        with self.ctx.phase("own sums"):
            for name in self.forest.splitters:
                sources[name] = self._own_sums(name, level)
        for peer in self.seen_as:
            wanted = [node for node in level if peer in self.viewers[node]]
            if wanted:
                sources[peer] = self._peer_sums(peer, wanted, depth)
        self.sums = sources

    def _own_sums(self, name: str, level: list[int]) -> LevelSums:
        build = self._builds(level)
        slot = self.partition.slots(build)
        codes = self.codes[name] = self.forest.splitters[name].level(slot, len(build))
        sums = level_sums(codes.codes, slot, self.values, len(build), codes.bins)
        return complete(level, LevelSums(build, sums), self.sums.get(name))

    def _peer_sums(self, peer: str, wanted: list[int], depth: int) -> LevelSums:
        step, build = (self.seen_as[peer], depth), self._builds(wanted)
        message = self.ctx.recv(peer, LevelSumsMessage, step)
        sealed, bins = message.sums, message.bins
        if not isinstance(sealed, CipherBlock) or not 1 <= bins <= self.forest.params.bins:
            raise PeerError(peer, f"sent no sums, or {bins} bins", message="LevelSums", step=step)
        if len(sealed.shape) != 2 or sealed.shape[1] != len(build) * bins or sealed.layout != self.layout:
            raise PeerError(peer, "sent sums of other nodes than were asked", message="LevelSums", step=step)
        assert self.forest.private is not None
        with self.ctx.phase("decrypt"), self.ctx.blaming(peer, "LevelSums", step):
            flat = self.forest.private.decrypt(sealed)
        self.ctx.observe(DecryptedSums(*step, peer, build, Array.pack(flat)))
        sums, before = flat.reshape(len(flat), len(build), bins, -1), self.sums.get(peer)
        known = (len(flat), bins) if before is None else (len(before.sums), before.sums.shape[2])
        if (len(flat), bins, sums.shape[3]) != (*known, self.values.shape[1]):
            raise PeerError(peer, "sent sums of other columns or numbers", message="LevelSums", step=step)
        return complete(wanted, LevelSums(build, sums), before)

    def _choose(self, depth: int) -> dict[int, Winner]:
        """Return the winners that the policies let stand, and record who may see their children."""
        forest = self.forest
        allowed = self._allowed(depth)
        chosen = winners(self.sums, allowed, forest.scale, forest.rule)
        own: dict[int, Winner] | None = None
        for node in sorted(chosen):
            winner, before = chosen[node], self.viewers[node]
            viewers = self._viewers(winner, depth)
            if winner.owner in before and winner.owner not in viewers:
                if own is None:
                    mine = {name: self.sums[name] for name in forest.splitters}
                    own = winners(mine, allowed, forest.scale, forest.rule)
                if node not in own:
                    del chosen[node]
                    continue
                winner = chosen[node] = own[node]
                viewers = self._viewers(winner, depth)
            for child, totals in zip(children(node), (winner.left, self.totals[node] - winner.left), strict=True):
                self.viewers[child], self.totals[child] = viewers, totals
        return chosen

    def _allowed(self, depth: int) -> dict[str, NDArray[np.bool_]]:
        """Ask the policies which candidates may be chosen."""
        if not self.ctx.policies.at("split_candidates"):
            return {}
        allowed = {}
        for owner, level in self.sums.items():
            if len(level.sums):
                candidates = CandidateSplits(
                    tree=self.tree,
                    depth=depth,
                    owner=owner,
                    owner_is_active=owner in self.forest.splitters,
                    nodes=level.nodes,
                    left=left_counts(level),
                    node=np.stack([class_counts(self.totals[node]) for node in level.nodes]),
                    totals=self.forest.class_totals,
                )
                allowed[owner] = self.ctx.policies.split_candidates(candidates)
        return allowed

    def _viewers(self, winner: Winner, depth: int) -> frozenset[str]:
        """Ask the policies who may see the children of a split."""
        participants = self.viewers[winner.node]
        if not participants or not self.ctx.policies.at("before_instance_space"):
            return participants
        if not self.ctx.policies.purities:
            raise PolicyError("a defense that acts at before_instance_space must declare purities")
        left = class_counts(winner.left)
        reveal = SplitReveal(
            tree=self.tree,
            depth=depth,
            node=winner.node,
            owner=winner.owner,
            owner_is_active=winner.owner in self.forest.splitters,
            left=left,
            right=class_counts(self.totals[winner.node]) - left,
            totals=self.forest.class_totals,
            participants=participants,
        )
        return self.ctx.policies.before_instance_space(reveal)

    def _split(self, chosen: dict[int, Winner], depth: int) -> None:
        """Have every owner split its nodes; each peer that summed this level is told which of its candidates won."""
        of_peer: dict[str, dict[int, Winner]] = {peer: {} for peer in self.seen_as if peer in self.sums}
        for node, winner in chosen.items():
            if winner.owner in of_peer:
                of_peer[winner.owner][node] = winner
            else:
                self._split_own(winner)
        for peer, mine in of_peer.items():
            self._ask(peer, mine, depth)
        for peer, mine in of_peer.items():
            if mine:
                self._hear(peer, mine, depth)
        if chosen:
            spaces = tuple(NodeSplit(node, self.told[node]) for node in chosen)
            owners = tuple(winner.owner for winner in chosen.values())
            self.ctx.observe(InstanceSpaces(self.tree, depth, spaces, owners))

    def _split_own(self, winner: Winner) -> None:
        codes, splitter = self.codes[winner.owner], self.forest.splitters[winner.owner]
        slot = self.sums[winner.owner].nodes.index(winner.node)
        left = goes_left(codes.codes, self.partition.rows(winner.node), winner.column, winner.code)
        columns, thresholds = self.forest.own[winner.owner]
        columns.append(int(splitter.sample[winner.column]))
        thresholds.append(codes.threshold(slot, winner.column, winner.code))
        self._keep(winner.node, winner.owner, left)

    def _ask(self, peer: str, mine: dict[int, Winner], depth: int) -> None:
        first, step = self.forest.records[peer], (self.seen_as[peer], depth)
        splits = tuple(
            ChosenSplit(winner.node, winner.column, winner.code, first + position)
            for position, winner in enumerate(mine.values())
        )
        self.ctx.send(peer, ChosenSplits(*step, splits), step)

    def _hear(self, peer: str, mine: dict[int, Winner], depth: int) -> None:
        step = (self.seen_as[peer], depth)
        answer = self.ctx.recv(peer, SplitRows, step)
        if tuple(split.node for split in answer.splits) != tuple(mine):
            raise PeerError(peer, "answered for other nodes than were chosen", message="SplitRows", step=step)
        for split in answer.splits:
            with self.ctx.blaming(peer, "SplitRows", step):
                left = split.left.unpack(self.partition.size(split.node))
            if int(np.count_nonzero(left)) != int(mine[split.node].left[2]):
                reason = f"splits node {split.node} otherwise than its sums say"
                raise PeerError(peer, reason, message="SplitRows", step=step)
            self._keep(split.node, peer, left)

    def _keep(self, node: int, owner: str, left: NDArray[np.bool_]) -> None:
        self.told[node] = RowMask.pack(left)
        self.partition.split(node, left, owner)
        self.splits[node] = (owner, self.forest.records[owner])
        self.forest.records[owner] += 1

    def _weigh(self) -> TreeShape:
        """Return the finished tree; the policies have the last word on leaf weights."""
        forest, params = self.forest, self.forest.params
        nodes = tuple(sorted(self.splits))
        leaves = sorted({child for node in nodes for child in children(node)} - self.splits.keys()) or [0]
        totals = np.stack([self.totals[leaf] for leaf in leaves])
        weights = leaf_weights(totals, forest.scale, params.reg_lambda, params.learning_rate)
        labels = (forest.labels[self.partition.rows(leaf)] for leaf in leaves)
        counts = np.stack([np.bincount(each, minlength=2) for each in labels]).astype(np.int64)
        weights = self.ctx.policies.before_leaf_weights(LeafWeights(tree=self.tree, weights=weights, counts=counts))
        return TreeShape(
            nodes=nodes,
            owners=tuple(forest.owners.index(self.splits[node][0]) for node in nodes),
            records=tuple(self.splits[node][1] for node in nodes),
            leaves=tuple(leaves),
            weights=tuple(weights.tolist()),
        )
