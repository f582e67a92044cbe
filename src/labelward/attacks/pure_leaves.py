"""Pure leaves: nodes of one class, recognized by the sums that were not requested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import cluster_points, kmeans, kmeans_seed, validate_features
from labelward.attacks.instance_spaces import ObservedTree, observed_leaves, observed_trees
from labelward.attacks.leaf_smoothing import smoothed
from labelward.kernels.connected_components import label_components
from labelward.kernels.leaf_graph import leaf_graph
from labelward.kernels.leaf_signatures import merge_identical_rows
from labelward.kernels.node_rows import depth_of, sibling
from labelward.parameters import NonNegativeInt
from labelward.party.view import View

Floats = NDArray[np.float64]

_LARGEST = 0.25
"""A node with a larger share of the rows is not taken for a pure one only because no split of it is known."""


@dataclass(frozen=True, kw_only=True)
class PureLeaves(Attack):
    """Rows joined by nodes without requested sums (pure ones in views of earlier versions), with smoothed columns.

    1. A node is taken for pure if the party knows its rows, there are enough of them for two leaves, the tree may
       grow deeper, and no sums of it were requested.
    2. Rows that share such a node have one class; so have rows that a chain of such nodes connects.
    3. A row's point is its min-max scaled own columns, replaced ``smoothing`` times by the mean over its visible
       leaves of each leaf's mean. Rows of one class by step 2 take their mean. K-means gives the classes.

    Versions before 0.2.0 requested no sums of a node of one class: with in-node candidates every node of step 1 is
    pure. With other candidates one of two siblings is summed for both, so that step 1 finds only pairs of pure
    siblings. Current versions request the sums of every such node, and step 1 finds none. Step 3 remains.

    With ``evidence = "splits"`` step 1 takes nodes of which no split is known, though at most a quarter of the rows:
    a pure node is never split. But the party is not told each split of a node that it knows.

    Setting: a curious passive party. Auxiliary knowledge: the number of classes. From no paper; step 3 averages columns
        as a random walk over the graph of ID2Graph would.
    """

    kind: ClassVar[str] = "pure-leaves"
    models: ClassVar[tuple[str, ...]] = ("secureboost", "forest")

    smoothing: Annotated[
        NonNegativeInt, Meta(description="Number of times that the own columns are averaged over visible leaves.")
    ] = 2
    evidence: Annotated[
        Literal["sums", "splits"],
        Meta(
            description="Nodes taken for pure: those without requested sums ('sums'), or those of which no split is "
            "known ('splits')."
        ),
    ] = "sums"

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row; notes give the nodes taken for pure and the rows in them.

        Raises:
            DataError: ``own`` does not hold the view's rows, or has no column, or an infinite value.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        validate_features(view, own, aux)
        seed = kmeans_seed(rng)
        pure, count = self.pure_nodes(view)
        signatures = merge_identical_rows(pure)
        part = label_components(signatures)[signatures.group]
        part[(pure < 0).all(axis=0)] = -1
        points = _averaged(cluster_points(own.numbers()), observed_leaves(view, own), self.smoothing)
        values = kmeans(_averaged(points, part[None] + 1, 1), aux.classes, seed)
        notes = {"pure nodes": float(count), "rows in pure nodes": float((part >= 0).sum())}
        return LabelGuess(values=values, notes=notes)

    def pure_nodes(self, view: View) -> tuple[NDArray[np.int32], int]:
        """Return int32 [trees, rows]: the node taken for pure of each row, -1 for none; and how many nodes that are."""
        pure, count = [], 0
        for tree in observed_trees(view):
            pure.append(np.full(view.rows, -1, np.int32))
            for node in self._pure(view, tree):
                pure[-1][tree.nodes[node]] = node
                count += 1
        return np.array(pure, np.int32).reshape(-1, view.rows), count

    def _pure(self, view: View, tree: ObservedTree) -> Iterator[int]:
        summed, depths = tree.summed, {depth_of(node) for node in tree.summed}
        if view.parameter("model.candidates") != "node":
            summed = summed | {sibling(node) for node in summed}
        depth = view.parameter("model.passive_depth" if view.parameter("model.mode") == "layered" else "model.depth")
        grown = view.ended == "complete" and not view.parameter("model.max_leaves", 0)
        if depth is not None and grown:  # elsewhere the last levels may lack their request
            depths = set(range(depth))
        for node, rows in tree.nodes.items():
            if depth_of(node) not in depths or len(rows) < 2 * view.parameter("model.min_rows", 1):
                continue
            if self.evidence == "sums" and node not in summed:
                yield node
            if self.evidence == "splits" and node not in tree.split and len(rows) <= _LARGEST * view.rows:
                yield node


def _averaged(values: Floats, leaves: NDArray[np.int32], rounds: int) -> Floats:
    """Return float64 [rows, columns]: averages over the leaves of each row, all of which count alike."""
    graph = leaf_graph(leaves, np.ones(len(leaves))).discounted(1.0)
    return smoothed(graph, values, rounds)[graph.group] if rounds else values
