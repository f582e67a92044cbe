"""Local trees: the active party grows the first trees alone, so that passive parties see only later trees.

Setting: the passive parties are curious; they see no message of a local tree, and the first tree that they do see
fits what the local ones left over.

Reference: "reduced leakage" of SecureBoost (Cheng et al. 2021, Section V), which replaces the first tree; FATE's
``complete_secure`` replaces the first k; the CMOSB paper's variable adds them. Both forms are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from labelward.errors import PolicyError
from labelward.parameters import PositiveInt
from labelward.policy.base import Policy, PolicyContext, Schedule


@dataclass(frozen=True, kw_only=True)
class LocalTrees(Policy):
    """Grow the first trees on the active party's columns alone."""

    kind: ClassVar[str] = "local-trees"

    count: Annotated[
        PositiveInt, Meta(description="Number of local trees (of rounds, where a round grows one tree per class).")
    ] = 1
    mode: Annotated[
        Literal["replace", "add"],
        Meta(description="Local trees replace the first trees of the model ('replace') or precede them ('add')."),
    ] = "replace"

    @property
    def begins_alike(self) -> bool:
        """The first trees are local, however many follow."""
        return True

    def check(self, setup: PolicyContext) -> None:
        """Refuse a forest, an active party without columns, and more trees than there are."""
        if setup.model == "forest":
            raise PolicyError(
                "the trees of a forest do not build on one another, so that a local one hides "
                "nothing of the others; it is for boosted trees",
                code="inapplicable",
                field="defense 'local-trees'",
            )
        if setup.active_columns == 0:
            raise PolicyError(
                "the active party holds no column to grow a tree on", code="inapplicable", field="defense 'local-trees'"
            )
        if self.mode == "replace" and self.count > setup.trees:
            raise PolicyError(
                f"{self.count} trees cannot replace the model's {setup.trees}",
                code="inapplicable",
                field="defense 'local-trees'",
                value=self.count,
            )

    def schedule(self, schedule: Schedule) -> Schedule:
        """Empty the first trees of passive parties, or put such trees before the others."""
        local = (frozenset[str](),) * self.count
        others = schedule.participants[self.count :] if self.mode == "replace" else schedule.participants
        return Schedule(participants=local + others)
