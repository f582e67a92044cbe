"""A run in which one party does not train as agreed: what an active attack needs beside the honest run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from labelward.attacks.base import Attack
from labelward.job.components import ComponentSpec


@dataclass(frozen=True)
class MaliciousRun:
    """Who deviates, and how.

    Attributes:
        party: a passive one.
        behavior: kind and parameters, as :attr:`Attack.behavior` gives them.
    """

    party: str
    behavior: ComponentSpec

    @classmethod
    def of(cls, party: str, behavior: Mapping[str, Any]) -> MaliciousRun:
        """Return the deviation of a party to a behavior as results hold it: ``kind`` and parameters."""
        return cls(party, _kind(behavior))

    @property
    def slug(self) -> str:
        """What the folder of its run is called after the seed."""
        return f"{self.party}-{self.behavior.slug}"

    @property
    def label(self) -> str:
        """For people: ``telco: malicious-optimizer``."""
        return f"{self.party}: {self.behavior.label}"


def malicious_behavior(attack: Attack) -> ComponentSpec | None:
    """Return how the attacker's party must behave in training; None: as agreed."""
    wanted = attack.behavior
    return None if wanted is None else _kind(wanted)


def malicious_runs(passive: Iterable[str], attacks: Iterable[Attack]) -> list[MaliciousRun]:
    """Return each run that these attacks by each passive party need beside the honest one."""
    behaviors = dict.fromkeys(behavior for attack in attacks if (behavior := malicious_behavior(attack)) is not None)
    return [MaliciousRun(party, behavior) for party in passive for behavior in behaviors]


def _kind(behavior: Mapping[str, Any]) -> ComponentSpec:
    return ComponentSpec(behavior["kind"], {name: value for name, value in behavior.items() if name != "kind"})
