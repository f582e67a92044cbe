"""Labels from sums of bins whose rows follow from the public sides of splits (PIVODL): no common column, no accomplice.

Setting: any party of PIVODL is curious about the labels of the others. As split client it opens the sums of a source's
bins and is told no rows. But a split tells everybody which rows of a node go left, so that their bin of one column is
at most that of the candidate, and bins are the same in all trees:

1. *Splits.* A split client finds the candidate that won, since the sums of a prefix of bins are those of the left
   child; a label holder brackets it by the bins of the rows that it labels itself, also where another client decided.
   Each split bounds the bins of all rows of its node in one column.
2. *Counts.* An opened sum counts the rows of its bin. Where as many rows are known to lie in a prefix of bins as it
   has, no other row does.
3. *Labels.* Bins whose rows are known then give the count of a class among them: in the first tree exactly, in later
   ones where gradients and hessians leave a single count.

Each tree narrows the bins for the sums of all earlier ones too. Columns with an order and without missing values are
read, and a split only where no other column may have made it, so that what is certain is right.

Source: our own; the paper holds that a split client learns no rows (Zhu et al., PIVODL, 2023, Section III-C).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.counted_labels import (
    WHOLE,
    Counted,
    CountedLabelAttack,
    count_of,
    counted_labels,
    counted_nodes,
    nothing_counted,
    of_second_class,
)
from labelward.attacks.shared_trees import KnownTree, known_trees, told_codes
from labelward.kernels.split_search import CATEGORICAL
from labelward.messages.pivodl import MISSING, ColumnCodes, LevelOutcome, OpenedSums
from labelward.party.view import View

Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

_PASSES = 10
"""Most passes over all opened sums; what a further one finds is little."""


@dataclass(frozen=True, kw_only=True)
class BinBounds(CountedLabelAttack):
    """Labels of others from opened sums of bins, whose rows follow from the sides of splits (PIVODL)."""

    kind: ClassVar[str] = "bin-bounds"
    needs: ClassVar[Mapping[str, Any]] = {"kind": "pivodl"}

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return the labels that the sums of all trees leave possible; notes give the share of certain ones."""
        held = np.zeros(view.rows, np.bool_) if own.labels is None else ~np.isnan(own.labels)
        trees = list(known_trees(view, held))
        if not trees:
            return nothing_counted(view)
        scale = 2.0 ** view.parameter("encryption.precision", 30)
        whole = np.arange(view.rows), of_second_class(view.rows, trees[0].sums[0], scale)
        exact = abs(whole[1] - round(whole[1])) < WHOLE  # else noise acts, and later trees leave no single count
        counted = [whole, *counted_nodes(trees if exact else trees[:1], scale)]
        opened = _opened(view, trees)
        for source in _sources(view, held, opened):
            source.bound_by_splits(view, trees, held)
            source.bound_by_counts()
            counted += source.counted(scale, later=exact)
        return counted_labels(view, own, counted)


@dataclass(frozen=True)
class _Opened:
    """The sums of a source's bins in one node, int64 [cells, k], and the rows of the node."""

    tree: int
    node: int
    rows: Integers
    sums: Integers


def _opened(view: View, trees: Sequence[KnownTree]) -> dict[str, list[_Opened]]:
    """Return the sums of others' bins that the party opened, by source."""
    found: dict[str, list[_Opened]] = {}
    for each in view.observed(OpenedSums):
        if each.source != view.party:
            for node, sums in zip(each.nodes, each.sums.unpack().astype(np.int64), strict=True):
                found.setdefault(each.source, []).append(_Opened(each.tree, node, trees[each.tree].rows[node], sums))
    return found


def _sources(view: View, held: Bools, opened: Mapping[str, list[_Opened]]) -> Iterator[_Source]:
    for received in view.received(ColumnCodes):
        if received.message.sizes:
            yield _Source(received.peer, received.message, held, opened.get(received.peer, []))


class _Source:
    """What is known of the bins of another party's columns, in the order in which it tells of them.

    Attributes:
        low, high: int64 [rows, columns]: each row's bin is between them.
        own: uint16 [rows, columns]: the bins of the rows that the party labels; None: it was told none.
        ordered: the columns that have an order.
        usable: those of them that have, as far as is known, all values, and that nothing contradicted.
        decided: by tree and node, the sums that the party opened there.
    """

    def __init__(self, name: str, told: ColumnCodes, held: Bools, opened: list[_Opened]) -> None:
        self.name, self.sizes, self.opened = name, np.array(told.sizes), opened
        self.starts = np.cumsum([0, *told.sizes[:-1]])
        self.decided = {(each.tree, each.node): each for each in opened}
        shape = (len(held), len(self.sizes))
        self.low, self.high = np.zeros(shape, np.int64), np.tile(self.sizes - 1, (len(held), 1)).astype(np.int64)
        self.ordered = np.array(told.kinds) != CATEGORICAL
        self.usable = self.ordered.copy()
        codes = told_codes(told, held)
        self.own = None if codes is None else np.full(shape, MISSING, np.uint16)
        if self.own is not None and codes is not None:
            self.own[held] = codes
            self.usable &= (codes != MISSING).all(axis=0)
            self.low[held] = self.high[held] = np.where(codes == MISSING, 0, codes)
        for each in opened:
            self.usable &= np.add.reduceat(each.sums[:, -1], self.starts) == len(each.rows)

    def bound_by_splits(self, view: View, trees: Sequence[KnownTree], held: Bools) -> None:
        """Bound the bins of the rows of each node that the source has split, in the column of the split."""
        for outcome in view.observed(LevelOutcome):
            tree = trees[outcome.tree]
            for node, owner, packed, whole in zip(
                outcome.nodes, outcome.owners, outcome.left, outcome.whole, strict=True
            ):
                if owner != self.name or not whole:
                    continue
                rows = tree.rows[node]
                left = packed.unpack(len(rows))
                found = self._candidates(tree, outcome.tree, node, rows[left & held[rows]], rows[~left & held[rows]])
                if len({column for column, _, _ in found}) == 1:
                    column = found[0][0]
                    least, most = min(k for _, k, _ in found), max(k for _, _, k in found)
                    self.high[rows[left], column] = np.minimum(self.high[rows[left], column], most)
                    self.low[rows[~left], column] = np.maximum(self.low[rows[~left], column], least + 1)
                    self._drop_contradicted(column)

    def _candidates(
        self, tree: KnownTree, number: int, node: int, left: Integers, right: Integers
    ) -> list[tuple[int, int, int]]:
        """Return the columns that may split a node, each with the least and the most bin that may be its last left one.

        Args:
            left, right: rows of both sides that the party labels.
        """
        if any(self._may_split(column, left, right) for column in np.flatnonzero(~self.usable).tolist()):
            return []  # one that is not read may be the column, and another one agree by chance
        opened, target = self.decided.get((number, node)), tree.sums.get(2 * node + 1)
        if opened is not None and target is not None:
            return [
                (column, k, k)
                for column in np.flatnonzero(self.usable).tolist()
                for k in np.flatnonzero((np.cumsum(self._bins(opened, column), axis=0) == target).all(axis=1)).tolist()
            ]
        if self.own is None or not len(left) or not len(right):
            return []
        least, most = self.high[left].max(axis=0), self.low[right].min(axis=0) - 1
        fits = np.flatnonzero(self.usable & (least <= most))
        return [(column, int(least[column]), int(most[column])) for column in fits.tolist()]

    def _may_split(self, column: int, left: Integers, right: Integers) -> bool:
        """Return whether a column may have put these rows, which the party labels, on either side."""
        if self.own is None:
            return True
        left, right = self.own[left, column], self.own[right, column]
        if (left == MISSING).any() and (right == MISSING).any():
            return False
        left, right = left[left != MISSING], right[right != MISSING]
        if not len(left) or not len(right):
            return True
        return bool(left.max() < right.min() if self.ordered[column] else not np.intersect1d(left, right).size)

    def bound_by_counts(self) -> None:
        """Bound bins by how many rows lie in each prefix of bins, until nothing changes."""
        for _ in range(_PASSES):
            before = int((self.high - self.low).sum())
            for each in self.opened:
                for column in np.flatnonzero(self.usable).tolist():
                    self._count(each.rows, column, np.cumsum(self._bins(each, column)[:, -1]))
            if int((self.high - self.low).sum()) == before:
                break

    def _count(self, rows: Integers, column: int, counts: Integers) -> None:
        """Bound the bins of some rows, of which ``counts`` [bins] lie in each prefix of bins."""
        low, high, size = self.low[rows, column], self.high[rows, column], len(counts)
        if (low == high).all():
            return
        bins = np.arange(size)
        within = np.cumsum(np.bincount(high, minlength=size)) == counts  # all rows of the prefix are known
        possible = np.cumsum(np.bincount(low, minlength=size)) == counts  # and here all that may lie in it do
        beyond = np.concatenate([[0], np.maximum.accumulate(np.where(within, bins + 1, 0))[:-1]])  # by highest bin
        last = np.minimum.accumulate(np.where(possible, bins, size - 1)[::-1])[::-1]  # by lowest bin
        self.low[rows, column], self.high[rows, column] = np.maximum(low, beyond[high]), np.minimum(high, last[low])
        self._drop_contradicted(column)

    def counted(self, scale: float, *, later: bool) -> Iterator[Counted]:
        """Yield runs of bins whose rows are known, with their labels of the second class.

        Args:
            scale: fixed point of the sums.
            later: also of trees after the first.
        """
        for each in self.opened if later else [one for one in self.opened if one.tree == 0]:
            for column in np.flatnonzero(self.usable).tolist():
                of_bins = self._bins(each, column)
                sums = np.concatenate([np.zeros((1, of_bins.shape[1]), np.int64), np.cumsum(of_bins, axis=0)])
                low, high = self.low[each.rows, column], self.high[each.rows, column]
                known = np.cumsum(np.bincount(high, minlength=len(of_bins))) == sums[1:, -1]
                ends = [0, *(np.flatnonzero(known) + 1).tolist()]
                for begin, end in pairwise(ends):
                    inside = each.rows[(low >= begin) & (high < end)]
                    total = sums[end] - sums[begin]
                    if len(inside) == total[-1] > 0:
                        count = count_of(each.tree, len(inside), total, scale)
                        if count is not None:
                            yield inside, count

    def _bins(self, opened: _Opened, column: int) -> Integers:
        return opened.sums[self.starts[column] : self.starts[column] + self.sizes[column]]

    def _drop_contradicted(self, column: int) -> None:
        if (self.low[:, column] > self.high[:, column]).any():
            self.usable[column] = False
