"""Split finding: the candidates of each party, the best split of each node, and the weight bounds of its children."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.gain import GainRule, best_splits
from labelward.kernels.row_layout import FixedPointScales, RowLayout
from labelward.kernels.split_candidates import Candidates, candidates
from labelward.kernels.split_search import FALLING, RISING
from labelward.messages.tree import WinningSplit
from labelward.protocols.secureboost.histogram_message import PartyHistograms

Integers = NDArray[np.int64]
Bounds = tuple[float, float]


@dataclass(frozen=True)
class PartyCandidates:
    """One party's histograms of a level, and the candidates that follow from them, block by block."""

    histograms: PartyHistograms
    blocks: tuple[Candidates, ...]


@dataclass(frozen=True)
class BestSplit:
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

    def chosen(self, record: int) -> WinningSplit:
        """Return the split as its owner is told, under the owner's record number."""
        return WinningSplit(self.node, self.column, self.code, record, self.missing_left, self.categories)

    def child_bounds(self, bounds: Bounds) -> tuple[Bounds, Bounds]:
        """Return the weight bounds of the two children; ``bounds`` are those of the node.

        A monotone column keeps its children on either side of the middle of their weights, as XGBoost does.
        """
        low, high = bounds
        middle = (self.weights[0] + self.weights[1]) / 2
        if self.kind == RISING:
            return (low, middle), (middle, high)
        if self.kind == FALLING:
            return (middle, high), (low, middle)
        return bounds, bounds


@dataclass(frozen=True, kw_only=True)
class SplitFinder:
    """How the candidates of one tree are compared.

    Attributes:
        rule: valid candidates and regularization.
        numbers: meaning of the integers of a row.
        scales: fixed-point scales of gradients and hessians.
        onehot: columns of fewer categories than this are split one category against the rest.
        threshold: most categories on the smaller side of a set.
    """

    rule: GainRule
    numbers: RowLayout
    scales: FixedPointScales
    onehot: int
    threshold: int

    def candidates(self, histograms: PartyHistograms, totals: Integers) -> PartyCandidates:
        """Return the candidates of a party; ``totals`` are int64 [nodes, k]."""
        blocks = tuple(
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
            for block in histograms.blocks
        )
        return PartyCandidates(histograms, blocks)

    def best(
        self,
        parties: Mapping[str, PartyCandidates],
        allowed: Mapping[str, Sequence[NDArray[np.bool_]]],
        totals: Mapping[int, Integers],
        bounds: Mapping[int, Bounds] | None,
    ) -> dict[int, BestSplit]:
        """Return the best split of each node that has one, over all parties.

        Args:
            parties: candidates in party order; ties in gain go to the first party, then to the lowest column and
                candidate.
            allowed: for some parties and each of their blocks bool [nodes, columns, candidates]: which may be chosen.
            totals: int64 [k] of each node.
            bounds: least and largest weight of each node; None where there are none.
        """
        best: dict[int, BestSplit] = {}
        for owner, party in parties.items():
            for number in range(len(party.blocks)):
                may = allowed[owner][number] if owner in allowed else None
                for found in self._best_of_block(owner, party, number, may, totals, bounds):
                    before = best.get(found.node)
                    # Blocks of a party are in order of width, not of column: a tie within a party is broken here.
                    earlier = before is not None and before.owner == owner and found.column < before.column
                    if before is None or found.gain > before.gain or (earlier and found.gain == before.gain):
                        best[found.node] = found
        return best

    def _best_of_block(
        self,
        owner: str,
        party: PartyCandidates,
        number: int,
        may: NDArray[np.bool_] | None,
        totals: Mapping[int, Integers],
        bounds: Mapping[int, Bounds] | None,
    ) -> Iterator[BestSplit]:
        """Yield the best split of each node among the columns of one block."""
        nodes, block, offered = party.histograms.nodes, party.histograms.blocks[number], party.blocks[number]
        if not nodes or not len(block.columns):
            return
        found = best_splits(
            offered,
            np.stack([totals[node] for node in nodes]),
            self.numbers,
            self.scales,
            self.rule,
            kinds=block.kinds,
            bounds=None if bounds is None else np.array([bounds[node] for node in nodes]),
            allowed=may,
        )
        for position, node in enumerate(nodes):
            at = int(found.column[position])
            if at < 0:
                continue
            code, missing_left, chosen = offered.chosen(position, at, int(found.candidate[position]))
            yield BestSplit(
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
