"""Repair of finished trees: subtrees of a :class:`TreeShape` replaced, or its leaf weights.

A repair follows true labels where trees were fitted to others (label privacy). By then all that passive parties learn
of the tree has left. It uses the active party's own columns alone: no message leaves, and the passive parties keep
their splits, though the tree may no longer use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.kernels.node_rows import NodeRows, is_below
from labelward.protocols.secureboost.share import TreeShape

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
T = TypeVar("T")
_Splits = dict[int, tuple[int, int, float, float]]
_Leaves = dict[int, tuple[tuple[float, ...], float]]


def class_counts(
    rows: NodeRows, leaves: Sequence[int], classes: Floats | None, counts: Integers, total: int
) -> Integers:
    """Return int64 [leaves, C]: class counts of the rows on which a tree grew.

    Args:
        classes: float64 [training rows], which noise may have made fractional; None in regression.
        counts: int64 [training rows]: how often each row was drawn.
        total: number of classes.
    """
    flags = np.zeros((len(counts), 0), dtype=np.int64)
    if classes is not None:
        flags = (np.rint(classes)[:, None] == np.arange(total)) * counts[:, None]
    return np.stack([flags[rows.rows(leaf)].sum(axis=0) for leaf in leaves])


def leaves_at_or_below(shape: TreeShape, node: int) -> int:
    """Return the number of leaves of the subtree at a node."""
    return sum(leaf == node or is_below(leaf, node) for leaf in shape.leaves)


def with_weights(shape: TreeShape, weights: Floats) -> TreeShape:
    """Return the tree with other leaf weights: float64 [leaves, outputs of the tree]."""
    return msgspec.structs.replace(shape, weights=tuple(weights.reshape(-1).tolist()))


def with_records(shape: TreeShape, records: tuple[int, ...]) -> TreeShape:
    """Return the tree with other record numbers of its splits."""
    return msgspec.structs.replace(shape, records=records)


def replace_subtrees(shape: TreeShape, nodes: Sequence[int], grown: Sequence[TreeShape]) -> TreeShape:
    """Return the tree with the subtrees at these nodes replaced.

    Args:
        nodes: none of them below another.
        grown: for each node the new subtree, in the node numbers of the whole tree.
    """
    splits, leaves = _nodes_of(shape)
    splits, leaves = _outside(splits, nodes), _outside(leaves, nodes)
    for subtree in grown:
        more_splits, more_leaves = _nodes_of(subtree)
        splits |= more_splits
        leaves |= more_leaves
    splits, leaves = dict(sorted(splits.items())), dict(sorted(leaves.items()))
    return TreeShape(
        nodes=tuple(splits),
        owners=tuple(owner for owner, *_ in splits.values()),
        records=tuple(record for _, record, *_ in splits.values()),
        leaves=tuple(leaves),
        weights=tuple(weight for weights, _ in leaves.values() for weight in weights),
        gains=tuple(gain for *_, gain, _ in splits.values()),
        covers=(*(cover for *_, cover in splits.values()), *(cover for _, cover in leaves.values())),
    )


def _nodes_of(shape: TreeShape) -> tuple[_Splits, _Leaves]:
    """Return owner, record, gain and cover of each split; weights and cover of each leaf."""
    count = len(shape.nodes)
    splits = zip(shape.owners, shape.records, shape.gains, shape.covers[:count], strict=True)
    leaves = zip(map(tuple, shape.leaf_values().tolist()), shape.covers[count:], strict=True)
    return dict(zip(shape.nodes, splits, strict=True)), dict(zip(shape.leaves, leaves, strict=True))


def _outside(values: dict[int, T], nodes: Sequence[int]) -> dict[int, T]:
    """Return the values of nodes that are in none of the subtrees."""
    return {node: each for node, each in values.items() if not any(node == n or is_below(node, n) for n in nodes)}
