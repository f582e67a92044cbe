"""The graph of rows that share leaves, as a matrix of merged rows by leaves: averages over neighbors, eigenvectors.

Setting: rows u and v are joined with weight S_uv = the sum of the weights of the leaves that both are in. A row is its
    own neighbor here, so that S = Z W Zᵀ with the indicator Z of rows × leaves and the diagonal W of leaf weights, and
    a product with S takes one pass over the leaves. Rows that share all their leaves are merged without loss: averages
    and eigenvectors of nonzero eigenvalues are equal on them. Time and memory are linear in groups × trees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.leaf_signatures import merge_identical_rows
from labelward.kernels.spectral import one_thread

Floats = NDArray[np.float64]

_DENSE = 1500
"""So many leaves at most are handed over as a matrix of leaves × leaves."""


@dataclass(frozen=True, kw_only=True)
class LeafGraph:
    """Groups of rows and their leaves.

    Attributes:
        group: int64 [n], the group of each row. A row that is in no leaf is a group of its own.
        size: float64 [G], rows of each group.
        leaves: sparse float64 [G, L] of 0 and 1: the leaves of each group, over all trees.
        tree: int64 [L], the tree of each leaf.
        weight: float64 [L], of each leaf.
    """

    group: NDArray[np.int64]
    size: Floats
    leaves: Any
    tree: NDArray[np.int64]
    weight: Floats

    @property
    def degree(self) -> Floats:
        """float64 [G]: the summed weights of the neighbors of a row; 0 for a row in no leaf."""
        degree: Floats = self.leaves @ (self.weight * (self.leaves.T @ self.size))
        return degree

    def discounted(self, exponent: float) -> LeafGraph:
        """Return the graph in which a leaf of m rows has its weight × m^-``exponent``.

        With exponent 0 all pairs of rows that share a leaf of a tree are joined alike, so that large leaves rule; with
        1 each tree gives each row the same degree.
        """
        return replace(self, weight=self.weight * (self.leaves.T @ self.size) ** -exponent)

    def means(self, values: Floats) -> Floats:
        """Return float64 [G, K]: the means over the rows of each group of float64 [n, K]."""
        columns = [np.bincount(self.group, column, len(self.size)) for column in values.T]
        return np.column_stack(columns) / self.size[:, None]

    def average(self, points: Floats) -> Floats:
        """Return float64 [G, K]: the weighted mean over the neighbors of each group; a row in no leaf keeps its point.

        Args:
            points: float64 [G, K].
        """
        degree = self.degree[:, None]
        sums = self.leaves @ (self.weight[:, None] * (self.leaves.T @ (self.size[:, None] * points)))
        averaged: Floats = np.where(degree > 0, sums / np.where(degree > 0, degree, 1.0), points)
        return averaged

    def eigenvectors(self, count: int, *, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return the leading eigenvalues and eigenvectors of the random walk D^-1 S, by falling eigenvalue.

        Args:
            count: how many; as many as there are leaves where these are fewer.
            rng: of the start vector, where there are many leaves.

        Returns:
            float64 [K], from 0 to 1; float64 [G, K], of mean square 1 under the stationary distribution; 0 for a row in
            no leaf.
        """
        degree = self.degree
        root = np.sqrt(np.divide(self.size, degree, out=np.zeros_like(degree), where=degree > 0))
        half = self.leaves.multiply(root[:, None]).multiply(np.sqrt(self.weight)[None, :]).tocsr()
        total, leaves = float(self.size @ degree), half.shape[1]
        count = min(count, leaves)
        gram = (half.T @ half).tocsr()
        with one_thread():
            if leaves <= max(_DENSE, 2 * count):
                values, vectors = np.linalg.eigh(gram.toarray())
            else:
                from scipy.sparse.linalg import eigsh

                values, vectors = eigsh(gram, k=count, which="LA", v0=rng.uniform(0.5, 1.0, leaves))
        order = np.argsort(-values, kind="stable")[:count]
        values, vectors = np.clip(values[order], 0.0, 1.0), vectors[:, order]
        places = np.divide(root, self.size, out=np.zeros_like(root), where=self.size > 0) * np.sqrt(total)
        lengths = np.sqrt(np.where(values > 0, values, 1.0))
        return values, (half @ vectors) / lengths * places[:, None]


def leaf_graph(leaves: NDArray[np.int32], weights: Floats) -> LeafGraph:
    """Return the graph in which leaves have the weights of their trees.

    Args:
        leaves: int32 [T, n]; 0 is the root, which tells rows apart by the tree's sample only and is left out, as is -1.
        weights: float64 [T], positive.
    """
    from scipy.sparse import csr_matrix

    signatures = merge_identical_rows(np.where(leaves == 0, np.int32(-1), leaves))
    inside = signatures.leaf_of_group >= 0
    counts = signatures.leaf_of_group.max(axis=1, initial=-1) + 1
    number = (signatures.leaf_of_group + np.concatenate(([0], np.cumsum(counts)))[:-1, None]).T[inside.T]
    starts = np.concatenate(([0], np.cumsum(inside.sum(axis=0))))
    group, size = signatures.group.astype(np.int64), signatures.size.astype(np.float64)
    loose = np.flatnonzero(~inside.any(axis=0))  # one group at most, as all its rows have equal leaves
    if len(loose):
        rows = np.flatnonzero(group == loose[0])
        group[rows[1:]] = len(size) + np.arange(len(rows) - 1)
        size[loose[0]] = 1.0
        size = np.concatenate((size, np.ones(len(rows) - 1)))
        starts = np.concatenate((starts, np.full(len(rows) - 1, starts[-1])))
    tree = np.repeat(np.arange(len(counts)), counts)
    matrix = csr_matrix((np.ones(len(number)), number, starts), shape=(len(size), len(tree)))
    return LeafGraph(group=group, size=size, leaves=matrix, tree=tree, weight=weights[tree])
