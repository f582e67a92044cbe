"""The same trees on one table: what PIVODL gives without noise, and the baseline of all columns and labels together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset
from labelward.kernels.histogram import goes_left
from labelward.kernels.node_rows import NodeRows, children, leaves_below, route_rows
from labelward.messages.pivodl import Candidate
from labelward.protocols.common.columns import OwnColumns, OwnRecord, SourceColumns
from labelward.protocols.pivodl.fixed import Fixed
from labelward.protocols.pivodl.label_scale import LabelScale
from labelward.protocols.pivodl.params import GrownTrees
from labelward.protocols.pivodl.share import PUBLIC, SharedTree
from labelward.protocols.pivodl.split_client import best_candidates

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JoinedModel:
    """Trees with all their splits.

    Attributes:
        trees: shapes with all weights.
        records: splits of each party, in the order of their record numbers.
        scale: of quantities.
    """

    trees: tuple[SharedTree, ...]
    records: tuple[tuple[OwnRecord, ...], ...]
    scale: LabelScale

    def margins(self, x: Sequence[Floats]) -> Floats:
        """Return the margins, float64 [rows, 1], of each party's columns of the same rows."""
        total = np.zeros(len(x[0]))
        for tree in self.trees:
            pairs = zip(tree.owners, tree.records, strict=True)
            sides = [self.records[owner][record].goes_left(x[owner]) for owner, record in pairs]
            reached = route_rows(*tree.branches(), np.stack(sides)) if sides else np.zeros(len(total), dtype=np.int32)
            total += np.array(tree.weights)[reached]
        return self.scale.restored(total)[:, None]


def train_joined(
    params: GrownTrees, parties: Sequence[PartyDataset], labels: Floats, *, precision: int, quantities: bool = False
) -> JoinedModel:
    """Train on all columns and labels at once.

    Args:
        parties: in party order, which decides ties; columns of each in its own order.
        labels: float64 [training rows].
        precision: bits after the binary point of gradients and hessians.
    """
    scale = LabelScale.of(labels) if quantities else LabelScale()
    owns = [OwnColumns.of(party, params.most_bins) for party in parties]
    sources = [SourceColumns(own.sizes, own.kinds, own.codes) for own in owns]
    fixed = Fixed.of(params, len(labels), precision, quantities=quantities)
    trees, picks = grow_trees(fixed, sources, scale.standardized(labels))
    records = (tuple(own.record(each) for each in chosen) for own, chosen in zip(owns, picks, strict=True))
    return JoinedModel(tuple(trees), tuple(records), scale)


def grow_trees(
    fixed: Fixed, sources: Sequence[SourceColumns], labels: Floats
) -> tuple[list[SharedTree], list[list[Candidate]]]:
    """Return trees grown on the binned columns of all parties, and the splits of each by record number.

    Args:
        fixed: constants of the training.
        sources: columns of all training rows, by party, in each party's own order.
        labels: float64 [training rows], standardized where they are quantities.
    """
    rows = len(labels)
    margins, trees = np.zeros(rows), []
    picks: list[list[Candidate]] = [[] for _ in sources]
    for _ in range(fixed.params.trees):
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
                chosen = found[owner][at][1][0]  # the first column of those that tie
                left = goes_left(
                    sources[owner].codes,
                    nodes.rows(node),
                    chosen.column,
                    chosen.code,
                    missing_left=chosen.missing_left,
                    categories=chosen.categories,
                )
                splits[node] = (owner, len(picks[owner]))
                picks[owner].append(chosen)
                nodes.split(node, left)
                following += [child for child in children(node) if not fixed.is_leaf(depth + 1, nodes.size(child))]
            level, depth = following, depth + 1
        leaves = leaves_below(splits)
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
    return trees, picks
