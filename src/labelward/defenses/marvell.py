"""Marvell: Gaussian noise on returned gradients whose shape makes two classes hard to tell apart.

Setting: passive parties are curious. The gradients of each class of a batch are taken for a normal distribution. Each
class gets Gaussian noise, of one variance along the difference of the means and others across it, that minimizes the
sum of both Kullback-Leibler divergences between the classes, under a bound on its mean power: ``s`` times the squared
length of the difference. Across, noise is where the gradients of the other class vary more, and nowhere else: behind a
linear top model, or none, all gradients lie on a line, and noise off the line of one class alone would name its rows.
A batch of one class only has no difference; its rows get noise along the direction in which they are longest, of the
power of the party's last batch that had one.

Noise is drawn anew for each batch and epoch, so that who sums the gradients of several epochs averages it away; equal
gradients of several parties have equal noise, so that these gain nothing together. It is no differential privacy: a
row's noise depends on its label, and the loss of privacy has no bound.

Reference: Li et al., "Label leakage and protection in two-party split learning" (ICLR 2022), Theorem 2. Differences:
each class has a variance along the difference of the means and one in each of the directions across in which the
covariances differ most, where the paper takes all for equal (with one number, or equal variances, both are the same);
the noise's variances come from closed forms and one bounded search, where the paper solves alternately. Labels are
those that policies of targets leave.
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
"""Points of the search for how far noise across goes, and how often it is narrowed to the neighbors of the best."""


@dataclass(frozen=True, kw_only=True)
class ClassSpread:
    """Gradients of two classes, and the power of noise.

    Attributes:
        share: of class 1 in the batch.
        along: variances of class 0 and class 1 along the difference of their means.
        across: float64 [2, directions]: in each of the directions across it.
        distance: squared length of the difference of the means.
        power: mean squared length of the noise, over both classes.
    """

    share: float
    along: tuple[float, float]
    across: Floats
    distance: float
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
        place = self._kept.key, returned.epoch, returned.batch
        for last in self._last:  # another party's equal gradient, whose noise is equal
            if last.place == place and np.array_equal(last.values, returned.values):
                self._count_sent(returned)
                self._kept.levels[returned.party] = last.power
                return last.noisy.copy()
        labels, values = known_classes(self, returned), returned.values.astype(np.float64)
        counts = np.bincount(labels, minlength=2)
        if len(counts) != 2:
            raise PolicyError("defense 'marvell' tells two classes apart", code="cannot-act", value=len(counts))
        draws = self._draws(returned).gaussian(values.size, 1.0).reshape(values.shape)
        of_class = [values[labels == label] for label in (0, 1)]
        difference = of_class[1].mean(axis=0) - of_class[0].mean(axis=0) if counts.all() else np.zeros(values.shape[1])
        distance = float(difference @ difference)
        if not distance:
            return self._of_one_class(returned, values, draws)
        directions = directions_of((of_class[0], of_class[1]), difference)
        variances = np.stack([(each @ directions).var(axis=0) for each in of_class])
        spread = ClassSpread(
            share=counts[1] / len(labels),
            along=(float(variances[0, 0]), float(variances[1, 0])),
            across=variances[:, 1:],
            distance=distance,
            power=self.s * distance,
        )
        self._kept.levels[returned.party] = spread.power
        along, across = least_divergence(spread)
        sizes = np.sqrt(np.maximum(np.hstack([along[:, None], across]), 0.0))[labels]
        noisy = self._added(returned, (draws * sizes) @ directions.T)
        self._last[:] = [_Answer(place, returned.values.copy(), noisy, spread.power)]
        return noisy.copy()

    def _of_one_class(self, returned: ReturnedGradient, values: Floats, draws: Floats) -> Values:
        """Return gradients whose classes do not differ, with noise in the direction in which they are longest."""
        guessed = self.s * 4 * float(np.square(values.mean(axis=0)).sum())  # as if the other class had the opposite
        power = self._kept.levels.get(returned.party, guessed)
        longest = np.linalg.svd(values, full_matrices=False)[2][0]
        return self._added(returned, draws[:, :1] * np.sqrt(power) * longest)

    @staticmethod
    def _added(returned: ReturnedGradient, noise: Floats) -> Values:
        return np.asarray((returned.values + noise).astype(returned.values.dtype))


def directions_of(of_class: tuple[Floats, Floats], difference: Floats) -> Floats:
    """Return an orthonormal basis, float64 [numbers, numbers]: along the difference, then where covariances differ.

    Across the difference its directions are the eigenvectors of the difference of both classes' covariances, so that
    noise can make the two equal.

    Args:
        of_class: gradients of each class, float64 [rows, numbers].
        difference: of their means, not 0.
    """
    count = len(difference)
    along = difference / np.linalg.norm(difference)
    if count == 1:
        return along[:, None]
    mirror = along.copy()
    mirror[0] += np.copysign(1.0, along[0])
    across = (np.eye(count) - 2 / (mirror @ mirror) * np.outer(mirror, mirror))[:, 1:]  # of a reflection
    covariances = [np.cov(each @ across, rowvar=False, bias=True).reshape(count - 1, count - 1) for each in of_class]
    return np.hstack([along[:, None], across @ np.linalg.eigh(covariances[1] - covariances[0])[1]])


def least_divergence(spread: ClassSpread) -> tuple[Floats, Floats]:
    """Return the noise's variances along and across the difference of means, float64 [2] and [2, directions] by class.

    Across, noise only lifts the smaller variance of each direction. How far, has a closed form for each price of power;
    the price is searched. The rest of the power goes along the difference, by a closed form.
    """
    shares = np.array([1 - spread.share, spread.share])
    low = spread.across.argmin(axis=0)
    small, large = spread.across.min(axis=0), spread.across.max(axis=0)
    costs = shares[low] * large
    scale = float(costs.max(initial=0.0)) or 1.0
    least, most = 0.0, 1.0
    for _ in range(_NARROWED):
        tried = np.linspace(least, most, _SEARCHED)
        with np.errstate(divide="ignore", invalid="ignore"):
            price = (1 / tried - 1) / scale
            lifted = large[:, None] / np.sqrt(1 + costs[:, None] * price)
        lift = np.maximum(np.nan_to_num(lifted) - small[:, None], 0.0)
        left = spread.power - shares[low] @ lift
        across = np.where(low[:, None] == np.arange(2)[:, None, None], lift, 0.0)
        along = _along(spread, np.maximum(left, 0.0))
        best = int(np.argmin(np.where(left >= 0, divergence(spread, along, across), np.inf)))
        least, most = tried[max(best - 1, 0)], tried[min(best + 1, _SEARCHED - 1)]
    return along[:, best], across[:, :, best]


def divergence(spread: ClassSpread, along: Floats, across: Floats) -> Floats:
    """Return the sum of both Kullback-Leibler divergences for variances of noise.

    Args:
        along: [2, ...] by class.
        across: [2, directions, ...], likewise.
    """
    a, b = (variance + noise for variance, noise in zip(spread.along, along, strict=True))
    c, d = spread.across.reshape(spread.across.shape + (1,) * (across.ndim - 2)) + across
    with np.errstate(divide="ignore", invalid="ignore"):
        one = (a + spread.distance) / b + (b + spread.distance) / a - 2
        other = np.where(c == d, 0.0, c / d + d / c - 2)
    return np.asarray((one + other.sum(axis=0)) / 2)


def _along(spread: ClassSpread, power: Floats) -> Floats:
    """Return the best variances of noise along the difference, float64 [2, ...], that use some power together."""
    (low, high), share = spread.along, spread.share
    total = power + (1 - share) * low + share * high
    odds = (1 - share) / share
    ratio = np.sqrt((total / share + odds * spread.distance) / (total / share + spread.distance))
    first = np.clip(total / (1 - share + share * ratio), low, low + power / (1 - share))
    return np.stack([first - low, np.maximum((total - (1 - share) * first) / share - high, 0.0)])
