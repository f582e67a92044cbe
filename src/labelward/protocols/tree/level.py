"""The active party's decisions on a level as functions of sums: what to sum, what follows, who wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.gain import GainRule, best_splits
from labelward.protocols.tree.partition import parent, sibling

__all__ = ["LevelSums", "Winner", "builds", "class_counts", "complete", "left_counts", "winners"]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LevelSums:
    """One party's sums of a level: int64 [columns, nodes, bins, k] for these nodes."""

    nodes: tuple[int, ...]
    sums: Integers


@dataclass(frozen=True)
class Winner:
    """The best split of a node: owner, column among those sampled, bin, gain, and the left child's sums [k]."""

    node: int
    owner: str
    column: int
    code: int
    gain: float
    left: Integers


def builds(wanted: Sequence[int], size: Mapping[int, int], *, subtract: bool) -> tuple[int, ...]:
    """Return the nodes to sum so that the sums of all wanted nodes follow: of two siblings only the smaller.

    Args:
        size: rows of each wanted node and of its sibling.
        subtract: whether siblings share their candidates, so that subtraction from the parent is exact.
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
    return LevelSums(tuple(wanted), sums)


def class_counts(sums: Integers) -> Integers:
    """Return class counts [..., C] from sums [..., k]: entry 2 counts rows, the further ones those of class 1, 2, …"""
    others = sums[..., 3:]
    return np.concatenate([sums[..., 2:3] - others.sum(axis=-1, keepdims=True), others], axis=-1)


def left_counts(level: LevelSums) -> Integers:
    """Return int64 [nodes, columns, bins, C]: class counts of the left child of each candidate."""
    return np.ascontiguousarray(class_counts(np.cumsum(level.sums, axis=2)).transpose(1, 0, 2, 3))


def winners(
    sources: Mapping[str, LevelSums],
    allowed: Mapping[str, NDArray[np.bool_]],
    scale: float,
    rule: GainRule,
) -> dict[int, Winner]:
    """Return the best split of each node that has one, over all sources.

    Args:
        sources: the sums of each party, in party order; ties in gain go to the first, then to the lowest column and
            bin.
        allowed: for some sources bool [nodes, columns, bins]: which candidates may be chosen.
    """
    best: dict[int, Winner] = {}
    for owner, level in sources.items():
        if not level.nodes or not len(level.sums):
            continue
        found = best_splits(level.sums, scale, rule, allowed.get(owner))
        for position, node in enumerate(level.nodes):
            column, gain = int(found.column[position]), float(found.gain[position])
            if column >= 0 and (node not in best or gain > best[node].gain):
                code, left = int(found.code[position]), found.left[position]
                best[node] = Winner(node, owner, column, code, gain, left)
    return best
