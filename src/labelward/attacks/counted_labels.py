"""Labels from counts over known rows: what attacks on sums of gradients of PIVODL have in common.

A group of known rows of which so many are of the second class is an equation. What follows from one alone is inferred
first, with the rows that the attacker labels as a beginning; the rest is the solution of least squares nearest to the
mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, LabelGuess
from labelward.attacks.shared_trees import KnownTree, SharedTreeAttack
from labelward.metrics.registry import READ, READ_METRICS, READ_RIGHT, Metric
from labelward.party.view import View

Floats = NDArray[np.float64]
Counted = tuple[NDArray[np.int64], float]
"""Rows, and how many of them are of the second class."""

WHOLE = 1e-3
"""Largest distance of a count from a whole number: far above the rounding of gradients, far below noise."""


class CountedLabelAttack(SharedTreeAttack):
    """Base of attacks that count the labels of known rows; certain labels are counted apart."""

    metrics: ClassVar[tuple[Metric, ...]] = (*SharedTreeAttack.metrics, *READ_METRICS)

    def score(self, guess: LabelGuess, truth: NDArray[np.int64]) -> dict[str, float]:
        """Return also the share of the labels that are certain, and of these the share that is right."""
        read = np.zeros(len(truth), dtype=np.bool_) if guess.scores is None else _certain(guess.scores[:, 1])
        right = float((guess.values[read] == truth[read]).mean()) if read.any() else 0.5
        return {**super().score(guess, truth), READ: float(read.mean()) if len(read) else 0.0, READ_RIGHT: right}


def nothing_counted(view: View) -> LabelGuess:
    """Return the guess of who has counted nothing."""
    return LabelGuess.of_scores(np.full((view.rows, 2), 0.5))


def counted_labels(view: View, own: AttackerData, counted: Iterable[Counted]) -> LabelGuess:
    """Return the labels that counts leave possible, the first of which is of all rows; notes: how many are certain.

    A score is 0 or 1 where the label is certain, and strictly between elsewhere.
    """
    from scipy import sparse

    groups = list(counted)
    labels = np.full(view.rows, np.nan) if own.labels is None else own.labels
    ends = np.cumsum([0, *(len(rows) for rows, _ in groups)])
    members = np.concatenate([rows for rows, _ in groups])
    matrix = sparse.csr_matrix((np.ones(len(members)), members, ends), shape=(len(groups), view.rows))
    known = _inferred(matrix, np.array([count for _, count in groups]), labels.copy())
    others = np.isnan(labels)
    guess = LabelGuess.of_scores(np.stack([1 - known, known], axis=1))
    guess.notes["certain"] = float(_certain(known[others]).mean()) if others.any() else 0.0
    return guess


def of_second_class(rows: int, sums: NDArray[np.int64], scale: float) -> float:
    """Return how many rows are of the second class, from their gradients before the first tree: ½ − label."""
    return rows / 2 - float(sums[0]) / scale


def counted_nodes(trees: Iterable[KnownTree], scale: float) -> Iterator[Counted]:
    """Yield the nodes of the first trees whose rows and sums the party knows, where these leave a single count."""
    for number, tree in enumerate(trees):
        for node in sorted(tree.rows.keys() & tree.sums.keys()):
            rows = tree.rows[node]
            count = count_of(number, len(rows), tree.sums[node], scale)
            if count is not None:
                yield rows, count


def count_of(tree: int, rows: int, sums: NDArray[np.int64], scale: float) -> float | None:
    """Return how many of some rows are of the second class; None: their sums leave several counts.

    With Σ(p - y) = g and Σ p(1 - p) = h of r rows, Σ p is g more than the count, and differs from r/2 by
    √(r(r/4 - h)) at most, by the inequality of Cauchy and Schwarz; each number is rounded by half a step of the scale.
    """
    if tree == 0:
        return of_second_class(rows, sums, scale)
    g, h = sums[:2] / scale
    rounding = rows / (2 * scale)
    apart = float(np.sqrt(max(0.0, rows * (rows / 4 - h + rounding)))) + rounding + 1e-9
    least, most = max(0, int(np.ceil(rows / 2 - apart - g))), min(rows, int(np.floor(rows / 2 + apart - g)))
    return float(least) if least == most else None


def _certain(values: Floats) -> NDArray[np.bool_]:
    return np.isin(values, (0.0, 1.0))


def _inferred(matrix: Any, counts: Floats, values: Floats) -> Floats:
    """Return float64 [rows]: 0 or 1 where it is certain, else what least squares makes of the rest.

    Args:
        matrix: sparse [sums, rows]: which rows are in which sum.
        counts: float64 [sums]: rows of the second class.
        values: float64 [rows]: known labels, else NaN.
    """
    from scipy.sparse.linalg import lsqr

    while True:
        unknown = np.isnan(values)
        number, left = matrix @ unknown, counts - matrix @ np.nan_to_num(values)
        settled = [(number > 0) & (np.abs(left - label * number) < WHOLE) for label in (0, 1)]
        if not (settled[0] | settled[1]).any():
            break
        for label, sums in enumerate(settled):
            values[unknown & (sums @ matrix > 0)] = label
    if unknown.any():
        mean = float(np.clip(left[0] / number[0], 0, 1))  # of the first sum, which is of all rows
        rest = matrix[number > 0][:, unknown]
        solved = lsqr(rest, (left - mean * number)[number > 0], atol=1e-12, btol=1e-12)[0]
        values[unknown] = np.clip(mean + solved, 1e-9, 1 - 1e-9)
    return values
