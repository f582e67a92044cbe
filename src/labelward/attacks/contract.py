"""What an attack is: a function of one party's recorded view, its own data, and stated auxiliary knowledge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from labelward.party.view import View

__all__ = ["Attack", "Aux", "Guess", "Own"]


@dataclass(frozen=True, kw_only=True)
class Own:
    """What the attacker holds itself.

    Attributes:
        features: float64 [rows, columns]: its own columns of the training rows, in the view's row order; NaN is a
            missing value. A categorical column holds codes.
        columns: their names.
        categories: for each categorical column how many categories it has.
    """

    features: NDArray[np.float64]
    columns: Sequence[str]
    categories: Mapping[str, int] = field(default_factory=dict)

    def numbers(self) -> NDArray[np.float64]:
        """Return float64 [rows, wide] without gaps, for attacks that measure distances.

        A categorical column becomes one column of 0 and 1 for each category but the first, as a table whose categories
        were encoded before would have it. A missing value becomes the mean of the others, 0 where there are none.
        """
        parts = [_numbers(self.features[:, at], self.categories.get(name)) for at, name in enumerate(self.columns)]
        return np.hstack(parts) if parts else np.empty((len(self.features), 0))


@dataclass(frozen=True, kw_only=True)
class Aux:
    """What the attacker is assumed to know besides; the report prints it.

    Attributes:
        classes: number of classes; where the labels are quantities, of the bins of like size that they are cut into.
    """

    classes: int


@dataclass(frozen=True, kw_only=True)
class Guess:
    """What the attacker infers of each training row.

    Attributes:
        values: int64 [rows]: cluster numbers, without names of classes.
        kind: ``"clusters"``.
        notes: what else the attack found out (modularity, number of communities); printed, never scored.
        known_per_cluster: of so many rows of each cluster the attacker is told the class, and names the cluster after
            it; which rows, is drawn in scoring. 0: clusters stay without names.
    """

    values: NDArray[np.int64]
    kind: Literal["clusters"] = "clusters"
    known_per_cluster: int = 0
    notes: dict[str, float] = field(default_factory=dict)


class Attack(ABC):
    """The base of attacks: a frozen keyword-only dataclass of parameters that can be called.

    Attributes:
        kind: the name in a job file.
        primary: the metric that ranks its guesses.
    """

    kind: ClassVar[str]
    primary: ClassVar[str] = "v_measure"

    @abstractmethod
    def __call__(self, view: View, own: Own, aux: Aux, *, rng: np.random.Generator) -> Guess:
        """Return a guess for every training row; an :class:`InputError` for a view that it cannot read."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, as results keep them."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]


def _numbers(values: NDArray[np.float64], categories: int | None) -> NDArray[np.float64]:
    """Return one column as float64 [rows, 1], or [rows, categories - 1]."""
    if categories is None:
        wide, missing = values[:, None].copy(), np.isnan(values)
    else:
        wide = (values[:, None] == np.arange(1, max(categories, 2))).astype(np.float64)
        missing = ~((values >= 0) & (values < categories))
    if missing.any():
        wide[missing] = 0.0 if missing.all() else wide[~missing].mean(axis=0)
    return wide
