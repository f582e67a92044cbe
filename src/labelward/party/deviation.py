"""How a party deviates from the agreed training, where an attack and an estimator decide it alike."""

from __future__ import annotations

from typing import Literal


def malicious_base(optimizer: str, reading: str) -> Literal["momentum", "adam"]:
    """Return what the malicious optimizer scales where nobody says: what parties train with; the velocity if published.

    At Adam's rate a velocity hardly moves. The published code has no other one.

    Args:
        optimizer: of the model, ``"sgd"`` or ``"adam"``.
        reading: form of the malicious optimizer, ``"velocity"`` or ``"published"``.
    """
    return "adam" if optimizer == "adam" and reading != "published" else "momentum"
