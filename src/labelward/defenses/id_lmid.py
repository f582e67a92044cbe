"""ID-LMID: bound the mutual information between the label and every instance space that a passive party can see.

Setting: the passive parties are curious; each sees the instance spaces of the nodes in which it takes part. A
candidate of a passive party of which a child would exceed the bound is not chosen (its owner would learn the child);
where a child of any other split would exceed it, the split's children are shown to nobody and the whole subtree is
grown by the active party alone.

Units: nats. The bound is over the whole training set, rows out of a tree's sample included; the root is not checked.

What it does not promise: the bound holds for each node, not for all nodes together (Corollary 1 speaks of one
indicator). The audit reports the joint information of all that was shown beside it.

Reference: ID2Graph paper, Section 4.2, Eq. 3 and 6, Algorithms 5 and 6. Differences: class counts travel packed
beside gradient and hessian, and the counts outside a node follow from the totals instead of being sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.kernels.information import node_bound
from labelward.parameters import NonNegativeFloat
from labelward.policy.base import BudgetScope, CandidateSplits, Policy, PolicyContext, SplitReveal


@dataclass(frozen=True, kw_only=True)
class IdLmid(Policy):
    """Bound the mutual information between the label and every instance space that passive parties see."""

    kind: ClassVar[str] = "id-lmid"
    purities: ClassVar[bool] = True

    xi: Annotated[
        NonNegativeFloat,
        Meta(description="Upper bound in nats of the mutual information between label and instance space."),
    ]
    sampled: Annotated[
        bool,
        Meta(
            description="Allow trees on a sample of the rows, as in a forest. The bound then holds, as in the paper, "
            "for the rows of each tree; the report gives the information of the rows outside the sample."
        ),
    ] = False

    @property
    def begins_alike(self) -> bool:
        """Each tree is treated alike."""
        return True

    @classmethod
    def scopes(cls, parameters: Mapping[str, Any]) -> dict[str, BudgetScope]:
        """The bound is one of single nodes."""
        excludes = "several nodes together; parties that pool their views"
        return {"xi": BudgetScope(covers="for one node and one party", excludes=excludes, labeled=False)}

    def check(self, setup: PolicyContext) -> None:
        """Refuse models and settings that the bound does not cover.

        With sampled rows the owner of a split knows on which side the rows out of the sample lie, too; rows that are
        drawn with replacement are counted several times; the bound does not apply to regression.
        """
        if not setup.classes:
            raise PolicyError(
                "defense 'id-lmid' bounds information about classes; it does not apply to regression",
                code="inapplicable",
            )
        if setup.sampling != "uniform":
            raise PolicyError(
                f"defense 'id-lmid' cannot keep its bound with sampling {setup.sampling!r}: rows are drawn by their "
                "gradients, so the sample itself reveals label information",
                code="inapplicable",
                value=setup.sampling,
            )
        if setup.replace:
            raise PolicyError(
                "defense 'id-lmid' cannot keep its bound with replace: rows would count several times",
                code="inapplicable",
            )
        if setup.row_fraction < 1 and not self.sampled:
            raise PolicyError(
                f"defense 'id-lmid' cannot keep its bound with row_fraction {setup.row_fraction:g}: "
                "parties route the rows out of a tree's sample through their own splits "
                "(sampled = true bounds the rows of each tree alone, as in the paper)",
                code="inapplicable",
                value=setup.row_fraction,
            )

    def split_candidates(self, candidates: CandidateSplits) -> NDArray[np.bool_]:
        """Refuse a passive party's candidates of which either child exceeds the bound (Algorithm 5, lines 2 to 4)."""
        if candidates.owner_is_active:
            return np.ones(candidates.left.shape[:-1], dtype=np.bool_)
        right = candidates.node[:, None, None, :] - candidates.left
        if (right < 0).any():
            raise PolicyError(
                "decrypted class counts exceed those of their node", code="cannot-act", field="defense 'id-lmid'"
            )
        totals = candidates.totals
        allowed: NDArray[np.bool_] = (node_bound(candidates.left, totals) <= self.xi) & (
            node_bound(right, totals) <= self.xi
        )
        return allowed

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        """Hide the children from everyone where either exceeds the bound (lines 6 and 7)."""
        visible = max(float(node_bound(child, reveal.totals)) for child in (reveal.left, reveal.right)) <= self.xi
        return reveal.participants if visible else frozenset()
