"""Attacks on the state of a split network after an epoch, in place of its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from labelward.attacks.base import Attack
from labelward.parameters import PositiveInt


@dataclass(frozen=True, kw_only=True)
class AfterEpoch(Attack):
    """The common part of attacks that can read the state after any epoch."""

    epoch: Annotated[
        PositiveInt | None,
        Meta(
            description="Attack the state after so many epochs; a passive party needs [run] record = 'epochs' for it. "
            "Left out: the trained model."
        ),
    ] = None

    @property
    def reads_epochs(self) -> bool:
        """Whether the attacker must have observed its own embeddings after each epoch."""
        return self.epoch is not None and "passive" in self.roles

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name; ``epoch`` only where it was given."""
        found = super().parameters()
        return found if self.epoch is not None else {name: value for name, value in found.items() if name != "epoch"}

    def check_model(self, model: Mapping[str, Any]) -> None:
        """See :meth:`Attack.check_model`; the training must have so many epochs."""
        super().check_model(model)
        if self.epoch is not None and self.epoch > model.get("epochs", self.epoch):
            raise self.error(
                "epoch", f"{self.epoch} is beyond the {model['epochs']} epochs of the training", code="range"
            )
