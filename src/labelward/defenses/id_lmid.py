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

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError, PolicyError, number_code
from labelward.kernels.information import node_bound
from labelward.policy.base import CandidateSplits, Policy, PolicyContext, SplitReveal

__all__ = ["IdLmid"]


@dataclass(frozen=True, kw_only=True)
class IdLmid(Policy):
    """Show no instance space whose bound exceeds ``xi``.

    Attributes:
        xi: the bound in nats. There is no default: it is the choice that only the user can make.
        sampled: whether trees may grow on a part of the rows, as those of a forest do. The bound then holds, as in the
            paper, for the rows that a tree grows on; an owner whose splits lead from the root on can place the others,
            too, and what that tells stands in the report (the information of the merged groups).
    """

    kind: ClassVar[str] = "id-lmid"
    purities: ClassVar[bool] = True

    xi: float
    sampled: bool = False

    def __post_init__(self) -> None:
        number = isinstance(self.xi, int | float) and not isinstance(self.xi, bool)
        if not number or not 0 <= self.xi < float("inf"):
            raise JobError(
                f"xi must be a finite number of nats, at least 0, but got {self.xi!r}",
                code=number_code(self.xi),
                value=self.xi,
            )
        if not isinstance(self.sampled, bool):
            raise JobError(f"sampled must be true or false but got {self.sampled!r}", code="type", value=self.sampled)

    def check(self, setup: PolicyContext) -> None:
        """Refuse what the bound does not cover.

        With sampled rows the owner of a split knows on which side the rows out of the sample lie, too; rows that are
        drawn with replacement are counted several times; quantities have no classes to bound.
        """
        if not setup.classes:
            raise PolicyError(
                "defense 'id-lmid' bounds what is told of classes; the labels are quantities", code="inapplicable"
            )
        if setup.sampling != "uniform":
            raise PolicyError(
                f"defense 'id-lmid' cannot keep its bound with sampling {setup.sampling!r}: rows are drawn by their "
                "gradients, so that the drawn rows themselves tell of the labels",
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
        shown = max(float(node_bound(child, reveal.totals)) for child in (reveal.left, reveal.right)) <= self.xi
        return reveal.participants if shown else frozenset()

    def parameters(self) -> dict[str, Any]:
        """Return the bound."""
        return asdict(self)
