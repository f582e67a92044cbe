"""Labels from differences of sums of gradients that PIVODL opens: the attack that it is built against.

Setting: a party is curious about the labels of the others. Before the first tree all predictions are equal, so that a
sum of gradients over known rows counts their labels, and two sums whose rows differ by one row give its label.

- ``"adjacent"``: sums of a node's bins, as differences of adjacent candidates. They name no rows but those of the
  party's own columns, and PIVODL lets another party, the split client, open those. A source that is its own split
  client solves for the labels, and so does a split client that has a column of the source as well: it knows the rows of
  its bins, and finds it by these, or by their numbers. Any other party learns nothing here.
- ``"parent-child"``: sums of nodes. Everybody is told these and the rows of the nodes, so that labels are certain where
  a node, or what is left of it without another, has one class.

What follows from one sum alone is inferred first, with the rows that the attacker labels as a beginning; the rest is
the solution of least squares nearest to the mean.

Reference: Zhu et al., PIVODL (2023), Section III-C1 and Theorem 2. Differences: all sums are solved together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.shared_trees import KnownTree, SharedTreeAttack, known_trees
from labelward.kernels.binning import Binned, bin_columns
from labelward.messages.pivodl import ColumnCodes, ColumnOrder, OpenedSums
from labelward.metrics.registry import READ, READ_METRICS, READ_RIGHT, Metric
from labelward.party.view import View

Floats = NDArray[np.float64]
Counted = tuple[NDArray[np.int64], float]
"""Rows, and how many of them are of the second class."""

_TELLING = 8
"""Least bins of a column that is found by the numbers of rows in its bins alone."""
_WHOLE = 1e-3
"""Largest distance of a count from a whole number: far above the rounding of gradients, far below noise."""


@dataclass(frozen=True, kw_only=True)
class Differential(SharedTreeAttack):
    """Labels of others from differences of opened sums (PIVODL)."""

    kind: ClassVar[str] = "differential"
    metrics: ClassVar[tuple[Metric, ...]] = (*SharedTreeAttack.metrics, *READ_METRICS)

    form: Annotated[
        Literal["adjacent", "parent-child"],
        Meta(
            description="Sums that are compared: 'adjacent' (bins of the party's own columns, as far as it opened "
            "their sums, or those of equal columns of others) or 'parent-child' (nodes, whose rows and sums everybody "
            "is told)."
        ),
    ] = "adjacent"

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return the labels that the sums of the first tree leave possible; notes give the share of certain ones."""
        from scipy import sparse

        labels = np.full(view.rows, np.nan) if own.labels is None else own.labels
        first = next(known_trees(view), None)
        if first is None:
            return LabelGuess.of_scores(np.full((view.rows, 2), 0.5))
        scale = 2.0 ** view.parameter("encryption.precision", 30)
        parts = _nodes(first, scale) if self.form == "parent-child" else _bins(view, own, first, scale)
        counted = [(np.arange(view.rows), _second(view.rows, first.sums[0], scale)), *parts]
        ends = np.cumsum([0, *(len(rows) for rows, _ in counted)])
        members = np.concatenate([rows for rows, _ in counted])
        shape = (len(counted), view.rows)
        matrix = sparse.csr_matrix((np.ones(len(members)), members, ends), shape=shape)
        known = _inferred(matrix, np.array([count for _, count in counted]), labels.copy())
        others = np.isnan(labels)
        guess = LabelGuess.of_scores(np.stack([1 - known, known], axis=1))
        guess.notes["certain"] = float(_certain(known[others]).mean()) if others.any() else 0.0
        return guess

    def score(self, guess: LabelGuess, truth: NDArray[np.int64]) -> dict[str, float]:
        """Return also the share of the labels that are certain, and of these the share that is right."""
        read = np.zeros(len(truth), dtype=np.bool_) if guess.scores is None else _certain(guess.scores[:, 1])
        right = float((guess.values[read] == truth[read]).mean()) if read.any() else 0.5
        return {**super().score(guess, truth), READ: float(read.mean()) if len(read) else 0.0, READ_RIGHT: right}


def _certain(values: Floats) -> NDArray[np.bool_]:
    return np.isin(values, (0.0, 1.0))


def _second(rows: int, sums: NDArray[np.int64], scale: float) -> float:
    """Return how many rows are of the second class, from their gradients before the first tree: ½ − label."""
    return rows / 2 - float(sums[0]) / scale


def _nodes(tree: KnownTree, scale: float) -> Iterator[Counted]:
    for node in sorted(tree.rows.keys() & tree.sums.keys()):
        yield tree.rows[node], _second(len(tree.rows[node]), tree.sums[node], scale)


def _bins(view: View, own: AttackerData, tree: KnownTree, scale: float) -> Iterator[Counted]:
    """Yield the bins of the party's own columns in each node of which it has opened the sums, its own or a copy's."""
    opened = [each for each in view.observed(OpenedSums) if each.tree == 0]
    if not opened:
        return
    sizes = {at: own.categories[name] for at, name in enumerate(own.columns) if name in own.categories}
    bins = None if view.parameter("model.candidates") == "all" else view.parameter("model.bins", 32)
    binned = bin_columns(own.features.astype(np.float64), bins, sizes)
    for source in sorted({each.source for each in opened}):
        sums = {
            node: each
            for level in opened
            if level.source == source
            for node, each in zip(level.nodes, level.sums.unpack().astype(np.int64), strict=True)
        }
        if source == view.party:
            order = next(each.order for each in view.observed(ColumnOrder))
            columns = [(column, int(binned.sizes[column])) for column in order]
        else:
            nodes = {node: (tree.rows[node], of_node) for node, of_node in sums.items()}
            columns = _columns_of_both(view, own, binned, source, nodes)
        cells = [(column, code) for column, size in columns for code in range(size)]
        for node, of_node in sums.items():
            rows = tree.rows[node]
            for (column, code), each in zip(cells, of_node, strict=True):
                if column < 0:
                    continue
                inside = rows[binned.codes[rows, column] == code]
                if len(inside):
                    yield inside, _second(len(inside), each, scale)


def _columns_of_both(
    view: View,
    own: AttackerData,
    binned: Binned,
    source: str,
    nodes: Mapping[int, tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> list[tuple[int, int]]:
    """Return for each column of another source the own one that is equal, else -1, and its number of bins.

    Equal are the bins of the rows that the party labels, where it was told them, and how many rows of each node lie in
    each bin; without the former columns of few bins count as different.

    Args:
        nodes: rows of each node of which the party opened the sums, and these, int64 [cells, k].
    """
    told = next(each.message for each in view.received(ColumnCodes) if each.peer == source)
    held = np.zeros(view.rows, np.bool_) if own.labels is None else ~np.isnan(own.labels)
    codes, mine = np.frombuffer(told.codes, "<u2"), binned.wide_codes()
    known = codes.reshape(-1, len(told.sizes)) if codes.size == held.sum() * len(told.sizes) > 0 else None
    found, start = [], 0
    for place, size in enumerate(told.sizes):
        cells, equal = slice(start, start + size), -1
        for column in np.flatnonzero(binned.sizes == size).tolist():
            if known is None and size < _TELLING:
                continue
            if known is not None and (mine[held, column] != known[:, place]).any():
                continue
            counted = ((np.bincount(mine[rows, column], minlength=size)[:size], sums) for rows, sums in nodes.values())
            if all((count == sums[cells, -1]).all() for count, sums in counted):
                equal = column
                break
        found.append((equal, size))
        start += size
    return found


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
        settled = [(number > 0) & (np.abs(left - label * number) < _WHOLE) for label in (0, 1)]
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
