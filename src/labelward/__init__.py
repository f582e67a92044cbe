"""Vertical federated learning in which labels stay private: train, record what each party sees, attack it, defend.

The names listed here are public, and so are :mod:`labelward.estimators` (the scikit-learn interface),
:mod:`labelward.testing` (contract suites for extensions), attack and defense classes that ``labelward list``
prints, and what ``CONTRIBUTING.md`` shows for extensions. All other modules are internal and may change without notice.

A name is imported when it is first used, so ``import labelward`` takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labelward.api import attack, measure_epsilon, predict, simulate, train
    from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, ColumnGuess, LabelGuess
    from labelward.auditing.audit import audit
    from labelward.auditing.measure import measure
    from labelward.errors import LabelwardError
    from labelward.federation.model import FederatedModel
    from labelward.he.base import Engine
    from labelward.job import Job, load_job, parse_job
    from labelward.party.view import View
    from labelward.planning.cost_estimate import estimate_cost
    from labelward.planning.estimate import NetworkLink
    from labelward.policy.base import Policy
    from labelward.tuning.tune import tune

__all__ = [
    "Attack",
    "AttackerData",
    "AuxiliaryKnowledge",
    "ColumnGuess",
    "Engine",
    "FederatedModel",
    "Job",
    "LabelGuess",
    "LabelwardError",
    "NetworkLink",
    "Policy",
    "View",
    "attack",
    "audit",
    "estimate_cost",
    "load_job",
    "measure",
    "measure_epsilon",
    "parse_job",
    "predict",
    "simulate",
    "train",
    "tune",
]

_MODULES = {
    "api": ("attack", "measure_epsilon", "predict", "simulate", "train"),
    "attacks.base": ("Attack", "AttackerData", "AuxiliaryKnowledge", "ColumnGuess", "LabelGuess"),
    "auditing.audit": ("audit",),
    "auditing.measure": ("measure",),
    "errors": ("LabelwardError",),
    "federation.model": ("FederatedModel",),
    "he.base": ("Engine",),
    "job": ("Job", "load_job", "parse_job"),
    "party.view": ("View",),
    "planning.cost_estimate": ("estimate_cost",),
    "planning.estimate": ("NetworkLink",),
    "policy.base": ("Policy",),
    "tuning.tune": ("tune",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
