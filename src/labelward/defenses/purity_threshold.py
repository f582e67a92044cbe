"""Purity threshold: nodes dominated by one class are grown by the active party alone and disclosed to nobody.

Setting: the passive parties are curious; the purer the nodes that one sees, the better its clusters of rows fit the
classes. The purity of a node is the share of its largest class among the rows that the tree grows on.

``hide = "children"``: a candidate of a passive party of which a child would exceed the threshold is not chosen, since
its owner would learn that child. Where a child of any other split would exceed it, both children are shown to nobody
(each follows from the other by subtraction) and the active party grows all that lies below alone. A root that exceeds
it has a child that does, whatever the split: its whole tree is grown alone.

``hide = "below"``: a node that exceeds the threshold is grown on by the active party alone. Its own rows are known all
the same: to the owner of the split above it, and to the others, who are told its sibling's rows, by subtraction.

Outside the guarantee: the joint information of several nodes, and rows out of a tree's sample,
which the owner of a split can place, too.

Reference: CMOSB paper, Section V-C and Algorithm 4, of which ``"below"`` is what can be seen. ``"children"`` is
stricter: it keeps the promise that no pure node is visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.parameters import Fraction
from labelward.policy.base import BudgetScope, CandidateSplits, Counts, Floats, Policy, PolicyContext, SplitReveal


@dataclass(frozen=True, kw_only=True)
class PurityThreshold(Policy):
    """Hide nodes in which one class prevails from passive parties."""

    kind: ClassVar[str] = "purity-threshold"
    purities: ClassVar[bool] = True

    threshold: Annotated[
        Fraction,
        Meta(
            description="Maximum purity (fraction of the largest class) of nodes that passive parties see; above 1/C "
            "for C classes, 1 hides nothing."
        ),
    ]
    hide: Annotated[
        Literal["children", "below"],
        Meta(
            description="Hide purer nodes and their siblings ('children'), or only what is below them, as in the "
            "paper ('below')."
        ),
    ] = "children"

    @property
    def begins_alike(self) -> bool:
        """Each tree is treated alike."""
        return True

    @classmethod
    def scopes(cls, parameters: Mapping[str, Any]) -> dict[str, BudgetScope]:
        """The bound is one of single nodes."""
        excludes = "several nodes together, and parties that join their views"
        return {"threshold": BudgetScope(covers="per node", excludes=excludes, labeled=False)}

    def check(self, setup: PolicyContext) -> None:
        """Refuse regression, a threshold that every node exceeds, and rows that count several times."""
        if not setup.classes:
            raise PolicyError(
                "defense 'purity-threshold' compares shares of classes; it does not apply to regression",
                code="inapplicable",
            )
        if self.threshold * setup.classes <= 1:
            raise PolicyError(
                f"with {setup.classes} classes no node has a purity below "
                f"1/{setup.classes}, so a threshold of {self.threshold:g} hides all of them; it must be above",
                code="inapplicable",
                field="defense 'purity-threshold'",
                value=self.threshold,
            )
        if setup.replace:
            raise PolicyError(
                "defense 'purity-threshold' does not go with replace: rows would count several times",
                code="inapplicable",
            )
        if setup.sampling == "goss":
            raise PolicyError(
                "defense 'purity-threshold' does not support sampling 'goss': the sample reveals label information",
                code="inapplicable",
                value=setup.sampling,
            )

    def split_candidates(self, candidates: CandidateSplits) -> NDArray[np.bool_]:
        """Refuse a passive party's candidates that would disclose a hidden node."""
        allowed = np.ones(candidates.left.shape[:-1], dtype=np.bool_)
        if candidates.owner_is_active:
            return allowed
        if self.hide == "below":
            return allowed & (_purity(candidates.node) <= self.threshold)[:, None, None]
        right = candidates.node[:, None, None, :] - candidates.left
        if (right < 0).any():
            raise PolicyError(
                "decrypted class counts exceed those of their node",
                code="cannot-act",
                field="defense 'purity-threshold'",
            )
        return allowed & (np.maximum(_purity(candidates.left), _purity(right)) <= self.threshold)

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        """Hide the children from everyone where either exceeds the threshold, or where their node does."""
        nodes = (reveal.left + reveal.right,) if self.hide == "below" else (reveal.left, reveal.right)
        purest = max(float(_purity(counts)) for counts in nodes)
        return reveal.participants if purest <= self.threshold else frozenset()


def _purity(counts: Counts) -> Floats:
    """Return the share of the largest class of counts int64 [..., C]; 0 where there is no row."""
    purity: Floats = counts.max(axis=-1) / np.maximum(counts.sum(axis=-1), 1)
    return purity
