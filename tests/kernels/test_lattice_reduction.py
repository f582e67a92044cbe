"""Lattice reduction: 0/1 solutions that are there, and none that is not."""

from __future__ import annotations

import numpy as np
import pytest

from labelward.kernels.lattice_reduction import only_solution, reduce_basis, zero_one_solution


@pytest.mark.parametrize(("rows", "columns"), [(10, 3), (30, 3), (48, 5)])
def test_solutions_are_found(rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    for share in (0.1, 0.5):
        a = np.rint(rng.normal(size=(rows, columns)) * 2**15).astype(np.int64)
        y = rng.random(rows) < share
        found = only_solution(a, y.astype(np.int64) @ a)
        assert found is not None
        np.testing.assert_array_equal(found, y)


def test_what_has_no_solution() -> None:
    rng = np.random.default_rng(0)
    a = 2 * rng.integers(-(2**14), 2**14, size=(20, 2))
    assert zero_one_solution(a, np.array([1, 1])) is None  # odd sums of even numbers


@pytest.mark.parametrize("kind", ["zeros", "equal", "two values", "0 and 1", "sums", "rows", "few bits", "too hard"])
def test_no_solution_is_claimed_where_several_fit(kind: str) -> None:
    """Columns that say the same, numbers of few bits, and rows that are alike leave labels open."""
    rng = np.random.default_rng(3)
    a = np.rint(rng.normal(size=(40, 8)) * 2**15).astype(np.int64)
    if kind == "zeros":
        a[:, 1:] = 0
    elif kind == "equal":
        a[:] = a[:, :1]
    elif kind == "two values":
        a = np.where(a > 0, 30_000, -41_001)
    elif kind == "0 and 1":
        a = (a > 0) * 2**15
    elif kind == "sums":
        a[:, 2:] = a[:, :1] + np.arange(6) * a[:, 1:2]
    elif kind == "rows":
        a[20:] = a[:20]
    elif kind == "few bits":
        a = a[:, :2]
    else:
        a = np.rint(rng.normal(size=(100, 13)) * 2**15).astype(np.int64)
    y = rng.random(len(a)) < 0.4
    assert only_solution(a, y.astype(np.int64) @ a) is None


def test_vectors_that_depend_on_each_other_end_the_reduction() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        one = np.rint(rng.normal(size=(40, 1)) * 2**15).astype(np.int64)
        a = np.repeat(one, 8, axis=1)
        zero_one_solution(a, (rng.random(40) < 0.4).astype(np.int64) @ a)  # found or not, it ends
    basis = rng.integers(-100, 100, size=(6, 4))
    assert not reduce_basis(basis)


def test_a_reduced_basis_spans_the_same_lattice_with_shorter_vectors() -> None:
    rng = np.random.default_rng(1)
    basis = np.hstack([np.eye(12, dtype=np.int64), rng.integers(0, 2**30, size=(12, 2))])
    reduced = basis.copy()
    assert reduce_basis(reduced)
    coefficients = reduced[:, :12]  # of the first basis, by its identity
    np.testing.assert_array_equal(coefficients @ basis, reduced)
    assert round(abs(np.linalg.det(coefficients.astype(float)))) == 1
    assert np.linalg.norm(reduced, axis=1).max() < np.linalg.norm(basis, axis=1).min() / 1000
