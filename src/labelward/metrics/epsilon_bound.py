"""Lower bound of the epsilon of label differential privacy, from right and wrong guesses of one recorded view.

Game. Row i has columns x_i and the label y_i; given the columns of all rows, labels are independent, with
probabilities P_i. A second label y'_i is drawn from P_i, independently of everything else. Where the two differ, an
attacker gets the pair without order, and guesses which one is real. Given the pairs, either order has the same
probability, so without a view each guess is a coin toss.

Pure epsilon. If the view satisfies epsilon-label DP, its probability changes by a factor of e^epsilon at most when one
pair is swapped. So given the view, all pairs and the other rows' real labels, a guess is right with a probability of at
most p = e^epsilon / (1 + e^epsilon), and the number of right guesses among r is stochastically dominated by a
binomial (r, p), whatever the guesses are computed from (Steinke, Nasr, Jagielski: Privacy auditing with one (1)
training run, NeurIPS 2023, Proposition 5.1, with the order of a pair in place of their coin).

With a delta, the tail of v right guesses grows by 2 m delta max_i (f(v - i) - f(v)) / i, with f the tail of the
binomial and m the number of pairs (ibid., Theorem 5.2). The number of guesses must not depend on the view then: it is
one of :data:`SHARES` of the pairs. All are tried, each at its part of the error.

Correction. P_i is estimated. If s_i is the probability of the best guess without the view, then with the view
it is at most g(s_i), where the odds of g(s) are e^epsilon times those of s. g is concave, so the mean of r guesses is
at most g of the mean of the r largest s_i; and sums of independent guesses with different probabilities have thinner
tails than the binomial of their mean (Hoeffding 1956). Hence epsilon is at least the difference of the log odds of a
lower bound of the share of right guesses, and of an upper bound of that share for the best attacker without the view.
The latter is estimated by an attacker that guesses as often, where it is surest. Half of the error goes to each.

Assumptions: independent labels given the columns; no attacker without the view guesses better than the one that is
measured. Differences from Kalemaj et al. (Observational auditing of label privacy, arXiv 2511.14084): pairs of labels
in place of single ones that may have been replaced, a measured correction in place of an assumed distance of the
distributions, and several numbers of guesses.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

CONFIDENCE = 0.95
SHARES = (1.0, 0.25, 0.0625)
"""Shares of the pairs that are guessed: the surest of them."""

_MOST = 60.0
_HALVINGS = 60


class GuessTrial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Guesses of the surest pairs.

    Attributes:
        guesses: number of them.
        right: right ones, with the view.
        blind: right ones among as many guesses of the best attacker without the view.
    """

    guesses: int
    right: int
    blind: int


class EpsilonEvidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one view tells about epsilon.

    Attributes:
        rows: rows in the game.
        pairs: rows among them whose real and drawn labels differ.
        trials: one for each of :data:`SHARES`; none without pairs.
        changed: rows of which one label was changed to see whether the view is possible with it; 0: not done.
        contradicted: those among them with which the view is impossible, although it follows from the true labels.
        delta: of the hypothesis.
    """

    rows: int
    pairs: int
    trials: tuple[GuessTrial, ...]
    changed: int = 0
    contradicted: int = 0
    delta: float = 0.0

    def figures(self) -> dict[str, Any]:
        """Return the attributes as an object of a result row, with the ``bound``; null if it is infinite."""
        bound = self.bound()
        return {"bound": bound if math.isfinite(bound) else None, **msgspec.to_builtins(self)}

    def bound(self, *, confidence: float = CONFIDENCE, shared_by: int = 1) -> float:
        """Return the largest epsilon that is rejected, at least 0; infinity for a view that excludes labels.

        A view that is impossible after a change of one label has probability 0 there: no finite epsilon, and no delta
        below 1, covers it. No number of guesses can show that, as r right ones reject log(r / 3) at most.

        Args:
            confidence: of the bound.
            shared_by: number of bounds that hold together with this confidence (Bonferroni).
        """
        if self.contradicted:
            return math.inf
        level = (1 - confidence) / (2 * shared_by * max(1, len(self.trials)))
        found = [
            rejected_epsilon(each.right, each.guesses, pairs=self.pairs, delta=self.delta, level=level)
            - blind_log_odds(each.blind, each.guesses, level=level)
            for each in self.trials
        ]
        return max(0.0, *found) if found else 0.0


def tail_probability(right: int, guesses: int, *, pairs: int, epsilon: float, delta: float = 0.0) -> float:
    """Return the largest probability of at least so many right guesses under (epsilon, delta)-label DP.

    Args:
        right: right guesses.
        guesses: all guesses.
        pairs: pairs in the game, whether guessed or not.
        epsilon: at least 0.
        delta: 0: pure.
    """
    share = 1 / (1 + math.exp(-epsilon))
    tail = _binomial_tail(right, guesses, share)
    if not delta or not right:
        return min(1.0, tail)
    from scipy.stats import binom

    steps = np.arange(1, right + 1)
    slope = (np.cumsum(binom.pmf(right - steps, guesses, share)) / steps).max()
    return min(1.0, tail + 2 * pairs * delta * float(slope))


def rejected_epsilon(right: int, guesses: int, *, pairs: int, delta: float = 0.0, level: float) -> float:
    """Return the log odds of a guess, with the view, that the number of right guesses rejects at a level.

    Without a correction this is the bound of epsilon; below 0 if even a coin toss is not rejected.
    """
    if tail_probability(right, guesses, pairs=pairs, epsilon=-_MOST, delta=delta) > level:
        return -_MOST
    low, high = -_MOST, _MOST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if tail_probability(right, guesses, pairs=pairs, epsilon=middle, delta=delta) <= level:
            low = middle
        else:
            high = middle
    return low


def blind_log_odds(right: int, guesses: int, *, level: float) -> float:
    """Return an upper bound (Clopper and Pearson 1934) of the log odds of a guess without the view, at least 0."""
    from scipy.stats import beta

    if right == guesses:
        return math.inf
    return max(0.0, float(_log_odds(beta.ppf(1 - level, right + 1, guesses - right))))


def _binomial_tail(right: int, guesses: int, share: float) -> float:
    """Return ``scipy.stats.binom.sf(right - 1, guesses, share)``, a hundred times faster; bisections ask it often."""
    from scipy.special import betainc

    if not 0 < right <= guesses:
        return float(right <= 0)
    return float(betainc(right, guesses - right + 1, share))


def _log_odds(share: float) -> float:
    return math.log(share) - math.log1p(-share)
