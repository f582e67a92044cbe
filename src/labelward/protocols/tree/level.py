"""The active party's decisions on a level as functions of sums: what to sum, what follows, who wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.candidates import Candidates, candidates
from labelward.kernels.gain import GainRule, best_splits
from labelward.kernels.numbers import Numbers, Scales
from labelward.protocols.tree.partition import parent, sibling

__all__ = ["Judge", "LevelSums", "Source", "Winner", "builds", "complete", "left_counts", "winners"]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LevelSums:
    """One party's sums of a level.

    Attributes:
        nodes: their numbers.
        sums: int64 [columns, nodes, bins, k].
        sizes: int32 [columns]: bins of each column.
        kinds: int8 [columns]: 0 ordered, 1 categorical, 2 rising, 3 falling.
    """

    nodes: tuple[int, ...]
    sums: Integers
    sizes: NDArray[np.int32]
    kinds: NDArray[np.int8]


@dataclass(frozen=True)
class Source:
    """One party's sums of a level, and the candidates that follow from them."""

    level: LevelSums
    candidates: Candidates


@dataclass(frozen=True)
class Winner:
    """The best split of a node.

    Attributes:
        owner: whose column it is.
        column: among those sampled.
        code, missing_left, categories: which rows go left.
        gain: of the split.
        left: int64 [k]: the left child's sums.
        kind: of the column.
        weights: of the two children, within the bounds of their node.
    """

    node: int
    owner: str
    column: int
    code: int
    missing_left: bool
    categories: tuple[int, ...]
    gain: float
    left: Integers
    kind: int
    weights: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """How candidates of one tree are compared.

    Attributes:
        rule: valid candidates and regularization.
        numbers: what the integers of a row mean.
        scales: what stands for 1.
        onehot: columns of fewer categories than this are split one against the rest.
        threshold: most categories on the smaller side of a set.
    """

    rule: GainRule
    numbers: Numbers
    scales: Scales
    onehot: int
    threshold: int

    def source(self, level: LevelSums, totals: Integers) -> Source:
        """Return the candidates of a party; ``totals`` are int64 [nodes, k]."""
        found = candidates(
            level.sums,
            totals,
            self.numbers,
            self.scales,
            self.rule,
            kinds=level.kinds,
            sizes=level.sizes,
            onehot=self.onehot,
            threshold=self.threshold,
        )
        return Source(level, found)


def builds(wanted: Sequence[int], size: Mapping[int, int], *, subtract: bool) -> tuple[int, ...]:
    """Return the nodes to sum so that the sums of all wanted nodes follow: of two siblings only the smaller.

    Args:
        size: rows of each wanted node and of its sibling.
        subtract: whether siblings share their candidates and their parent's sums are at hand, so that subtraction is
            exact.
    """
    if not subtract or list(wanted) == [0]:
        return tuple(wanted)
    smaller = {min((size[node], node), (size[sibling(node)], sibling(node)))[1] for node in wanted}
    return tuple(sorted(smaller))


def complete(wanted: Sequence[int], built: LevelSums, parents: LevelSums | None) -> LevelSums:
    """Return the sums of all wanted nodes: those that were built, and the siblings of built ones by subtraction."""
    if built.nodes == tuple(wanted):
        return built
    if parents is None:
        raise ValueError("sums to subtract from are missing")
    at = {node: position for position, node in enumerate(built.nodes)}
    above = {node: position for position, node in enumerate(parents.nodes)}
    columns, _, bins, k = built.sums.shape
    sums = np.empty((columns, len(wanted), bins, k), dtype=np.int64)
    for position, node in enumerate(wanted):
        if node in at:
            sums[:, position] = built.sums[:, at[node]]
        else:
            whole = parents.sums[:, above[parent(node)]]
            np.subtract(whole, built.sums[:, at[sibling(node)]], out=sums[:, position])
    return LevelSums(tuple(wanted), sums, built.sizes, built.kinds)


def left_counts(source: Source, numbers: Numbers) -> Integers:
    """Return int64 [nodes, columns, candidates, C]: class counts of the left child of each candidate."""
    return np.ascontiguousarray(numbers.class_counts(source.candidates.left))


def winners(
    sources: Mapping[str, Source],
    allowed: Mapping[str, NDArray[np.bool_]],
    totals: Mapping[int, Integers],
    bounds: Mapping[int, tuple[float, float]] | None,
    judge: Judge,
) -> dict[int, Winner]:
    """Return the best split of each node that has one, over all sources.

    Args:
        sources: of each party, in party order; ties in gain go to the first, then to the lowest column and candidate.
        allowed: for some sources bool [nodes, columns, candidates]: which candidates may be chosen.
        totals: int64 [k] of each node.
        bounds: least and largest weight of each node; None where there are none.
    """
    best: dict[int, Winner] = {}
    for owner, source in sources.items():
        nodes = source.level.nodes
        if not nodes or not len(source.level.sums):
            continue
        found = best_splits(
            source.candidates,
            np.stack([totals[node] for node in nodes]),
            judge.numbers,
            judge.scales,
            judge.rule,
            kinds=source.level.kinds,
            bounds=None if bounds is None else np.array([bounds[node] for node in nodes]),
            allowed=allowed.get(owner),
        )
        for position, node in enumerate(nodes):
            column, gain = int(found.column[position]), float(found.gain[position])
            if column >= 0 and (node not in best or gain > best[node].gain):
                code, missing_left, chosen = source.candidates.chosen(position, column, int(found.candidate[position]))
                weights = (float(found.weights[position, 0]), float(found.weights[position, 1]))
                kind, left = int(source.level.kinds[column]), found.left[position]
                best[node] = Winner(node, owner, column, code, missing_left, chosen, gain, left, kind, weights)
    return best
