"""The best candidates of nodes and the classes of leaves, on shares: CART by Gini impurity, without rounding.

A candidate that leaves l_k rows of class k on the left and r_k on the right, of n_l and n_r, is the better the larger
Σ l_k² / n_l + Σ r_k² / n_r is: the Gini gain but for what all candidates of a node share. Two candidates are compared
by the fractions A / B with A = n_r · Σ l_k² + n_l · Σ r_k² and B = n_l · n_r, multiplied crosswise, so that no division
is needed and ties are exact. Products stay below rows⁵ / 16, which :meth:`Pivot.check_rows` bounds by 2^63.

Reference: Wu et al., Pivot (2020), Section 4.1, "MPC computation step". Differences: fractions are compared where the
paper divides in fixed point, which rounds; the candidates of all nodes of a level are compared at once, in a
tournament.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward.protocols.pivot.arithmetic import SharedArithmetic
from labelward.protocols.pivot.dealt_shares import Words
from labelward.protocols.pivot.params import Pivot


class Fractions(NamedTuple):
    """Shares of what is known of each candidate, uint64 [nodes, candidates] each: A, B, and its place."""

    above: Words
    below: Words
    place: Words

    def columns(self, chosen: slice) -> Fractions:
        """Return some of the candidates of each node."""
        return Fractions(*(each[:, chosen] for each in self))


def shared_splits(mpc: SharedArithmetic, left: Words, totals: Words, params: Pivot) -> tuple[Words, Words]:
    """Return shares of whether each node splits, and of the place of its best candidate; of ties the first one's.

    A node splits where the best candidate gains anything and the node has ``min_node_rows`` rows.

    Args:
        left: shares, uint64 [nodes, candidates, classes]: rows on the left of each candidate, by class.
        totals: shares, uint64 [nodes, classes]: rows of each node.
    """
    best = _best(mpc, _fractions(mpc, left, totals, params.min_rows))
    rows = totals.sum(axis=1, dtype=np.uint64)
    squares = mpc.multiply(totals, totals).sum(axis=1, dtype=np.uint64)
    # the gain is positive where A / B exceeds the node's own Σ t_k² / n
    products = mpc.multiply(np.stack([squares, best.above[:, 0]]), np.stack([best.below[:, 0], rows]))
    signs = mpc.is_negative(
        np.stack([products[0] - products[1], rows - mpc.constant(params.min_node_rows, rows.shape)])
    )
    gains, small = signs
    return gains - mpc.multiply(gains, small), best.place[:, 0]


def majority(mpc: SharedArithmetic, totals: Words) -> Words:
    """Return shares of the most frequent class of each leaf, the first one of ties.

    Args:
        totals: shares, uint64 [leaves, classes].
    """
    most, found = totals[:, 0], mpc.constant(0, totals[:, 0].shape)
    for number in range(1, totals.shape[1]):
        rows = totals[:, number]
        more = mpc.is_negative(most - rows)
        steps = mpc.multiply(np.stack([more, more]), np.stack([rows - most, mpc.constant(number, rows.shape) - found]))
        most, found = most + steps[0], found + steps[1]
    return found


def _fractions(mpc: SharedArithmetic, left: Words, totals: Words, min_rows: int) -> Fractions:
    """Return A, B and place of each candidate; 0 / 1 where a side has fewer rows than it must have."""
    right = totals[:, None] - left
    counts = np.stack([left, right]).sum(axis=-1, dtype=np.uint64)
    sides = np.stack([left, right])
    squares = mpc.multiply(sides, sides).sum(axis=-1, dtype=np.uint64)
    crossed = mpc.multiply(np.stack([squares[0], squares[1], counts[0]]), np.stack([counts[1], counts[0], counts[1]]))
    few = mpc.is_negative(counts - mpc.constant(min_rows, counts.shape))
    enough = mpc.constant(1, few.shape) - few
    fits = mpc.multiply(enough[0], enough[1])
    kept = mpc.multiply(np.stack([fits, fits]), np.stack([crossed[0] + crossed[1], crossed[2]]))
    places = np.broadcast_to(np.arange(left.shape[1]), left.shape[:2])
    return Fractions(kept[0], kept[1] + mpc.constant(1, fits.shape) - fits, mpc.constant(places))


def _best(mpc: SharedArithmetic, found: Fractions) -> Fractions:
    """Return the candidate with the largest fraction of each node: [nodes, 1]."""
    while (width := found.place.shape[1]) > 1:
        last = found.columns(slice(width - width % 2, width))
        one, other = found.columns(slice(0, width - 1, 2)), found.columns(slice(1, width, 2))
        products = mpc.multiply(np.stack([one.above, other.above]), np.stack([other.below, one.below]))
        better = mpc.is_negative(products[0] - products[1])
        change = np.stack([theirs - own for own, theirs in zip(one, other, strict=True)])
        steps = mpc.multiply(np.broadcast_to(better, change.shape), change)
        pairs = (np.concatenate(each, axis=1) for each in zip(np.stack(one) + steps, last, strict=True))
        found = Fractions(*pairs)
    return found


def left_counts(cells: Words, ends: NDArray[np.int64], categorical: NDArray[np.bool_]) -> Words:
    """Return what lies left of each candidate of columns, from what lies in each bin; of numbers or of shares of them.

    Left of a candidate of numbers are all bins up to its own, and of categories its own alone. Missing values are in no
    bin, hence on the right.

    Args:
        cells: uint64 [..., cells, classes], column after column.
        ends: int64 [columns]: the cells of all columns up to each.
        categorical: bool [columns].
    """
    left = cells.copy()
    for start, end, alone in zip([0, *ends[:-1].tolist()], ends.tolist(), categorical.tolist(), strict=True):
        if not alone:
            left[..., start:end, :] = np.cumsum(cells[..., start:end, :], axis=-2, dtype=np.uint64)
    return left
