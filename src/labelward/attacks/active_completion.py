"""Model completion on the view of a party that trained its bottom model with the malicious optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.nets.view_gradients import has_gradients
from labelward.attacks.passive_completion import Completion
from labelward.errors import DataError, JobError
from labelward.party.view import View

__all__ = ["ActiveCompletion"]

_OPTIMIZER = ("beta", "gamma", "least", "most", "reading")


@dataclass(frozen=True, kw_only=True)
class ActiveCompletion(Completion):
    """Passive completion of a bottom model that its party trained with the malicious optimizer.

    What is active is done in training: the party scales its own updates up, so that the top model comes to rely on its
    embeddings (``behavior`` of the run). The attack on what that run left is the same.

    Setting: a passive party that sends and receives what the protocol says and updates its own bottom model as it
        likes. Auxiliary knowledge, and all else, as for passive completion. Without gradients in the view it is
        passive completion.

    Reference: Section 3.4 and Algorithm 1 of the label inference paper.

    Attributes:
        auxiliary: as for passive-completion, and so are the following.
        fine_tune: whether the bottom model learns with the head.
        labels: ``"told"`` or ``"direct"``.
        steps: of learning.
        batch_size: labeled rows in a step, and unlabeled ones.
        learning_rate: of Adam.
        unlabeled_weight: of the unlabeled rows' loss.
        temperature: of sharpened guesses.
        alpha: of the beta distribution of shares.
        average: share of the moving average that a step leaves.
        shrink: share by which weights shrink in a step.
        mix: ``"auto"``, ``"inputs"`` or ``"embeddings"``.
        honest: whether the view of a party that behaved honestly is attacked, too; otherwise it is refused. An audit
            then makes no run of its own for the attack.
        beta: of the malicious optimizer: share of the velocity that stays at each step.
        gamma: of it: how much the ratio of two steps counts.
        least: of it: lower bound of the scaling factor.
        most: of it: upper bound.
        reading: of it: ``"velocity"`` or ``"published"``.
    """

    kind: ClassVar[str] = "active-completion"

    honest: bool = False
    beta: float = 0.9
    gamma: float = 1.0
    least: float = 1.0
    most: float = 5.0
    reading: str = "velocity"

    @property
    def behavior(self) -> dict[str, Any] | None:
        """The malicious optimizer, with what of its parameters is not at its default; None with ``honest``."""
        if self.honest:
            return None
        chosen = {name: (getattr(self, name), type(self).__dataclass_fields__[name].default) for name in _OPTIMIZER}
        return {"kind": "malicious-optimizer"} | {
            name: value for name, (value, usual) in chosen.items() if value != usual
        }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.honest, bool):
            raise JobError(f"honest must be true or false but is {self.honest!r}", code="type", value=self.honest)

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a class for every training row; as passive completion, and :class:`DataError` for an honest party."""
        active = any(each.get("stage") == "behavior" for each in view.applied())
        if has_gradients(view) and not active and not self.honest:
            raise DataError(
                f"{self.kind} reads the view of a party that trained with the malicious optimizer, but party "
                f"{view.party!r} behaved honestly; passive-completion reads this view, and so does honest = true",
                code="unsupported",
                value=view.party,
            )
        return super().__call__(view, own, aux, rng=rng)
