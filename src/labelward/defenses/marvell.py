"""Marvell: Gaussian noise on returned gradients whose shape makes two classes hard to tell apart.

Setting: passive parties are curious. The gradients of each class of a batch are taken for a normal distribution with a
variance of its own, the same in all directions. Each class gets Gaussian noise, of one variance along the difference of
the means and another across it, that minimizes the sum of both Kullback-Leibler divergences between the classes, under
a bound on its mean power: ``s`` times the squared length of the difference. A batch of one class only has no
difference; its rows get noise of the power of the party's last batch that had one, along all directions, and a batch
before any such goes out as zeros, which tells that its rows have one class, and so does noise without a direction.

Noise is drawn anew for each batch and epoch, so that who sums the gradients of several epochs averages it away; equal
gradients of several parties have equal noise, so that these gain nothing together. It is no differential privacy: a
row's noise depends on its label, and the loss of privacy has no bound.

Reference: Li et al., "Label leakage and protection in two-party split learning" (ICLR 2022), Theorem 2. Difference: the
four variances come from a bounded search along the power across, and closed forms; the paper solves alternately. Labels
are those that policies of targets leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.defenses._class_gradients import check_classes, known_classes
from labelward.defenses._keyed_noise import KeyedGradientDefense
from labelward.errors import PolicyError
from labelward.parameters import PositiveFloat
from labelward.policy.base import PolicyContext
from labelward.policy.net_points import ReturnedGradient, Values

Floats = NDArray[np.float64]

_SEARCHED, _NARROWED = 257, 3
"""Points of the search along the power across, and how often it is narrowed to the neighbors of the best."""


@dataclass(frozen=True, kw_only=True)
class ClassSpread:
    """Gradients of two classes, and the power of noise.

    Attributes:
        share: of class 1 in the batch.
        variances: of class 0 and class 1, in each direction.
        distance: squared length of the difference of the means.
        dimensions: of the gradients.
        power: mean squared length of the noise, over both classes.
    """

    share: float
    variances: tuple[float, float]
    distance: float
    dimensions: int
    power: float


class _Answer(NamedTuple):
    """The last gradient that got noise, and the noise's power."""

    place: tuple[bytes, int, int]
    values: Values
    noisy: Values
    power: float


@dataclass(frozen=True, kw_only=True)
class Marvell(KeyedGradientDefense):
    """Gaussian noise by class that makes the gradients of two classes alike."""

    kind: ClassVar[str] = "marvell"

    s: Annotated[
        PositiveFloat,
        Meta(description="Mean power of the noise, relative to the squared distance of the classes' mean gradients."),
    ]

    _last: list[_Answer] = field(default_factory=list, init=False, repr=False, compare=False)

    def check(self, setup: PolicyContext) -> None:
        """Refuse all but two classes, and a place in the chain where labels are not known any more."""
        check_classes(self, setup)
        if setup.classes != 2:
            raise PolicyError(
                "needs labels of two classes", code="inapplicable", field="defense 'marvell'", value=setup.classes
            )

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the gradient with the noise of each row's class."""
        for last in self._last:  # another party's equal gradient, whose noise is equal
            place = self._kept.key, returned.epoch, returned.batch
            if last.place == place and np.array_equal(last.values, returned.values):
                self._count_sent(returned)
                self._kept.levels[returned.party] = last.power
                return last.noisy.copy()
        labels, values = known_classes(self, returned), returned.values.astype(np.float64)
        counts = np.bincount(labels, minlength=2)
        if len(counts) != 2:
            raise PolicyError("defense 'marvell' tells two classes apart", code="cannot-act", value=len(counts))
        rows, dimensions = values.shape
        noise = self._draws(returned).gaussian(values.size, 1.0).reshape(values.shape)
        members = np.stack([labels == 0, labels == 1]).astype(np.float64)
        shares = members / np.maximum(counts, 1)[:, None]
        means = shares @ values
        difference = means[1] - means[0]
        distance = float(difference @ difference)
        if not counts.all() or not distance:
            power = self._kept.levels.get(returned.party)
            return (
                np.zeros_like(returned.values)
                if power is None
                else self._added(returned, noise * np.sqrt(power / dimensions))
            )
        spread = ClassSpread(
            share=counts[1] / rows,
            variances=tuple((shares @ np.square(values - means[labels])).mean(axis=1).tolist()),
            distance=distance,
            dimensions=dimensions,
            power=self.s * distance,
        )
        self._kept.levels[returned.party] = spread.power
        along, across = least_divergence(spread)
        direction = difference / np.sqrt(distance)
        sizes = np.sqrt(np.maximum([along, across], 0.0))[:, labels]
        apart = (sizes[0] - sizes[1]) * (noise @ direction)
        noise *= sizes[1][:, None]
        noise += apart[:, None] * direction
        noisy = self._added(returned, noise)
        self._last[:] = [
            _Answer((self._kept.key, returned.epoch, returned.batch), returned.values.copy(), noisy, spread.power)
        ]
        return noisy.copy()

    @staticmethod
    def _added(returned: ReturnedGradient, noise: Floats) -> Values:
        return np.asarray((returned.values + noise).astype(returned.values.dtype))


def least_divergence(spread: ClassSpread) -> tuple[Floats, Floats]:
    """Return the noise's variances along and across the difference of means, float64 [2] each by class.

    Across, noise only lifts the smaller variance of the two; how much power it takes is searched, and the rest has a
    closed form. All directions across are alike, so ``across`` is of each of them.
    """
    least, most = 0.0, 0.0
    low = int(spread.variances[1] < spread.variances[0])
    weight = (1 - spread.share, spread.share)[low] * (spread.dimensions - 1)
    if weight:
        most = min(spread.power, weight * abs(spread.variances[1] - spread.variances[0]))
    for _ in range(_NARROWED if most else 1):
        taken = np.linspace(least, most, _SEARCHED)
        across = np.zeros((2, _SEARCHED))
        across[low] = taken / weight if weight else 0.0
        along = _along(spread, spread.power - taken)
        best = int(np.argmin(divergence(spread, along, across)))
        least, most = taken[max(best - 1, 0)], taken[min(best + 1, _SEARCHED - 1)]
    return along[:, best], across[:, best]


def divergence(spread: ClassSpread, along: Floats, across: Floats) -> Floats:
    """Return the sum of both Kullback-Leibler divergences for variances of noise [2, ...], by class."""
    a, b = (variance + noise for variance, noise in zip(spread.variances, along, strict=True))
    c, d = (variance + noise for variance, noise in zip(spread.variances, across, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        one = (a + spread.distance) / b + (b + spread.distance) / a - 2
        other = np.where(c == d, 0.0, c / d + d / c - 2)
    return np.asarray((one + (spread.dimensions - 1) * other) / 2)


def _along(spread: ClassSpread, power: Floats) -> Floats:
    """Return the best variances of noise along the difference, float64 [2, ...], that use some power together."""
    (low, high), share = spread.variances, spread.share
    total = power + (1 - share) * low + share * high
    odds = (1 - share) / share
    ratio = np.sqrt((total / share + odds * spread.distance) / (total / share + spread.distance))
    first = np.clip(total / (1 - share + share * ratio), low, low + power / (1 - share))
    return np.stack([first - low, np.maximum((total - (1 - share) * first) / share - high, 0.0)])
