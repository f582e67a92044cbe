"""The leaf graph of merged rows, against the matrix of rows by rows."""

import numpy as np
import pytest

from labelward.kernels import leaf_graph as module
from labelward.kernels.leaf_graph import leaf_graph


def planted(seed=1, rows=120):
    rng = np.random.default_rng(seed)
    leaves = rng.integers(1, 5, size=(3, rows)).astype(np.int32)
    leaves[rng.random(leaves.shape) < 0.1] = -1
    leaves[:, :7] = [[-1], [0], [-1]]  # in no leaf but a root
    return leaves, np.array([1.0, 0.6, 0.36])


def similarity(leaves, weights, exponent):
    total = np.zeros((leaves.shape[1],) * 2)
    for tree, weight in zip(leaves, weights, strict=True):
        for leaf in np.unique(tree[tree > 0]):
            inside = (tree == leaf).astype(float)
            total += weight * inside.sum() ** -exponent * np.outer(inside, inside)
    return total


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_averages_are_those_of_the_matrix_of_rows(exponent):
    leaves, weights = planted()
    values = np.random.default_rng(2).normal(size=(leaves.shape[1], 4))
    graph = leaf_graph(leaves, weights).discounted(exponent)
    dense = similarity(leaves, weights, exponent)
    expected = values.copy()
    linked = dense.sum(axis=1) > 0
    expected[linked] = dense[linked] @ values / dense[linked].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(graph.average(graph.means(values))[graph.group], expected, atol=1e-12)
    np.testing.assert_allclose(graph.degree[graph.group], dense.sum(axis=1), atol=1e-12)


def test_rows_in_no_leaf_are_groups_of_their_own():
    leaves, weights = planted()
    graph = leaf_graph(leaves, weights)
    assert len(set(graph.group[:7].tolist())) == 7
    assert graph.size.sum() == leaves.shape[1]
    assert graph.size.tolist() == np.bincount(graph.group).tolist()


@pytest.mark.parametrize("dense", [True, False])
def test_eigenvectors_are_those_of_the_random_walk(dense, monkeypatch):
    if not dense:
        monkeypatch.setattr(module, "_DENSE", 0)
    leaves, weights = planted()
    graph = leaf_graph(leaves, weights).discounted(1.0)
    values, vectors = graph.eigenvectors(4, rng=np.random.default_rng(3))
    matrix = similarity(leaves, weights, 1.0)
    degree = matrix.sum(axis=1)
    linked = degree > 0
    walk = matrix[np.ix_(linked, linked)] / degree[linked, None]
    np.testing.assert_allclose(values, np.sort(np.linalg.eigvals(walk).real)[::-1][:4], atol=1e-9)
    rows = vectors[graph.group]
    np.testing.assert_allclose(walk @ rows[linked], rows[linked] * values, atol=1e-9)
    np.testing.assert_allclose((degree / degree.sum()) @ rows**2, np.ones(4), atol=1e-9)
    assert not rows[~linked].any()
