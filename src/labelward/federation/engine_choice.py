"""``engine = "auto"``: which engine a job is trained with, and why.

The lattice engine takes less time and traffic for most trainings, by a plan, but rests on younger assumptions. So
Paillier is chosen as long as any of :data:`OPEN` is open. The choice follows from this release alone: parties of one
release choose alike, and those of two are refused in the handshake, which compares ``encryption.engine``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from labelward.job import EncryptionSection
from labelward.runs.estimate import Estimate

__all__ = [
    "AUTO",
    "CANDIDATES",
    "OPEN",
    "EngineChoice",
    "alternatives",
    "choice_sentence",
    "choose_engine",
    "costs_beside",
    "decided",
]

AUTO = "auto"
#: The engines between which ``auto`` decides, the one that needs no conditions first.
CANDIDATES = ("paillier", "lattice")
#: What must be there before the lattice engine is chosen.
OPEN = ("an outside reading of its security page", "one release in which it is an option")


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """What ``auto`` chose.

    Attributes:
        engine: which.
        reason: why, as reports and logs say it.
        cheaper: the engine that takes least by the estimates; empty without any.
    """

    engine: str
    reason: str
    cheaper: str = ""


def choose_engine(estimates: dict[str, Estimate] | None = None, conditions: Sequence[str] = OPEN) -> EngineChoice:
    """Return the engine of a job.

    Args:
        estimates: by engine, the costs of the training (on a line, where they say so); None where there are none.
        conditions: that are open.
    """
    seconds = {name: _seconds(each) for name, each in (estimates or {}).items()}
    cheaper = min(seconds, key=lambda name: (seconds[name], name)) if seconds else ""
    if conditions:
        reason = f"lattice is not chosen before there is {_and(conditions)}"
        return EngineChoice(engine=CANDIDATES[0], reason=reason, cheaper=cheaper)
    if not cheaper:
        return EngineChoice(engine=CANDIDATES[0], reason="there is no estimate of either engine")
    told = " and ".join(f"{name} {seconds[name]:.3g} s" for name in sorted(seconds))
    return EngineChoice(engine=cheaper, reason=f"it takes less by the plan: {told}", cheaper=cheaper)


def decided(section: EncryptionSection) -> EncryptionSection:
    """Return the section with the engine that ``auto`` stands for; any other as it is."""
    if section.engine != AUTO:
        return section
    return replace(section, engine=choose_engine().engine, bits=0, automatic=True)


def alternatives(section: EncryptionSection) -> dict[str, EncryptionSection]:
    """Return the section with each engine that ``auto`` decides between."""
    return {name: replace(section, engine=name, bits=0, engine_parameters={}) for name in CANDIDATES}


def choice_sentence(engine: str, reason: str) -> str:
    """Return the sentence that names the engine of ``auto``, and why."""
    return f'engine = "{AUTO}" is {engine}: {reason}'


def costs_beside(estimates: dict[str, Estimate]) -> str:
    """Return the costs of a training under each engine, as reports and logs say them."""
    told = [
        f"{name} {_seconds(each):.3g} s and {sum(each.bytes.values()) / 1e6:.3g} MB" for name, each in estimates.items()
    ]
    return f"by the plan: {', '.join(told)}"


def _seconds(found: Estimate) -> float:
    return found.seconds if found.between is None else found.between.seconds


def _and(texts: Sequence[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
