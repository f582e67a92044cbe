"""Mechanisms that replace labels by noisy ones under epsilon-label differential privacy, each row on its own.

Setting: whoever holds the labels draws noisy ones once and trains on these alone. Features are no secret here; what
is protected is each single label, against everyone who sees anything that was computed from the noisy labels. What
is computed from the clean ones (metrics that are told, early stopping, repaired leaves that travel) is not covered.

A prior is a distribution over the classes for each row. It may depend on anything but the row's own label and other
labels that were not released: public knowledge, features, noisy labels of other rows (see :mod:`.stages`).

Every mechanism picks the k likeliest classes of the prior (ties: the lowest class number first). A label among them
is kept with odds e^epsilon to 1 against each other one of the k; a label outside is replaced by one of the k, each
with the same probability. For two labels the probabilities of an outcome thus differ by e^epsilon at most.

Source: Ghazi, Golowich, Kumar, Manurangsi, Zhang, "Deep Learning with Label Differential Privacy" (NeurIPS 2021),
Section 3, Algorithms 1 (RRTop-k) and 2 (RRWithPrior). Differences: odds of whole numbers instead of floating-point
probabilities (see :mod:`.draws`); ties are broken by rule. Published code of the ID2Graph paper draws the
replacement of a label outside the k from all classes, which bounds no ratio.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError, number_code
from labelward.privacy.draws import MOST_CLASSES, Odds, check_epsilon, draw_below, odds
from labelward.rng import SecureRandom

_ROUNDED = 1e-6  # how far a prior's sum may lie from 1: single-precision shares of many classes
_EQUAL = 1e-12  # sums of float64 shares that differ by less are one number, rounded differently


def uniform_priors(rows: int, classes: int) -> NDArray[np.float64]:
    """Return the prior that knows nothing, float64 [rows, classes] (read-only, without memory of its own)."""
    return np.broadcast_to(np.float64(1 / classes), (rows, classes))


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse:
    """Keep a label with odds e^epsilon to 1 against each other class.

    Attributes:
        epsilon: the privacy parameter of each row. No default: it is the choice that only the user can make.
        classes: number of classes.
    """

    epsilon: float
    classes: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        _check_count("classes", self.classes)
        if self.classes > MOST_CLASSES:
            raise JobError(
                f"classes must be at most {MOST_CLASSES} but got {self.classes}", code="range", value=self.classes
            )

    def release(self, labels: NDArray[np.int64], protection: SecureRandom) -> NDArray[np.int64]:
        """Return noisy labels, int64 [n], for labels int64 [n].

        Each call spends epsilon on its rows: draw once, store, and use only what was stored.

        Raises:
            ValueError: a label is no class.
        """
        labels = checked_labels(labels, self.classes)
        return _noisy_ranks(labels, np.full(len(labels), self.classes), odds(self.epsilon), protection)

    def exact(self) -> list[list[Fraction]]:
        """Return P(output | label) as ``[label][output]``, exactly as :meth:`release` draws."""
        return _exact(np.arange(self.classes), self.classes, odds(self.epsilon))

    def probabilities(self) -> NDArray[np.float64]:
        """Return :meth:`exact` rounded to float64 [label, output]."""
        return np.array(self.exact(), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class _Prioritized(ABC):
    """Common part of the mechanisms with a prior; they differ in the k of a row."""

    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    def sizes(self, priors: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return each row's k, int64 [n], for priors float64 [n, C].

        Raises:
            ValueError: a row of the priors is no distribution (sums within 1e-6 of 1 are accepted).
        """
        priors = _checked_priors(priors)
        return self._sizes(priors, _ranking(priors))

    def release(
        self, labels: NDArray[np.int64], priors: NDArray[np.float64], protection: SecureRandom
    ) -> NDArray[np.int64]:
        """Return noisy labels, int64 [n], for labels int64 [n] and a prior for each row, float64 [n, C].

        Each call spends epsilon on its rows: draw once, store, and use only what was stored.

        Raises:
            ValueError: a label is no class, a row of the priors is no distribution, or their numbers differ.
            JobError: k exceeds the number of classes.
        """
        priors = _checked_priors(priors)
        labels = checked_labels(labels, priors.shape[1])
        if len(labels) != len(priors):
            raise ValueError(f"there are {len(labels)} labels but {len(priors)} priors")
        ranking = _ranking(priors)
        ranks = np.argmax(ranking == labels[:, None], axis=1)
        noisy = _noisy_ranks(ranks, self._sizes(priors, ranking), odds(self.epsilon), protection)
        return np.take_along_axis(ranking, noisy[:, None], axis=1)[:, 0]

    def exact(self, prior: NDArray[np.float64]) -> list[list[Fraction]]:
        """Return P(output | label) under one prior, float64 [C], as ``[label][output]``, exactly as drawn."""
        priors = _checked_priors(np.asarray(prior)[None])
        ranking = _ranking(priors)
        return _exact(ranking[0], int(self._sizes(priors, ranking)[0]), odds(self.epsilon))

    def probabilities(self, prior: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return :meth:`exact` rounded to float64 [label, output]."""
        return np.array(self.exact(prior), dtype=np.float64)

    @abstractmethod
    def _sizes(self, priors: NDArray[np.float64], ranking: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return each row's k for checked priors and their classes in order of likelihood."""


@dataclass(frozen=True, kw_only=True)
class RRTopK(_Prioritized):
    """Randomized response among the k likeliest classes of each row's prior (RRTop-k).

    Attributes:
        epsilon: the privacy parameter of each row. No default.
        k: how many classes; 1 ignores the label, the number of classes is randomized response.
    """

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("k", self.k)

    def _sizes(self, priors: NDArray[np.float64], ranking: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.k > priors.shape[1]:
            raise JobError(
                f"k must be at most the number of classes, {priors.shape[1]}, but got {self.k}",
                code="range",
                value=self.k,
            )
        return np.full(len(priors), self.k)


@dataclass(frozen=True, kw_only=True)
class RRWithPrior(_Prioritized):
    """RRTop-k with the k that most probably keeps a label that follows the prior.

    That probability is w_k = e^epsilon / (e^epsilon + k - 1) times the sum of the k largest shares. Of values that
    agree within 1e-12 the largest k is taken: a uniform prior gives randomized response at every epsilon.

    Attributes:
        epsilon: the privacy parameter of each row. No default.
    """

    def _sizes(self, priors: NDArray[np.float64], ranking: NDArray[np.int64]) -> NDArray[np.int64]:
        classes = priors.shape[1]
        kept = 1 / (1 + np.arange(classes) * np.exp(-self.epsilon))
        expected = np.cumsum(np.take_along_axis(priors, ranking, axis=1), axis=1) * kept
        best = expected >= expected.max(axis=1, keepdims=True) * (1 - _EQUAL)
        sizes: NDArray[np.int64] = classes - np.argmax(best[:, ::-1], axis=1)
        return sizes


def _check_count(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise JobError(
            f"{field} must be an integer ≥ 1 but got {value!r}",
            code=number_code(value, whole=True),
            value=value,
        )


def checked_labels(labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Return the labels as int64 [n].

    Raises:
        ValueError: one is no class; the message names the row, never the label.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"labels must be whole numbers [n] but are {labels.dtype} {list(labels.shape)}")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        raise ValueError(f"the label of row {wrong[0]} is no class from 0 to {classes - 1}")
    return labels.astype(np.int64, copy=False)


def _checked_priors(priors: NDArray[np.float64]) -> NDArray[np.float64]:
    priors = np.asarray(priors, dtype=np.float64)
    if priors.ndim != 2 or not 1 <= priors.shape[1] <= MOST_CLASSES:
        raise ValueError(f"priors must be numbers [n, classes] but are {list(priors.shape)}")
    with np.errstate(over="ignore", invalid="ignore"):  # what is no number fails below
        sums = priors.sum(axis=1)
    wrong = np.flatnonzero(~((priors >= 0).all(axis=1) & (np.abs(sums - 1) <= _ROUNDED)))
    if wrong.size:
        raise ValueError(f"the prior of row {wrong[0]} is no distribution (shares from 0 on that sum to 1)")
    return priors


def _ranking(priors: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return each row's classes by falling share, ties by class number."""
    return np.argsort(-priors, axis=1, kind="stable").astype(np.int64, copy=False)


def _noisy_ranks(
    ranks: NDArray[np.int64], sizes: NDArray[np.int64], odds: Odds, protection: SecureRandom
) -> NDArray[np.int64]:
    """Return the rank that each row answers; how much is drawn does not depend on the labels."""
    coins = draw_below(odds.keep - odds.other + sizes * odds.other, protection)
    return _answers(ranks, sizes, odds, coins, draw_below(sizes, protection))


def _answers(
    ranks: NDArray[np.int64],
    sizes: NDArray[np.int64],
    odds: Odds,
    coins: NDArray[np.int64],
    others: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the own rank where it is among the k and the coin says so, else any of the k (the own one included).

    Args:
        ranks: the label's place in the prior's order.
        sizes: k.
        odds: the odds.
        coins: uniform below keep - other + k * other.
        others: uniform below k.
    """
    return np.where((ranks < sizes) & (coins < odds.keep - odds.other), ranks, others)


def _exact(ranking: NDArray[np.int64], k: int, odds: Odds) -> list[list[Fraction]]:
    classes, top = len(ranking), [int(c) for c in ranking[:k]]
    total = odds.keep + (k - 1) * odds.other
    table = [[Fraction(0)] * classes for _ in range(classes)]
    for label in range(classes):
        for output in top:
            weight = odds.keep if output == label else odds.other
            table[label][output] = Fraction(weight, total) if label in top else Fraction(1, k)
    return table
