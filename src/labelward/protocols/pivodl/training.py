"""PIVODL: boosted trees where every party has columns and several hold the labels of some rows each.

Setting: semi-honest parties. For each node and each *source*, a party whose columns may split it, one other party is
the source's *split client*, drawn from public randomness. The source knows which rows lie in which bin and no sum; its
split client learns the sums over all label holders (:mod:`.secure_sums`) and not which rows they cover, decides on the
best candidate and keeps the weights of the leaves below it. What every party learns: who labels which rows, the rows
and the sums of gradients and hessians of every node that is not a leaf, the best gain of every source, and whose split
it is. A source tells each holder the bins of all its columns, in an order that it draws, for the rows that this holder
labels.

Reference: Zhu et al., PIVODL (2023), Algorithms 2 and 3, steps 1 to 7. Differences: level by level; bins travel once
instead of the rows of each candidate at each node, which tells a holder no more than the first level of the paper's
does; sums, not rows, are encrypted, several to a ciphertext; aggregation and encryption client serve the root only,
since step 7 gives the sums of children; the holders of labels in a leaf are told which rows it has; a node without a
gainful split is a leaf whose weight everybody can work out. The right term of the gain has its square.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from labelward.errors import PeerError
from labelward.he.base import Layout
from labelward.kernels.binning import Binned, bin_columns
from labelward.kernels.gain import best_splits, leaf_weights
from labelward.kernels.histogram import goes_left, level_sums
from labelward.kernels.node_rows import NodeRows, children
from labelward.kernels.objectives import objective
from labelward.kernels.row_layout import FixedPointScales, RowLayout, choose_scales, encode_rows, number_bounds
from labelward.kernels.split_candidates import Candidates, candidates
from labelward.kernels.split_search import CATEGORICAL
from labelward.messages.base import Array, Released, RowMask
from labelward.messages.pivodl import (
    BestGains,
    Candidate,
    ChildRows,
    ChildTotals,
    ChosenCandidates,
    ColumnCodes,
    HeldRows,
    LevelOutcome,
    OpenedSums,
    RootSums,
    RootTotals,
    WinningCandidates,
)
from labelward.party.context import Context
from labelward.policy.holder_points import HolderSums, LeafRelease
from labelward.protocols.pivodl.params import Pivodl
from labelward.protocols.pivodl.secure_sums import Collection, SecureSums
from labelward.protocols.pivodl.share import OwnRecord, SharedTree
from labelward.rng import learning

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Codes = NDArray[np.uint16]

_MISSING = 0xFFFF
PUBLIC = -1
"""Keeper of a leaf whose weight everybody knows."""


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Public constants of a training: the objective, and how gradients become integers.

    Attributes:
        numbers: meaning of the integers of a row.
        scales: fixed-point scales, which depend on no label.
        layout: of all sums.
    """

    params: Pivodl
    rows: int
    numbers: RowLayout
    scales: FixedPointScales
    layout: Layout

    @classmethod
    def of(cls, params: Pivodl, rows: int, precision: int) -> Fixed:
        """Return them for two classes."""
        fitted = objective("binary:logistic", classes=2)
        numbers = RowLayout(outputs=1, hessians=1)
        scales = choose_scales(np.zeros((0, 1)), np.zeros((0, 1)), precision, bounded=True)
        bounds = number_bounds(numbers, scales, fitted.g_most, fitted.h_most)
        return cls(
            params=params,
            rows=rows,
            numbers=numbers,
            scales=scales,
            layout=Layout(bounds=bounds, rows=rows, logical=2),
        )

    def encode(self, margins: Floats, labels: Floats) -> Integers:
        """Return the integers of rows, int64 [rows, k]."""
        g, h = objective("binary:logistic", classes=2).gradients(margins[:, None], labels)
        return encode_rows(self.numbers, g, h, None, self.scales)

    def weights(self, totals: Integers) -> Floats:
        """Return the weights of leaves with these sums, learning rate included: float64 [leaves]."""
        params = self.params
        return leaf_weights(totals, self.numbers, self.scales, params.rule, params.learning_rate)[:, 0]

    def is_leaf(self, depth: int, rows: int) -> bool:
        """Return whether a node is a leaf for its depth or its number of rows (Algorithm 3, lines 5 and 15)."""
        params = self.params
        return depth >= params.depth or rows < max(params.min_node_rows, 2 * params.min_rows)


class SourceColumns(NamedTuple):
    """A source's binned columns, in the order that it drew, as far as a party knows them.

    Attributes:
        sizes: int32 [columns].
        kinds: int8 [columns].
        codes: uint16 [rows that the party labels, columns].
    """

    sizes: NDArray[np.int32]
    kinds: NDArray[np.int8]
    codes: Codes

    @property
    def cells(self) -> NDArray[np.bool_]:
        """bool [columns, bins]: which bins exist."""
        cells: NDArray[np.bool_] = np.arange(int(self.sizes.max(initial=1))) < self.sizes[:, None]
        return cells

    def sums(self, slot: NDArray[np.int32], values: Integers, nodes: int) -> Integers:
        """Return the sums of the party's rows by node and existing cell: int64 [nodes, cells, k]."""
        cells = self.cells
        whole = level_sums(self.codes, slot, values, nodes, cells.shape[1])
        return whole.transpose(1, 0, 2, 3)[:, cells]

    def laid_out(self, sums: Integers) -> Integers:
        """Return sums by node and cell as int64 [columns, nodes, bins, k]."""
        cells = self.cells
        whole = np.zeros((len(sums), *cells.shape, sums.shape[2]), dtype=np.int64)
        whole[:, cells] = sums
        return whole.transpose(1, 0, 2, 3)


class OwnColumns:
    """A source's own columns: their bins, and the order in which others know them.

    Args:
        x: float64 [training rows, columns].
        categories: number of categories of each categorical column.
        order: int64 [columns]: position of each shuffled column among the source's.
    """

    def __init__(self, x: Floats, categories: dict[int, int], bins: int, order: Integers) -> None:
        self.binned: Binned = bin_columns(x, bins, categories)
        codes = self.binned.codes.astype(np.uint16)
        codes[self.binned.codes == np.iinfo(self.binned.codes.dtype).max] = _MISSING
        kinds = np.zeros(len(order), dtype=np.int8)
        kinds[list(categories)] = CATEGORICAL
        self.order, self.codes = order, np.ascontiguousarray(codes[:, order])
        self.sizes, self.kinds = self.binned.sizes[order].astype(np.int32), kinds[order]

    def record(self, chosen: Candidate) -> OwnRecord:
        """Return a candidate as a split of the party."""
        column = int(self.order[chosen.column])
        edges = self.binned.edges[column]
        threshold = 0.0 if chosen.categories else float(edges[chosen.code]) if chosen.code < len(edges) else np.inf
        return OwnRecord(column, threshold, chosen.missing_left, chosen.categories)

    def first(self, tied: Sequence[Candidate]) -> Candidate:
        """Return of candidates with the same gain that of the source's first column."""
        return min(tied, key=lambda each: int(self.order[each.column]))


def best_candidates(
    columns: SourceColumns, sums: Integers, totals: Integers, fixed: Fixed
) -> list[tuple[float, tuple[Candidate, ...], Integers]]:
    """Return for each node the largest gain of a source, its candidates, and the left sums of each of them.

    Args:
        columns: sizes and kinds of the source's columns.
        sums: int64 [nodes, cells, k].
        totals: int64 [nodes, k].

    Returns:
        For each node the gain (minus infinity for none), one candidate for each column that reaches it, and int64
        [candidates, k].
    """
    numbers, scales, rule = fixed.numbers, fixed.scales, fixed.params.rule
    offered = candidates(
        columns.laid_out(sums), totals, numbers, scales, rule, kinds=columns.kinds, sizes=columns.sizes
    )
    gains, picks, lefts = [], [], []
    for column in range(len(columns.sizes)):
        orders = {0: offered.orders[column]} if column in offered.orders else {}
        one = Candidates(
            offered.left[:, column : column + 1], offered.bins, offered.one_hot[column : column + 1], orders
        )
        found = best_splits(one, totals, numbers, scales, rule, kinds=columns.kinds[column : column + 1])
        gains.append(found.gain)
        lefts.append(found.left)
        picks.append(
            [None if at < 0 else one.chosen(node, 0, int(at)) for node, at in enumerate(found.candidate.tolist())]
        )
    result: list[tuple[float, tuple[Candidate, ...], Integers]] = []
    for node in range(len(totals)):
        best = max((each[node] for each in gains), default=-np.inf)
        if best == -np.inf:
            result.append((-np.inf, (), np.zeros((0, numbers.k), dtype=np.int64)))
            continue
        tied = [column for column, each in enumerate(gains) if each[node] == best]
        chosen = [pick for column in tied if (pick := picks[column][node]) is not None]
        named = tuple(Candidate(column, *pick) for column, pick in zip(tied, chosen, strict=True))
        result.append((float(best), named, np.stack([lefts[column][node] for column in tied])))
    return result


class _Decided(NamedTuple):
    """What a split client knows of a node for one source."""

    gain: float
    tied: tuple[Candidate, ...]
    left: Integers


class Training:
    """One party's part of a training.

    Args:
        ctx: of the party.
        fixed: public constants.
        sums: secure sums over the holders.
        own: its columns.
        held: bool [training rows]: which it labels.
        labels: float64 [training rows]; NaN where another party holds the label.
    """

    def __init__(
        self,
        ctx: Context,
        fixed: Fixed,
        sums: SecureSums,
        own: OwnColumns,
        held: NDArray[np.bool_],
        labels: Floats,
    ) -> None:
        self.ctx, self.fixed, self.sums, self.own = ctx, fixed, sums, own
        self.parties = tuple(ctx.topology.assigned)
        self.held = np.flatnonzero(held).astype(np.int32)
        self.labels, self.margins = labels[self.held], np.zeros(len(self.held))
        self.records: list[OwnRecord] = []
        self.counts = [0] * len(self.parties)  # splits of each party so far
        self.sources: dict[str, SourceColumns] = {}
        self._exchange(held)

    def run(self) -> tuple[SharedTree, ...]:
        """Grow all trees."""
        trees = []
        for tree in range(self.fixed.params.trees):
            self.ctx.progress("trees", tree, self.fixed.params.trees)
            trees.append(_Tree(self, tree).grow())
        self.ctx.progress("trees", len(trees), len(trees))
        return tuple(trees)

    def is_holder(self, party: str) -> bool:
        """Return whether a party labels any rows."""
        return party in self.sums.holders

    def _exchange(self, held: NDArray[np.bool_]) -> None:
        """Tell all which rows this party labels, and each holder the bins of its rows (step 3, once)."""
        ctx, own = self.ctx, self.own
        self.holding = {ctx.party: held} if self.is_holder(ctx.party) else {}
        if self.is_holder(ctx.party):
            for peer in ctx.peers:
                ctx.send(peer, HeldRows(RowMask.pack(held)), ())
        for holder in self.sums.holders:
            if holder != ctx.party:
                with ctx.blaming(holder, "HeldRows", ()):
                    self.holding[holder] = ctx.recv(holder, HeldRows, ()).rows.unpack(len(held))
        self._check_holding()
        sizes, kinds = tuple(own.sizes.tolist()), tuple(own.kinds.tolist())
        for peer in ctx.peers:
            rows = self.holding.get(peer, np.zeros(0, dtype=np.bool_))
            codes = own.codes[rows].astype("<u2").tobytes() if len(rows) else b""
            ctx.send(peer, ColumnCodes(sizes, kinds, codes), ())
        self.sources = {peer: self._columns(peer, ctx.recv(peer, ColumnCodes, ())) for peer in ctx.peers}
        self.sources[ctx.party] = SourceColumns(own.sizes, own.kinds, np.ascontiguousarray(own.codes[self.held]))

    def _check_holding(self) -> None:
        """Refuse rows that two parties label, or nobody."""
        count = np.sum(list(self.holding.values()), axis=0)
        for peer, rows in self.holding.items():
            if peer != self.ctx.party and (count[rows] > 1).any():
                raise PeerError(peer, "labels rows that another party labels", message="HeldRows", code="peer-message")
        if (count == 0).any():
            raise PeerError(
                self.ctx.topology.coordinator, "nobody labels some rows", message="HeldRows", code="peer-message"
            )

    def _columns(self, peer: str, message: ColumnCodes) -> SourceColumns:
        sizes, kinds = np.array(message.sizes, dtype=np.int32), np.array(message.kinds, dtype=np.int8)
        codes = np.frombuffer(message.codes, dtype="<u2").astype(np.uint16)
        rows, limit = len(self.held), max(self.fixed.params.bins, 1000)
        fits = len(sizes) == len(kinds) and codes.size == rows * len(sizes)
        if not fits or not np.isin(kinds, (0, CATEGORICAL)).all() or ((sizes < 1) | (sizes > limit)).any():
            raise PeerError(peer, "sent no binned columns", message="ColumnCodes", code="peer-message")
        codes = codes.reshape(rows, len(sizes))
        if ((codes >= sizes) & (codes != _MISSING)).any():
            raise PeerError(peer, "sent a bin that its column lacks", message="ColumnCodes", code="peer-message")
        return SourceColumns(sizes, kinds, codes)


class _Tree:
    """One tree that grows.

    Attributes:
        rows: of the nodes that are no leaves, known to all.
        totals: int64 [k] of each node whose sums are public.
    """

    def __init__(self, training: Training, tree: int) -> None:
        self.training, self.tree, self.ctx = training, tree, training.ctx
        self.fixed, self.sums, self.parties = training.fixed, training.sums, training.parties
        self.rows = NodeRows(self.fixed.rows, np.arange(self.fixed.rows))
        self.totals: dict[int, Integers] = {}
        self.values = self.fixed.encode(training.margins, training.labels)
        self.at = np.zeros(len(training.held), dtype=np.int64)  # the node of each row that this party labels
        self.splits: dict[int, tuple[int, int]] = {}
        self.keepers: dict[int, int] = {}
        self.weights: dict[int, float] = {}
        self.depth = 0

    def grow(self) -> SharedTree:
        """Grow level by level, and add the leaf weights to the margins of the party's rows."""
        self.totals[0] = self._root_totals()
        self.ctx.observe(RootSums(self.tree, Array.pack(self.totals[0])))
        level = [] if self.fixed.is_leaf(0, self.fixed.rows) else [0]
        while level:
            level = self._split(level)
            self.depth += 1
        for leaf in self._leaves():
            if leaf not in self.keepers:  # everybody knows its sums
                self.keepers[leaf] = PUBLIC
                self.weights[leaf] = float(self.fixed.weights(self.totals[leaf][None])[0])
        values = np.zeros(max([0, *self.weights]) + 1)
        values[list(self.weights)] = list(self.weights.values())
        self.training.margins += values[self.at]
        return self._shape()

    def _root_totals(self) -> Integers:
        """Step 2: the sums of all rows, through an aggregation client and an encryption client."""
        ctx, layout = self.ctx, self.fixed.layout
        draw = learning(ctx.seed, "", self.tree, "root clients")
        adder, opener = (self.parties[at] for at in draw.choice(len(self.parties), 2, replace=False))
        to, own = Collection(adder, opener, (self.tree, 0)), None
        if self.training.is_holder(ctx.party):
            own = self._own_sums(self.values.sum(axis=0)[None], -1)[None]
            self.sums.contribute(own, to, layout)
        self.sums.add_up(own, to, layout)
        if ctx.party != opener:
            (received,) = self._received_totals(ctx.recv(opener, RootTotals, (self.tree,)).totals.value, opener, 1)
            return cast("Integers", received)
        total: Integers = self.sums.open(own, (1, 1, self.fixed.numbers.k), to, layout)[0, 0]
        for peer in ctx.peers:
            ctx.send(peer, RootTotals(ctx.policies.release_opened(Array.pack(total[None]))), (self.tree,))
        return total

    def _own_sums(self, exact: Integers, part: int) -> Integers:
        """Return sums of this party's rows as its policies let them be added to those of others."""
        sums = HolderSums(tree=self.tree, depth=self.depth, part=part, values=exact, one=self.fixed.scales.g)
        return self.ctx.policies.on_own_sums(sums)

    def _received_totals(self, packed: Array, peer: str, count: int) -> Integers:
        with self.ctx.blaming(peer, "ChildTotals", (self.tree, self.depth)):
            totals = packed.unpack()
        if totals.shape != (count, self.fixed.numbers.k) or totals.dtype != np.int64:
            raise PeerError(peer, "sent sums of another shape", message="ChildTotals", code="peer-message")
        return totals.astype(np.int64)

    # -- one level ----------------------------------------------------------------------------------------------------

    def _split(self, level: list[int]) -> list[int]:
        """Split the nodes of a level; return those of the next."""
        clients = {
            source: [self._split_client(node, source) for node in level]
            for source in self.parties
            if len(self.training.sources[source].sizes)
        }
        decided = self._collect(level, clients)
        winners = self._winners(level, clients, decided)
        chosen = self._tell_winners(clients, winners, decided)
        following = self._apply(level, clients, winners, chosen, decided)
        return sorted(following)

    def _split_client(self, node: int, source: str) -> int:
        """Draw the split client of a source for a node: any other party (Algorithm 2, line 7)."""
        draw = learning(self.ctx.seed, source, (self.tree << 20) + node, "split client")
        others = [at for at, party in enumerate(self.parties) if party != source]
        return int(others[int(draw.integers(len(others)))])

    def _collect(self, level: list[int], clients: dict[str, list[int]]) -> dict[tuple[str, int], _Decided]:
        """Steps 3 to 6: sums of all holders for each source, opened by its split clients; what this party decides."""
        ctx, training, layout = self.ctx, self.training, self.fixed.layout
        place = np.full(max(int(self.at.max(initial=0)), level[-1]) + 1, -1, dtype=np.int32)
        place[level] = np.arange(len(level))
        slot = place[self.at]
        own: dict[str, Integers] = {}
        groups: list[tuple[str, Collection, list[int]]] = []
        for number, (source, of_nodes) in enumerate(clients.items()):
            if training.is_holder(ctx.party):
                exact = training.sources[source].sums(slot, self.values, len(level))
                own[source] = self._own_sums(exact.reshape(-1, exact.shape[2]), number).reshape(exact.shape)
            for client in sorted(set(of_nodes)):
                nodes = [at for at, each in enumerate(of_nodes) if each == client]
                step = (self.tree, self.depth, number, client)
                groups.append((source, Collection(source, self.parties[client], step), nodes))
        flat = [own[source][nodes].reshape(1, -1, self.fixed.numbers.k) if own else None for source, _, nodes in groups]
        for (_, to, _), part in zip(groups, flat, strict=True):
            if part is not None:
                self.sums.contribute(part, to, layout)
        for (_, to, _), part in zip(groups, flat, strict=True):
            self.sums.add_up(part, to, layout)
        decided: dict[tuple[str, int], _Decided] = {}
        for (source, to, nodes), part in zip(groups, flat, strict=True):
            if to.opener != ctx.party:
                continue
            columns = training.sources[source]
            cells = int(columns.cells.sum())
            opened = self.sums.open(part, (1, len(nodes) * cells, self.fixed.numbers.k), to, layout)
            totals = np.stack([self.totals[level[at]] for at in nodes])
            by_node = opened.reshape(len(nodes), cells, -1)
            named = tuple(level[at] for at in nodes)
            ctx.observe(OpenedSums(self.tree, self.depth, source, named, Array.pack(by_node)))
            with ctx.phase("choose"):
                found = best_candidates(columns, by_node, totals, self.fixed)
            decided |= {(source, level[at]): _Decided(*each) for at, each in zip(nodes, found, strict=True)}
        return decided

    def _winners(
        self, level: list[int], clients: dict[str, list[int]], decided: dict[tuple[str, int], _Decided]
    ) -> dict[int, str]:
        """Step 6: compare the best gains of all sources; return the winner of each node that has any."""
        ctx = self.ctx
        of_client: dict[int, list[tuple[str, int]]] = {}
        for source, of_nodes in clients.items():
            for node, client in zip(level, of_nodes, strict=True):
                of_client.setdefault(client, []).append((source, node))
        mine = self.parties.index(ctx.party)
        own = np.array([decided[each].gain for each in of_client.get(mine, ())])
        if mine in of_client:
            for peer in ctx.peers:
                released = ctx.policies.release_opened(Array.pack(own))
                ctx.send(peer, BestGains(released), (self.tree, self.depth))
        best: dict[int, tuple[float, int]] = {}
        for client, pairs in sorted(of_client.items()):
            peer, gains = self.parties[client], own
            if client != mine:
                message = ctx.recv(peer, BestGains, (self.tree, self.depth))
                with ctx.blaming(peer, "BestGains", (self.tree, self.depth)):
                    gains = message.gains.value.unpack().astype(np.float64)
                if gains.shape != (len(pairs),) or np.isnan(gains).any() or (gains == np.inf).any():
                    raise PeerError(peer, "sent no gains", message="BestGains", code="peer-message")
            for (source, node), gain in zip(pairs, gains.tolist(), strict=True):
                rank = (gain, -self.parties.index(source))  # ties go to the first party
                if gain > 0 and rank > best.get(node, (0.0, -len(self.parties))):
                    best[node] = rank
        return {node: self.parties[-rank[1]] for node, rank in best.items()}

    def _tell_winners(
        self, clients: dict[str, list[int]], winners: dict[int, str], decided: dict[tuple[str, int], _Decided]
    ) -> dict[int, tuple[Candidate, int]]:
        """Step 6: each winning split client tells the source its candidates; return what this party has chosen.

        Returns:
            As the source, for each node that it has won, the candidate and its place among those that tie.
        """
        ctx, step = self.ctx, (self.tree, self.depth)
        chosen: dict[int, tuple[Candidate, int]] = {}
        for (client, source), nodes in self._pairs(clients, winners).items():
            if self.parties[client] == ctx.party:
                tied = tuple(decided[source, node].tied for node in nodes)
                ctx.send(source, WinningCandidates(ctx.policies.release_opened(tied)), step)
        for (client, source), nodes in self._pairs(clients, winners).items():
            if source != ctx.party:
                continue
            peer = self.parties[client]
            answers = ctx.recv(peer, WinningCandidates, step).candidates.value
            own = self.training.own
            if len(answers) != len(nodes) or not all(answers):
                raise PeerError(peer, "named no candidates", message="WinningCandidates", code="peer-message")
            for node, named in zip(nodes, answers, strict=True):
                if not all(0 <= each.column < len(own.sizes) and self._offered(each) for each in named):
                    raise PeerError(peer, "named no candidate", message="WinningCandidates", code="peer-message")
                first = own.first(named)
                chosen[node] = (first, named.index(first))
        return chosen

    def _offered(self, each: Candidate) -> bool:
        size = int(self.training.own.sizes[each.column])
        if self.training.own.kinds[each.column] == CATEGORICAL:
            return bool(each.categories) and min(each.categories) >= 0 and max(each.categories) < size
        return not each.categories and 0 <= each.code < size

    def _pairs(self, clients: dict[str, list[int]], winners: dict[int, str]) -> dict[tuple[int, str], list[int]]:
        """Return the nodes that each pair of split client and source has won."""
        pairs: dict[tuple[int, str], list[int]] = {}
        for node, source in sorted(winners.items()):
            pairs.setdefault((self._split_client(node, source), source), []).append(node)
        return pairs

    # -- the children -------------------------------------------------------------------------------------------------

    def _apply(
        self,
        level: list[int],
        clients: dict[str, list[int]],
        winners: dict[int, str],
        chosen: dict[int, tuple[Candidate, int]],
        decided: dict[tuple[str, int], _Decided],
    ) -> list[int]:
        """Step 7: the source tells who goes left, and its split client the sums, or the weights of leaves."""
        pairs, following = self._pairs(clients, winners), []
        for node, source in sorted(winners.items()):
            self._record(node, source, chosen)
        for (client, source), nodes in pairs.items():
            masks = self._child_rows(client, source, nodes, chosen)
            following += self._child_totals(client, source, nodes, masks, decided)
            self._observe(source, nodes, masks)
        return following

    def _observe(
        self, source: str, nodes: list[int], masks: dict[int, tuple[tuple[bool, bool], NDArray[np.bool_]]]
    ) -> None:
        """Record what this party knows now of the nodes that a source has split."""
        first = [children(node)[0] for node in nodes]
        told = tuple(child in self.totals for child in first)
        nothing = np.zeros(self.fixed.numbers.k, dtype=np.int64)
        weights = [[self.weights.get(child, np.nan) for child in children(node)] for node in nodes]
        self.ctx.observe(
            LevelOutcome(
                tree=self.tree,
                depth=self.depth,
                nodes=tuple(nodes),
                owners=(source,) * len(nodes),
                left=tuple(RowMask.pack(masks[node][1]) for node in nodes),
                whole=tuple(source == self.ctx.party or not all(masks[node][0]) for node in nodes),
                totals=Array.pack(np.stack([self.totals.get(child, nothing) for child in first])),
                told=told,
                weights=Array.pack(np.array(weights, dtype=np.float64)),
            )
        )

    def _child_rows(
        self, client: int, source: str, nodes: list[int], chosen: dict[int, tuple[Candidate, int]]
    ) -> dict[int, tuple[tuple[bool, bool], NDArray[np.bool_]]]:
        """Return for each node which children are leaves, and which rows go left, as far as this party is told.

        The mask is of all rows of the node; where both children are leaves, at other parties than the source, of those
        that the party labels.
        """
        ctx, training = self.ctx, self.training
        step = (self.tree, self.depth, client)
        if source == ctx.party:
            own = {node: self._own_mask(node, chosen[node][0]) for node in nodes}
            leaves = {node: self._leaf_flags(mask) for node, mask in own.items()}
            places = ChosenCandidates(tuple(chosen[node][1] for node in nodes))
            ctx.send(self.parties[client], places, step[:2])
            for peer in ctx.peers:
                masks = []
                for node in nodes:
                    mask = own[node]
                    if all(leaves[node]):
                        holding = training.holding.get(peer, np.zeros(self.fixed.rows, dtype=np.bool_))
                        mask = mask[holding[self.rows.rows(node)]]
                    masks.append(RowMask.pack(mask))
                released = ctx.policies.release_opened(tuple(masks))
                ctx.send(peer, ChildRows(tuple(leaves[node] for node in nodes), released), step)
            return {node: (leaves[node], own[node]) for node in nodes}
        message = ctx.recv(source, ChildRows, step)
        if len(message.leaves) != len(nodes) or len(message.left.value) != len(nodes):
            raise PeerError(source, "told of other nodes", message="ChildRows", step=step, code="peer-message")
        found: dict[int, tuple[tuple[bool, bool], NDArray[np.bool_]]] = {}
        for node, flags, packed in zip(nodes, message.leaves, message.left.value, strict=True):
            total = int((self.at == node).sum()) if all(flags) else self.rows.size(node)
            with ctx.blaming(source, "ChildRows", step):
                mask = packed.unpack(total)
            if not all(flags) and self._leaf_flags(mask) != flags:
                raise PeerError(source, "calls a node a leaf", message="ChildRows", step=step, code="peer-message")
            found[node] = (flags, mask)
        return found

    def _record(self, node: int, source: str, chosen: dict[int, tuple[Candidate, int]]) -> None:
        """Give a split its record number: the place among its owner's splits, which everybody counts."""
        owner, training = self.parties.index(source), self.training
        self.splits[node] = (owner, training.counts[owner])
        training.counts[owner] += 1
        if source == self.ctx.party:
            training.records.append(training.own.record(chosen[node][0]))

    def _own_mask(self, node: int, candidate: Candidate) -> NDArray[np.bool_]:
        own = self.training.own
        return goes_left(
            own.codes,
            self.rows.rows(node),
            candidate.column,
            candidate.code,
            missing_left=candidate.missing_left,
            categories=candidate.categories,
        )

    def _leaf_flags(self, left: NDArray[np.bool_]) -> tuple[bool, bool]:
        count = int(left.sum())
        depth = self.depth + 1
        return self.fixed.is_leaf(depth, count), self.fixed.is_leaf(depth, len(left) - count)

    def _child_totals(
        self,
        client: int,
        source: str,
        nodes: list[int],
        masks: dict[int, tuple[tuple[bool, bool], NDArray[np.bool_]]],
        decided: dict[tuple[str, int], _Decided],
    ) -> list[int]:
        """Split the rows, learn sums of children or weights of leaves; return the children that are no leaves."""
        ctx, step = self.ctx, (self.tree, self.depth, self.parties.index(source))
        going_on = [node for node in nodes if not all(masks[node][0])]
        ended = [node for node in nodes if all(masks[node][0])]
        if self.parties[client] == ctx.party:
            totals, weights = self._decide(source, nodes, going_on, ended, decided)
            for peer in ctx.peers:
                sums = ctx.policies.release_opened(Array.pack(totals))
                told = self._told_weights(peer, source, ended, weights)
                ctx.send(peer, ChildTotals(sums, told), step)
        else:
            peer = self.parties[client]
            message = ctx.recv(peer, ChildTotals, step)
            totals = self._received_totals(message.left.value, peer, len(going_on))
            with ctx.blaming(peer, "ChildTotals", step):
                weights = message.weights.value.unpack().astype(np.float64)
            if weights.shape != (len(ended) if self.training.is_holder(ctx.party) else 0, 2):
                raise PeerError(peer, "sent other weights", message="ChildTotals", step=step, code="peer-message")
        for node, sums in zip(going_on, totals, strict=True):
            left, right = children(node)
            self.totals[left], self.totals[right] = sums, self.totals[node] - sums
        for node, pair in zip(ended, weights.tolist(), strict=False):
            for child, weight in zip(children(node), pair, strict=True):
                self.weights[child] = weight
        following: list[int] = []
        for node in nodes:
            flags, mask = masks[node]
            self._move(node, flags, mask, whole=source == ctx.party or not all(flags))
            following += [child for child, leaf in zip(children(node), flags, strict=True) if not leaf]
            for child in children(node) if all(flags) else ():
                self.keepers[child] = client
        return following

    def _told_weights(self, peer: str, source: str, ended: list[int], weights: Floats) -> Released[Array]:
        """Return the leaf weights that a label holder is told: those of leaves that it may have rows in."""
        rate = self.fixed.params.learning_rate
        nodes = tuple(ended) if self.training.is_holder(peer) else ()
        release = LeafRelease(
            party=peer, owner=peer == source, tree=self.tree, nodes=nodes, weights=weights[: len(nodes)] / rate
        )
        return self.ctx.policies.on_leaf_release(release).map(lambda told: Array.pack(told * rate))

    def _decide(
        self,
        source: str,
        nodes: list[int],
        going_on: list[int],
        ended: list[int],
        decided: dict[tuple[str, int], _Decided],
    ) -> tuple[Integers, Floats]:
        """Return as the split client the left sums of nodes that go on, and the weights of the leaves of others."""
        k, left = self.fixed.numbers.k, {}
        places = self.ctx.recv(source, ChosenCandidates, (self.tree, self.depth)).places
        if len(places) != len(nodes):
            raise PeerError(source, "chose for other nodes", message="ChosenCandidates", code="peer-message")
        for node, place in zip(nodes, places, strict=True):
            if not 0 <= place < len(decided[source, node].left):
                raise PeerError(source, "chose no candidate", message="ChosenCandidates", code="peer-message")
            left[node] = decided[source, node].left[place]
        totals = np.stack([left[node] for node in going_on]) if going_on else np.zeros((0, k), dtype=np.int64)
        weights = np.zeros((0, 2))
        if ended:
            first = self.fixed.weights(np.stack([left[node] for node in ended]))
            second = self.fixed.weights(np.stack([self.totals[node] - left[node] for node in ended]))
            weights = np.stack([first, second], axis=1)
        return totals, weights

    def _move(self, node: int, flags: tuple[bool, bool], mask: NDArray[np.bool_], *, whole: bool) -> None:
        """Move this party's rows to the children, and all rows where they are known and still needed."""
        left, right = children(node)
        here = np.flatnonzero(self.at == node)
        mine = mask
        if whole:
            rows = self.rows.rows(node)
            mine = mask[np.searchsorted(rows, self.training.held[here])]
            if not all(flags):
                self.rows.split(node, mask)
        self.at[here] = np.where(mine, left, right)

    # -- the result ---------------------------------------------------------------------------------------------------

    def _leaves(self) -> list[int]:
        nodes = {0, *(child for node in self.splits for child in children(node))}
        return sorted(nodes - self.splits.keys())

    def _shape(self) -> SharedTree:
        nodes, leaves, mine = sorted(self.splits), self._leaves(), self.parties.index(self.ctx.party)
        keeps = [self.keepers[leaf] in (PUBLIC, mine) for leaf in leaves]
        return SharedTree(
            nodes=tuple(nodes),
            owners=tuple(self.splits[node][0] for node in nodes),
            records=tuple(self.splits[node][1] for node in nodes),
            leaves=tuple(leaves),
            keepers=tuple(self.keepers[leaf] for leaf in leaves),
            weights=tuple(self.weights[leaf] if keep else 0.0 for leaf, keep in zip(leaves, keeps, strict=True)),
        )
