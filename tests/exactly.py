"""Slow, exact references for the mechanisms."""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

EPSILONS = (0.0, 1e-9, 0.1, 0.5, 1.0, 2.0, 8.0, 50.0)


@lru_cache
def exp_below(epsilon: float) -> Fraction:
    """A rational number that is at most e^epsilon: the first terms of a series whose terms are positive."""
    term = total = Fraction(1)
    for i in range(1, 250):
        term *= Fraction(epsilon) / i
        total += term
    return total


def largest_ratio(rows: list[list[Fraction]]) -> Fraction:
    """The largest P(output | one input) / P(output | another); 0/0 says nothing, and x/0 fails."""
    largest = Fraction(0)
    for column in zip(*rows, strict=True):
        assert not any(column) or all(column), "an output that one label can give and another cannot"
        if any(column):
            largest = max(largest, max(column) / min(column))
    return largest


def tied_priors(classes: st.SearchStrategy[int]) -> st.SearchStrategy[NDArray[np.float64]]:
    """Priors from few whole weights, hence rich in zeros and ties."""
    weights = classes.flatmap(lambda c: st.lists(st.integers(0, 4), min_size=c, max_size=c).filter(any))
    return weights.map(lambda w: np.array(w) / sum(w))


def top(prior: NDArray[np.float64], k: int) -> list[int]:
    """The k likeliest classes, one after another, the lowest number first among equals."""
    left, chosen = dict(enumerate(prior.tolist())), []
    for _ in range(k):
        chosen.append(min(c for c in left if left[c] == max(left.values())))
        del left[chosen[-1]]
    return chosen


class Paths:
    """Stands for the draws: goes through every outcome of every draw, once each.

    ``for _ in paths`` repeats a body that draws with ``paths.below``; ``paths.chance()`` then is the probability of the
    path that the body took.
    """

    def __init__(self) -> None:
        self.taken: list[list[int]] = []  # [drawn, bound] of each draw so far
        self.next = 0

    def below(self, bounds: NDArray[np.int64], protection: object) -> NDArray[np.int64]:
        drawn = []
        for bound in bounds.tolist():
            if self.next == len(self.taken):
                self.taken.append([0, bound])
            assert self.taken[self.next][1] == bound
            drawn.append(self.taken[self.next][0])
            self.next += 1
        return np.array(drawn, dtype=np.int64)

    def chance(self) -> Fraction:
        product = 1
        for _, bound in self.taken:
            product *= bound
        return Fraction(1, product)

    def __iter__(self) -> Iterator[None]:
        while True:
            self.next = 0
            yield
            while self.taken and self.taken[-1][0] == self.taken[-1][1] - 1:
                self.taken.pop()
            if not self.taken:
                return
            self.taken[-1][0] += 1
