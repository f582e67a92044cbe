"""Marvell: Gaussian noise on returned gradients whose shape makes two classes hard to tell apart.

Setting: passive parties are curious. The gradients of each class of a batch are taken for a normal distribution. Each
class gets Gaussian noise, of one variance along the difference of the means and others across it, that minimizes the
sum of both Kullback-Leibler divergences between the classes, under a bound on its mean power: ``s`` times the squared
length of the difference. Across, noise is where the gradients of the other class vary more, and nowhere else. A batch
of one class only has no difference; its rows get noise along the direction in which they are longest, of the power of
the party's last batch that had one.

Gradients are not normal: most rows of a class lie close together, and a few that the model gets wrong far off. By
their variance the best noise of such a class is often none, and rows without noise are known by where they lie, and by
the last bits of their numbers. So each class gets at least the share ``least`` of the power, and noisy numbers are
rounded to multiples of a step that follows from the power alone.

Behind a linear top model, or none, the gradients of a batch lie on a line. They are noisy numbers along it then: noise
off the line of one class alone would name its rows. Such numbers of several parties are the same but for a factor, and
so are the noisy ones: all get the first party's, each on its own line, so that together they know no more than alone.
Elsewhere each party's noise is its own, and parties average it out together: what equal draws would hide is another
number for each party, and in the difference of two parties' gradients equal noise cancels.

Noise is drawn anew for each batch and epoch, so that who sums the gradients of several epochs averages it away. It is
no differential privacy: a row's noise depends on its label, and the loss of privacy has no bound.

Reference: Li et al., "Label leakage and protection in two-party split learning" (ICLR 2022), Theorem 2. Differences:
each class has a variance along the difference of the means and one in each of the directions across in which the
covariances differ most, where the paper takes all for equal (with one number, or equal variances, both are the same);
the noise's variances come from closed forms and one bounded search, where the paper solves alternately; ``least``,
which is 0 in the paper; the rounding. Labels are those that policies of targets leave.
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
from labelward.privacy.noise import on_grid

Floats = NDArray[np.float64]

_SEARCHED, _NARROWED = 257, 3
"""Points of the search for how far noise across goes, and how often it is narrowed to the neighbors of the best."""

_FEW_ROWS = 16
"""Longest rows that are looked at before all are, to tell whether gradients lie on a line."""

_ALIKE = 1e-4
"""Share of its length by which a gradient may be off a line, or off a multiple of another one, by rounding."""


@dataclass(frozen=True, kw_only=True)
class ClassSpread:
    """Gradients of two classes, and the power of noise.

    Attributes:
        share: of class 1 in the batch.
        along: variances of class 0 and class 1 along the difference of their means.
        across: float64 [2, directions]: in each of the directions across it.
        distance: squared length of the difference of the means.
        power: mean squared length of the noise, over both classes.
        least: share of the power that each class gets at least along the difference, and of the noise in each
            direction across; below 1.
    """

    share: float
    along: tuple[float, float]
    across: Floats
    distance: float
    power: float
    least: float = 0.0


class Line(NamedTuple):
    """Gradients on a line through 0.

    Attributes:
        numbers: float64 [rows], where on it.
        direction: float64 [numbers], of length 1.
    """

    numbers: Floats
    direction: Floats


class _Answer(NamedTuple):
    """A gradient of the current batch, or the numbers of its line [rows, 1]; with noise; and the noise's power."""

    values: Floats
    noisy: Floats
    power: float


@dataclass(frozen=True, kw_only=True)
class Marvell(KeyedGradientDefense):
    """Gaussian noise by class that makes the gradients of two classes alike."""

    kind: ClassVar[str] = "marvell"

    s: Annotated[
        PositiveFloat,
        Meta(description="Mean power of the noise, relative to the squared distance of the classes' mean gradients."),
    ]

    least: Annotated[
        float,
        Meta(
            ge=0,
            lt=1,
            description="Share of the noise's power that each class gets at least. 0 is the published optimum, whose "
            "rows without noise name their class.",
        ),
    ] = 0.75

    _answers: dict[tuple[bytes, int, int], list[_Answer]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def check(self, setup: PolicyContext) -> None:
        """Refuse all but two classes, and a place in the chain where labels are not known any more."""
        check_classes(self, setup)
        if setup.classes != 2:
            raise PolicyError(
                "needs labels of two classes", code="inapplicable", field="defense 'marvell'", value=setup.classes
            )

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the gradient with the noise of each row's class."""
        values = returned.values.astype(np.float64)
        line = line_of(values)
        kept = values if line is None else line.numbers[:, None]
        factor, answer = self._answered(returned, kept, line is not None)
        self._kept.levels[returned.party] = factor**2 * answer.power
        noisy = answer.noisy if line is None else factor * answer.noisy * line.direction
        return noisy.astype(returned.values.dtype)

    def _answered(self, returned: ReturnedGradient, values: Floats, on_line: bool) -> tuple[float, _Answer]:
        """Return the noisy numbers of the first party whose gradient is a multiple of this one, and which multiple.

        All parties of a batch are asked in the same order in every attempt, so that each gets the same ones again.
        """
        place = self._kept.key, returned.epoch, returned.batch
        if place not in self._answers:
            self._answers.clear()
        answers = self._answers.setdefault(place, [])
        for answer in answers:
            factor = _factor(answer.values, values, on_line)
            if factor is not None:
                self._count_sent(returned)
                return factor, answer
        answers.append(self._drawn(returned, values))
        return 1.0, answers[-1]

    def _drawn(self, returned: ReturnedGradient, values: Floats) -> _Answer:
        """Return values, of a gradient or along its line, with noise of their own."""
        labels = known_classes(self, returned)
        counts = np.bincount(labels, minlength=2)
        if len(counts) != 2:
            raise PolicyError("defense 'marvell' tells two classes apart", code="cannot-act", value=len(counts))
        draws = self._draws(returned).gaussian(values.size, 1.0).reshape(values.shape)
        of_class = values[labels == 0], values[labels == 1]
        difference = of_class[1].mean(axis=0) - of_class[0].mean(axis=0) if counts.all() else np.zeros(values.shape[1])
        distance = float(difference @ difference)
        if distance:
            power = self.s * distance
            noise = _noise(draws, labels, of_class, difference, power, self.least)
        else:
            power = self._kept.levels.get(returned.party, self._guessed(values))
            noise = draws[:, :1] * np.sqrt(power) * _longest(values)
        return _Answer(values, on_grid(values + noise, np.sqrt(power)) if power else values, power)

    def _guessed(self, values: Floats) -> float:
        """Return the power of noise on a batch of one class before any of two: as if the other had the opposite."""
        return self.s * 4 * float(np.square(values.mean(axis=0)).sum())


def _noise(
    draws: Floats,
    labels: NDArray[np.int64],
    of_class: tuple[Floats, Floats],
    difference: Floats,
    power: float,
    least: float,
) -> Floats:
    """Return draws of deviation 1, scaled by class along the difference of means and across it."""
    directions = directions_of(of_class, difference)
    variances = np.stack([(each @ directions).var(axis=0) for each in of_class])
    spread = ClassSpread(
        share=float(labels.mean()),
        along=(float(variances[0, 0]), float(variances[1, 0])),
        across=variances[:, 1:],
        distance=float(difference @ difference),
        power=power,
        least=least,
    )
    along, across = least_divergence(spread)
    return np.asarray((draws * np.sqrt(np.hstack([along[:, None], across]))[labels]) @ directions.T)


def line_of(values: Floats) -> Line | None:
    """Return the line through 0 on which all rows lie up to rounding; None: there is none."""
    lengths = np.einsum("ij,ij->i", values, values)
    few = values[np.argsort(lengths)[-_FEW_ROWS:]]  # the longest rows, most of which are off the line where others are
    off = few - np.outer(few @ few[-1], few[-1] / (lengths.max() or 1.0))
    if np.linalg.norm(off) > 4 * _ALIKE * np.sqrt(len(values)) * np.linalg.norm(few):
        return None
    direction = _longest(values)
    numbers = values @ direction
    left = np.linalg.norm(values - np.outer(numbers, direction))
    return Line(numbers, direction) if left <= _ALIKE * np.linalg.norm(values) else None


def _longest(values: Floats) -> Floats:
    """Return the direction in which rows are longest, float64 [numbers]."""
    return np.asarray(np.linalg.eigh(values.T @ values)[1][:, -1])


def _factor(first: Floats, values: Floats, on_line: bool) -> float | None:
    """Return which multiple of the first values these are; None: of none. Off a line only equal ones count."""
    if np.array_equal(first, values):
        return 1.0
    length = float(np.square(first).sum())
    if not on_line or first.shape != values.shape or not length:
        return None
    factor = float((first * values).sum()) / length
    return factor if np.linalg.norm(values - factor * first) <= _ALIKE * np.linalg.norm(values) else None


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

    Across, noise lifts the smaller variance of each direction; the other class gets only what is the least. How far,
    has a closed form for each price of power (with a least share an approximation); the price is searched. The rest of
    the power goes along the difference, by a closed form.
    """
    shares = np.array([1 - spread.share, spread.share])
    low = spread.across.argmin(axis=0)
    small, large = spread.across.min(axis=0), spread.across.max(axis=0)
    of_lift = shares[low] / (1 - spread.least)  # power that lifts one variance over the other by 1
    costs = of_lift * large
    scale, needed = float(costs.max(initial=0.0)) or 1.0, spread.least * spread.power
    least, most = 0.0, 1.0
    for _ in range(_NARROWED):
        tried = np.linspace(least, most, _SEARCHED)
        with np.errstate(divide="ignore", invalid="ignore"):
            price = (1 / tried - 1) / scale
            lifted = large[:, None] / np.sqrt(1 + costs[:, None] * price)
        lift = np.maximum(np.nan_to_num(lifted) - small[:, None], 0.0)
        powers = of_lift[:, None] * lift
        left = spread.power - powers.sum(axis=0)
        across = np.where(low[:, None] == np.arange(2)[:, None, None], lift, 0.0) + spread.least * powers
        along = _along(spread, np.maximum(left, needed))
        best = int(np.argmin(np.where(left >= needed, divergence(spread, along, across), np.inf)))
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
    (low, high), share, least = spread.along, spread.share, spread.least * spread.power
    total = power + (1 - share) * low + share * high
    odds = (1 - share) / share
    ratio = np.sqrt((total / share + odds * spread.distance) / (total / share + spread.distance))
    first = np.clip(total / (1 - share + share * ratio), low + least, low + (power - share * least) / (1 - share))
    return np.stack([np.maximum(first - low, least), np.maximum((total - (1 - share) * first) / share - high, least)])
