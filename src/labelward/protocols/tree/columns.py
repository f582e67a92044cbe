"""One party's own columns while trees grow: candidates, codes, thresholds. The same for both roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.binning import bin_columns, node_candidates, presort
from labelward.kernels.split_search import CATEGORICAL, FALLING, RISING
from labelward.protocols.tree.params import TreeModel
from labelward.protocols.tree.share import EVERYTHING
from labelward.rng import learning

__all__ = ["Columns", "Labels", "LevelCodes", "Splitter", "TreeSplitter", "like_sizes"]

Codes = NDArray[np.uint8] | NDArray[np.uint16]


@dataclass(frozen=True)
class Columns:
    """A party's columns.

    Attributes:
        names: of the columns.
        x: float64 [rows, columns]; NaN is a missing value. A categorical column holds codes.
        categories: for each categorical column (by position) the names of its categories, by code.
        monotone: for some columns (by position) 1 or -1: predictions may only rise, or fall, with the column.
    """

    names: tuple[str, ...]
    x: NDArray[np.float64]
    categories: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    monotone: Mapping[int, int] = field(default_factory=dict)

    def first(self, rows: int) -> Columns:
        """Return the columns of the first rows."""
        return Columns(self.names, self.x[:rows], self.categories, self.monotone)

    def category_names(self) -> dict[str, tuple[str, ...]]:
        """Return the categories of each categorical column by its name, as a share keeps them."""
        return {self.names[column]: names for column, names in self.categories.items()}


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What the active party knows of the rows, validation rows last.

    Attributes:
        values: float64 [rows]: class numbers, or quantities.
        weights: float64 [rows], at least 0.
        classes: names of the classes; empty for quantities.
    """

    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class LevelCodes:
    """Codes of the sampled columns for one level; candidate ``code`` of an ordered column sends ``codes <= code`` left.

    Attributes:
        codes: [rows, sampled columns]; the largest value of the type stands for a missing value.
        sizes: int32 [sampled columns]: codes of a column are below this.
        kinds: int8 [sampled columns]: 0 ordered, 1 categorical, 2 rising, 3 falling.
        edges: by slot and sampled column; one slot only where candidates are the same in all nodes.
    """

    codes: Codes
    sizes: NDArray[np.int32]
    kinds: NDArray[np.int8]
    edges: tuple[tuple[NDArray[np.float64], ...], ...]

    @cached_property
    def blocks(self) -> tuple[tuple[NDArray[np.int64], Codes], ...]:
        """Columns of like size together: their positions, and their codes."""
        found = like_sizes(self.sizes)
        if len(found) == 1:
            return ((found[0], self.codes),)
        return tuple((columns, cast("Codes", np.ascontiguousarray(self.codes[:, columns]))) for columns in found)

    def offers(self, slot: int, column: int, code: int, categories: tuple[int, ...]) -> bool:
        """Whether there is such a candidate: a code up to the number of edges (all known values), or a set of codes."""
        if not 0 <= column < len(self.sizes):
            return False
        if self.kinds[column] == CATEGORICAL:
            distinct = len(set(categories)) == len(categories)
            return bool(categories) and distinct and min(categories) >= 0 and max(categories) < self.sizes[column]
        return not categories and 0 <= code <= len(self._edges(slot, column))

    def threshold(self, slot: int, column: int, code: int) -> float:
        """Return the value at or below which a row goes left; the largest float where all known do, 0 for a set."""
        if self.kinds[column] == CATEGORICAL:
            return 0.0
        edges = self._edges(slot, column)
        return float(edges[code]) if code < len(edges) else EVERYTHING

    def _edges(self, slot: int, column: int) -> NDArray[np.float64]:
        edges = self.edges[slot if len(self.edges) > 1 else 0][column]
        known: NDArray[np.float64] = edges[~np.isnan(edges)]
        return known


def like_sizes(sizes: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """Return the positions of columns whose numbers of bins have one power of two above them, class by class.

    One wide column would else make all columns wide where their sums lie in one array.
    """
    classes = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    return [np.flatnonzero(classes == each) for each in np.unique(classes)]


class Splitter:
    """Candidates over one party's columns, for one tree after the other.

    Args:
        party: whose columns they are; keys the column sample.
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

    def for_tree(self, tree: int) -> TreeSplitter:
        """Draw the columns of one tree: int(fraction · F) of them, at least one, in ascending order."""
        total, fraction = len(self.names), self.params.feature_fraction
        sample = np.arange(total, dtype=np.int64)
        if total and fraction < 1.0:
            rng = learning(self._seed, self.party, tree, "columns")
            sample = np.sort(rng.choice(total, max(1, int(fraction * total)), replace=False))
        return TreeSplitter(self, sample)


class TreeSplitter:
    """Candidates of one tree.

    Attributes:
        sample: int64: positions of the tree's columns, ascending.
    """

    def __init__(self, whole: Splitter, sample: NDArray[np.int64]) -> None:
        self.sample, self._whole = sample, whole
        everything = len(sample) == len(whole.names)
        if whole.params.candidates == "node":
            self._x = whole.x if everything else np.ascontiguousarray(whole.x[:, sample])
            self._order = whole.order if everything else np.ascontiguousarray(whole.order[sample])
            return
        binned = whole.binned
        codes = binned.codes if everything else np.ascontiguousarray(binned.codes[:, sample])
        edges = (tuple(binned.edges[column] for column in sample),)
        self._level = LevelCodes(cast("Codes", codes), binned.sizes[sample], whole.kinds[sample], edges)

    def level(self, slot: NDArray[np.int32], slots: int) -> LevelCodes:
        """Return the codes for a level whose rows lie in these slots (-1: in none)."""
        whole, sample = self._whole, self.sample
        if whole.params.candidates != "node":
            return self._level
        categories = {at: whole.categories[column] for at, column in enumerate(sample) if column in whole.categories}
        codes, cuts = node_candidates(self._x, slot, slots, whole.params.bins, self._order, categories)
        sizes = np.full(len(sample), whole.params.bins, dtype=np.int32)
        sizes[list(categories)] = [max(1, size) for size in categories.values()]
        return LevelCodes(codes, sizes, whole.kinds[sample], tuple(tuple(by_column) for by_column in cuts))
