"""One party's own columns while trees grow, the same for both roles: bins, candidates, thresholds, and own splits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.binning import bin_columns, node_candidates, presort, threshold_of
from labelward.kernels.histogram import goes_left
from labelward.kernels.split_search import CATEGORICAL, FALLING, RISING
from labelward.messages.tree import WinningSplit
from labelward.protocols.secureboost.inputs import Columns
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.share import Records
from labelward.rng import column_sample

Codes = NDArray[np.uint8] | NDArray[np.uint16]


class SplitLedger:
    """A party's own splits in the order of their record numbers, while trees grow.

    Args:
        before: splits of an earlier training that continues.
    """

    def __init__(self, before: Records | None = None) -> None:
        before = before or Records()
        self.columns, self.thresholds = list(before.columns), list(before.thresholds)
        self.missing_left, self.categories = list(before.missing_left), dict(before.categories)

    def __len__(self) -> int:
        return len(self.columns)

    def add(self, column: int, threshold: float, *, missing_left: bool, categories: tuple[int, ...]) -> None:
        """Append one split."""
        record = len(self)
        self.columns.append(column)
        self.thresholds.append(threshold)
        if missing_left:
            self.missing_left.append(record)
        if categories:
            self.categories[record] = categories

    def extend(self, more: Records) -> None:
        """Append splits that are numbered from 0 in ``more``."""
        missing_left = frozenset(more.missing_left)
        for record, (column, threshold) in enumerate(zip(more.columns, more.thresholds, strict=True)):
            categories = more.categories.get(record, ())
            self.add(column, threshold, missing_left=record in missing_left, categories=categories)

    def since(self, first: int) -> Records:
        """Return the splits from record ``first`` on, numbered from 0."""
        return Records(
            tuple(self.columns[first:]),
            tuple(self.thresholds[first:]),
            tuple(record - first for record in self.missing_left if record >= first),
            {record - first: codes for record, codes in self.categories.items() if record >= first},
        )

    def records(self) -> Records:
        """Return all splits so far."""
        return self.since(0)


@dataclass(frozen=True)
class LevelBins:
    """Bin codes of the sampled columns for one level; candidate ``code`` of an ordered column sends codes ≤ it left.

    Attributes:
        codes: [rows, sampled columns]; the largest value of the type stands for a missing value.
        sizes: int32 [sampled columns]: number of bins of each column.
        kinds: int8 [sampled columns]: 0 ordered, 1 categorical, 2 rising, 3 falling.
        edges: by slot and sampled column; one slot only where candidates are the same in all nodes.
    """

    codes: Codes
    sizes: NDArray[np.int32]
    kinds: NDArray[np.int8]
    edges: tuple[tuple[NDArray[np.float64], ...], ...]

    @cached_property
    def blocks(self) -> tuple[tuple[NDArray[np.int64], Codes], ...]:
        """Columns grouped by width: their positions, and their codes."""
        groups = group_by_width(self.sizes)
        if len(groups) == 1:
            return ((groups[0], self.codes),)
        return tuple((columns, cast("Codes", np.ascontiguousarray(self.codes[:, columns]))) for columns in groups)

    def offers(self, slot: int, column: int, code: int, categories: tuple[int, ...]) -> bool:
        """Return whether this is a candidate: a code up to the number of edges (all known values), or a set."""
        if not 0 <= column < len(self.sizes):
            return False
        if self.kinds[column] == CATEGORICAL:
            distinct = len(set(categories)) == len(categories)
            return bool(categories) and distinct and min(categories) >= 0 and max(categories) < self.sizes[column]
        return not categories and 0 <= code <= len(self._edges(slot, column))

    def threshold(self, slot: int, column: int, code: int) -> float:
        """Return the value up to which rows go left; the largest float where all known values do, 0 for a set."""
        if self.kinds[column] == CATEGORICAL:
            return 0.0
        return threshold_of(self._edges(slot, column), code)

    def _edges(self, slot: int, column: int) -> NDArray[np.float64]:
        edges = self.edges[slot if len(self.edges) > 1 else 0][column]
        known: NDArray[np.float64] = edges[~np.isnan(edges)]
        return known


def group_by_width(sizes: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """Return the positions of columns, grouped by the power of two above their number of bins.

    Histograms of a group lie in one array, which is as wide as its widest column.
    """
    widths = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    return [np.flatnonzero(widths == width) for width in np.unique(widths)]


class ColumnBinner:
    """Candidates over one party's columns for all trees.

    Args:
        party: the owner; its name seeds the column sample.
        columns: the columns of the training rows.
        params: bins, candidates, sampling.
        seed: of the learning draws.
    """

    def __init__(self, party: str, columns: Columns, params: TreeModel, seed: int) -> None:
        self.party, self.names, self.x = party, columns.names, columns.x
        self.params, self._seed = params, seed
        self.categories = {column: len(names) for column, names in columns.categories.items()}
        self.kinds = np.zeros(len(columns.names), dtype=np.int8)
        for column, direction in columns.monotone.items():
            self.kinds[column] = RISING if direction > 0 else FALLING
        self.kinds[list(self.categories)] = CATEGORICAL
        if params.candidates == "node":
            self.order = presort(columns.x)
        else:
            self.binned = bin_columns(columns.x, None if params.candidates == "all" else params.bins, self.categories)

    def for_tree(self, tree: int) -> TreeBinner:
        """Draw the columns of one tree."""
        count, fraction = len(self.names), self.params.feature_fraction
        if not count or fraction == 1.0:
            return TreeBinner(self, np.arange(count, dtype=np.int64))
        return TreeBinner(self, column_sample(self._seed, self.party, tree, count, fraction))


class TreeBinner:
    """Candidates of one tree.

    Attributes:
        sample: int64: positions of the tree's columns, ascending.
    """

    def __init__(self, whole: ColumnBinner, sample: NDArray[np.int64]) -> None:
        self.sample, self._whole = sample, whole
        everything = len(sample) == len(whole.names)
        if whole.params.candidates == "node":
            self._x = whole.x if everything else np.ascontiguousarray(whole.x[:, sample])
            self._order = whole.order if everything else np.ascontiguousarray(whole.order[sample])
            return
        binned = whole.binned
        codes = binned.codes if everything else np.ascontiguousarray(binned.codes[:, sample])
        edges = (tuple(binned.edges[column] for column in sample),)
        self._level = LevelBins(cast("Codes", codes), binned.sizes[sample], whole.kinds[sample], edges)

    def level(self, slot: NDArray[np.int32], slots: int) -> LevelBins:
        """Return the bins for a level whose rows lie in these slots (-1: in none)."""
        whole, sample = self._whole, self.sample
        if whole.params.candidates != "node":
            return self._level
        categories = {at: whole.categories[column] for at, column in enumerate(sample) if column in whole.categories}
        codes, cuts = node_candidates(self._x, slot, slots, whole.params.bins, self._order, categories)
        sizes = np.full(len(sample), whole.params.bins, dtype=np.int32)
        sizes[list(categories)] = [max(1, size) for size in categories.values()]
        return LevelBins(codes, sizes, whole.kinds[sample], tuple(tuple(by_column) for by_column in cuts))

    def split(
        self, bins: LevelBins, slot: int, rows: NDArray[np.int32], split: WinningSplit, ledger: SplitLedger
    ) -> NDArray[np.bool_]:
        """Record a candidate as the party's next own split; return bool [rows of the node]: which go left.

        Args:
            bins: of the level.
            slot: of the node, among those that were summed for this party.
            rows: of the node.
        """
        left = goes_left(
            bins.codes,
            rows,
            split.column,
            split.code,
            missing_left=split.missing_left,
            categories=split.categories,
        )
        threshold = bins.threshold(slot, split.column, split.code)
        column = int(self.sample[split.column])
        ledger.add(column, threshold, missing_left=split.missing_left, categories=split.categories)
        return left
