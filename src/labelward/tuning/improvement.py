"""Expected improvement: how much hypervolume a setting is expected to add to what was found.

The hypervolume that points dominate is, but for a constant, the mean over random directions from the worst corner of
how far they reach along each, to the power of the number of objectives (Zhang and Golovin 2020, Lemma 5). So a training
with many points, those of its first trees, is as many numbers as there are directions: how far its best point reaches.
Gaussian processes with one kernel for all directions predict them, and a setting's expected improvement is the mean of
those of its directions.

What a training gave by luck counts as hypervolume like anything else. So the noise is part of what is predicted: where
it is large, settings far apart promise the same, and the search spreads.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist
from scipy.special import ndtr

from labelward.tuning.pareto import Points, shortfall

_SCALES, _NOISES = (0.3, 0.8, 1.6), (0.03, 0.2, 1.0)
"""Of a kernel: length scales, in ranges of the variables, and shares of noise; each pair has a weight."""
_SMOOTH = 0.8, 0.05
"""The kernel of what trainings have by themselves, which differs less from setting to setting."""
_NEGLIGIBLE, _TINY, _FARTHEST = 0.03, 1e-12, 1e6
"""Weights that are left out, the least variance, and how far beyond the bounds a point counts."""


@dataclass(frozen=True)
class Fit:
    """Gaussian processes of one kernel, with the same prior variance but for a factor of each direction.

    Attributes:
        scale: the length scale.
        noise: the share of noise.
        factor: the Cholesky factor of the kernel's matrix, as ``scipy`` has it.
        solved: float64 [settings, directions], the outcomes multiplied by the inverse of the matrix.
        variances: float64 [directions], those that make the outcomes most likely.
    """

    scale: float
    noise: float
    factor: tuple[NDArray[np.float64], bool]
    solved: Points
    variances: NDArray[np.float64]

    def likelihood(self) -> float:
        """Return the logarithm of the outcomes' likelihood, in the mean of the directions."""
        spread = len(self.solved) / 2 * np.log(self.variances).mean()
        return float(-spread - np.log(np.diag(self.factor[0])).sum())

    def predicted(self, far: Points) -> tuple[Points, NDArray[np.float64]]:
        """Return float64 [candidates, directions], the means, and [candidates], the share of variance that is left.

        Args:
            far: float64 [candidates, settings], squared distances.
        """
        kernel = np.exp(-far / (2 * self.scale**2))
        unknown = np.maximum(1.0 - (kernel * cho_solve(self.factor, kernel.T).T).sum(axis=1), 0.0)
        return np.asarray(kernel @ self.solved), unknown


def directions(count: int, objectives: int, rng: np.random.Generator) -> Points:
    """Return float64 [directions, objectives]: even over the positive part of the unit sphere."""
    found = np.abs(rng.standard_normal((count, objectives)))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def reaches(points: Points, along: Points) -> NDArray[np.float64]:
    """Return float64 [directions]: how far the points of a training reach, to the power of the number of objectives.

    Where they reach nothing it is what the nearest point lacks, negative and the same in all directions.

    Args:
        points: float64 [points, objectives], from 0, the best corner, to 1, the worst; what is better than the best
            corner counts like it.
    """
    points = np.clip(points, 0.0, _FARTHEST)
    far = ((1.0 - points)[:, None] / along[None]).min(axis=2).max(axis=0)
    return np.asarray(np.where(far > 0, np.abs(far) ** points.shape[1], -shortfall(points)))


class Surrogate:
    """Gaussian processes of what settings reach in each direction, a mixture of kernels by their likelihood.

    A kernel's likelihood is the mean of its logarithms over the directions: these are far from independent.

    Args:
        known: float64 [settings, coordinates].
        reached: float64 [settings, directions].
    """

    def __init__(self, known: Points, reached: Points) -> None:
        self.known, kept = known, _raised(reached)
        self.mean, self.spread = kept.mean(axis=0), np.maximum(kept.std(axis=0), _TINY)
        outcomes, self.best = (kept - self.mean) / self.spread, (kept.max(axis=0) - self.mean) / self.spread
        apart = cdist(known, known, "sqeuclidean")
        self.fits = _weighted([_fitted(apart, outcomes, *each) for each in itertools.product(_SCALES, _NOISES)])

    def improvement(self, new: Points) -> NDArray[np.float64]:
        """Return float64 [candidates]: what settings, float64 [candidates, coordinates], are expected to add."""
        far, found = cdist(new, self.known, "sqeuclidean"), np.zeros(len(new))
        for weight, fit in self.fits:
            predicted, unknown = fit.predicted(far)
            deviation = np.sqrt((unknown[:, None] + fit.noise) * fit.variances)
            ahead = (predicted - self.best) / deviation
            gained = deviation * (ahead * ndtr(ahead) + np.exp(-(ahead**2) / 2) / np.sqrt(2 * np.pi))
            found += weight * (gained @ self.spread) / len(self.spread)
        return found

    def expected(self, new: Points) -> Points:
        """Return float64 [candidates, directions]: how far settings are expected to reach."""
        far = cdist(new, self.known, "sqeuclidean")
        predicted = sum(weight * fit.predicted(far)[0] for weight, fit in self.fits)
        return np.asarray(self.mean + self.spread * predicted)


def confidence(known: Points, reached: Points, new: Points) -> NDArray[np.float64]:
    """Return float64 [candidates]: what settings are expected to have by themselves, and more the less is known there.

    By itself a training has the mean of its reaches. Where nothing is known, one standard deviation of all is added.
    ``known`` and ``reached`` as of :class:`Surrogate`.
    """
    kept = _raised(reached.mean(axis=1, keepdims=True))
    outcomes = (kept - kept.mean()) / max(float(kept.std()), _TINY)
    fit = _fitted(cdist(known, known, "sqeuclidean"), outcomes, *_SMOOTH)
    predicted, unknown = fit.predicted(cdist(new, known, "sqeuclidean"))
    return np.asarray(predicted[:, 0] + np.sqrt(unknown))


def _raised(reached: Points) -> Points:
    """Return reaches of which none is farther below the median of those that reach anything than the best is above it.

    Else the worst, beyond bounds or limits, would decide what is rough and what is smooth.
    """
    inside = reached[reached.max(axis=1) > 0]
    middle = np.median(inside if len(inside) else reached, axis=0)
    return np.asarray(np.maximum(reached, 2 * middle - reached.max(axis=0)))


def _fitted(apart: Points, outcomes: Points, scale: float, noise: float) -> Fit:
    factor = cho_factor(np.exp(-apart / (2 * scale**2)) + noise * np.eye(len(outcomes)))
    solved = cho_solve(factor, outcomes)
    return Fit(scale, noise, factor, solved, np.maximum((outcomes * solved).mean(axis=0), _TINY))


def _weighted(fits: Sequence[Fit]) -> list[tuple[float, Fit]]:
    """Return the kernels that count, each with its share of the likelihood."""
    likelihoods = np.array([fit.likelihood() for fit in fits])
    weights = np.exp(likelihoods - likelihoods.max())
    weights = np.where(weights < _NEGLIGIBLE * weights.sum(), 0.0, weights)
    return [(float(weight), fit) for weight, fit in zip(weights / weights.sum(), fits, strict=True) if weight]
