"""Plain CART on one table: the tree that the protocol must give, and the baseline of all columns together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset
from labelward.kernels.node_rows import children, depth_of
from labelward.messages.pivodl import MISSING, Candidate
from labelward.protocols.common.columns import OwnColumns, OwnRecord
from labelward.protocols.pivot.params import Pivot

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NEAR = 1e-9
"""Part by which rounding may change the value of a candidate, at most."""


@dataclass(frozen=True)
class PlainTree:
    """A tree with all its splits.

    Attributes:
        splits: by node the position of the owner, and its split.
        labels: by leaf the class.
    """

    splits: dict[int, tuple[int, OwnRecord]]
    labels: dict[int, int]

    def classes(self, x: Sequence[Floats]) -> NDArray[np.int64]:
        """Return the class of each row, of each party's columns of the same rows."""
        node = np.zeros(len(x[0]), dtype=np.int64)
        for split in sorted(self.splits):  # a child's number is larger than its parent's
            owner, record = self.splits[split]
            here = node == split
            node[here] = np.where(record.goes_left(x[owner][here]), *children(split))
        return np.array([self.labels[leaf] for leaf in node.tolist()], dtype=np.int64)


def candidate_at(own: OwnColumns, place: int) -> Candidate:
    """Return a party's candidate by its place among them: column after column, bin after bin."""
    ends = np.cumsum(own.sizes)
    column = int(np.searchsorted(ends, place, side="right"))
    code = place - int(ends[column] - own.sizes[column])
    return Candidate(column, code, False, (code,) if own.kinds[column] else ())


def grow_plain(params: Pivot, parties: Sequence[PartyDataset], labels: Integers, classes: int) -> PlainTree:
    """Grow the tree on all columns; candidates are compared as fractions of whole numbers.

    Args:
        parties: in party order, which decides ties.
        labels: int64 [training rows].
    """
    owns = [OwnColumns.of(party, params.most_bins) for party in parties]
    splits: dict[int, tuple[int, OwnRecord]] = {}
    found: dict[int, int] = {}
    waiting = {0: np.arange(len(labels))}
    while waiting:
        node, rows = waiting.popitem()
        best = _best(params, owns, rows, labels, classes) if depth_of(node) < params.depth else None
        if best is None:
            found[node] = int(np.bincount(labels[rows], minlength=classes).argmax())
            continue
        owner, place, left = best
        splits[node] = owner, owns[owner].record(candidate_at(owns[owner], place))
        waiting |= zip(children(node), (rows[left], rows[~left]), strict=True)
    return PlainTree(splits, found)


def _best(
    params: Pivot, owns: Sequence[OwnColumns], rows: Integers, labels: Integers, classes: int
) -> tuple[int, int, NDArray[np.bool_]] | None:
    """Return owner, place and left rows of the first of the best candidates; None where none gains."""
    totals = np.bincount(labels[rows], minlength=classes)
    if len(rows) < params.min_node_rows:
        return None
    best, found = Fraction(int((totals**2).sum()), len(rows)), None
    for owner, own in enumerate(owns):
        left = _left_counts(own, rows, labels, classes)
        right = totals - left
        n_left, n_right = left.sum(axis=1), right.sum(axis=1)
        fits = np.flatnonzero(np.minimum(n_left, n_right) >= params.min_rows)
        values = (left[fits] ** 2).sum(axis=1) / n_left[fits] + (right[fits] ** 2).sum(axis=1) / n_right[fits]
        near = fits[values >= values.max(initial=0) * (1 - _NEAR)]
        for place in near.tolist():  # exactly, of those that rounding may have mixed up
            sides = (int((each[place] ** 2).sum()) for each in (left, right))
            exact = sum(
                (Fraction(side, int(n[place])) for side, n in zip(sides, (n_left, n_right), strict=True)),
                start=Fraction(0),
            )
            if exact > best:
                best, found = exact, (owner, place)
    if found is None:
        return None
    candidate = candidate_at(owns[found[0]], found[1])
    codes = owns[found[0]].codes[rows, candidate.column]
    chosen = codes == candidate.code if candidate.categories else codes <= candidate.code
    return *found, chosen & (codes != MISSING)


def _left_counts(own: OwnColumns, rows: Integers, labels: Integers, classes: int) -> Integers:
    """Return how many rows of each class lie left of each candidate, int64 [candidates, classes]."""
    of_columns = []
    for column, (size, kind) in enumerate(zip(own.sizes.tolist(), own.kinds.tolist(), strict=True)):
        codes = own.codes[rows, column].astype(np.int64)
        known = codes != MISSING
        cells = np.bincount(codes[known] * classes + labels[rows][known], minlength=size * classes)
        counts = cells.reshape(size, classes)
        of_columns.append(counts if kind else counts.cumsum(axis=0))
    return np.concatenate([np.zeros((0, classes), np.int64), *of_columns])
