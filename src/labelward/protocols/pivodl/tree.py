"""One tree that grows, level by level."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray

from labelward.errors import wrong_message
from labelward.kernels.histogram import goes_left
from labelward.kernels.node_rows import NodeRows, children, leaves_below
from labelward.messages.base import Array, Released, RowMask
from labelward.messages.pivodl import (
    AllowedCandidates,
    BestGains,
    Candidate,
    ChildRows,
    ChildTotals,
    ChosenCandidates,
    LevelOutcome,
    OfferedCandidates,
    OpenedSums,
    RootSums,
    RootTotals,
    WinningCandidates,
)
from labelward.policy.holder_points import HolderSums, LeafRelease
from labelward.protocols.common.columns import SourceColumns
from labelward.protocols.pivodl.instance_threshold import allowed_candidates
from labelward.protocols.pivodl.published_bins import hear_bins, tell_bins
from labelward.protocols.pivodl.secure_sums import Collection
from labelward.protocols.pivodl.share import PUBLIC, SharedTree
from labelward.protocols.pivodl.split_client import Decided, best_candidates
from labelward.protocols.pivodl.training import Training
from labelward.rng import learning

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Tree:
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
        self.gains: dict[int, float] = {}
        self.depth = 0

    def grow(self) -> SharedTree:
        """Grow level by level, and add the leaf weights to the margins of the party's rows."""
        self.totals[0] = self._root_totals()
        self.ctx.observe(RootSums(self.tree, Array.pack(self.totals[0])))
        level = [] if self.fixed.is_leaf(0, self.fixed.rows) else [0]
        while level:
            level = self._split(level)
            self.depth += 1
        for leaf in leaves_below(self.splits):
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
            return packed.unpack_as("int64", count, self.fixed.numbers.k)

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
        pairs = self._pairs(winners)
        chosen = self._tell_winners(pairs, decided)
        for node, source in sorted(winners.items()):
            self._record(node, source, chosen)
        return sorted(self._apply(pairs, chosen, decided))

    def _split_client(self, node: int, source: str) -> int:
        """Draw the split client of a source for a node: any other party (Algorithm 2, line 7)."""
        draw = learning(self.ctx.seed, source, (self.tree << 20) + node, "split client")
        others = [at for at, party in enumerate(self.parties) if party != source]
        return int(others[int(draw.integers(len(others)))])

    def _collect(self, level: list[int], clients: dict[str, list[int]]) -> dict[tuple[str, int], Decided]:
        """Steps 3 to 6: sums of all holders for each source, opened by its split clients; what this party decides."""
        ctx, training, layout = self.ctx, self.training, self.fixed.layout
        place = np.full(max(int(self.at.max(initial=0)), level[-1]) + 1, -1, dtype=np.int32)
        place[level] = np.arange(len(level))
        slot = place[self.at]
        sources = self._sources(level)
        self._tell_allowed(level, clients)
        own: dict[str, Integers] = {}
        groups: list[tuple[str, Collection, list[int]]] = []
        for number, (source, of_nodes) in enumerate(clients.items()):
            if training.is_holder(ctx.party):
                exact = sources[source].sums(slot, self.values, len(level))
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
        decided: dict[tuple[str, int], Decided] = {}
        for (source, to, nodes), part in zip(groups, flat, strict=True):
            if to.opener != ctx.party:
                continue
            columns = training.sources[source]
            cells = int(columns.cells.sum())
            opened = self.sums.open(part, (1, len(nodes) * cells, self.fixed.numbers.k), to, layout)
            totals = np.stack([self.totals[level[at]] for at in nodes])
            by_node = opened.reshape(len(nodes), cells, -1)
            named = tuple(level[at] for at in nodes)
            self._check_counts(source, columns, by_node[..., -1], totals[:, -1])
            ctx.observe(OpenedSums(self.tree, self.depth, source, named, Array.pack(by_node)))
            with ctx.phase("choose"):
                allowed = self._allowed(source, columns, len(nodes))
                found = best_candidates(columns, by_node, totals, self.fixed, allowed)
            decided |= {(source, level[at]): Decided(*each) for at, each in zip(nodes, found, strict=True)}
        return decided

    def _check_counts(self, source: str, columns: SourceColumns, counts: Integers, rows: Integers) -> None:
        """Refuse sums of a source's bins, counts int64 [nodes, cells], that are of other rows than the nodes have."""
        of_columns = np.add.reduceat(counts, np.cumsum([0, *columns.sizes[:-1]]), axis=1)
        if (counts < 0).any() or (of_columns > rows[:, None]).any():
            raise wrong_message(source, "TotalSums", "added up sums of other rows")

    def _sources(self, level: list[int]) -> dict[str, SourceColumns]:
        """Return the columns of all sources, with the bins of this party's rows in the nodes of the level (step 3)."""
        training, step = self.training, (self.tree, self.depth)
        if self.training.params.exchange == "codes":
            return training.sources
        nodes = [self.rows.rows(node) for node in level]
        rows = {
            peer: [here[held[here]].astype(np.int64) for here in nodes]
            for peer, held in training.holding.items()
            if peer != self.ctx.party
        }
        if len(training.own.sizes):
            tell_bins(self.ctx, training.own, rows, step)
        if not training.is_holder(self.ctx.party):
            return training.sources
        places = [np.flatnonzero(self.at == node) for node in level]
        heard = {
            source: hear_bins(self.ctx, source, known, places, step)
            if source != self.ctx.party and len(known.sizes)
            else known
            for source, known in training.sources.items()
        }
        if step == (0, 0):
            training.check_common(heard)
        return heard

    def _tell_allowed(self, level: list[int], clients: dict[str, list[int]]) -> None:
        """As a source, tell the split clients which candidates leave every holder enough rows."""
        ctx, training = self.ctx, self.training
        if not self.training.params.instance_threshold or ctx.party not in clients:
            return
        slot = np.full(self.fixed.rows, -1, dtype=np.int32)
        for at, node in enumerate(level):
            slot[self.rows.rows(node)] = at
        allowed, exists = allowed_candidates(
            training.params, training.own, slot, len(level), list(training.holding.values())
        )
        offered, refused = int(exists.sum()), int((exists & ~allowed).sum())
        training.offered, training.refused = training.offered + offered, training.refused + refused
        ctx.observe(OfferedCandidates(self.tree, self.depth, offered, refused))
        of_nodes = np.array(clients[ctx.party])
        for client in np.unique(of_nodes).tolist():
            bits = np.packbits(allowed[of_nodes == client], bitorder="little").tobytes()
            ctx.send(self.parties[client], AllowedCandidates(bits), (self.tree, self.depth))

    def _allowed(self, source: str, columns: SourceColumns, nodes: int) -> NDArray[np.bool_] | None:
        """Return as the split client of some nodes which candidates their source allows; None: all."""
        if not self.training.params.instance_threshold:
            return None
        step, cells = (self.tree, self.depth), columns.cells
        shape = (nodes, cells.shape[0], 2, cells.shape[1])
        bits, count = self.ctx.recv(source, AllowedCandidates, step).bits, math.prod(shape)
        if len(bits) != (count + 7) // 8:
            raise wrong_message(source, "AllowedCandidates", "allows other candidates", step)
        flat = np.unpackbits(np.frombuffer(bits, np.uint8), count=count, bitorder="little")
        return flat.view(np.bool_).reshape(shape)

    def _winners(
        self, level: list[int], clients: dict[str, list[int]], decided: dict[tuple[str, int], Decided]
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
                    raise wrong_message(peer, "BestGains", "sent no gains")
            for (source, node), gain in zip(pairs, gains.tolist(), strict=True):
                rank = (gain, -self.parties.index(source))  # ties go to the first party
                if gain > 0 and rank > best.get(node, (0.0, -len(self.parties))):
                    best[node] = rank
        self.gains |= {node: rank[0] for node, rank in best.items()}
        return {node: self.parties[-rank[1]] for node, rank in best.items()}

    def _tell_winners(
        self, pairs: dict[tuple[int, str], list[int]], decided: dict[tuple[str, int], Decided]
    ) -> dict[int, tuple[Candidate, int]]:
        """Step 6: each winning split client tells the source its candidates; return what this party has chosen.

        Returns:
            As the source, for each node that it has won, the candidate and its place among those that tie.
        """
        ctx, step = self.ctx, (self.tree, self.depth)
        chosen: dict[int, tuple[Candidate, int]] = {}
        for (client, source), nodes in pairs.items():
            if self.parties[client] == ctx.party:
                tied = tuple(decided[source, node].tied for node in nodes)
                ctx.send(source, WinningCandidates(ctx.policies.release_opened(tied)), step)
        for (client, source), nodes in pairs.items():
            if source != ctx.party:
                continue
            peer = self.parties[client]
            answers = ctx.recv(peer, WinningCandidates, step).candidates.value
            own = self.training.own
            if len(answers) != len(nodes) or not all(answers):
                raise wrong_message(peer, "WinningCandidates", "named no candidates")
            for node, named in zip(nodes, answers, strict=True):
                if not all(0 <= each.column < len(own.sizes) and own.offers(each) for each in named):
                    raise wrong_message(peer, "WinningCandidates", "named no candidate")
                first = own.first(named)
                chosen[node] = (first, named.index(first))
        return chosen

    def _pairs(self, winners: dict[int, str]) -> dict[tuple[int, str], list[int]]:
        """Return the nodes that each pair of split client and source has won."""
        pairs: dict[tuple[int, str], list[int]] = {}
        for node, source in sorted(winners.items()):
            pairs.setdefault((self._split_client(node, source), source), []).append(node)
        return pairs

    # -- the children -------------------------------------------------------------------------------------------------

    def _apply(
        self,
        pairs: dict[tuple[int, str], list[int]],
        chosen: dict[int, tuple[Candidate, int]],
        decided: dict[tuple[str, int], Decided],
    ) -> list[int]:
        """Step 7: the source tells who goes left, and its split client the sums, or the weights of leaves."""
        following = []
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
                gains=Array.pack(np.array([self.gains[node] for node in nodes])),
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
            raise wrong_message(source, "ChildRows", "told of other nodes", step)
        found: dict[int, tuple[tuple[bool, bool], NDArray[np.bool_]]] = {}
        for node, flags, packed in zip(nodes, message.leaves, message.left.value, strict=True):
            total = int((self.at == node).sum()) if all(flags) else self.rows.size(node)
            with ctx.blaming(source, "ChildRows", step):
                mask = packed.unpack(total)
            if not all(flags) and self._leaf_flags(mask) != flags:
                raise wrong_message(source, "ChildRows", "calls a node a leaf", step)
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
        decided: dict[tuple[str, int], Decided],
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
            ended = self._labeled(ctx.party, ended)
            if weights.shape != (len(ended), 2):
                raise wrong_message(peer, "ChildTotals", "sent other weights", step)
        for node, sums in zip(going_on, totals, strict=True):
            left, right = children(node)
            self.totals[left], self.totals[right] = sums, self.totals[node] - sums
        for node, pair in zip(ended, weights.tolist(), strict=True):
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
        """Return the leaf weights that a label holder is told: those below nodes of which it labels rows."""
        rate, nodes = self.fixed.params.learning_rate, self._labeled(peer, ended)
        told = weights[np.isin(ended, nodes)] / rate
        release = LeafRelease(party=peer, owner=peer == source, tree=self.tree, nodes=tuple(nodes), weights=told)
        return self.ctx.policies.on_leaf_release(release).map(lambda left: Array.pack(left * rate))

    def _labeled(self, party: str, nodes: list[int]) -> list[int]:
        """Return the nodes of which a party labels any row."""
        held = self.training.holding.get(party)
        return [] if held is None else [node for node in nodes if held[self.rows.rows(node)].any()]

    def _decide(
        self,
        source: str,
        nodes: list[int],
        going_on: list[int],
        ended: list[int],
        decided: dict[tuple[str, int], Decided],
    ) -> tuple[Integers, Floats]:
        """Return as the split client the left sums of nodes that go on, and the weights of the leaves of others."""
        k, left = self.fixed.numbers.k, {}
        places = self.ctx.recv(source, ChosenCandidates, (self.tree, self.depth)).places
        if len(places) != len(nodes):
            raise wrong_message(source, "ChosenCandidates", "chose for other nodes")
        for node, place in zip(nodes, places, strict=True):
            if not 0 <= place < len(decided[source, node].left):
                raise wrong_message(source, "ChosenCandidates", "chose no candidate")
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

    def _shape(self) -> SharedTree:
        nodes, leaves, mine = sorted(self.splits), leaves_below(self.splits), self.parties.index(self.ctx.party)
        keeps = [self.keepers[leaf] in (PUBLIC, mine) for leaf in leaves]
        return SharedTree(
            nodes=tuple(nodes),
            owners=tuple(self.splits[node][0] for node in nodes),
            records=tuple(self.splits[node][1] for node in nodes),
            leaves=tuple(leaves),
            keepers=tuple(self.keepers[leaf] for leaf in leaves),
            weights=tuple(self.weights[leaf] if keep else 0.0 for leaf, keep in zip(leaves, keeps, strict=True)),
        )
