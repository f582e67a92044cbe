"""The protocol families: for each the kinds of model, the class that runs them, and its message modules.

A new family is a package in :mod:`labelward.protocols` and one entry here; everything else asks this list. It holds
names only, so that a family's libraries are imported when one of its models is used. Families of other packages are
:mod:`~labelward.extensions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labelward.extensions import loaded


@dataclass(frozen=True, kw_only=True)
class FamilyEntry:
    """One protocol family.

    Attributes:
        family: the subclass of :class:`~labelward.protocols.family.ModelFamily`, as ``"module:class"`` below
            ``package``.
        models: by kind of model the class of its parameters, as ``"module:class"`` below ``package``.
        messages: modules below ``package`` with the message and observation classes.
        package: the package that holds them.
    """

    family: str
    models: Mapping[str, str]
    messages: tuple[str, ...]
    package: str = "labelward"


def families() -> tuple[FamilyEntry, ...]:
    """Return the families of labelward, then those of extensions."""
    return (*FAMILIES, *loaded("families").values())


FAMILIES = (
    FamilyEntry(
        family="protocols.secureboost.family:TreeFamily",
        models={
            "secureboost": "protocols.secureboost.params:SecureBoost",
            "forest": "protocols.secureboost.params:FederatedForest",
        },
        messages=("messages.tree", "messages.explain"),
    ),
    FamilyEntry(
        family="protocols.splitnn.family:SplitNetFamily",
        models={"splitnn": "protocols.splitnn.params:SplitNet"},
        messages=("messages.splitnn",),
    ),
    FamilyEntry(
        family="protocols.pivodl.family:PivodlFamily",
        models={"pivodl": "protocols.pivodl.params:Pivodl"},
        messages=("messages.pivodl",),
    ),
    FamilyEntry(
        family="protocols.pivodl.federboost:FederBoostFamily",
        models={"federboost": "protocols.pivodl.params:FederBoost"},
        messages=("messages.federboost",),
    ),
    FamilyEntry(
        family="protocols.pivot.family:PivotFamily",
        models={"pivot": "protocols.pivot.params:Pivot"},
        messages=("messages.pivot",),
    ),
    FamilyEntry(
        family="protocols.logistic.family:LogisticFamily",
        models={"logistic": "protocols.logistic.params:LogisticRegression"},
        messages=("messages.logistic",),
    ),
)
