"""Parts and spectral embeddings of merged rows, against graphs whose edges are written down."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse.csgraph import connected_components

from labelward.kernels import spectral
from labelward.kernels.connected_components import label_components
from labelward.kernels.leaf_signatures import merge_identical_rows
from labelward.kernels.spectral import spectral_embedding

ROUNDING = 1e-9  # eigenvalues of matrices of up to 400 rows


def shapes(trees, rows, leaves):
    return st.tuples(st.integers(*trees), st.integers(*rows)).flatmap(
        lambda shape: arrays(np.int32, shape, elements=st.integers(-1, leaves))
    )


def shared(leaves):
    """How many leaves two rows share; a row shares none with itself."""
    matrix = np.zeros((leaves.shape[1],) * 2)
    for leaf in leaves:
        matrix += (leaf[:, None] == leaf[None, :]) & (leaf >= 0)
    np.fill_diagonal(matrix, 0)
    return matrix


def normalized(leaves):
    """The matrix whose eigenvectors are wanted, and the degrees of its rows, 1 in place of 0."""
    matrix = shared(leaves)
    degree = np.where(matrix.any(axis=0), matrix.sum(axis=0), 1.0)
    return matrix / np.sqrt(degree[:, None] * degree[None, :]), degree


@given(shapes((0, 4), (1, 30), 8))
def test_unions_are_the_connected_components(leaves):
    signatures = merge_identical_rows(leaves)
    part = label_components(signatures)[signatures.group]
    together = shared(leaves) > 0
    nowhere = np.flatnonzero((leaves < 0).all(axis=0))
    together[np.ix_(nowhere, nowhere)] = True  # rows in no leaf are one part
    _, expected = connected_components(together, directed=False)
    np.testing.assert_array_equal(part[:, None] == part[None, :], expected[:, None] == expected[None, :])
    assert list(dict.fromkeys(part.tolist())) == list(range(part.max() + 1))


def test_a_long_chain_is_one_part():
    """Pairs 0-1, 2-3, ... in one tree and 1-2, 3-4, ... in the other."""
    rows = np.arange(100_001, dtype=np.int32)
    assert label_components(merge_identical_rows(np.array([rows // 2, (rows + 1) // 2]))).max() == 0


@settings(deadline=None)
@given(shapes((1, 4), (1, 25), 4), st.integers(1, 4))
@example(np.array([[0, 1], [1, 1], [1, 1]], dtype=np.int32), 2)  # an eigenvalue of -1, the least there is
def test_points_are_eigenvectors_with_the_largest_eigenvalues(leaves, dimensions):
    """Of rows: by definition, and by the largest eigenvalues that a dense solver finds, as far as they are positive."""
    signatures = merge_identical_rows(leaves)
    found = spectral_embedding(signatures, dimensions, rng=np.random.default_rng(1))
    matrix, degree = normalized(leaves)
    vectors = found.points[signatures.group] * np.sqrt(degree)[:, None]
    assert vectors.shape == (leaves.shape[1], min(dimensions, len(signatures.size)))
    np.testing.assert_allclose(matrix @ vectors, vectors * found.values, atol=ROUNDING)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(vectors.shape[1]), atol=ROUNDING)
    expected = np.linalg.eigvalsh(matrix)[::-1][: len(found.values)]
    np.testing.assert_allclose(np.maximum(found.values, 0), np.maximum(expected, 0), atol=ROUNDING)
    # as many eigenvalues of 1 as parts with an edge
    assert found.parts == np.count_nonzero(np.linalg.eigvalsh(matrix) > 1 - ROUNDING)


@settings(deadline=None)
@given(shapes((1, 4), (1, 25), 4), st.integers(1, 4))
def test_points_of_length_one_keep_their_direction(leaves, dimensions):
    """By definition, of rows with a neighbor whose part has an eigenvector among those; all others are 0."""
    signatures = merge_identical_rows(leaves)
    found = spectral_embedding(signatures, dimensions, rng=np.random.default_rng(1))
    linked, unit = shared(leaves).any(axis=0), found.unit_length()[signatures.group]
    np.testing.assert_array_equal(found.linked[signatures.group], linked)
    length = np.linalg.norm(unit, axis=1)
    assert not length[~linked].any()
    if found.parts <= dimensions:
        np.testing.assert_allclose(length[linked], 1, atol=ROUNDING)
    points = found.points[signatures.group]
    np.testing.assert_allclose(
        unit * np.linalg.norm(points, axis=1, keepdims=True), np.where(linked[:, None], points, 0), atol=ROUNDING
    )


@pytest.mark.parametrize("kept_apart", [1, 3])
def test_iterations_find_what_the_dense_solver_finds(kept_apart, monkeypatch):
    """Of more groups than are handed over as a matrix; some parts stay apart, as eigenvalue 1 has several vectors."""
    rng = np.random.default_rng(2)
    leaves = rng.integers(-1, 8, size=(4, 400)).astype(np.int32)
    leaves = np.where(leaves >= 0, 8 * (np.arange(400) * kept_apart // 400) + leaves, -1).astype(np.int32)
    signatures = merge_identical_rows(leaves)
    assert len(signatures.size) > spectral._DENSE
    iterated = spectral_embedding(signatures, 5, rng=np.random.default_rng(3))
    monkeypatch.setattr(spectral, "_DENSE", 1000)
    dense = spectral_embedding(signatures, 5, rng=np.random.default_rng(3))
    assert iterated.parts == dense.parts == kept_apart
    np.testing.assert_allclose(iterated.values, dense.values, atol=ROUNDING)
    signs = np.sign(np.sum(iterated.points * dense.points, axis=0))
    np.testing.assert_allclose(iterated.points * signs, dense.points, atol=1e-7)  # vectors lose half of the digits


def test_of_more_parts_than_dimensions_the_largest_are_taken():
    signatures = merge_identical_rows(np.array([[0] * 2 + [1] * 4 + [2] * 3 + [-1]], np.int32))
    found = spectral_embedding(signatures, 2, rng=np.random.default_rng(1))
    assert found.parts == 3
    np.testing.assert_array_equal(found.points != 0, [[False, False], [True, False], [False, True], [False, False]])


def test_no_dimension_is_refused():
    with pytest.raises(ValueError, match=r"dimensions .* 0"):
        spectral_embedding(merge_identical_rows(np.zeros((1, 3), np.int32)), 0, rng=np.random.default_rng(1))


@pytest.mark.slow
def test_one_thread_holds_for_libraries_that_are_loaded_later() -> None:
    """A process whose first embedding comes before its first clustering."""
    code = (
        "from labelward.kernels.spectral import one_thread\n"
        "with one_thread(): pass\n"
        "from sklearn.cluster import KMeans\n"
        "from threadpoolctl import threadpool_info\n"
        "with one_thread():\n"
        "    held = [each['num_threads'] for each in threadpool_info()]\n"
        "    assert {each['user_api'] for each in threadpool_info()} == {'blas', 'openmp'}\n"
        "assert set(held) == {1}, held\n"
    )
    environment = {name: text for name, text in os.environ.items() if not name.endswith("_NUM_THREADS")}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
