"""Lattice reduction (LLL with insertions), and with it 0/1 solutions of few integer equations in many unknowns.

Equations y'A = b with columns of some 20 bits have one solution in 0 and 1 where they have more bits than unknowns. It
is a short vector of a lattice (Lagarias and Odlyzko 1985 on subset sums, here of several sums at once), which LLL finds
as long as the square of the number of unknowns is some 700 times the number of equations at most. Stronger reductions
(BKZ) go further, by a factor of 1.5 with blocks of 20.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from labelward.jit import jit

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_DELTA = 0.99
_WINDOW = 8  # vectors at the front, and before a vector, where it may be inserted
_WEIGHT = 1 << 12  # of an equation that does not hold, beside an unknown
_MOST_UNKNOWNS = 128  # a minute
_BITS = 16  # of an equation that are sure to tell solutions apart
_EASE = 720  # square of the unknowns for each equation, at most: beyond, nothing is found


def is_solvable(unknowns: int, equations: int) -> bool:
    """Return whether :func:`zero_one_solution` has a chance, within a minute, and finds the only solution."""
    return 0 < unknowns <= min(_MOST_UNKNOWNS, _BITS * equations) and unknowns**2 <= _EASE * equations


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
    reduce_basis(basis)
    for row in basis[~basis[:, n + 1 :].any(axis=1)]:
        if (np.abs(row[: n + 1]) == 1).all():
            y: NDArray[np.bool_] = row[:n] != row[n]
            if np.array_equal(y.astype(np.int64) @ a, b):
                return y
    return None


@jit
def reduce_basis(basis: Integers) -> None:
    """Reduce a basis in place, int64 [vectors, coordinates], with orthogonal parts in 64-bit numbers.

    A vector is inserted before the first one that it would shorten, at the front or near it (Schnorr and Euchner 1994).
    Each vector is reduced by those before it until none takes anything off, with its projections worked out anew each
    time (Nguyen and Stehlé 2009, Section 3), so that numbers which begin large do no harm.
    """
    vectors, size = basis.shape
    real = basis.astype(np.float64)
    mu, r = np.zeros((vectors, vectors)), np.zeros((vectors, vectors))
    r[0, 0] = (real[0] ** 2).sum()
    k = 1
    while k < vectors:
        for _ in range(64):
            _project(real, mu, r, k)
            changed = False
            for j in range(k - 1, -1, -1):
                q = np.rint(mu[k, j])
                if q != 0:
                    changed = True
                    whole = np.int64(q)
                    for at in range(size):
                        basis[k, at] -= whole * basis[j, at]
                    for at in range(j + 1):
                        mu[k, at] -= q * mu[j, at]
            if not changed:
                break
            real[k] = basis[k].astype(np.float64)
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
        mu[k, j] = dot / r[j, j] if j < k else 1.0
