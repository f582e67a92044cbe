"""Labels from differences of sums of gradients that PIVODL opens: the attack that it is built against.

Setting: a party is curious about the labels of the others. Before the first tree all predictions are equal, so that a
sum of gradients over known rows counts their labels, and two sums whose rows differ by one row give its label.

- ``"adjacent"``: sums of a node's bins, as differences of adjacent candidates. They name no rows but those of the
  party's own columns, and PIVODL lets another party, the split client, open those. A source that is its own split
  client solves for the labels, and so does a split client that has a column of the source as well: it knows the rows of
  its bins, and finds it by these, or by their numbers. Any other party learns nothing here; what it learns of the
  bins from the sides of splits is :mod:`.bin_bounds`.
- ``"parent-child"``: sums of nodes. Everybody is told these and the rows of the nodes, so that labels are certain where
  a node, or what is left of it without another, has one class.

Reference: Zhu et al., PIVODL (2023), Section III-C1 and Theorem 2. Differences: all sums are solved together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.counted_labels import (
    Counted,
    CountedLabelAttack,
    counted_labels,
    counted_nodes,
    nothing_counted,
    of_second_class,
)
from labelward.attacks.shared_trees import KnownTree, known_trees, told_codes
from labelward.kernels.binning import Binned, bin_columns
from labelward.messages.pivodl import ColumnCodes, ColumnOrder, OpenedSums
from labelward.party.view import View

_TELLING = 8
"""Least bins of a column that is found by the numbers of rows in its bins alone."""


@dataclass(frozen=True, kw_only=True)
class Differential(CountedLabelAttack):
    """Labels of others from differences of opened sums (PIVODL)."""

    kind: ClassVar[str] = "differential"

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
        first = next(known_trees(view), None)
        if first is None:
            return nothing_counted(view)
        scale = 2.0 ** view.parameter("encryption.precision", 30)
        parts = counted_nodes([first], scale) if self.form == "parent-child" else _bins(view, own, first, scale)
        whole = np.arange(view.rows), of_second_class(view.rows, first.sums[0], scale)
        return counted_labels(view, own, [whole, *parts])


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
                    yield inside, of_second_class(len(inside), each, scale)


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
    known, mine = told_codes(told, held), binned.wide_codes()
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
