"""Noisy gradients: independent noise on every number of a returned gradient.

Setting: the passive parties are curious. Each number of each gradient gets noise before it leaves, in every batch,
whoever it goes to. What the active party itself learns from (its top model, its own bottom model) stays without noise.

``scale`` is relative to the gradient of the batch's *mean* loss, as it leaves: a row's own gradient is divided by the
rows of the batch, so that 0.01 in a batch of 32 is 0.32 of a row's own. The same scale weighs more in larger batches.
For ``"laplace"`` it is the parameter b (the deviation is 1.41 b), for ``"gaussian"`` the deviation. A scale comes with
no account: gradients are not bounded by anything.

``epsilon``, ``delta`` and ``clip`` (Gaussian only) come with an account over the whole run, for all passive parties
together. What is hidden is the label of one row (any change of it). Each row's gradient is clipped to ``clip`` (L2, of
the gradient of the mean) and gets noise of a deviation that follows from the plan of the run:

- Where a row's gradient follows from no label but its own (no top model, an active party without columns, classes
  without weights), a change moves one row by 2 ``clip`` at most, once per epoch and passive party.
- Everywhere else the weights of the active party carry a label on, unprotected, into the gradients of all other rows.
  A change then moves each row of each batch: by 2 ``clip`` times the root of the rows of the batch, in every batch.

Releases to several parties compose, since what one learned comes back in its embeddings and so in the gradients of the
others. Composition is exact for Gaussian noise; see :mod:`labelward.privacy.gaussian`. Row weights count as public, as
do the rows of training, their number, and how many classes there are. Early stopping is refused with an account, since
it tells the epoch selected by the validation rows, whose labels have no noise.

Reference: Section 6.1 of the label inference paper (Laplace noise, no account). The rest is not in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.defenses._keyed_noise import KeyedGradientDefense, refuse_large_delta
from labelward.errors import PolicyError
from labelward.parameters import PositiveFloat
from labelward.policy.base import BudgetScope, PolicyContext
from labelward.policy.net_points import ReturnedGradient, Values
from labelward.privacy.gaussian import epsilon_of, ratio_for
from labelward.privacy.noise import on_grid
from labelward.rng import SecureRandom


@dataclass(frozen=True, kw_only=True)
class NoisyGradients(KeyedGradientDefense):
    """Add Laplace or Gaussian noise to returned gradients."""

    kind: ClassVar[str] = "noisy-gradients"

    distribution: Annotated[
        Literal["laplace", "gaussian"], Meta(description="Distribution of the noise: 'laplace' or 'gaussian'.")
    ] = "laplace"
    scale: Annotated[
        PositiveFloat | None,
        Meta(
            description="Scale of the noise (of 'gaussian' its standard deviation), relative to the gradient of the "
            "batch's mean loss. Required, unless epsilon, delta and clip are given."
        ),
    ] = None
    epsilon: Annotated[
        PositiveFloat | None,
        Meta(
            description="Privacy budget of the label of one row over the whole run and all passive parties, in place "
            "of scale; needs 'gaussian' noise, delta and clip."
        ),
    ] = None
    delta: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        Meta(description="Delta that belongs to epsilon; well below 1 / rows."),
    ] = None
    clip: Annotated[
        PositiveFloat | None,
        Meta(description="Maximum L2 norm of a row's part of the gradient of the mean loss."),
    ] = None
    _plan: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check_parameters(self) -> None:
        """Require exactly one of noise scale and privacy budget."""
        budget = [getattr(self, name) is not None for name in ("epsilon", "delta", "clip")]
        if self.scale is not None:
            if any(budget):
                raise self.error("scale", "is not for noise by epsilon, delta and clip; remove it, or remove these")
            return
        if not all(budget):
            reason = "required, or all of epsilon, delta and clip; there is no default"
            raise self.error("scale", reason, code="missing")
        if self.distribution != "gaussian":
            raise self.error("distribution", "must be 'gaussian' with epsilon, delta and clip")

    def check(self, setup: PolicyContext) -> None:
        """Refuse settings that the account does not cover, and a delta that may give away single labels."""
        if self.delta is not None:
            refuse_large_delta(self.kind, self.delta, setup.rows)
        if self.scale is None and setup.stops_early:
            raise PolicyError(
                "defense 'noisy-gradients' with an account does not go with patience: which epoch was the best would "
                "tell of the validation rows' labels, which carry no noise",
                code="inapplicable",
            )
        if self.scale is None and setup.continues:
            raise PolicyError(
                "defense 'noisy-gradients' with an account does not go with an earlier training: what that told of the "
                "labels adds up",
                code="inapplicable",
            )

    @property
    def begins_alike(self) -> bool:
        """Noise of a given scale does not depend on the number of epochs; that of an account does."""
        return self.scale is not None

    @property
    def row_local(self) -> bool:
        """Each row is clipped by itself."""
        return True

    @classmethod
    def scopes(cls, parameters: Mapping[str, Any]) -> dict[str, BudgetScope]:
        """Epsilon, where it is given, bounds what all gradients of the run tell of one label."""
        if parameters.get("epsilon") is None:
            return {}
        excludes = (
            "labels of validation and test rows; row weights; other trainings on the same labels; parties that deviate "
            "from the protocol; rounding of floating-point numbers"
        )
        return {"epsilon": BudgetScope(covers="per training label", excludes=excludes, private="run")}

    @property
    def promise(self) -> float | None:
        """The account's epsilon."""
        return self.epsilon

    def counts_rows(self, setup: PolicyContext) -> frozenset[str]:
        """Where gradients are separate; elsewhere the account counts on all rows of every batch to move."""
        return frozenset({"on_returned_gradient"} if self.promise is not None and setup.separate else ())

    def begin(self, setup: PolicyContext, protection: SecureRandom) -> None:
        """Draw the key, and compute the noise of each release."""
        super().begin(setup, protection)
        if self.epsilon is not None and self.delta is not None:
            releases = len(setup.passive) * setup.epochs * (1 if setup.separate else setup.batches)
            if not releases:
                raise PolicyError(
                    "a run that returns no gradient has no account",
                    code="inapplicable",
                    field="defense 'noisy-gradients'",
                )
            ratio = ratio_for(self.epsilon, self.delta) / math.sqrt(releases)
            self._plan.update(ratio=ratio, separate=setup.separate, batches=setup.batches)

    def on_returned_gradient(self, returned: ReturnedGradient) -> Values:
        """Return the gradient with noise."""
        draws = self._draws(returned)
        values = returned.values.astype(np.float64)
        if self.scale is None:
            values, spread = _clipped(values, float(self.clip or 0)), self.deviation(len(values))
        else:
            spread = self.scale
        draw = draws.laplace if self.distribution == "laplace" else draws.gaussian
        noisy = on_grid(values + draw(values.size, spread).reshape(values.shape), spread)
        return noisy.astype(returned.values.dtype)

    def deviation(self, rows: int) -> float:
        """Return the deviation of the noise on a batch of some rows, where there is an account; after ``begin``."""
        if not self._plan:
            raise PolicyError("defense 'noisy-gradients' was not started with the run", code="cannot-act")
        moved = 2 * float(self.clip or 0) * (1 if self._plan["separate"] else math.sqrt(rows))
        return moved / self._plan["ratio"]

    def account(self) -> dict[str, Any]:
        """Return gradients that left, and with an account what they cost together, for which delta."""
        found: dict[str, Any] = {"gradients": sum(self.sent.values())}
        if self._plan and self.delta is not None:
            each = int(self._plan["batches"]) if self._plan["separate"] else 1
            releases = sum(math.ceil(sent / each) for sent in self.sent.values())
            spent = epsilon_of(self.delta, self._plan["ratio"] * math.sqrt(releases)) if releases else 0.0
            found |= {"releases": releases, "spent": spent, "hides": "the label of one row"}
        return found


def _clipped(values: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
    """Return rows of an L2 norm of ``clip`` at most."""
    norms = np.sqrt(np.square(values).sum(axis=1, keepdims=True))
    shorter: NDArray[np.float64] = values * np.minimum(1.0, clip / np.maximum(norms, np.finfo(np.float64).tiny))
    return shorter
