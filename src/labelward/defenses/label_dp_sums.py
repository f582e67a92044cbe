"""Label differential privacy of sums: each holder adds Gaussian noise to its gradient sums before they are added up.

Setting: all parties are curious about the labels of the others (PIVODL). A label moves the gradient of its row by 1
(the hessian depends on predictions alone), hence one sum of gradients by 1 in each column, level and tree, and the
root's. All that leaves a holder is made of these sums, so that splits, node sums, leaf weights and later gradients are
post-processing. The noise over all holders but one reaches the full deviation, since a curious holder knows its own
part. The deviation is public, so that trees are grown by the gains that such noise leaves to be expected.

Account: Gaussian, of K = trees · (columns · depth + 1) sums that move by 1 at once, an L2 distance of √K; exact (Balle
and Wang 2018). Not in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from labelward.defenses._keyed_noise import KeyedHolderDefense
from labelward.errors import PolicyError
from labelward.parameters import PositiveFloat
from labelward.policy.base import BudgetScope, PolicyContext
from labelward.policy.holder_points import HolderSums, Integers
from labelward.privacy.gaussian import ratio_for
from labelward.rng import SecureRandom

_MOST_NOISE = 2.0**40  # of which sums have room, 16 deviations, at a precision of 16 bits


@dataclass(frozen=True, kw_only=True)
class LabelDPSums(KeyedHolderDefense):
    """Add Gaussian noise to every sum of gradients, so that all that leaves is private in each label."""

    kind: ClassVar[str] = "label-dp-sums"

    epsilon: Annotated[PositiveFloat, Meta(description="Privacy budget of one label over the whole training.")]
    delta: Annotated[float, Meta(gt=0, lt=1, description="Delta that belongs to epsilon; well below 1 / rows.")] = 1e-5

    @classmethod
    def scopes(cls, parameters: Mapping[str, Any]) -> dict[str, BudgetScope]:
        """Epsilon bounds what one other party learns of each label over the whole training."""
        excludes = (
            "parties that pool their views or deviate from the protocol; labels of test rows; other trainings on "
            "the same labels"
        )
        covers = "per training label against one other party over the whole training"
        return {"epsilon": BudgetScope(covers=covers, excludes=excludes, private="run")}

    @property
    def promise(self) -> float | None:
        """The budget: all sums of the run are counted."""
        return self.epsilon

    def counts_rows(self, setup: PolicyContext) -> frozenset[str]:
        """Every sum is counted as one that a label moves by its gradient."""
        return frozenset({"on_own_sums"})

    def check(self, setup: PolicyContext) -> None:
        """As :class:`KeyedHolderDefense`; also refuse quantities, of which one may move its gradient by any amount."""
        super().check(setup)
        if not setup.classes:
            raise PolicyError(f"defense {self.kind!r} is for classes", code="inapplicable", value=self.kind)
        if not self._deviation(setup) < _MOST_NOISE:
            raise PolicyError(
                f"asks for noise of deviation {self._deviation(setup):.1e} on sums of gradients of at most 1; take a "
                "larger one",
                code="range",
                field=f"defense {self.kind!r} epsilon",
                value=self.epsilon,
            )

    def begin(self, setup: PolicyContext, protection: SecureRandom) -> None:
        """Draw the key, and compute the deviation of this holder's part of the noise."""
        if setup.holders < 2 or not setup.columns:
            raise PolicyError(f"defense {self.kind!r} needs several label holders", code="inapplicable")
        deviation = self._deviation(setup)
        own, total = deviation / math.sqrt(setup.holders - 1), self.sum_noise(setup)
        moved = _sums_moved(setup)
        self._begin(protection, deviation=deviation, own=own, sums=moved, total=total)

    def on_own_sums(self, sums: HolderSums) -> Integers:
        """Return the sums with noise on their gradients."""
        draws = self._draws(sums.values, sums.tree, sums.depth, sums.part)
        noise = draws.gaussian(len(sums.values), self._run["own"] * sums.one)
        noisy = sums.values.copy()
        noisy[:, 0] += np.rint(noise).astype(np.int64)
        return noisy

    def sum_noise(self, setup: PolicyContext) -> float:
        """Return the deviation of the noise of all holders together."""
        return self._deviation(setup) / math.sqrt(setup.holders - 1) * math.sqrt(setup.holders)

    def _deviation(self, setup: PolicyContext) -> float:
        """Return the deviation of the noise of all holders but one."""
        return math.sqrt(_sums_moved(setup)) / ratio_for(self.epsilon, self.delta)

    def account(self) -> dict[str, Any]:
        """Return the epsilon that is spent, delta, and the noise that stands behind them."""
        if not self._run:
            return {}
        return {
            "spent": self.epsilon,
            "delta": self.delta,
            "hides": "the label of one row",
            "deviation_of_a_sum": self._run["deviation"],
            "sums_a_label_moves": self._run["sums"],
        }


def _sums_moved(setup: PolicyContext) -> int:
    """Return how many sums one label moves."""
    return setup.trees * (setup.columns * setup.depth + 1)
