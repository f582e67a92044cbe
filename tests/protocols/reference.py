"""Boosted trees on the joined table, written from the definition: slow, recursive, one candidate after the other.

No histogram, no sibling subtraction, no message. What it shares with the protocol is what defines a run: the candidates
of a column (``kernels.binning``), the derivatives of the loss, and the documented draws of rows and columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.binning import bin_columns, node_candidates
from labelward.kernels.loss import logistic_gradients
from labelward.protocols.tree.params import SecureBoost
from labelward.rng import learning

SCALE = 2**30
NOISE = 2.0**-50


@dataclass(frozen=True)
class Split:
    """A node's split: whose column, which one of the party's, and the largest value that goes left."""

    party: str
    column: int
    threshold: float


@dataclass(frozen=True)
class Tree:
    """Splits and leaf weights by node number (root 0, children 2i+1 and 2i+2)."""

    splits: dict[int, Split]
    weights: dict[int, float]


def train(
    parts: Mapping[str, NDArray[np.float64]], labels: NDArray[np.int64], params: SecureBoost, seed: int
) -> list[Tree]:
    """Return the trees; the first party is the active one."""
    margins = np.zeros(len(labels))
    trees = []
    for number in range(params.trees):
        g, h = logistic_gradients(margins, labels.astype(np.float64))
        grower = _Grower(
            parts, labels, params, seed, number, [round(v * SCALE) for v in g], [round(v * SCALE) for v in h]
        )
        sample = list(range(len(labels)))
        if params.row_fraction < 1:
            rng = learning(seed, next(iter(parts)), number, "rows")
            size = max(1, int(params.row_fraction * len(labels)))
            sample = sorted(int(row) for row in rng.choice(len(labels), size, replace=False))
        tree = Tree({}, {})
        grower.grow(tree, 0, 0, sample)
        trees.append(tree)
        for row in range(len(labels)):
            margins[row] += tree.weights[leaf_of(tree, {party: x[row] for party, x in parts.items()})]
    return trees


def leaf_of(tree: Tree, row: Mapping[str, NDArray[np.float64]]) -> int:
    """Return the leaf that a row reaches."""
    node = 0
    while node in tree.splits:
        split = tree.splits[node]
        node = 2 * node + (1 if row[split.party][split.column] <= split.threshold else 2)
    return node


def predict(trees: list[Tree], parts: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the margin of each row."""
    margins = np.zeros(len(next(iter(parts.values()))))
    for row in range(len(margins)):
        values = {party: x[row] for party, x in parts.items()}
        for tree in trees:
            margins[row] += tree.weights[leaf_of(tree, values)]
    return margins


class _Grower:
    """What one tree's nodes have in common."""

    def __init__(self, parts, labels, params, seed, number, g, h) -> None:
        self.parts, self.labels, self.params, self.g, self.h = parts, labels, params, g, h
        self.columns = {party: self._drawn(party, x.shape[1], seed, number) for party, x in parts.items()}
        self.whole = {party: bin_columns(x, params.bins).edges for party, x in parts.items()}

    def _drawn(self, party: str, total: int, seed: int, number: int) -> list[int]:
        if self.params.feature_fraction >= 1 or not total:
            return list(range(total))
        size = max(1, int(self.params.feature_fraction * total))
        rng = learning(seed, party, number, "columns")
        return sorted(int(column) for column in rng.choice(total, size, replace=False))

    def grow(self, tree: Tree, node: int, depth: int, rows: list[int]) -> None:
        """Split the node and go on with its children, or make it a leaf."""
        split = self._best(rows) if depth < self.params.depth and len({int(self.labels[r]) for r in rows}) > 1 else None
        if split is None:
            g, h = self._sums(rows)
            weight = g / (h + self.params.reg_lambda) if h + self.params.reg_lambda > 0 else 0.0
            tree.weights[node] = -self.params.learning_rate * weight
            return
        tree.splits[node] = split
        column = self.parts[split.party][:, split.column]
        self.grow(tree, 2 * node + 1, depth + 1, [row for row in rows if column[row] <= split.threshold])
        self.grow(tree, 2 * node + 2, depth + 1, [row for row in rows if column[row] > split.threshold])

    def _candidates(self, party: str, column: int, rows: list[int]) -> list[float]:
        if self.params.candidates == "global":
            return [float(edge) for edge in self.whole[party][column]]
        x = np.ascontiguousarray(self.parts[party][rows][:, [column]])
        _, edges = node_candidates(x, np.zeros(len(rows), dtype=np.int32), 1, self.params.bins)
        return [float(edge) for edge in edges[0, 0] if not np.isnan(edge)]

    def _best(self, rows: list[int]) -> Split | None:
        """Return the candidate of the largest positive gain; the first of equal ones in party, column, value order."""
        best, best_gain = None, 0.0
        for party, columns in self.columns.items():
            for column in columns:
                values = self.parts[party][:, column]
                for threshold in self._candidates(party, column, rows):
                    left = [row for row in rows if values[row] <= threshold]
                    right = [row for row in rows if values[row] > threshold]
                    gain = self._gain(left, right)
                    if gain is not None and gain > best_gain:
                        best, best_gain = Split(party, column, threshold), gain
        return best

    def _sums(self, rows: list[int]) -> tuple[float, float]:
        return sum(self.g[row] for row in rows) / SCALE, sum(self.h[row] for row in rows) / SCALE

    def _gain(self, left: list[int], right: list[int]) -> float | None:
        """Return the gain in the form that ``kernels.gain`` documents, or None where the candidate is not valid."""
        params = self.params
        if min(len(left), len(right)) < max(1, params.min_rows):
            return None
        (gl, hl), (gr, hr) = self._sums(left), self._sums(right)
        if min(hl, hr) < params.min_child_weight:
            return None
        a, b = hl + params.reg_lambda, hr + params.reg_lambda
        if a <= 0 or b <= 0:
            return None
        d = gl * b - gr * a
        if abs(d) <= NOISE * (abs(gl * b) + abs(gr * a)):
            d = 0.0
        between = d * d / (a * b * (a + b))
        shrunk = params.reg_lambda * (gl + gr) * (gl + gr) / ((hl + hr + params.reg_lambda) * (a + b))
        if abs(between - shrunk) <= NOISE * (between + shrunk):
            return None
        return 0.5 * (between - shrunk) - params.gamma
