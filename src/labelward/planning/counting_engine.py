"""Counting engine: the additions of another engine, counted on integers that nobody encrypts.

The role programs of a protocol run on it unchanged. All else that the *priced* engine would do follows from the
messages and :meth:`~labelward.he.base.Engine.ciphertext_format`. It protects nothing and never leaves the planner.
"""

import time

import numpy as np
from numpy.typing import NDArray

from labelward.he import Engine
from labelward.he.base import Additions, Groups
from labelward.he.plain import PlainEngine


class CountingEngine(PlainEngine):
    """The plain engine of one party, which counts the additions of ``priced``.

    Attributes:
        total: additions so far, for one ciphertext a row.
        seconds: time spent in sums by group, which the priced engine spends in another way.
    """

    def __init__(self, priced: Engine) -> None:
        super().__init__()
        self.priced, self.total, self.seconds = priced, Additions(0, 0.0), 0.0

    def summed(self, groups: Groups, n_groups: int, since: float) -> None:
        """Count a sum by groups as the priced engine would do it."""
        self._count(self.priced.additions(groups, n_groups), since)

    def added(self, first: NDArray[np.bool_], second: NDArray[np.bool_], since: float) -> None:
        """Count an addition of sums."""
        cells = int(np.count_nonzero(first & second)) if self.priced.skips_empty_sums else first.size
        self._count(Additions(cells, cells), since)

    def _count(self, added: Additions, since: float) -> None:
        self.total = self.total.plus(added)
        self.seconds += time.perf_counter() - since
