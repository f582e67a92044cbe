"""Malicious runs: one party deviates from the agreed training, as an active attack requires.

A deviating party may break the training for all. Then there is neither a model nor a view to attack; the folder of the
run keeps ``diverged.json`` instead of views, and the audit goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from labelward.attacks.base import Attack
from labelward.job.components import ComponentSpec
from labelward.party.json_file import read_versioned
from labelward.runs.secure_files import write_json

FORMAT = 1
DIVERGED_FILE = "diverged.json"


class DivergedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A malicious run whose numbers were not finite any more: what there is of it.

    Attributes:
        party: the deviating party.
        behavior: kind and parameters.
        defense: label of the chain of defenses.
        reason: the error that ended it.
    """

    format: Literal[1] = 1
    party: str
    behavior: dict[str, Any]
    defense: str
    seed: int
    reason: str


def write_diverged(folder: Path, run: DivergedRun) -> None:
    """Store that a run diverged; :class:`~labelward.errors.OutputError` if the file cannot be written."""
    write_json(folder / DIVERGED_FILE, run)


def read_diverged(folder: Path) -> DivergedRun | None:
    """Return what was stored of a run that diverged; None: it did not, or has not been made."""
    path = folder / DIVERGED_FILE
    return read_versioned(path, DivergedRun, FORMAT) if path.exists() else None


def diverged_runs(audit: Path) -> list[DivergedRun]:
    """Return all runs of an audit's folder that diverged, in the order of their folders."""
    found = (read_diverged(path.parent) for path in sorted(audit.glob(f"runs/*/*/{DIVERGED_FILE}")))
    return [each for each in found if each is not None]


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
