"""Lattice reduction: 0/1 solutions that are there, and none that is not."""

from __future__ import annotations

import numpy as np
import pytest

from labelward.kernels.lattice_reduction import is_solvable, reduce_basis, zero_one_solution


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (12, 1), (30, 3), (48, 5)])
def test_solutions_are_found(rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    assert is_solvable(rows, columns)
    for share in (0.1, 0.5):
        a = np.rint(rng.normal(size=(rows, columns)) * 2**15).astype(np.int64)
        y = rng.random(rows) < share
        found = zero_one_solution(a, y.astype(np.int64) @ a)
        assert found is not None
        np.testing.assert_array_equal(found, y)


def test_what_has_no_solution() -> None:
    rng = np.random.default_rng(0)
    a = 2 * rng.integers(-(2**14), 2**14, size=(20, 2))
    assert zero_one_solution(a, np.array([1, 1])) is None  # odd sums of even numbers


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (40, 2), (129, 40), (100, 13)])
def test_what_is_not_tried(rows: int, columns: int) -> None:
    assert not is_solvable(rows, columns)


def test_a_reduced_basis_spans_the_same_lattice_with_shorter_vectors() -> None:
    rng = np.random.default_rng(1)
    basis = np.hstack([np.eye(12, dtype=np.int64), rng.integers(0, 2**30, size=(12, 2))])
    reduced = basis.copy()
    reduce_basis(reduced)
    coefficients = reduced[:, :12]  # of the first basis, by its identity
    np.testing.assert_array_equal(coefficients @ basis, reduced)
    assert round(abs(np.linalg.det(coefficients.astype(float)))) == 1
    assert np.linalg.norm(reduced, axis=1).max() < np.linalg.norm(basis, axis=1).min() / 1000
