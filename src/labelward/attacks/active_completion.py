"""Model completion on the view of a party that trained its bottom model with the malicious optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from msgspec import Meta

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.nets.view_gradients import has_gradients
from labelward.attacks.passive_completion import Completion
from labelward.errors import DataError
from labelward.parameters import NonNegativeFloat, PositiveFloat
from labelward.party.deviation import malicious_base
from labelward.party.view import View

_OPTIMIZER = ("beta", "gamma", "least", "most", "rate", "base", "reading")
_UNNAMED = {"base": "momentum"}
"""What a behavior has that does not name it, where that is no default of the attack: the first version had no base."""


@dataclass(frozen=True, kw_only=True)
class ActiveCompletion(Completion):
    """Model completion after training the attacker's bottom model with the malicious optimizer.

    The active part is in training: the party scales up its own updates, so that the top model comes to rely on its
    embeddings (``behavior`` of the run). The attack on what that run left is the same.

    Setting: a passive party that sends and receives what the protocol says and updates its own bottom model as it
        likes. Auxiliary knowledge, and all else, as for passive completion. Without gradients in the view it is
        passive completion.

    Reference: Section 3.4 and Algorithm 1 of the label inference paper.
    """

    kind: ClassVar[str] = "active-completion"

    honest: Annotated[
        bool,
        Meta(
            description="Also attack the view of a party that followed the protocol; an audit then makes no separate "
            "run for the attack."
        ),
    ] = False
    beta: Annotated[
        float,
        Meta(
            ge=0, lt=1, description="Momentum of the malicious optimizer: fraction of the velocity kept in each step."
        ),
    ] = 0.9
    gamma: Annotated[NonNegativeFloat, Meta(description="Weight of the step ratio in the malicious optimizer.")] = 1.0
    least: Annotated[NonNegativeFloat, Meta(description="Lower bound of the malicious optimizer's scaling factor.")] = (
        1.0
    )
    most: Annotated[NonNegativeFloat, Meta(description="Upper bound of the malicious optimizer's scaling factor.")] = (
        5.0
    )
    rate: Annotated[
        PositiveFloat | None,
        Meta(
            description="Learning rate of the malicious optimizer; it follows the schedule of the job. Left out: that "
            "of the job, with which the attacker is slower than honest parties with momentum."
        ),
    ] = None
    base: Annotated[
        Literal["auto", "momentum", "adam"],
        Meta(
            description="What the malicious optimizer scales: the velocity ('momentum'), the steps of Adam ('adam'), "
            "or what the optimizer of the job is ('auto'). At Adam's rate a velocity hardly moves."
        ),
    ] = "auto"
    reading: Annotated[
        Literal["velocity", "published"],
        Meta(
            description="Form of the malicious optimizer: 'velocity' (each step is scaled anew) or 'published' (the "
            "velocity is scaled in place, so that scaling compounds)."
        ),
    ] = "velocity"

    @property
    def behavior(self) -> dict[str, Any] | None:
        """The malicious optimizer, with its parameters that differ from its defaults; None with ``honest``.

        Only a settled attack can be trained for: no party takes ``base = "auto"``.
        """
        if self.honest:
            return None
        usual = {name: type(self).__dataclass_fields__[name].default for name in _OPTIMIZER} | _UNNAMED
        chosen = {name: getattr(self, name) for name in _OPTIMIZER}
        return {"kind": "malicious-optimizer"} | {name: value for name, value in chosen.items() if value != usual[name]}

    def settled(self, model: Mapping[str, Any]) -> Self:
        """Return the attack with the base that ``"auto"`` stands for beside a model's optimizer."""
        if self.base != "auto":
            return self
        return replace(self, base=malicious_base(model.get("optimizer", "sgd"), self.reading))

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a class for every training row; as passive completion, and :class:`DataError` for an honest party."""
        active = [each for each in view.applied() if each.get("stage") == "behavior"]
        if has_gradients(view) and not active and not self.honest:
            raise DataError(
                f"{self.kind} reads the view of a party that trained with the malicious optimizer, but party "
                f"{view.party!r} behaved honestly; passive-completion reads this view, and so does honest = true",
                code="unsupported",
                value=view.party,
            )
        if active and self.base == "auto" and _scaled_less(view, active[-1]["parameters"]):
            raise DataError(
                f"party {view.party!r} scaled a velocity where the job has Adam, with base = 'momentum' or in an "
                "earlier version; with that base the attack reads this view, and an audit trains one with Adam's steps",
                code="unsupported",
                value=view.party,
            )
        return super().__call__(view, own, aux, rng=rng)


def _scaled_less(view: View, recorded: Mapping[str, Any]) -> bool:
    """Return whether a party scaled a velocity, as where no base is on record, and would have scaled steps of Adam."""
    settled = malicious_base(view.parameter("model.optimizer", "sgd"), recorded.get("reading", "velocity"))
    return settled == "adam" and recorded.get("base", "momentum") != "adam"
