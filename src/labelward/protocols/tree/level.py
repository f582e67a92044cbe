"""The active party's decisions on a level as functions of sums: what to sum, what follows, who wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.gain import GainRule, best_splits
from labelward.kernels.row_layout import FixedPointScales, RowLayout
from labelward.kernels.split_candidates import Candidates, candidates
from labelward.kernels.split_search import FALLING, RISING
from labelward.protocols.tree.partition import parent, sibling

__all__ = ["Block", "Judge", "LevelSums", "Source", "Winner", "builds", "complete", "left_counts", "winners"]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Sums of columns of like size.

    Attributes:
        columns: int64 [columns]: positions among the columns that the party drew for the tree.
        sums: int64 [columns, nodes, bins, k].
        sizes: int32 [columns]: bins of each column.
        kinds: int8 [columns]: 0 ordered, 1 categorical, 2 rising, 3 falling.
    """

    columns: Integers
    sums: Integers
    sizes: NDArray[np.int32]
    kinds: NDArray[np.int8]


@dataclass(frozen=True)
class LevelSums:
    """One party's sums of a level, for these nodes."""

    nodes: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def monotone(self) -> bool:
        """Whether predictions may only rise, or fall, with some column."""
        return any(np.isin(block.kinds, (RISING, FALLING)).any() for block in self.blocks)

    def described(self) -> dict[int, tuple[int, int]]:
        """Return the size and kind of each column."""
        return {
            column: (size, kind)
            for block in self.blocks
            for column, size, kind in zip(
                *(each.tolist() for each in (block.columns, block.sizes, block.kinds)), strict=True
            )
        }


@dataclass(frozen=True)
class Source:
    """One party's sums of a level, and the candidates that follow from them, block by block."""

    level: LevelSums
    candidates: tuple[Candidates, ...]


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
    numbers: RowLayout
    scales: FixedPointScales
    onehot: int
    threshold: int

    def source(self, level: LevelSums, totals: Integers) -> Source:
        """Return the candidates of a party; ``totals`` are int64 [nodes, k]."""
        found = tuple(
            candidates(
                block.sums,
                totals,
                self.numbers,
                self.scales,
                self.rule,
                kinds=block.kinds,
                sizes=block.sizes,
                onehot=self.onehot,
                threshold=self.threshold,
            )
            for block in level.blocks
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
    blocks = zip(built.blocks, parents.blocks, strict=True)
    found = tuple(
        replace(own, sums=_completed(wanted, (built.nodes, own.sums), (parents.nodes, whole.sums)))
        for own, whole in blocks
    )
    return LevelSums(tuple(wanted), found)


def _completed(
    wanted: Sequence[int], built: tuple[tuple[int, ...], Integers], parents: tuple[tuple[int, ...], Integers]
) -> Integers:
    at = {node: position for position, node in enumerate(built[0])}
    above = {node: position for position, node in enumerate(parents[0])}
    columns, _, bins, k = built[1].shape
    sums = np.empty((columns, len(wanted), bins, k), dtype=np.int64)
    for position, node in enumerate(wanted):
        if node in at:
            sums[:, position] = built[1][:, at[node]]
        else:
            whole = parents[1][:, above[parent(node)]]
            np.subtract(whole, built[1][:, at[sibling(node)]], out=sums[:, position])
    return sums


def left_counts(offered: Candidates, numbers: RowLayout) -> Integers:
    """Return int64 [nodes, columns, candidates, C]: class counts of the left child of each candidate."""
    return np.ascontiguousarray(numbers.class_counts(offered.left))


def winners(
    sources: Mapping[str, Source],
    allowed: Mapping[str, Sequence[NDArray[np.bool_]]],
    totals: Mapping[int, Integers],
    bounds: Mapping[int, tuple[float, float]] | None,
    judge: Judge,
) -> dict[int, Winner]:
    """Return the best split of each node that has one, over all sources.

    Args:
        sources: of each party, in party order; ties in gain go to the first, then to the lowest column and candidate.
        allowed: for some sources and each of their blocks bool [nodes, columns, candidates]: which may be chosen.
        totals: int64 [k] of each node.
        bounds: least and largest weight of each node; None where there are none.
    """
    best: dict[int, Winner] = {}
    for owner, source in sources.items():
        for number in range(len(source.candidates)):
            may = allowed[owner][number] if owner in allowed else None
            for found in _best_of(owner, source, number, may, totals, bounds, judge):
                before = best.get(found.node)
                earlier = before is not None and before.owner == owner and found.column < before.column
                if before is None or found.gain > before.gain or (earlier and found.gain == before.gain):
                    best[found.node] = found
    return best


def _best_of(
    owner: str,
    source: Source,
    number: int,
    may: NDArray[np.bool_] | None,
    totals: Mapping[int, Integers],
    bounds: Mapping[int, tuple[float, float]] | None,
    judge: Judge,
) -> Iterator[Winner]:
    """Yield the best split of each node among the columns of one block."""
    nodes, block, offered = source.level.nodes, source.level.blocks[number], source.candidates[number]
    if not nodes or not len(block.columns):
        return
    found = best_splits(
        offered,
        np.stack([totals[node] for node in nodes]),
        judge.numbers,
        judge.scales,
        judge.rule,
        kinds=block.kinds,
        bounds=None if bounds is None else np.array([bounds[node] for node in nodes]),
        allowed=may,
    )
    for position, node in enumerate(nodes):
        at = int(found.column[position])
        if at >= 0:
            code, missing_left, chosen = offered.chosen(position, at, int(found.candidate[position]))
            yield Winner(
                node=node,
                owner=owner,
                column=int(block.columns[at]),
                code=code,
                missing_left=missing_left,
                categories=chosen,
                gain=float(found.gain[position]),
                left=found.left[position],
                kind=int(block.kinds[at]),
                weights=(float(found.weights[position, 0]), float(found.weights[position, 1])),
            )
