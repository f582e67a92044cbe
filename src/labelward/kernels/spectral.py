"""The spectral embedding of rows that share leaves, without a matrix of rows by rows.

Setting: rows u ≠ v are similar as far as they share leaves, S_uv = number of trees in which both are in one leaf (the
    share of the trees differs by a factor that changes no eigenvector). With D the diagonal matrix of the sums of S's
    rows, the leading eigenvectors of D^-1/2 S D^-1/2 are wanted. With Z the indicator of rows × leaves, S is Z Zᵀ less
    its diagonal, so that a product with a vector takes one pass over the leaves: each leaf's sum, then each row's sum
    over its leaves.

Rows with equal leaves throughout are merged (:mod:`labelward.kernels.leaf_signatures`): an eigenvector is constant on
such rows, or it sums to 0 on them, and then its eigenvalue is -(own trees of the row)/(its degree) < 0. The former are
the eigenvectors of the matrix over groups that is used here, so that no leading eigenvector is lost as long as the
leading eigenvalues are not negative; where they are, equal rows still get equal points.

Eigenvalue 1 occurs once for each connected part, with an eigenvector that is known: D^1/2 on the part. These are taken
as they are; an iteration from one start vector would not find them all. The others come from Lanczos' method (ARPACK).

Reference: Shi and Malik 2000, whose points D^-1/2 x scikit-learn's spectral clustering takes; it drops the similarity
    of a row to itself, as here. Ng, Jordan and Weiss 2001 scale each row of the eigenvectors x to length 1
    (:meth:`SpectralEmbedding.unit_length`). As D^-1/2 does not change the direction of a row, these are the same points
    on the unit sphere.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit
from labelward.kernels.connected_components import label_components
from labelward.kernels.leaf_signatures import Signatures

Floats = NDArray[np.float64]

_DENSE = 300
"""So many groups are handed over as a matrix: iterations on a space that is hardly larger than theirs may fail."""


@dataclass(frozen=True, kw_only=True)
class SpectralEmbedding:
    """Points of merged rows.

    Attributes:
        points: float64 [G, K], D^-1/2 times the eigenvectors over rows, of length 1, by falling eigenvalue; a row
            without a neighbor has 0 for every eigenvalue but 0.
        values: float64 [K], the eigenvalues, at most 1.
        parts: connected parts of two rows or more.
        linked: bool [G], whether a row of the group has a neighbor.
    """

    points: Floats
    values: Floats
    parts: int
    linked: NDArray[np.bool_]

    def unit_length(self) -> Floats:
        """Return float64 [G, K]: the points scaled to length 1 (Ng, Jordan and Weiss 2001, step 4).

        A row without a neighbor has no direction and is 0. So is a row of a part that no eigenvector covers, where
        there are more parts than dimensions.
        """
        length = np.linalg.norm(self.points, axis=1, keepdims=True)
        covered = self.linked[:, None] & (length > 0)  # what a linked row has is no rounding: its part's own vector
        scaled: Floats = np.where(covered, self.points / np.where(covered, length, 1.0), 0.0)
        return scaled


class _Graph(NamedTuple):
    """The matrix over groups: of groups g and h, root[g] · root[h] · shared trees, less ``own[g]`` where g = h."""

    leaf: NDArray[np.int32]
    root: Floats  # of rows / degree; 0 without a neighbor
    own: Floats  # trees with a leaf / degree
    part: NDArray[np.int32]
    known: Floats  # the eigenvector of the group's part, where its group has one


def spectral_embedding(signatures: Signatures, dimensions: int, *, rng: np.random.Generator) -> SpectralEmbedding:
    """Return the leading eigenvectors as points, in time and memory linear in groups × trees for each product.

    Where there are more parts than dimensions, eigenvalue 1 has more eigenvectors than are wanted, and none is better
    than another: those of the parts with the most rows are taken (the first of equal ones).

    Args:
        dimensions: how many, from 1 on; as many as there are groups where these are fewer.
        rng: of the start vector.

    Raises:
        ValueError: ``dimensions`` is below 1.
    """
    if dimensions < 1:
        raise ValueError(f"dimensions must be 1 or more but is {dimensions}")
    leaf, size = signatures.leaf_of_group, signatures.size
    groups = len(size)
    dimensions = min(dimensions, groups)
    trees = np.count_nonzero(leaf >= 0, axis=0).astype(np.float64)
    degree = _shared(leaf, size.astype(np.float64)) - trees
    linked = degree > 0
    divisor = np.where(linked, degree, 1.0)
    part = label_components(signatures)
    volume = np.bincount(part, weights=size * degree)
    largest = np.argsort(-np.bincount(part, weights=size * linked), kind="stable")[: np.count_nonzero(volume)]
    known = np.where(linked, np.sqrt(size * degree / np.where(linked, volume[part], 1.0)), 0.0)
    root = np.where(linked, np.sqrt(size / divisor), 0.0)
    graph = _Graph(leaf, root, np.where(linked, trees / divisor, 0.0), part, known)
    chosen = largest[:dimensions]
    vectors = np.where(part[:, None] == chosen[None, :], known[:, None], 0.0)
    values = np.ones(len(chosen))
    if dimensions > len(chosen):
        more, others = _leading(graph, dimensions - len(chosen), rng)
        values, vectors = np.concatenate((values, more)), np.hstack((vectors, others))
    points = vectors / np.sqrt(size * divisor)[:, None]
    return SpectralEmbedding(points=points, values=values, parts=len(largest), linked=linked)


def _leading(graph: _Graph, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the largest eigenvalues but for those that are known, falling, and their vectors in columns."""
    groups = graph.leaf.shape[1]
    start = rng.uniform(-1, 1, groups)
    if groups <= max(_DENSE, 4 * count):
        matrix = np.column_stack([_product(*graph, column) for column in np.eye(groups)])
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        return values[: -count - 1 : -1], vectors[:, : -count - 1 : -1]
    from scipy.sparse.linalg import LinearOperator, eigsh

    def product(vector: Floats) -> Floats:
        return _product(*graph, vector.ravel())

    with one_thread():
        operator = LinearOperator((groups, groups), matvec=product, dtype=np.float64)
        values, vectors = eigsh(operator, k=count, which="LA", v0=start)
    order = np.argsort(-values, kind="stable")
    return values[order], vectors[:, order]


def one_thread() -> contextlib.AbstractContextManager[None]:
    """Keep linear algebra to one thread, so that the number of cores cannot change a rounding."""
    manager: contextlib.AbstractContextManager[None] = _linear_algebra().limit(limits=1)
    return manager


@cache
def _linear_algebra() -> Any:
    """Return the control of the libraries that numpy, scipy and scikit-learn load, which take milliseconds to find."""
    import sklearn.cluster  # noqa: F401 - with it all of them are loaded
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


@jit
def _shared(leaf: NDArray[np.int32], vector: Floats) -> Floats:
    """Return float64 [G]: the sum over trees of the vector's sum in the group's leaf."""
    trees, groups = leaf.shape
    out = np.zeros(groups)
    for tree in range(trees):
        sums = np.zeros(leaf[tree].max() + 1 if groups else 0)
        for group in range(groups):
            if leaf[tree, group] >= 0:
                sums[leaf[tree, group]] += vector[group]
        for group in range(groups):
            if leaf[tree, group] >= 0:
                out[group] += sums[leaf[tree, group]]
    return out


@jit
def _product(
    leaf: NDArray[np.int32], root: Floats, own: Floats, part: NDArray[np.int32], known: Floats, vector: Floats
) -> Floats:
    """Return the matrix over groups times a vector; known eigenvectors have eigenvalue -2, below all others, for 1."""
    out = root * _shared(leaf, root * vector) - own * vector
    along = np.zeros(len(vector))
    for group in range(len(vector)):
        along[part[group]] += known[group] * vector[group]
    for group in range(len(vector)):
        out[group] -= 3 * known[group] * along[part[group]]
    return out
