"""Local trees: the active party grows the first trees alone, so that passive parties see only what later trees add.

Setting: the passive parties are curious; they see no message of a local tree, and the first tree that they do see
fits what the local ones left over.

Reference: "reduced leakage" of SecureBoost (Cheng et al. 2021, Section V), which replaces the first tree; FATE's
``complete_secure`` replaces the first k; the CMOSB paper's variable adds them. Both forms are here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from labelward.errors import JobError, PolicyError, number_code
from labelward.policy.base import Policy, PolicyContext, Schedule

__all__ = ["LocalTrees"]


@dataclass(frozen=True, kw_only=True)
class LocalTrees(Policy):
    """Grow the first trees without the passive parties.

    Attributes:
        count: how many trees (rounds, where there is one tree for each class).
        mode: ``"replace"``: they are the first of the model's trees; ``"add"``: they come before them.
    """

    kind: ClassVar[str] = "local-trees"

    count: int = 1
    mode: Literal["replace", "add"] = "replace"

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise JobError(
                f"count must be a whole number from 1 on but got {self.count!r}",
                code=number_code(self.count, whole=True),
                value=self.count,
            )
        if self.mode not in ("replace", "add"):
            raise JobError(f"mode must be 'replace' or 'add' but got {self.mode!r}", code="choice", value=self.mode)

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
        kept = schedule.participants[self.count :] if self.mode == "replace" else schedule.participants
        return Schedule(participants=local + kept)

    def parameters(self) -> dict[str, Any]:
        """Return count and mode."""
        return asdict(self)
