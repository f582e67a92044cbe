"""DiscreteSGD: each number of a returned gradient is rounded to one of few levels.

Setting: the passive parties are curious. Rounding blurs sizes and keeps signs, where numbers are not rounded to 0; so
it hardly hinders the direct attack, which reads signs. It is no noise: equal gradients leave as equal.

``form = "paper"``: an interval of the mean plus and minus two standard deviations, cut into ``levels`` equal pieces;
each number is rounded to the nearest end of a piece. Numbers beyond the interval are outliers: discarded (they become
the level nearest to 0, so that nothing tells them from small ones), or clipped to the interval's ends. Mean and
deviation are those of the gradients to one party in the first epoch. The paper observes that epoch before it protects
anything, which would give away all labels; here the estimate runs: each batch of the first epoch is rounded by the
gradients so far, its own included, worked out before anything leaves. From the second epoch on the interval stays. Its
ends can be read from what is sent, so mean and deviation are no secret. Where no two numbers of a party's gradients
differed yet, zeros leave.

``form = "published"``: levels are the multiples of 2 ``bound`` / ``levels``, and nothing is discarded or clipped.

Intervals are relative to the gradient of the batch's *mean* loss.

Reference: Section 6.1 of the label inference paper. Published code: a fixed bound of 0.03 (0.001 for Criteo).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from labelward.kernels.gradient_compression import nearest_level
from labelward.parameters import PositiveFloat, PositiveInt
from labelward.policy.base import Policy
from labelward.policy.net_points import ReturnedGradient, Values

_WIDTH = 2  # deviations to each side of the mean
_PUBLISHED_BOUND = 3e-2
_ROUNDED = 1e-6  # of the deviation: a mean below is 0 but for rounding, as that of cross-entropy's gradients is


class _Moments(msgspec.Struct):
    """Number, mean and sum of squared deviations of the values so far."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def see(self, values: Values) -> None:
        """Add values."""
        numbers = values.astype(np.float64)
        mean, count = float(numbers.mean()), self.count + numbers.size
        apart = mean - self.mean
        self.squares += float(np.square(numbers - mean).sum()) + apart * apart * self.count * numbers.size / count
        self.mean += apart * numbers.size / count
        self.count = count

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.squares / self.count)


@dataclass(frozen=True, kw_only=True)
class DiscreteSgd(Policy):
    """Round each value of a returned gradient to one of a few levels."""

    kind: ClassVar[str] = "discrete-sgd"

    levels: Annotated[PositiveInt, Meta(description="Number of equal pieces of the interval.")] = 24
    form: Annotated[
        Literal["paper", "published"],
        Meta(
            description="Interval of the levels: mean plus and minus two deviations of the gradients in the first "
            "epoch ('paper'), or fixed and without outliers ('published')."
        ),
    ] = "paper"
    outliers: Annotated[
        Literal["discard", "clip"],
        Meta(
            description="Values outside the interval of form 'paper': 'discard' (the level nearest to 0) or 'clip' "
            "(the end of the interval)."
        ),
    ] = "discard"
    bound: Annotated[
        PositiveFloat | None, Meta(description="Half width of the interval in the 'published' form. Default: 0.03.")
    ] = None
    _seen: dict[str, _Moments] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check_parameters(self) -> None:
        """Refuse options of the other form."""
        if self.form == "published" and self.outliers != "discard":
            raise self.error("outliers", "is not supported in the published form, which has none; remove it")
        if self.form == "paper" and self.bound is not None:
            raise self.error("bound", "is for form 'published' only; in the paper's form it follows from the gradients")

    @property
    def row_local(self) -> bool:
        """Whether the levels are fixed; those of the paper follow from all gradients so far."""
        return self.form == "published"

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the gradient on its levels."""
        values = returned.values
        if self.form == "published":
            step = 2 * (self.bound or _PUBLISHED_BOUND) / self.levels
            return nearest_level(values, 0.0, step).astype(values.dtype)
        seen = self._seen.setdefault(returned.party, _Moments())
        if returned.epoch == 0 or not seen.count:
            seen.see(values)
        half = _WIDTH * seen.deviation
        if half == 0:
            return np.zeros_like(values)
        mean = seen.mean if abs(seen.mean) > _ROUNDED * half else 0.0
        step = 2 * half / self.levels
        numbers = values.astype(np.float64)
        if self.outliers == "discard":
            numbers = np.where(np.abs(numbers - mean) > half, 0.0, numbers)
        inside = np.clip(numbers, mean - half, mean + half)
        rounded = nearest_level(inside, mean if self.levels % 2 == 0 else mean + step / 2, step)
        return rounded.astype(values.dtype)

    def account(self) -> dict[str, Any]:
        """Return the step between two levels, by party."""
        if self.form == "published":
            return {}
        return {"steps": {party: 2 * _WIDTH * seen.deviation / self.levels for party, seen in self._seen.items()}}

    def state(self) -> bytes:
        """Return the statistics of each party's gradients."""
        return msgspec.msgpack.encode(self._seen)

    def resume(self, state: bytes) -> None:
        """See :meth:`Policy.resume`."""
        self._seen.clear()
        self._seen.update(msgspec.msgpack.decode(state, type=dict[str, _Moments]))
