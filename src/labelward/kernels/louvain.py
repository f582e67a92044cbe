"""Communities of rows that share leaves: Louvain's method on a graph whose edges are never written down.

Setting: rows u and v are joined with weight A_uv = sum of w_t over the trees in which both are in the same
    leaf (u ≠ v; a row is not its own neighbor); the leaves of a tree may have weights of their own. Rows with
    equal leaves throughout are one vertex (:mod:`labelward.kernels.leaf_signatures`); of s such rows the s(s-1)/2
    inner edges become a self-loop, counted twice in the degree. A vertex of later levels is a community of an
    earlier one. A vertex is kept as its *profile*, the rows that it has in each leaf. The weight between a
    vertex and a community is then the sum over leaves of (weight of the leaf × rows of the vertex × rows of
    the community in that leaf), so that each leaf's list of (community, rows) is all that is needed: memory is
    linear in groups × trees, whatever the number of edges.

Merging is lossless: for twins A_uv = W, the sum of their leaves' weights, and by Cauchy-Schwarz their degree k
has k² < 2m·W; the two moves that would rejoin separated twins sum to a positive gain, so that no partition
stable under moves of single rows separates them.

Reference: Blondel et al. 2008; step 2 of the ID2Graph paper, with the standard modularity (its equation 2 has
    a spurious factor 2).

Difference from Blondel et al.: a vertex may also leave for an empty community.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit
from labelward.kernels.leaf_signatures import Signatures, relabel

_ROUNDING = 1e-10  # a gain must exceed this share of the vertex's degree, so that rounding moves nothing to and fro

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Communities:
    """Communities of merged rows.

    Attributes:
        community: int32 [G], numbered from 0 in the order of groups. Groups without a neighbor (in no leaf,
            or alone in every leaf) are together in one community: each alone or all in one, the modularity is
            the same.
        modularity: of the rows' graph, from -0.5 to 1; 0 where there is no edge.
    """

    community: NDArray[np.int32]
    modularity: float

    @property
    def count(self) -> int:
        """Number of communities."""
        return int(self.community.max(initial=-1)) + 1


class _Graph(NamedTuple):
    """Vertices as profiles: v has ``mass[e]`` rows in ``leaf[e]`` (ascending), e in ``start[v]:start[v + 1]``."""

    start: Indices
    leaf: NDArray[np.int32]
    mass: Floats
    weight: Floats  # of each leaf
    degree: Floats  # of each vertex


class _Lists(NamedTuple):
    """Entries of each leaf: places ``first[l]`` to ``first[l + 1]`` of the arrays belong to leaf l.

    A vertex is *alone* until it first moves or another joins it. The communities of all others are listed,
    the first ``length[l]`` places of a leaf, with their rows in it. ``single`` holds all vertices of a leaf,
    those with the most rows in any leaf first.
    """

    first: Indices
    length: Indices
    name: Indices
    rows: Floats
    single: NDArray[np.int32]
    most: Floats  # of each vertex: its most rows in any leaf
    alone: NDArray[np.bool_]  # of each vertex


def louvain(
    signatures: Signatures,
    weights: Floats,
    *,
    rng: np.random.Generator,
    starts: int = 5,
    passes: int = 100,
    tolerance: float = 1e-6,
) -> Communities:
    """Return the partition with the best modularity of several starts (the earliest of equals).

    Args:
        weights: positive: float64 [T], of each tree; or [T, L], of each leaf by its number in ``signatures``, where
            numbers that a tree does not have are not read.
        rng: draws the order in which vertices are visited, anew for each start and level.
        passes: most passes over the vertices of a level, and most levels.
        tolerance: a level ends with a pass, and a start with a level, that gains less modularity.

    Raises:
        ValueError: not one weight a tree or leaf, a weight that is not positive, or fewer than one start.
    """
    if starts < 1:
        raise ValueError(f"starts must be at least 1 but is {starts}")
    graph = _graph(signatures, weights)
    linked = np.flatnonzero(graph.degree > 0)
    best = Communities(community=np.zeros(len(graph.degree), np.int32), modularity=0.0)
    if not len(linked):
        return best
    inner = _subgraph(graph, linked)
    for start in range(starts):
        community = np.full(len(graph.degree), -1, np.int64)
        community[linked] = _levels(inner, rng, passes, tolerance)
        value = _modularity(inner, community[linked])
        if start == 0 or value > best.modularity:
            best = Communities(community=relabel(community), modularity=value)
    return best


def modularity(signatures: Signatures, weights: Floats, community: NDArray[np.int32]) -> float:
    """Return the modularity of a partition of the merged rows.

    It is the sum over communities of (A_uv of its ordered pairs u ≠ v) / 2m - (its degrees / 2m)².

    Raises:
        ValueError: as for :func:`louvain`, or not one community a group.
    """
    if len(community) != len(signatures.size):
        raise ValueError(f"{len(community)} communities for {len(signatures.size)} groups")
    return _modularity(_graph(signatures, weights), community.astype(np.int64))


def _graph(signatures: Signatures, weights: Floats) -> _Graph:
    trees, groups = signatures.leaf_of_group.shape
    leaves = signatures.leaf_of_group.max(axis=1, initial=-1) + 1
    most = int(leaves.max(initial=0))
    if weights.shape != (trees,) and (weights.ndim != 2 or len(weights) != trees or weights.shape[1] < most):
        raise ValueError(f"weights of shape {weights.shape} for {trees} trees of at most {most} leaves")
    by_leaf = np.broadcast_to(weights[:, None], (trees, most)) if weights.ndim == 1 else weights
    weight = by_leaf[np.arange(by_leaf.shape[1]) < leaves[:, None]]
    if not bool(np.all(weight > 0)) or (weights.ndim == 1 and not bool(np.all(weights > 0))):
        raise ValueError(f"weights must be positive but are {weights}")
    offset = np.concatenate(([0], np.cumsum(leaves, dtype=np.int64)))
    leaf = (signatures.leaf_of_group + offset[:-1, None]).T
    present = signatures.leaf_of_group.T >= 0
    mass = np.broadcast_to(signatures.size[:, None].astype(np.float64), present.shape)[present]
    start = np.concatenate(([0], np.cumsum(present.sum(axis=1, dtype=np.int64))))
    leaf = leaf[present].astype(np.int32)
    rows_in_leaf = np.bincount(leaf, weights=mass, minlength=len(weight))
    edges = mass * weight[leaf] * (rows_in_leaf[leaf] - 1)
    degree = np.bincount(np.repeat(np.arange(groups), np.diff(start)), weights=edges, minlength=groups).astype(
        np.float64
    )
    return _Graph(start, leaf, mass, weight, degree)


def _subgraph(graph: _Graph, vertices: Indices) -> _Graph:
    """Return some of the vertices in another order."""
    length = np.diff(graph.start)[vertices]
    start = np.concatenate(([0], np.cumsum(length)))
    entry = np.arange(start[-1]) + np.repeat(graph.start[vertices] - start[:-1], length)
    return _Graph(start, graph.leaf[entry], graph.mass[entry], graph.weight, graph.degree[vertices])


def _levels(graph: _Graph, rng: np.random.Generator, passes: int, tolerance: float) -> Indices:
    """Return the community of each vertex: local moves, then the communities as vertices, until nothing is gained."""
    total = float(graph.degree.sum())
    member = np.arange(len(graph.degree))
    value = _modularity(graph, member)
    for _ in range(passes):
        order = rng.permutation(len(graph.degree))
        community = np.empty(len(order), np.int64)
        community[order] = _move(_subgraph(graph, order), passes, tolerance * total)
        community = relabel(community).astype(np.int64)
        member, before = community[member], value
        value = _modularity(graph, community)
        if int(community.max()) + 1 == len(graph.degree) or value - before < tolerance:
            break
        graph = _aggregate(graph, community)
    return member


def _aggregate(graph: _Graph, community: Indices) -> _Graph:
    """Return the graph whose vertices are the communities."""
    count, leaves = int(community.max()) + 1, len(graph.weight)
    keys = community[np.repeat(np.arange(len(community)), np.diff(graph.start))] * leaves + graph.leaf
    found, inverse = np.unique(keys, return_inverse=True)
    mass = np.bincount(inverse, weights=graph.mass).astype(np.float64)
    start = np.searchsorted(found, np.arange(count + 1) * leaves)
    degree = np.bincount(community, weights=graph.degree).astype(np.float64)
    return _Graph(start, (found % leaves).astype(np.int32), mass, graph.weight, degree)


def _modularity(graph: _Graph, community: Indices) -> float:
    """Return the modularity of the rows' graph for a partition of its vertices."""
    total = float(graph.degree.sum())
    if total == 0:
        return 0.0
    whole = _aggregate(graph, community)
    inside = float(np.sum(whole.weight[whole.leaf] * whole.mass * (whole.mass - 1)))
    return inside / total - float(np.sum((whole.degree / total) ** 2))


@jit
def _move(graph: _Graph, passes: int, least: float) -> Indices:
    """Move vertices, one at a time in their order, to the community with the largest gain; return the communities.

    With k the degree of vertex v, d_c the degrees in community c, m the edges: moving v into c adds 2/2m ·
    (A_vc - k·d_c/2m) to the modularity. Equal gains go to the present community, then to the lowest number. A
    pass that gains less than
    ``least`` / 2m is the last.
    """
    vertices, total, lists = len(graph.degree), graph.degree.sum(), _empty_lists(graph)
    community, degrees, members = np.arange(vertices), graph.degree.copy(), np.ones(vertices, dtype=np.int64)
    free, n_free = np.empty(vertices, dtype=np.int64), 0
    links, linked = np.zeros(vertices, dtype=np.float64), np.empty(vertices, dtype=np.int64)
    for _ in range(passes):
        gained = 0.0
        for v in range(vertices):
            # 1. Take v out of its community; an empty community's number becomes free.
            own, k = community[v], graph.degree[v]
            degrees[own] -= k
            members[own] -= 1
            if members[own] == 0:
                degrees[own], free[n_free] = 0.0, own  # clear the rounding error
                n_free += 1
            # 2. Best listed community, starting from an empty one with gain 0 (without v, a number is always free).
            new, gain = free[n_free - 1], 0.0
            n_linked = _link(graph, lists, v, own, links, linked)
            for c in linked[:n_linked]:
                offer = links[c] - k * degrees[c] / total
                if offer > gain or (offer == gain > 0 and c < new):
                    new, gain = c, offer
            # 3. Compare with staying and with vertices that are alone, which are not listed.
            stay = links[own] - k * degrees[own] / total
            links[linked[:n_linked]] = 0.0
            new, gain = _best_alone(graph, lists, v, total, new, gain)
            if gain <= stay + _ROUNDING * k:
                new = own
            else:
                # 4. Move v: a vertex that was alone enters the lists only when its community gets a second one.
                gained += 2 * (gain - stay)
                if lists.alone[new] and new != v:
                    _put(graph, lists, new, new)
                    lists.alone[new] = False
                if not lists.alone[v]:
                    _take(graph, lists, v, own)
                _put(graph, lists, v, new)
                lists.alone[v] = False
            if members[new] == 0:
                n_free -= 1
            community[v] = new
            degrees[new] += k
            members[new] += 1
        if gained < least:
            break
    return community


@jit
def _empty_lists(graph: _Graph) -> _Lists:
    """Return the lists at the start of a level, where each vertex is alone."""
    vertices, leaves, entries = len(graph.degree), len(graph.weight), len(graph.leaf)
    most, first = np.zeros(vertices, dtype=np.float64), np.zeros(leaves + 1, dtype=np.int64)
    for v in range(vertices):
        for e in range(graph.start[v], graph.start[v + 1]):
            most[v] = max(most[v], graph.mass[e])
            first[graph.leaf[e] + 1] += 1
    first = np.cumsum(first)
    end, single = first[:-1].copy(), np.empty(entries, dtype=np.int32)
    for v in np.argsort(-most, kind="mergesort"):
        for e in range(graph.start[v], graph.start[v + 1]):
            single[end[graph.leaf[e]]] = v
            end[graph.leaf[e]] += 1
    name, rows = np.empty(entries, dtype=np.int64), np.empty(entries, dtype=np.float64)
    alone = np.ones(vertices, dtype=np.bool_)
    return _Lists(first, np.zeros(leaves, dtype=np.int64), name, rows, single, most, alone)


@jit
def _link(graph: _Graph, lists: _Lists, v: int, own: int, links: Floats, linked: Indices) -> int:
    """Sum the weights between v and each listed community in its leaves, without v; return their number."""
    count = 0
    for e in range(graph.start[v], graph.start[v + 1]):
        leaf = graph.leaf[e]
        factor, base = graph.weight[leaf] * graph.mass[e], lists.first[leaf]
        for place in range(base, base + lists.length[leaf]):
            c = lists.name[place]
            rows = lists.rows[place] - graph.mass[e] if c == own else lists.rows[place]
            if links[c] == 0 and rows > 0:
                linked[count] = c
                count += 1
            links[c] += factor * rows
    return count


@jit
def _best_alone(graph: _Graph, lists: _Lists, v: int, total: float, new: int, gain: float) -> tuple[int, float]:
    """Return the better of the best offer so far and the best offer of a vertex that is alone.

    The weight between v and u is at most (weighted rows of v) × (most rows of u in any leaf). As u come in
    the order of the latter, the scan of a leaf ends where no later u can offer more.
    """
    begin, end, reach = graph.start[v], graph.start[v + 1], 0.0
    for e in range(begin, end):
        reach += graph.weight[graph.leaf[e]] * graph.mass[e]
    for e in range(begin, end):
        for place in range(lists.first[graph.leaf[e]], lists.first[graph.leaf[e] + 1]):
            u = int(lists.single[place])
            if reach * lists.most[u] <= gain:
                break
            if not lists.alone[u] or u == v:
                continue
            weight, i, j = 0.0, begin, graph.start[u]
            while i < end and j < graph.start[u + 1]:
                a, b = graph.leaf[i], graph.leaf[j]
                if a == b:
                    weight += graph.weight[a] * graph.mass[i] * graph.mass[j]
                i, j = i + (a <= b), j + (b <= a)
            offer = weight - graph.degree[v] * graph.degree[u] / total
            if offer > gain or (offer == gain > 0 and u < new):
                new, gain = u, offer
    return new, gain


@jit
def _take(graph: _Graph, lists: _Lists, v: int, community: int) -> None:
    """Remove the rows of v from its community's entries; entries without rows are deleted."""
    for e in range(graph.start[v], graph.start[v + 1]):
        leaf = graph.leaf[e]
        place = lists.first[leaf]
        while lists.name[place] != community:
            place += 1
        lists.rows[place] -= graph.mass[e]
        if lists.rows[place] == 0:
            lists.length[leaf] -= 1  # the last entry of the leaf fills the gap
            last = lists.first[leaf] + lists.length[leaf]
            lists.name[place], lists.rows[place] = lists.name[last], lists.rows[last]


@jit
def _put(graph: _Graph, lists: _Lists, v: int, community: int) -> None:
    """Add the rows of v to the entries of a community."""
    for e in range(graph.start[v], graph.start[v + 1]):
        leaf = graph.leaf[e]
        place, end = lists.first[leaf], lists.first[leaf] + lists.length[leaf]
        while place < end and lists.name[place] != community:
            place += 1
        if place == end:
            lists.name[place], lists.rows[place] = community, 0.0
            lists.length[leaf] += 1
        lists.rows[place] += graph.mass[e]
