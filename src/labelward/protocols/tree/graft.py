"""What becomes of a finished tree where true labels may repair it: parts grown anew, leaves weighed again.

Setting: the trees were fitted to other labels than the true ones (label privacy), and all that passive parties get to
know of them has left. The repair takes the active party's own columns alone: no message leaves, and no split of a
passive party is forgotten by it, though the tree may not use it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.policy.base import FinishedTree
from labelward.protocols.tree.growth import Graft, Growth, grow_together
from labelward.protocols.tree.partition import is_below
from labelward.protocols.tree.plan import Plan
from labelward.protocols.tree.share import TreeShape

__all__ = ["Clean", "repaired"]

Floats = NDArray[np.float64]


@dataclass
class Clean:
    """What repairs go by, kept apart from what trees are fitted to.

    Attributes:
        values: float64 [training rows]: the true labels.
        weights: float64 [training rows], those of true classes included.
        margins: float64 [rows, K] of the repaired trees so far, validation rows last.
        gradients: at these margins: float64 [training rows, K] and the hessians.
    """

    values: Floats
    weights: Floats
    margins: Floats
    gradients: tuple[Floats, Floats] = field(init=False)


def repaired(growth: Growth, shape: TreeShape, clean: Plan) -> TreeShape:
    """Return the tree as the policies want it to be.

    Args:
        growth: has come to its end with ``shape``; its partition follows the repair.
        clean: the same tree's plan on true labels, in which nobody else takes part.
    """
    fitted, true = (_classes(plan, growth.ensemble.class_totals) for plan in (growth.plan, clean))
    answer = growth.ctx.policies.after_tree(
        FinishedTree(
            tree=clean.tree,
            nodes=shape.nodes,
            leaves=shape.leaves,
            clean=_counts(growth, shape.leaves, true),
            fitted=_counts(growth, shape.leaves, fitted),
            alone=growth.ensemble.params.kind == "forest",
        )
    )
    if answer.regrow:
        shape = _regrown(growth, shape, clean, sorted(answer.regrow))
    if answer.refit:
        totals = np.stack([clean.values[growth.partition.rows(leaf)].sum(axis=0) for leaf in shape.leaves])
        weights = growth.weights(shape.leaves, totals, clean.judge)
        shape = msgspec.structs.replace(shape, weights=tuple(weights.reshape(-1).tolist()))
    return shape


def _classes(plan: Plan, totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how often each training row counts for each class: int64 [rows, C]."""
    if plan.classes is None:
        return np.zeros((len(plan.counts), 0), dtype=np.int64)
    flags: NDArray[np.int64] = (np.rint(plan.classes)[:, None] == np.arange(len(totals))) * plan.counts[:, None]
    return flags


def _counts(growth: Growth, leaves: Sequence[int], classes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([classes[growth.partition.rows(leaf)].sum(axis=0) for leaf in leaves])


def _regrown(growth: Growth, shape: TreeShape, clean: Plan, nodes: Sequence[int]) -> TreeShape:
    """Return the tree with everything below these nodes grown anew; none of them lies below another."""
    grafts, limited = [], bool(growth.ensemble.params.max_leaves)
    for node in nodes:
        erased = sum(leaf == node or is_below(leaf, node) for leaf in shape.leaves)
        growth.partition.join(node)
        grafts.append(Growth(growth.ensemble, clean, Graft(growth, node, erased if limited else 0)))
    kept = [node for node in (*shape.nodes, *shape.leaves) if not any(node == n or is_below(node, n) for n in nodes)]
    return _joined(_part(shape, frozenset(kept)), *(_part(each) for each in grow_together(grafts)))


@dataclass(frozen=True)
class _Part:
    """Some nodes of a tree: owner, record, gain and cover of splits; weights and cover of leaves."""

    splits: dict[int, tuple[int, int, float, float]]
    leaves: dict[int, tuple[tuple[float, ...], float]]


def _part(shape: TreeShape, kept: frozenset[int] | None = None) -> _Part:
    splits = len(shape.nodes)
    at_splits = zip(shape.owners, shape.records, shape.gains, shape.covers[:splits], strict=True)
    weights = np.array(shape.weights).reshape(len(shape.leaves), -1).tolist()
    at_leaves = zip(map(tuple, weights), shape.covers[splits:], strict=True)
    return _Part(
        {node: told for node, told in zip(shape.nodes, at_splits, strict=True) if kept is None or node in kept},
        {leaf: told for leaf, told in zip(shape.leaves, at_leaves, strict=True) if kept is None or leaf in kept},
    )


def _joined(*parts: _Part) -> TreeShape:
    splits = dict(sorted(item for part in parts for item in part.splits.items()))
    leaves = dict(sorted(item for part in parts for item in part.leaves.items()))
    return TreeShape(
        nodes=tuple(splits),
        owners=tuple(owner for owner, *_ in splits.values()),
        records=tuple(record for _, record, *_ in splits.values()),
        leaves=tuple(leaves),
        weights=tuple(weight for weights, _ in leaves.values() for weight in weights),
        gains=tuple(gain for *_, gain, _ in splits.values()),
        covers=(*(cover for *_, cover in splits.values()), *(cover for _, cover in leaves.values())),
    )
