"""Generated inputs of grouped sums, and what comes of them, for suites of engines."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from labelward.he.base import Groups, Integers, Layout


@dataclass(frozen=True)
class SumCase:
    """One generated input: ``values[n, k]`` within ``layout``, and ``groups[n, F]``."""

    layout: Layout
    values: Integers
    groups: Groups
    n_groups: int


@st.composite
def sum_cases(draw: st.DrawFn) -> SumCase:
    """Draw a case; half of the values lie on the edges of the encoding range, and n, F and n_groups may be 0."""
    n, columns, n_groups = draw(st.integers(0, 9)), draw(st.integers(0, 3)), draw(st.integers(0, 4))
    spare = draw(st.sampled_from([0, 1, 1000]))
    bounds = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 5, 2**30, 2**52]), min_size=1, max_size=4)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    limit = np.array(bounds, dtype=np.int64)
    inner = rng.integers(-limit, limit + 1, size=(n, len(bounds)))
    edge = limit * rng.choice([-1, 1], size=inner.shape)
    values = np.where(rng.random(inner.shape) < 0.5, edge, inner)
    groups = rng.integers(-1, n_groups, size=(n, columns)).astype(np.int32)
    return SumCase(Layout(bounds, n + spare, len(bounds)), values, groups, n_groups)


def expected_sums(case: SumCase) -> Integers:
    """Sum entry by entry, in the slow and obvious way."""
    sums = np.zeros((case.groups.shape[1], case.n_groups, case.values.shape[1]), dtype=np.int64)
    for row, entries in enumerate(case.groups):
        for column, group in enumerate(entries):
            if group >= 0:
                sums[column, group] += case.values[row]
    return sums
