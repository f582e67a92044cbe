"""Purity threshold: nodes dominated by one class are grown by the active party alone and disclosed to nobody.

Setting: the passive parties are curious; the purer the nodes that one sees, the better its clusters of rows fit the
classes. The purity of a node is the share of its largest class among the rows that the tree grows on.

``hide = "children"``: a candidate of a passive party of which a child would exceed the threshold is not chosen, since
its owner would learn that child. Where a child of any other split would exceed it, both children are shown to nobody
(each follows from the other by subtraction) and the active party grows all that lies below alone. A root that exceeds
it has a child that does, whatever the split: its whole tree is grown alone.

``hide = "below"``: a node that exceeds the threshold is grown on by the active party alone. Its own rows are known all
the same: to the owner of the split above it, and to the others, who are told its sibling's rows, by subtraction.

``hide = "algorithm-4"``: a node is tested before its rows are shared. Where both children of a split exceed the
threshold, the rows of neither are needed by anybody else: the split is told to nobody, and a candidate of a passive
party that would be such a split is not chosen. Where one child exceeds it, it follows from the other, which is shared,
and is grown on by the active party alone.

Outside the guarantee: the joint information of several nodes, and rows out of a tree's sample,
which the owner of a split can place, too.

Reference: CMOSB paper, Section V-C, which tests a node after its rows were shared (``"below"``), and Algorithm 4, line
10, which tests it before (``"algorithm-4"``). Difference: a passive party's own split of two children that exceed
the threshold is not chosen; in the paper its owner learns it. ``"children"`` is stricter: no pure node is visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.errors import PolicyError
from labelward.kernels.class_counts import child_purities, purities
from labelward.parameters import Fraction
from labelward.policy.base import BudgetScope, CandidateSplits, Floats, Policy, PolicyContext, SplitReveal


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
        Literal["children", "below", "algorithm-4"],
        Meta(
            description="Hide purer nodes and their siblings ('children'), only what is below them ('below', the "
            "paper's Section V-C), or that and pairs of purer siblings ('algorithm-4')."
        ),
    ] = "children"

    @property
    def begins_alike(self) -> bool:
        """Each tree is treated alike."""
        return True

    @classmethod
    def scopes(cls, parameters: Mapping[str, Any]) -> dict[str, BudgetScope]:
        """The bound is one of single nodes."""
        excludes = "several nodes together; parties that pool their views"
        return {"threshold": BudgetScope(covers="for one node and one party", excludes=excludes, labeled=False)}

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
        if self.hide != "children":
            allowed &= (purities(candidates.node) <= self.threshold)[:, None, None]
        if self.hide == "below":
            return allowed
        nodes, columns, each, classes = candidates.left.shape
        left, right, least = child_purities(candidates.left.reshape(nodes, columns * each, classes), candidates.node)
        if least < 0:
            raise PolicyError(
                "decrypted class counts exceed those of their node",
                code="cannot-act",
                field="defense 'purity-threshold'",
            )
        exceeding = self._exceeding(left, right).reshape(nodes, columns, each)
        return allowed & (exceeding <= self.threshold)

    def before_instance_space(self, reveal: SplitReveal) -> frozenset[str]:
        """Hide the children from everyone where they, by :attr:`hide`, or their node exceed the threshold."""
        left, right, both = purities(np.stack([reveal.left, reveal.right, reveal.left + reveal.right]))
        purest = 0.0 if self.hide == "children" else float(both)
        if self.hide != "below":
            purest = max(purest, float(self._exceeding(left, right)))
        return reveal.participants if purest <= self.threshold else frozenset()

    def _exceeding(self, left: Floats, right: Floats) -> Floats:
        """Return what of two children's purities must not exceed the threshold: the larger one, or the smaller one."""
        choose = np.maximum if self.hide == "children" else np.minimum
        decisive: Floats = choose(left, right)
        return decisive
