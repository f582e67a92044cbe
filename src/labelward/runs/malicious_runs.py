"""Malicious runs: one party deviates from the agreed training, as an active attack requires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from labelward.attacks.base import Attack
from labelward.job.components import ComponentSpec


@dataclass(frozen=True)
class MaliciousRun:
    """A deviating party and its behavior.

    Attributes:
        party: the deviating passive party.
        behavior: kind and parameters, as :attr:`Attack.behavior` gives them.
    """

    party: str
    behavior: ComponentSpec

    @classmethod
    def of(cls, party: str, behavior: Mapping[str, Any]) -> MaliciousRun:
        """Return a party's malicious run from a stored behavior: ``kind`` and parameters."""
        return cls(party, ComponentSpec.of(behavior))

    @property
    def slug(self) -> str:
        """Suffix of the run's folder name, after the seed."""
        return f"{self.party}-{self.behavior.slug}"

    @property
    def label(self) -> str:
        """Readable name: ``telco: malicious-optimizer``."""
        return f"{self.party}: {self.behavior.label}"


def malicious_behavior(attack: Attack) -> ComponentSpec | None:
    """Return the behavior that the attack requires of its party in training; None: honest."""
    wanted = attack.behavior
    return None if wanted is None else ComponentSpec.of(wanted)


def malicious_runs(attacks: Iterable[tuple[str, Attack]]) -> list[MaliciousRun]:
    """Return the additional runs that these attacks by these parties require."""
    found = ((party, malicious_behavior(attack)) for party, attack in attacks)
    return list(dict.fromkeys(MaliciousRun(party, behavior) for party, behavior in found if behavior is not None))
