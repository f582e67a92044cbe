"""Noisy labels in stages, each with priors learned from the stages before (LP-MST; LP-2ST has two stages).

The first stage knows nothing of its rows and is plain randomized response. A model of the noisy labels so far gives
each row of the next stage its own prior, from which the mechanism picks the classes worth telling apart. Every label is
read by one stage, so the whole costs what one stage costs, epsilon, however many stages there are. With one stage
this is randomized response (LP-1ST).

Source: Ghazi et al. (NeurIPS 2021), Section 4, Algorithm 3 (LP-MST).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from labelward.privacy.accounting import Budget
from labelward.privacy.mechanisms import RRWithPrior, checked_labels, uniform_priors
from labelward.rng import SecureRandom


class LabelPrior(Protocol):
    """Source of the next stage's priors; it must not contain clean labels."""

    def __call__(
        self, rows: NDArray[np.int64], noisy: NDArray[np.int64], following: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return float64 [len(following), classes] from the noisy labels int64 [m] of the rows int64 [m] so far."""
        ...


def multi_stage(
    labels: NDArray[np.int64],
    classes: int,
    stages: Sequence[NDArray[np.int64]],
    prior: LabelPrior,
    *,
    budget: Budget,
    protection: SecureRandom,
) -> NDArray[np.int64]:
    """Return noisy labels, int64 [n], under ``budget.epsilon``-label differential privacy.

    Store the outcome before anything that is derived from it leaves.

    Args:
        labels: the clean labels, int64 [n]; ``prior`` never sees them.
        classes: how many classes there are, known without the labels.
        stages: the rows of each stage, together every row once, chosen without regard to labels.
        prior: called before each stage but the first.
        budget: the whole account of these labels; all of it is spent before the first draw.
        protection: where the noise comes from.

    Raises:
        ValueError: the stages do not name every row once, a stage names none, a label is no class, or a prior is no
            distribution.
        PolicyError: labels were used before.
    """
    labels = checked_labels(labels, classes)
    named = np.concatenate([np.empty(0, dtype=np.int64), *stages])
    whole = len(labels) == budget.rows and np.array_equal(np.sort(named), np.arange(budget.rows))
    if not whole or not all(len(rows) for rows in stages):
        raise ValueError(
            f"{len(stages)} stages name {len(named)} rows ({len(np.unique(named))} different ones) of {len(labels)} "
            f"labels; they must name each of the budget's {budget.rows} rows once, and each stage at least one"
        )
    mechanism = RRWithPrior(epsilon=budget.epsilon)
    for rows in stages:
        budget.spend(rows, mechanism.epsilon)
    noisy, done = np.full(len(labels), -1, dtype=np.int64), np.empty(0, dtype=np.int64)
    for rows in stages:
        priors = prior(done, noisy[done], rows) if done.size else uniform_priors(len(rows), classes)
        if priors.shape != (len(rows), classes):
            raise ValueError(f"priors must be [{len(rows)}, {classes}] but are {list(priors.shape)}")
        noisy[rows] = mechanism.release(labels[rows], priors, protection)
        done = np.concatenate([done, rows])
    return noisy
