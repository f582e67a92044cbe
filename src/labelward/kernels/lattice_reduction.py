"""Lattice reduction (LLL with insertions), and with it 0/1 solutions of few integer equations in many unknowns.

Equations y'A = b with columns of some 20 bits have one solution in 0 and 1 where they have more bits than unknowns. It
is a short vector of a lattice (Lagarias and Odlyzko 1985 on subset sums, here of several sums at once), which LLL finds
as long as the square of the number of unknowns is some 700 times the number of equations at most. Stronger reductions
(BKZ) go further, by a factor of 1.5 with blocks of 20.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from labelward.jit import jit

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_DELTA = 0.99
_WINDOW = 8  # vectors at the front, and before a vector, where it may be inserted
_WEIGHT = 1 << 12  # of an equation that does not hold, beside an unknown
_MOST_UNKNOWNS = 128  # a minute
_EASE = 720  # square of the unknowns for each equation, at most: beyond, nothing is found
_MARGIN = 16  # bits by which equations exceed the unknowns, so that another solution has a chance of 2^-16
_MOST_STEPS = 50_000  # for each vector; a minute for the largest basis
_LARGEST = 2.0**61  # coordinate that fits 64 bits, and so does twice as much


def only_solution(a: Integers, b: Integers) -> NDArray[np.bool_] | None:
    """Return y, bool [n], with y'a = b, where it is found within a minute and surely the only one; else None.

    Args:
        a: int64 [n, d], numbers below 2^20.
        b: int64 [d].
    """
    n = len(a)
    if not 0 < n <= _MOST_UNKNOWNS:  # before a decomposition of what may be a large batch
        return None
    chosen = _independent(a)
    if n**2 > _EASE * len(chosen) or len(np.unique(a, axis=0)) < n:
        return None
    if sum(_bits(a[:, at]) for at in chosen) < n + _MARGIN:
        return None
    found = zero_one_solution(a[:, chosen], b[chosen])
    return found if found is not None and np.array_equal(found.astype(np.int64) @ a, b) else None


def _independent(a: Integers) -> list[int]:
    """Return columns that are a basis of all of them."""
    if not a.any():
        return []
    _, triangle, order = qr(a.astype(np.float64), mode="economic", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    return sorted(order[: int((sizes > 1e-9 * sizes[0]).sum())].tolist())


def _bits(column: Integers) -> float:
    """Return the bits that the sum of a column over half of the rows has at least, beside the number of these rows.

    They are those of a normal number of its spread, and no more than the numbers of rows with each value have.
    """
    values, counts = np.unique(column, return_counts=True)
    step = int(np.gcd.reduce(values - values[0]))
    if step == 0:
        return 0.0
    spread = np.sqrt(((column / step - (column / step).mean()) ** 2).sum() / 4)
    by_counts = _entropy(counts).sum() - (_entropy(counts.sum()) if len(values) < len(column) else 0.0)
    return float(max(0.0, min(0.5 * np.log2(2 * np.pi * np.e) + np.log2(max(spread, 0.5)), by_counts)))


def _entropy(counts: Integers) -> Floats:
    """Return the bits of the number of labels that are 1 among so many, of which each is a bit."""
    return np.where(counts == 1, 1.0, 0.5 * np.log2(np.pi * np.e / 2 * counts))


def zero_one_solution(a: Integers, b: Integers) -> NDArray[np.bool_] | None:
    """Return y, bool [n], with y'a = b, or None where no reduced vector is one.

    Args:
        a: int64 [n, d], numbers below 2^20.
        b: int64 [d].
    """
    n, d = a.shape
    basis = np.zeros((n + 1, n + 1 + d), dtype=np.int64)
    basis[:n, :n] = 2 * np.eye(n, dtype=np.int64)
    basis[:n, n + 1 :] = _WEIGHT * a
    basis[n, : n + 1], basis[n, n + 1 :] = 1, _WEIGHT * b
    if not reduce_basis(basis):
        return None
    for row in basis[~basis[:, n + 1 :].any(axis=1)]:
        if (np.abs(row[: n + 1]) == 1).all():
            y: NDArray[np.bool_] = row[:n] != row[n]
            if np.array_equal(y.astype(np.int64) @ a, b):
                return y
    return None


@jit
def reduce_basis(basis: Integers) -> bool:
    """Reduce a basis in place, int64 [vectors, coordinates], with orthogonal parts in 64-bit numbers.

    Return whether it is reduced: with vectors that depend on each other, or numbers that are too large, it may not be.

    A vector is inserted before the first one that it would shorten, at the front or near it (Schnorr and Euchner 1994).
    Each vector is reduced by those before it until none takes anything off, with its projections worked out anew each
    time (Nguyen and Stehlé 2009, Section 3), so that numbers which begin large do no harm.
    """
    vectors, size = basis.shape
    real = basis.astype(np.float64)
    mu, r = np.zeros((vectors, vectors)), np.zeros((vectors, vectors))
    r[0, 0] = (real[0] ** 2).sum()
    k, steps = 1, 0
    while k < vectors:
        steps += 1
        if steps > _MOST_STEPS * vectors:
            return False
        for _ in range(64):
            _project(real, mu, r, k)
            changed = False
            for j in range(k - 1, -1, -1):
                q = np.rint(mu[k, j])
                if q != 0:
                    if not abs(q) < _LARGEST:
                        return False
                    changed = True
                    whole = np.int64(q)
                    for at in range(size):
                        basis[k, at] -= whole * basis[j, at]
                    for at in range(j + 1):
                        mu[k, at] -= q * mu[j, at]
            if not changed:
                break
            real[k] = basis[k].astype(np.float64)
        if np.abs(real[k]).max() > _LARGEST:
            return False
        place, left = 0, (real[k] ** 2).sum()
        while place < k and (left >= _DELTA * r[place, place] or _WINDOW <= place < k - _WINDOW):
            left -= mu[k, place] * r[k, place]
            place += 1
        if place == k:
            k += 1
            continue
        for row in range(k, place, -1):
            for at in range(size):
                basis[row, at], basis[row - 1, at] = basis[row - 1, at], basis[row, at]
                real[row, at], real[row - 1, at] = real[row - 1, at], real[row, at]
        k = max(place, 1)
        r[0, 0] = (real[0] ** 2).sum()
    return True


@jit
def _project(real: Floats, mu: Floats, r: Floats, k: int) -> None:
    """Work out the coefficients of vector k and the square of its orthogonal part."""
    for j in range(k + 1):
        dot = 0.0
        for at in range(real.shape[1]):
            dot += real[k, at] * real[j, at]
        for i in range(j):
            dot -= mu[j, i] * r[k, i]
        r[k, j] = dot
        if j < k:
            mu[k, j] = dot / r[j, j] if r[j, j] != 0 else np.nan
        else:
            mu[k, j] = 1.0
