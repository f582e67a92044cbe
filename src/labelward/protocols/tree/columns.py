"""One party's own columns while trees grow: candidates, codes, thresholds. The same for both roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.binning import bin_columns, node_candidates, presort
from labelward.protocols.tree.params import SecureBoost
from labelward.rng import learning

__all__ = ["Columns", "Labels", "LevelCodes", "Splitter"]

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
    """Codes of the sampled columns for one level; candidate ``code`` of a column sends ``codes <= code`` left.

    Attributes:
        codes: [rows, sampled columns].
        bins: codes are below this.
        edges: by slot and sampled column; one slot only where candidates are the same in all nodes.
    """

    codes: Codes
    bins: int
    edges: tuple[tuple[NDArray[np.float64], ...], ...]

    def offers(self, slot: int, column: int, code: int) -> bool:
        """Whether there is such a candidate."""
        by_column = self.edges[slot if len(self.edges) > 1 else 0]
        return (
            0 <= column < len(by_column)
            and 0 <= code < len(by_column[column])
            and by_column[column][code] == by_column[column][code]
        )

    def threshold(self, slot: int, column: int, code: int) -> float:
        """Return the value at or below which a row goes left."""
        by_column = self.edges[slot if len(self.edges) > 1 else 0]
        return float(by_column[column][code])


class Splitter:
    """Candidates over one party's columns, for one tree after the other.

    Args:
        party: whose columns they are; keys the column sample.
        columns: the columns.
        params: bins, candidates, sampling.
        seed: of the learning draws.
    """

    def __init__(self, party: str, columns: Columns, params: SecureBoost, seed: int) -> None:
        self.party, self.names = party, columns.names
        self._params, self._seed, self._x = params, seed, columns.x
        self.sample = np.arange(len(columns.names), dtype=np.int64)
        self.bins = params.bins
        if params.candidates == "global":
            binned = bin_columns(columns.x, params.bins)
            self._codes: Codes = binned.codes
            self._edges = binned.edges
            self.bins = max((len(edge) for edge in binned.edges), default=0) + 1
        else:
            self._order = presort(columns.x)

    def start_tree(self, tree: int) -> None:
        """Draw the columns of one tree: int(fraction · F) of them, at least one, in ascending order."""
        total, fraction = len(self.names), self._params.feature_fraction
        if total and fraction < 1.0:
            rng = learning(self._seed, self.party, tree, "columns")
            self.sample = np.sort(rng.choice(total, max(1, int(fraction * total)), replace=False))
        if self._params.candidates == "global":
            everything = len(self.sample) == total
            chosen = self._codes if everything else np.ascontiguousarray(self._codes[:, self.sample])
            self._level = LevelCodes(
                cast("Codes", chosen), self.bins, (tuple(self._edges[column] for column in self.sample),)
            )

    def level(self, slot: NDArray[np.int32], slots: int) -> LevelCodes:
        """Return the codes for a level whose rows lie in these slots (-1: in none)."""
        if self._params.candidates == "global":
            return self._level
        x = np.ascontiguousarray(self._x[:, self.sample])
        order = np.ascontiguousarray(self._order[self.sample])
        codes, edges = node_candidates(x, slot, slots, self.bins, order)
        return LevelCodes(codes, self.bins, tuple(tuple(by_column) for by_column in edges))
