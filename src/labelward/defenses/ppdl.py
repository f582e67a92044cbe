"""PPDL ("privacy-preserving deep learning"): few numbers of a gradient, picked at random above a threshold, with noise.

Setting: the passive parties are curious. Of each batch's gradient, for each party, numbers are picked at random. One
whose absolute value, bounded and with noise, reaches a threshold with noise is gathered: it leaves with noise of its
own, bounded again. Once the share ``theta`` of all numbers is gathered, all others are 0.

``theta`` is relative to the numbers of the batch, rounded down (one at least); ``clip`` and ``tau`` to the gradient of
the batch's *mean* loss; ``epsilon`` to one gradient of one batch. With c numbers to gather and noise of the scale
s(e) = 2 c sensitivity / e, the threshold gets Laplace noise of s(8/9 epsilon), what is compared with it twice that,
and what is gathered s(2/9 epsilon).

``form = "correct"``: a number that was not gathered may be picked again; after sixteen rounds over all of them the rest
is 0. Nothing leaves raw. Numbers are bounded *before* they get noise, so that 2 ``clip`` bounds how far any of them can
move. A batch's gradient is then epsilon-differentially private whatever changes at the active party, all labels of the
batch included (the sparse vector technique with answers: 8/9 for which are gathered, 1/9 for their values). Gradients
add up: the account tells epsilon times their number, which is large. In exact arithmetic; see
:mod:`labelward.privacy.noise`.

``form = "published"``, to reproduce the paper's Table 6: each number is picked once. Where the share is not gathered by
then, all that were not gathered **leave as they are**; the account says how many. The sensitivity is 1 whatever the
bound, and noise is added before bounding. It protects nothing; use it for comparison.

Reference: Section 6.1 of the label inference paper, after Shokri and Shmatikov (CCS 2015), Section 6 and Figure 12, and
Dwork and Roth's NumericSparse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.defenses._keyed_noise import KeyedGradientDefense
from labelward.errors import PolicyError
from labelward.parameters import PositiveFloat
from labelward.policy.base import BudgetScope, PolicyContext
from labelward.policy.net_points import ReturnedGradient, Values
from labelward.privacy.noise import KeyedDraws, on_grid
from labelward.rng import SecureRandom

_ROUNDS = 16
_PUBLISHED_SENSITIVITY = 1.0


@dataclass(frozen=True, kw_only=True)
class Ppdl(KeyedGradientDefense):
    """Send a random selection of a gradient's large values with noise, as in privacy-preserving deep learning."""

    kind: ClassVar[str] = "ppdl"

    theta: Annotated[float, Meta(gt=0, lt=1, description="Fraction of the gradient's values to send.")]
    epsilon: Annotated[PositiveFloat, Meta(description="Privacy budget of one batch's gradient.")]
    clip: Annotated[
        PositiveFloat, Meta(description="Bound of absolute values, relative to the gradient of the batch's mean loss.")
    ] = 1e-3
    tau: Annotated[
        PositiveFloat,
        Meta(description="Threshold of absolute values, relative to the gradient of the batch's mean loss."),
    ] = 1e-4
    sensitivity: Annotated[
        PositiveFloat | None,
        Meta(description="Maximum change of one value. Default: 2 × clip; 1 in the 'published' form."),
    ] = None
    form: Annotated[
        Literal["correct", "published"],
        Meta(
            description="'correct': nothing is sent without noise; 'published': as in published code, which sends "
            "some values without noise (for comparison only)."
        ),
    ] = "correct"

    def check_parameters(self) -> None:
        """Refuse a sensitivity below what a clipped value can change."""
        if self.form == "correct" and self.sensitivity is not None and self.sensitivity < 2 * self.clip:
            reason = f"must be at least 2 × clip ({2 * self.clip:g}), the largest change of a clipped value"
            raise self.error("sensitivity", f"{reason}, not {self.sensitivity:g}")

    def check(self, setup: PolicyContext) -> None:
        """Refuse settings that the account of the correct form does not cover."""
        if self.form == "correct" and (setup.stops_early or setup.continues):
            what = "patience" if setup.stops_early else "an earlier training"
            raise PolicyError(
                f"defense 'ppdl' with its account does not go with {what}: what that tells of labels carries no "
                "noise of this run",
                code="inapplicable",
            )

    def begin(self, setup: PolicyContext, protection: SecureRandom) -> None:
        """Draw the key, and count the gradients that the run returns at most."""
        super().begin(setup, protection)
        self._kept.planned = len(setup.passive) * setup.epochs * setup.batches

    @classmethod
    def scopes(cls, parameters: Mapping[str, Any]) -> dict[str, BudgetScope]:
        """Epsilon is that of a single gradient; in the published form it bounds nothing."""
        if parameters.get("form") == "published":
            return {
                "epsilon": BudgetScope(covers="without a bound", excludes="anything, as values leave without noise")
            }
        excludes = (
            "all other gradients (a run costs epsilon times their number); parties that deviate from the protocol; "
            "rounding of floating-point numbers"
        )
        return {"epsilon": BudgetScope(covers="per gradient of a batch", excludes=excludes, private="gradient")}

    @property
    def promise(self) -> float | None:
        """Epsilon of each gradient, added up over all that the run returns; None in the published form."""
        return self.epsilon * self._kept.planned if self.form == "correct" else None

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the gradient with only the selected values."""
        draws = self._draws(returned)
        values = returned.values.astype(np.float64).ravel()
        wanted = max(1, int(self.theta * values.size + 1e-9))
        bounded = np.clip(values, -self.clip, self.clip)
        gathered = self._gather(np.abs(bounded), wanted, draws)
        scale = self._scale(2 / 9, wanted)
        noise = draws.laplace(values.size, scale)
        before = values if self.form == "published" else bounded
        answers = np.clip(on_grid(before + noise, scale), -self.clip, self.clip)
        count = int(np.count_nonzero(gathered))
        is_raw = self.form == "published" and count < wanted
        left = np.where(gathered, answers, values if is_raw else 0.0)
        self._count("gathered_values", count)
        self._count("raw_values", values.size - count if is_raw else 0)
        return left.reshape(returned.values.shape).astype(returned.values.dtype)

    def _scale(self, share: float, wanted: int) -> float:
        """Return the noise scale for a share of epsilon."""
        default = _PUBLISHED_SENSITIVITY if self.form == "published" else 2 * self.clip
        return 2 * wanted * (self.sensitivity or default) / (share * self.epsilon)

    def _gather(self, sizes: NDArray[np.float64], wanted: int, draws: KeyedDraws) -> NDArray[np.bool_]:
        """Return which numbers, of these bounded absolute values, are gathered."""
        scale = self._scale(8 / 9, wanted)
        thresholds = self.tau + draws.laplace(wanted, scale)
        gathered, count = np.zeros(sizes.size, dtype=np.bool_), 0
        for _ in range(1 if self.form == "published" else _ROUNDS):
            order = draws.order(sizes.size)
            compared = sizes[order] + draws.laplace(sizes.size, 2 * scale)
            for place, noisy in zip(order.tolist(), compared.tolist(), strict=True):
                if not gathered[place] and noisy >= thresholds[count]:
                    gathered[place] = True
                    count += 1
                    if count == wanted:
                        return gathered
        return gathered

    def _count(self, name: str, more: int) -> None:
        self._kept.counts[name] = self._kept.counts.get(name, 0) + more

    def account(self) -> dict[str, Any]:
        """Return gradients that left, numbers gathered, and what all cost together, or how many numbers left raw."""
        gradients, counts = sum(self.sent.values()), self._kept.counts
        found = {"gradients": gradients, "gathered_values": counts.get("gathered_values", 0)}
        if self.form == "published":
            return found | {"raw_values": counts.get("raw_values", 0)}
        return found | {"spent": self.epsilon * gradients, "hides": "all that the active party holds"}
