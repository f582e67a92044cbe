"""Integer odds that approximate e^epsilon from below, and unbiased draws for many rows at once.

No probability here is a floating-point number: a mechanism keeps a label with odds of two whole numbers whose ratio
never exceeds e^epsilon, and draws whole numbers uniformly by rejection. The probabilities are hence exact, and the
bound of differential privacy holds exactly for the epsilon that was given (the float, not the text it was read from).
The residual is one of utility alone: the ratio lies below e^epsilon by at most one part in 2**40 (at epsilon = 0; less
above), and an epsilon over 40 acts as 40, at which a label changes with a probability below 5e-18 for each class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError, number_code
from labelward.rng import SecureRandom

MOST_CLASSES = 2**20
"""More classes than this could carry the sum of all odds beyond 63 bits."""

_MOST_EPSILON = 40.0
_FINEST = 40  # bits of the smaller odd
_LARGEST = 61  # bits of the larger odd: with 2**20 times the smaller one the sum stays below 2**62


@dataclass(frozen=True)
class Odds:
    """The true class weighs ``keep`` where each other one weighs ``other``; both whole, ``keep >= other > 0``."""

    keep: int
    other: int


def check_epsilon(epsilon: object) -> float:
    """Return epsilon as a float.

    Raises:
        JobError: it is no finite number from 0 on.
    """
    number = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if not number or not 0 <= epsilon < math.inf:  # type: ignore[operator]  # a number by the line above
        raise JobError(
            f"epsilon must be a finite number, at least 0, but got {epsilon!r}",
            code=number_code(epsilon),
            value=epsilon,
        )
    return float(epsilon)  # type: ignore[arg-type]


def odds(epsilon: float) -> Odds:
    """Return the finest odds that fit, with ``keep / other <= e**epsilon`` as exact numbers."""
    capped = min(check_epsilon(epsilon), _MOST_EPSILON)
    other = 2 ** min(_FINEST, _LARGEST - math.ceil(capped / math.log(2)))
    context = Context(prec=60)
    lower = Decimal(capped).exp(context).next_minus(context)  # the power is rounded to nearest: one step down is below
    return Odds(max(math.floor(context.multiply(lower, Decimal(other))), other), other)


def draw_below(bounds: NDArray[np.int64], protection: SecureRandom) -> NDArray[np.int64]:
    """Return for each bound an independent integer drawn uniformly from ``range(bound)``.

    Args:
        bounds: int64 [n], each positive.
        protection: where the random bits come from; 8 bytes a row, and again for a row whose draw was rejected (less
            than half of them each time).
    """
    if (bounds <= 0).any():
        raise ValueError(f"bounds must be positive but got {int(bounds.min())}")
    masks = bounds - 1
    for shift in (1, 2, 4, 8, 16, 32):
        masks |= masks >> shift
    drawn = np.empty(len(bounds), dtype=np.int64)
    waiting = np.arange(len(bounds))
    while waiting.size:
        words = np.frombuffer(protection.bytes(8 * waiting.size), dtype="<i8") & masks[waiting]
        fits = words < bounds[waiting]
        drawn[waiting[fits]] = words[fits]
        waiting = waiting[~fits]
    return drawn
