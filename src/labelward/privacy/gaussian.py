"""Privacy of Gaussian noise: epsilon and delta of one release, and of many.

A release adds normal noise of deviation s to numbers that lie at most d apart (L2) for two inputs that differ in what
is to be hidden. All that counts is the ratio d / s. Whoever sees the release has to tell two normal distributions of
deviation 1 apart whose means differ by the ratio, which gives delta for each epsilon exactly. Releases compose by the
root of the sum of squared ratios, again exactly, also where what is released depends on what was released before.

Source: Balle and Wang (ICML 2018), Theorem 8, for one release; Dong, Roth and Su (Gaussian differential privacy,
JRSS-B 2022), Corollary 2, for the composition. It is that of zero-concentrated privacy (Bun and Steinke 2016) without
the loss of turning it into epsilon and delta. All in exact arithmetic; see :mod:`.noise` for what that leaves open.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from labelward.errors import JobError, number_code
from labelward.privacy.draws import check_epsilon

_SAFETY = 1 - 1e-9  # of ratios that are solved for: far above rounding, far below what anyone would notice
_HALVINGS = 200


def check_delta(delta: object) -> float:
    """Return delta as a float; :class:`JobError` where it is no number above 0 and below 1."""
    number = isinstance(delta, int | float) and not isinstance(delta, bool)
    if not number or not 0 < delta < 1:  # type: ignore[operator]  # a number by the line above
        raise JobError(
            f"delta must be a number above 0 and below 1 but got {delta!r}", code=number_code(delta), value=delta
        )
    return float(delta)  # type: ignore[arg-type]


def composed(ratios: Iterable[float]) -> float:
    """Return the ratio of one release equivalent to all of these together."""
    return math.sqrt(math.fsum(ratio * ratio for ratio in ratios))


def delta_of(epsilon: float, ratio: float) -> float:
    """Return the least delta of a release for an epsilon."""
    from scipy.special import log_ndtr

    check_epsilon(epsilon)
    if ratio == 0:
        return 0.0
    within = float(log_ndtr(ratio / 2 - epsilon / ratio))
    beyond = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
    return -math.exp(within) * math.expm1(min(beyond - within, 0.0))


def epsilon_of(delta: float, ratio: float) -> float:
    """Return the least epsilon of a release for a delta, not rounded down."""
    check_delta(delta)
    if delta_of(0.0, ratio) <= delta:
        return 0.0
    high = 1.0
    while delta_of(high, ratio) > delta:
        high *= 2
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, ratio) > delta else (low, middle)
    return high


def ratio_for(epsilon: float, delta: float) -> float:
    """Return the largest ratio (within 1e-9 below) that keeps epsilon and delta."""
    check_epsilon(epsilon)
    check_delta(delta)
    high = 1.0
    while delta_of(epsilon, high) <= delta:
        high *= 2
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(epsilon, middle) <= delta else (low, middle)
    return low * _SAFETY
