"""The same trees on one table: what PIVODL gives without noise, and the baseline of all columns and labels together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset
from labelward.kernels.histogram import goes_left
from labelward.kernels.node_rows import NodeRows, children, route_rows
from labelward.protocols.pivodl.params import Pivodl
from labelward.protocols.pivodl.share import OwnRecord, SharedTree
from labelward.protocols.pivodl.training import PUBLIC, Fixed, OwnColumns, SourceColumns, best_candidates

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JoinedModel:
    """Trees with all their splits.

    Attributes:
        trees: shapes with all weights.
        records: splits of each party, in the order of their record numbers.
    """

    trees: tuple[SharedTree, ...]
    records: tuple[tuple[OwnRecord, ...], ...]

    def margins(self, x: Sequence[Floats]) -> Floats:
        """Return the margins, float64 [rows, 1], of each party's columns of the same rows."""
        total = np.zeros(len(x[0]))
        for tree in self.trees:
            pairs = zip(tree.owners, tree.records, strict=True)
            sides = [self.records[owner][record].goes_left(x[owner]) for owner, record in pairs]
            reached = route_rows(*tree.branches(), np.stack(sides)) if sides else np.zeros(len(total), dtype=np.int32)
            total += np.array(tree.weights)[reached]
        return total[:, None]


def train_joined(params: Pivodl, parties: Sequence[PartyDataset], labels: Floats, *, precision: int) -> JoinedModel:
    """Train on all columns and labels at once.

    Args:
        parties: in party order, which decides ties; columns of each in its own order.
        labels: float64 [training rows].
        precision: bits after the binary point of gradients and hessians.
    """
    rows = len(labels)
    fixed = Fixed.of(params, rows, precision)
    owns = [
        OwnColumns(
            party.train,
            {position: len(names) for position, names in party.categories.items()},
            params.bins,
            np.arange(len(party.columns)),
        )
        for party in parties
    ]
    sources = [SourceColumns(own.sizes, own.kinds, own.codes) for own in owns]
    margins, trees = np.zeros(rows), []
    records: list[list[OwnRecord]] = [[] for _ in parties]
    for _ in range(params.trees):
        values, nodes = fixed.encode(margins, labels), NodeRows(rows, np.arange(rows))
        splits: dict[int, tuple[int, int]] = {}
        level, depth = [] if fixed.is_leaf(0, rows) else [0], 0
        while level:
            slot = nodes.slots(level)
            totals = np.stack([values[nodes.rows(node)].sum(axis=0) for node in level])
            found = [
                best_candidates(source, source.sums(slot, values, len(level)), totals, fixed)
                if len(source.sizes)
                else []
                for source in sources
            ]
            following = []
            for at, node in enumerate(level):
                gains = [each[at][0] if each else -np.inf for each in found]
                owner = int(np.argmax(gains))
                if not gains[owner] > 0:
                    continue
                chosen = owns[owner].first(found[owner][at][1])
                left = goes_left(
                    owns[owner].codes,
                    nodes.rows(node),
                    chosen.column,
                    chosen.code,
                    missing_left=chosen.missing_left,
                    categories=chosen.categories,
                )
                splits[node] = (owner, len(records[owner]))
                records[owner].append(owns[owner].record(chosen))
                nodes.split(node, left)
                following += [child for child in children(node) if not fixed.is_leaf(depth + 1, nodes.size(child))]
            level, depth = following, depth + 1
        leaves = sorted({0, *(child for node in splits for child in children(node))} - splits.keys())
        weights = fixed.weights(np.stack([values[nodes.rows(leaf)].sum(axis=0) for leaf in leaves]))
        for leaf, weight in zip(leaves, weights.tolist(), strict=True):
            margins[nodes.rows(leaf)] += weight
        trees.append(
            SharedTree(
                nodes=tuple(sorted(splits)),
                owners=tuple(splits[node][0] for node in sorted(splits)),
                records=tuple(splits[node][1] for node in sorted(splits)),
                leaves=tuple(leaves),
                keepers=(PUBLIC,) * len(leaves),
                weights=tuple(weights.tolist()),
            )
        )
    return JoinedModel(tuple(trees), tuple(map(tuple, records)))
