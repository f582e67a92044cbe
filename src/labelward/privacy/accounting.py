"""Privacy accounting: budget spent on the labels.

Two rules of composition are all that is used. *Parallel*: releases that read disjoint sets of labels cost together
what the dearest costs, because a change of one label changes the input of one release. Which labels a release reads
must not depend on labels; what else it does may depend on the outcomes of earlier ones. *Sequential*: releases that
read the same labels cost the sum.

Source: Ghazi et al. (NeurIPS 2021), Section 4, uses the first for stages of training on disjoint rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from labelward.errors import JobError, PolicyError, number_code
from labelward.privacy.draws import check_epsilon


def parallel(epsilons: Iterable[float]) -> float:
    """Return the cost of releases on disjoint rows: the largest epsilon, 0 of none."""
    return max((check_epsilon(epsilon) for epsilon in epsilons), default=0.0)


def sequential(epsilons: Iterable[float]) -> float:
    """Return the cost of releases on the same rows: the sum of the epsilons, never rounded down."""
    each = [check_epsilon(epsilon) for epsilon in epsilons]
    total = math.fsum(each)
    return total if Fraction(total) >= sum(map(Fraction, each)) else math.nextafter(total, math.inf)


@dataclass(frozen=True, kw_only=True)
class Spend:
    """One release: cost per row, and number of rows."""

    epsilon: float
    rows: int


@dataclass(kw_only=True)
class Budget:
    """An account of one table's labels, each of which may be used by one release.

    Spend before the noise is drawn: a refusal then leaves nothing released.

    Attributes:
        epsilon: the most that a release may cost, hence what all of them cost together at most. No default.
        rows: how many rows the table has.
        spends: what was spent, in order.
    """

    epsilon: float
    rows: int
    spends: list[Spend] = field(default_factory=list, init=False)
    _used: NDArray[np.bool_] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise JobError(
                f"rows must be an integer ≥ 1 but got {self.rows!r}",
                code=number_code(self.rows, whole=True),
                value=self.rows,
            )
        self._used = np.zeros(self.rows, dtype=np.bool_)

    def spend(self, rows: NDArray[np.int64], epsilon: float) -> None:
        """Record that one release reads the labels of these rows, int64 [m], at a cost of epsilon for each.

        Raises:
            PolicyError: epsilon exceeds the budget, or a row's label was used before; nothing is recorded then.
            ValueError: there is no row, a row twice, or one that the table does not have.
        """
        rows = np.asarray(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not rows.size:
            raise ValueError(f"rows must be whole numbers [m], at least one, but are {rows.dtype} {list(rows.shape)}")
        if rows.min() < 0 or rows.max() >= self.rows:
            raise ValueError(f"rows must be from 0 to {self.rows - 1} but go from {rows.min()} to {rows.max()}")
        named, times = np.unique(rows, return_counts=True)
        if len(named) < len(rows):
            raise ValueError(f"row {named[times > 1][0]} is named {times.max()} times in one release")
        if check_epsilon(epsilon) > self.epsilon:
            raise PolicyError(
                f"a release of epsilon {epsilon!r} exceeds the budget of {self.epsilon!r}", code="budget", value=epsilon
            )
        again = named[self._used[named]]
        if again.size:
            raise PolicyError(
                f"the labels of {again.size} rows (such as row {again[0]}) were used by a release before",
                code="budget",
                value=again.size,
            )
        self._used[named] = True
        self.spends.append(Spend(epsilon=float(epsilon), rows=len(named)))

    @property
    def spent(self) -> float:
        """Total cost of all releases: they read disjoint rows, so the largest epsilon among them."""
        return parallel(spend.epsilon for spend in self.spends)

    @property
    def unused(self) -> int:
        """Number of rows whose labels no release has used."""
        return self.rows - int(self._used.sum())
