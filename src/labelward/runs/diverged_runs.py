"""Runs whose training diverged: a defense, or a party that deviates from the agreed training, broke it.

Then there is neither a model nor a whole view to attack. The run's folder keeps ``diverged.json`` instead, and the
audit goes on with the others. An honest, undefended training that diverges ends an audit: the job asks for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from labelward.party.json_file import read_versioned
from labelward.runs.secure_files import write_json

FORMAT = 1
DIVERGED_FILE = "diverged.json"


class DivergedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run whose numbers were not finite any more: what there is of it.

    Attributes:
        party: the deviating party; None in an honest run.
        behavior: its kind and parameters; None in an honest run.
        defense: label of the chain of defenses.
        reason: the error that ended it.
    """

    format: Literal[1] = 1
    party: str | None = None
    behavior: dict[str, Any] | None = None
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
