"""How the active party grows trees: announce a level, gather its sums, choose, have the owners split.

A node stops when its classes are all equal, at the depth, or when no split gains. Who sees a node's children is asked
before the split's owner is told, since an owner learns its split's children; where the owner may not see them, the
active party goes on with the best of its own columns.

Trees of a forest grow side by side, level by level, so that one party sums for one tree while another decides on the
other. So do the grafts of a tree that is repaired (:mod:`.graft`): parts of it that are grown anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.errors import DataError, PeerError
from labelward.kernels.gain import leaf_weights
from labelward.kernels.histogram import goes_left, level_sums
from labelward.kernels.split_search import FALLING, RISING
from labelward.messages.base import RowMask
from labelward.messages.tree import InstanceSpaces, LevelRequest, NodeSplit, SplitMasks, WinningSplit, WinningSplits
from labelward.policy.base import LeafWeights
from labelward.protocols.tree.columns import LevelCodes
from labelward.protocols.tree.consultation import Consultation
from labelward.protocols.tree.gather import Asked, receive_sums
from labelward.protocols.tree.level import Block, Judge, LevelSums, Source, Winner, builds, complete, winners
from labelward.protocols.tree.partition import Partition, children, parent
from labelward.protocols.tree.plan import Ensemble, Plan
from labelward.protocols.tree.share import TreeShape

__all__ = ["Graft", "Growth", "grow_together"]

Integers = NDArray[np.int64]
Bounds = tuple[float, float]


def grow_together(growths: Sequence[Growth]) -> list[TreeShape]:
    """Grow trees to their end, level by level, and return them, their leaves weighed.

    The first level of each is announced, if anyone listens (:class:`~labelward.protocols.tree.opening.Opening`).
    """
    growing = [growth for growth in growths if growth.level]
    while growing:
        for growth in growing:
            growth.gather()
        for growth in growing:
            growth.choose()
        for growth in growing:
            growth.split()
        for growth in growing:
            growth.open()
        for growth in growing:
            growth.announce()
        growing = [growth for growth in growing if growth.level]
    return [growth.weigh() for growth in growths]


@dataclass(frozen=True)
class Graft:
    """A part of a grown tree that is to be grown anew.

    Attributes:
        onto: the tree; the node is a leaf of its partition.
        node: where the graft begins.
        leaves: how many leaves it may have at most; 0 for no limit.
    """

    onto: Growth
    node: int
    leaves: int


class Growth:
    """A tree that grows, or a graft.

    Attributes:
        partition: which rows lie in which node.
        bounded: whether weights have bounds, since columns are monotone.
        level: the nodes that may be split next.
        listening: the peers that wait for the next level.
    """

    partition: Partition
    bounded: bool

    def __init__(self, ensemble: Ensemble, plan: Plan, graft: Graft | None = None) -> None:
        self.ensemble, self.plan, self.ctx = ensemble, plan, ensemble.ctx
        self.policies = Consultation(ensemble, plan)
        self.whole, root = graft is None, graft.node if graft else 0
        self.root, self.most = root, graft.leaves if graft else ensemble.params.max_leaves
        self.partition = graft.onto.partition if graft else Partition(len(plan.values), np.flatnonzero(plan.counts))
        self.viewers: dict[int, frozenset[str]] = {root: frozenset(plan.seen_as)}
        self.totals: dict[int, Integers] = {root: plan.values[self.partition.rows(root)].sum(axis=0)}
        self.bounds: dict[int, Bounds] = graft.onto.bounds if graft else {root: (-math.inf, math.inf)}
        self.bounded = graft is not None and graft.onto.bounded
        self.sources: dict[str, Source] = {}
        self.codes: dict[str, LevelCodes] = {}
        self.splits: dict[int, tuple[str, int, float]] = {}
        self.told: dict[int, RowMask] = {}
        self.chosen: dict[int, Winner] = {}
        self.depth, self.listening = (root + 1).bit_length() - 1, list(plan.seen_as)
        self.level = self._open([root])

    def announce(self) -> None:
        """Tell each party the rows that it needs and the nodes to sum; those that have none go on no further."""
        going_on = []
        for peer in self.listening:
            wanted = self._wanted(peer)
            told = tuple(NodeSplit(node, self.told[node]) for node in self._news(peer))
            step = (self.plan.seen_as[peer], self.depth)
            self.ctx.send(peer, LevelRequest(*step, told, self._builds(peer, wanted)), step)
            if wanted:
                going_on.append(peer)
        self.listening = going_on

    def gather(self) -> None:
        """Have the sums of every party for the level: own ones first, while the others compute theirs."""
        levels: dict[str, LevelSums] = {}
        with self.ctx.phase("own sums"):
            for name in self.plan.splitters:
                if self.plan.may_own(name, self.depth):
                    levels[name] = self._own_sums(name)
        for peer in self.listening:
            levels[peer] = self._peer_sums(peer)
        with self.ctx.phase("choose"):
            self.sources = {
                name: self.plan.judge.source(level, np.stack([self.totals[node] for node in level.nodes]))
                for name, level in levels.items()
            }

    def choose(self) -> None:
        """Decide on the winners that the policies let stand, and tell each peer which of its candidates won."""
        with self.ctx.phase("choose"):
            self.chosen = self._winners()
        of_peer: dict[str, dict[int, Winner]] = {peer: {} for peer in self.listening}
        for node, winner in self.chosen.items():
            if winner.owner in of_peer:
                of_peer[winner.owner][node] = winner
        for peer, mine in of_peer.items():
            self._ask(peer, mine)

    def split(self) -> None:
        """Have every owner split its nodes."""
        of_peer: dict[str, dict[int, Winner]] = {}
        for node, winner in self.chosen.items():
            if winner.owner in self.plan.splitters:
                self._split_own(winner)
            else:
                of_peer.setdefault(winner.owner, {})[node] = winner
        for peer, mine in of_peer.items():
            self._hear(peer, mine)
        if self.chosen and self.whole:
            spaces = tuple(NodeSplit(node, self.told[node]) for node in self.chosen)
            owners = tuple(winner.owner for winner in self.chosen.values())
            self.ctx.observe(InstanceSpaces(self.plan.tree, self.depth, spaces, owners))

    def open(self) -> None:
        """Open the next level; a peer that may not be told the rows of a split goes on no further below it."""
        self.depth += 1
        self.level = self._open([child for node in sorted(self.chosen) for child in children(node)])
        exposure, tree, withheld = self.ensemble.exposure, self.plan.tree, False
        for peer in self.listening:
            for node in self._news(peer):
                if not exposure.show(tree, peer, self.plan.seen_as[peer], node, self._spaces(node)):
                    withheld = True
                    for child in children(node):
                        self.viewers[child] -= {peer}
        if withheld:
            self.level = [node for node in self.level if self._splittable(node)]

    def weigh(self) -> TreeShape:
        """Return the finished tree; the policies have the last word on leaf weights."""
        ensemble, judge = self.ensemble, self.plan.judge
        nodes = tuple(sorted(self.splits))
        leaves = sorted({self.root, *(child for node in nodes for child in children(node))} - self.splits.keys())
        weights = self.weights(leaves, np.stack([self.totals[leaf] for leaf in leaves]), judge)
        hessians = judge.numbers.full(np.stack([self.totals[node] for node in (*nodes, *leaves)]))[1]
        return TreeShape(
            nodes=nodes,
            owners=tuple(ensemble.owners.index(self.splits[node][0]) for node in nodes),
            records=tuple(self.splits[node][1] for node in nodes),
            leaves=tuple(leaves),
            weights=tuple(weights.reshape(-1).tolist()),
            output=self.plan.output,
            gains=tuple(self.splits[node][2] for node in nodes),
            covers=tuple((hessians.mean(axis=1) / judge.scales.h).tolist()),
        )

    def weights(self, leaves: Sequence[int], totals: Integers, judge: Judge) -> NDArray[np.float64]:
        """Return float64 [leaves, outputs] of sums int64 [leaves, k]; the policies have the last word."""
        bounds = np.array([self.bounds[leaf] for leaf in leaves]) if self.bounded else None
        found = leaf_weights(totals, judge.numbers, judge.scales, judge.rule, self.plan.learning_rate, bounds=bounds)
        asked = LeafWeights(tree=self.plan.tree, weights=found, counts=self._class_counts(leaves))
        return self.ctx.policies.before_leaf_weights(asked)

    def _class_counts(self, leaves: Sequence[int]) -> Integers:
        labels, classes = self.ensemble.labels, len(self.ensemble.class_totals)
        if labels is None:
            return np.zeros((len(leaves), 0), dtype=np.int64)
        held = (labels[self.partition.rows(leaf)] for leaf in leaves)
        return np.stack([np.bincount(each, minlength=classes) for each in held]).astype(np.int64)

    def _open(self, nodes: list[int]) -> list[int]:
        """Return the nodes that may be split."""
        if self.depth >= self.ensemble.params.depth or self._room() == 0:
            return []
        return [node for node in nodes if self._splittable(node)]

    def _room(self) -> int | None:
        """Return how many more splits the tree may have; None for no limit."""
        return max(0, self.most - 1 - len(self.splits)) if self.most else None

    def _splittable(self, node: int) -> bool:
        splitters, depth = self.plan.splitters, self.depth
        mine = any(len(each.sample) and self.plan.may_own(name, depth) for name, each in splitters.items())
        theirs = any(self.plan.may_own(peer, depth) for peer in self.viewers[node])
        rows = self.partition.rows(node)
        count = int(self.totals[node][self.plan.judge.numbers.count])
        if not (mine or theirs) or count < 2 * self.ensemble.params.min_rows:
            return False
        if self.plan.classes is None:
            return True
        classes = self.plan.classes[rows]
        return bool(classes.min() != classes.max())

    def _wanted(self, owner: str) -> list[int]:
        """Return the nodes of the level that a party's columns may split."""
        if not self.plan.may_own(owner, self.depth):
            return []
        return [node for node in self.level if owner not in self.ctx.peers or owner in self.viewers[node]]

    def _news(self, peer: str) -> list[int]:
        """Return the last level's splits that a peer is told: those of others above nodes that it goes on with."""
        parents = {parent(node) for node in self._wanted(peer)}
        return [node for node in sorted(self.chosen) if node in parents and self.splits[node][0] != peer]

    def _spaces(self, node: int) -> dict[int, NDArray[np.int32]]:
        """Return the rows of a node's children."""
        return {child: self.partition.rows(child) for child in children(node)}

    def _builds(self, owner: str, wanted: list[int]) -> tuple[int, ...]:
        above = {parent(node) for node in wanted if node != self.root}
        size = {node: self.partition.size(node) for each in above for node in children(each)}
        subtract = self.ensemble.params.candidates != "node" and owner in self.sources
        return builds(wanted, size, subtract=subtract)

    def _before(self, owner: str) -> LevelSums | None:
        source = self.sources.get(owner)
        return None if source is None else source.level

    def _own_sums(self, name: str) -> LevelSums:
        build = self._builds(name, self.level)
        slot = self.partition.slots(build)
        codes = self.codes[name] = self.plan.splitters[name].level(slot, len(build))
        blocks = []
        for columns, own in codes.blocks:
            sizes = codes.sizes[columns]
            sums = level_sums(own, slot, self.plan.values, len(build), int(sizes.max()))
            blocks.append(Block(columns, sums, sizes, codes.kinds[columns]))
        return complete(self.level, LevelSums(build, tuple(blocks)), self._before(name))

    def _peer_sums(self, peer: str) -> LevelSums:
        wanted, params = self._wanted(peer), self.ensemble.params
        assert self.ensemble.private is not None
        assert self.plan.layout is not None
        most = len(self.plan.values) if params.candidates == "all" else params.bins
        build, before = self._builds(peer, wanted), self._before(peer)
        asked = Asked(
            peer=peer,
            tree=self.plan.seen_as[peer],
            depth=self.depth,
            nodes=build,
            layout=self.plan.layout,
            most_bins=most,
            above=None if before is None else before.described(),
            totals=np.stack([self.plan.values[self.partition.rows(node)].sum(axis=0) for node in build]),
            count=self.plan.judge.numbers.count,
        )
        built = receive_sums(self.ctx, asked, self.ensemble.private)
        self._check_directions(peer, built)
        return complete(wanted, built, before)

    def _check_directions(self, owner: str, level: LevelSums) -> None:
        if level.monotone and (self.plan.judge.numbers.outputs > 1 or self.plan.output >= 0):
            raise DataError(
                "monotone constraints are for boosted trees of two classes or of quantities, and for "
                "forests of quantities: elsewhere there is no one prediction that could only rise or fall",
                code="unsupported",
                field=f"party {owner!r}",
            )

    def _winners(self) -> dict[int, Winner]:
        """Return the winners that stand, and record who may see their children and what these weigh at most."""
        for name in self.plan.splitters.keys() & self.sources.keys():
            self._check_directions(name, self.sources[name].level)
        self.bounded |= any(each.level.monotone for each in self.sources.values())
        allowed = self.policies.allowed(self.sources, self.totals, self.depth)
        chosen, room = self._best(self.sources, allowed), self._room()
        if room is not None and len(chosen) > room:
            kept = sorted(chosen, key=lambda node: (-chosen[node].gain, node))[:room]
            chosen = {node: chosen[node] for node in kept}
        own: dict[int, Winner] | None = None
        for node in sorted(chosen):
            winner, before = chosen[node], self.viewers[node]
            viewers = self._viewers(winner)
            if winner.owner in before and winner.owner not in viewers:
                if own is None:
                    mine = {name: each for name, each in self.sources.items() if name in self.plan.splitters}
                    own = self._best(mine, allowed)
                if node not in own:
                    del chosen[node]
                    continue
                winner = chosen[node] = own[node]
                viewers = self._viewers(winner)
            for child, totals in zip(children(node), (winner.left, self.totals[node] - winner.left), strict=True):
                self.viewers[child], self.totals[child] = viewers, totals
            self._bound_children(winner)
        return dict(sorted(chosen.items()))

    def _viewers(self, winner: Winner) -> frozenset[str]:
        node = winner.node
        return self.policies.viewers(
            winner, self.viewers[node], self.totals[node], self.partition.rows(node), self.depth
        )

    def _best(self, sources: dict[str, Source], allowed: dict[str, list[NDArray[np.bool_]]]) -> dict[int, Winner]:
        return winners(sources, allowed, self.totals, self.bounds if self.bounded else None, self.plan.judge)

    def _bound_children(self, winner: Winner) -> None:
        """Keep a monotone column's children apart: each on its side of the middle of their weights."""
        low, high = self.bounds[winner.node]
        left, right = children(winner.node)
        self.bounds[left] = self.bounds[right] = (low, high)
        middle = (winner.weights[0] + winner.weights[1]) / 2
        if winner.kind == RISING:
            self.bounds[left], self.bounds[right] = (low, middle), (middle, high)
        elif winner.kind == FALLING:
            self.bounds[left], self.bounds[right] = (middle, high), (low, middle)

    def _split_own(self, winner: Winner) -> None:
        codes, splitter = self.codes[winner.owner], self.plan.splitters[winner.owner]
        slot = self.sources[winner.owner].level.nodes.index(winner.node)
        left = goes_left(
            codes.codes,
            self.partition.rows(winner.node),
            winner.column,
            winner.code,
            missing_left=winner.missing_left,
            categories=winner.categories,
        )
        self.ensemble.own[winner.owner].add(
            int(splitter.sample[winner.column]),
            codes.threshold(slot, winner.column, winner.code),
            missing_left=winner.missing_left,
            categories=winner.categories,
        )
        self._keep(winner, left)

    def _ask(self, peer: str, mine: dict[int, Winner]) -> None:
        first, step = self.ensemble.records[peer], (self.plan.seen_as[peer], self.depth)
        splits = tuple(
            WinningSplit(node, each.column, each.code, first + position, each.missing_left, each.categories)
            for position, (node, each) in enumerate(mine.items())
        )
        self.ctx.send(peer, WinningSplits(*step, splits), step)
        for position, node in enumerate(mine):
            self.splits[node] = (peer, first + position, mine[node].gain)
        self.ensemble.records[peer] += len(mine)

    def _hear(self, peer: str, mine: dict[int, Winner]) -> None:
        step = (self.plan.seen_as[peer], self.depth)
        answer = self.ctx.recv(peer, SplitMasks, step)
        if tuple(split.node for split in answer.splits) != tuple(mine):
            raise PeerError(
                peer, "answered for other nodes than were chosen", message="SplitRows", step=step, code="peer-message"
            )
        for split in answer.splits:
            with self.ctx.blaming(peer, "SplitRows", step):
                left = split.left.unpack(self.partition.size(split.node))
            rows = int(self.plan.counts[self.partition.rows(split.node)[left]].sum())
            if rows != int(mine[split.node].left[self.plan.judge.numbers.count]):
                reason = f"splits node {split.node} otherwise than its sums say"
                raise PeerError(peer, reason, message="SplitRows", step=step, code="peer-message", value=split.node)
            self._divide(split.node, peer, left)
            self.ensemble.exposure.learn(peer, self.plan.seen_as[peer], split.node, self._spaces(split.node))

    def _keep(self, winner: Winner, left: NDArray[np.bool_]) -> None:
        self.splits[winner.node] = (winner.owner, self.ensemble.records[winner.owner], winner.gain)
        self.ensemble.records[winner.owner] += 1
        self._divide(winner.node, winner.owner, left)

    def _divide(self, node: int, owner: str, left: NDArray[np.bool_]) -> None:
        self.told[node] = RowMask.pack(left)
        self.partition.split(node, left, owner)
