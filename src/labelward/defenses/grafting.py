"""Grafting-LDP: the active party repairs trees damaged by noisy labels, after the last message of the training.

Setting: as for :mod:`.label_dp`, without which there is nothing to repair. Passive parties see the same as without
grafting: the trees that were grown with them stay what they know, all of their splits are answered for at prediction,
and it is not disclosed which of these are still in use. That holds for prediction in one round; level by level an owner
would be asked only for the rows that still reach its splits, which depends on true labels, so it is refused.

What is repaired is not private: the leaf weights of the repaired model follow true labels, and its predictions tell of
them whoever gets to see these. Only the passive parties' views are covered.

Reference: ID2Graph paper, Section 4.1, Algorithm 4, with CheckContam as the text means it: a node is contaminated where
the majorities of noisy and of true classes differ (ties: the lowest class). Differences: leaves that are not repaired
may be relabeled. For boosted trees the paper offers nothing, since later trees were fitted to what the noisy
ones left over; here their leaf weights are fitted again, tree by tree, on true labels, with the structure untouched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.policy.base import FinishedTree, Policy, PolicyContext, TreeRepair


@dataclass(frozen=True, kw_only=True)
class Grafting(Policy):
    """Repair trees spoiled by noisy labels, with true labels and the active party's columns; needs label privacy."""

    kind: ClassVar[str] = "grafting"

    unrepaired: Annotated[
        Literal["noisy", "relabel"],
        Meta(
            description="Leaves that are not regrown keep their noisy weights ('noisy', as in the paper) or get those "
            "of the true labels ('relabel'); boosted trees are not regrown, so only 'relabel' changes them."
        ),
    ] = "noisy"

    def check(self, setup: PolicyContext) -> None:
        """Refuse labels without noise, and boosted trees whose leaves would not change."""
        if not any(policy.label_private for policy in setup.chain):
            raise PolicyError(
                "defense 'grafting' repairs what noisy labels spoiled, so it goes in a chain with label privacy "
                "('lp-mst' or 'randomized-response')",
                code="inapplicable",
            )
        if setup.model != "forest" and self.unrepaired == "noisy":
            raise PolicyError(
                "boosted trees build on one another, so that none can be grown anew; "
                "unrepaired = 'relabel' fits their leaves again",
                code="inapplicable",
                field="defense 'grafting'",
                value=self.unrepaired,
            )

    def after_tree(self, tree: FinishedTree) -> TreeRepair:
        """Return the nodes to regrow, and whether all other leaves are to be relabeled."""
        regrow = frozenset[int]() if not tree.alone else _spoiled(tree)
        return TreeRepair(regrow=regrow, refit=self.unrepaired == "relabel")


def _spoiled(tree: FinishedTree) -> frozenset[int]:
    """Return the nodes that are sound but have a contaminated child: below these the tree is grown anew."""
    counts = {leaf: np.stack(both) for leaf, *both in zip(tree.leaves, tree.clean, tree.fitted, strict=True)}
    spoiled: set[int] = set()
    contaminated = {leaf for leaf in tree.leaves if _mismatch(counts[leaf])}
    for node in reversed(tree.nodes):  # a child's number is above its parent's
        left, right = 2 * node + 1, 2 * node + 2
        counts[node] = counts[left] + counts[right]
        if contaminated & {left, right}:
            (contaminated if _mismatch(counts[node]) else spoiled).add(node)
    return frozenset(spoiled)


def _mismatch(counts: NDArray[np.int64]) -> bool:
    """Whether true and noisy majority, of counts int64 [2, C], differ; ties go to the lowest class."""
    clean, noisy = counts.argmax(axis=1)
    return bool(clean != noisy)
