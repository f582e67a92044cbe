"""Partial differential privacy: noise on leaf weights that a source is told (PIVODL).

Setting: the source of a split knows all rows of the leaves below it, and is curious about their labels. Its split
client clips each leaf weight to ``clip`` and adds Gaussian noise before it tells the source; all others, which know
only their own rows of the leaf, get the weight as it is. The model keeps clean weights.

Reference: Zhu et al., PIVODL (2023), Section IV-C, Algorithm 4 and Equation 9: noise of deviation 2·C·σ with
σ = c·√(T·ln(1/δ))/ε over T trees. The paper gives no c, δ or T; here c = 1, δ = 1e-5, and T is the number of trees. The
account states its ε beside the exact one of T Gaussian releases, which is larger (12.27 where it says 8).

What it does not cover: the gains of splits, which everybody is told, and from which the sums of the two leaves below
a split follow up to which of two solutions it is (attack ``split-gains``): **the noise hides nothing from a source that
uses them**; the sums of nodes that are no leaves, which everybody is told (attack ``node-sums``); leaves
beside a node that is none, whose sums follow from those; a source and a split client that collude; and what labels do
to later trees. It is no guarantee for labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from labelward.defenses._keyed_noise import KeyedHolderDefense
from labelward.parameters import PositiveFloat
from labelward.policy.base import BudgetScope, PolicyContext
from labelward.policy.holder_points import Floats, LeafRelease
from labelward.privacy.gaussian import composed, epsilon_of
from labelward.privacy.noise import on_grid
from labelward.rng import SecureRandom


@dataclass(frozen=True, kw_only=True)
class PartialDP(KeyedHolderDefense):
    """Add Gaussian noise to the leaf weights that the source of a split is told."""

    kind: ClassVar[str] = "partial-dp"

    epsilon: Annotated[PositiveFloat, Meta(description="Nominal epsilon, as the paper computes it.")] = 8.0
    delta: Annotated[float, Meta(gt=0, lt=1, description="Delta that belongs to epsilon.")] = 1e-5
    clip: Annotated[PositiveFloat, Meta(description="Maximum absolute leaf weight, before the learning rate.")] = 2.0
    constant: Annotated[PositiveFloat, Meta(description="Constant c of the noise's formula.")] = 1.0

    @classmethod
    def scopes(cls, parameters: Mapping[str, Any]) -> dict[str, BudgetScope]:
        """Epsilon is the paper's, of the leaf weights that owners of splits are told; no guarantee for labels."""
        excludes = (
            "the sums of nodes and the gains of splits, which all parties are told; the leaf weights that follow from "
            "these; parties that pool their views"
        )
        return {"epsilon": BudgetScope(covers="for leaf weights told to owners of splits", excludes=excludes)}

    def begin(self, setup: PolicyContext, protection: SecureRandom) -> None:
        """Draw the key of the noise."""
        self._begin(protection, trees=setup.trees)

    def sigma(self, trees: int) -> float:
        """Return the noise multiplier for a number of trees."""
        return self.constant * math.sqrt(trees * math.log(1 / self.delta)) / self.epsilon

    def tight_epsilon(self, trees: int) -> float:
        """Return the exact epsilon of one noisy weight in each tree."""
        return epsilon_of(self.delta, composed([1 / self.sigma(trees)] * trees))

    def on_leaf_release(self, release: LeafRelease) -> Floats:
        """Return clipped weights with noise for the source, and all others' as they are."""
        draws = self._draws(release.weights, release.tree, release.nodes, release.party)
        if not release.owner:
            return release.weights
        spread = 2 * self.clip * self.sigma(self._run["trees"])
        noise = draws.gaussian(release.weights.size, spread)
        clipped = np.clip(release.weights, -self.clip, self.clip)
        return on_grid(clipped + noise.reshape(clipped.shape), spread)

    def account(self) -> dict[str, Any]:
        """Return the nominal and the exact epsilon, and what neither covers."""
        trees = self._run.get("trees", 0)
        if not trees:
            return {}
        return {
            "epsilon_of_the_paper": self.epsilon,
            "epsilon_of_leaf_weights": self.tight_epsilon(trees),
            "delta": self.delta,
            "not_covered": "sums of nodes and gains of splits, which all parties are told",
        }
