"""Information about the labels in the instance spaces that a party can see; computed from the true labels.

The bound of a node is Eq. 3 of the ID2Graph paper (:func:`~labelward.kernels.information.node_bound`). It holds for
each node separately. The information in all nodes together is measured on their common refinement, the *merged
groups*: sets of rows that no visible tree distinguishes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelward.kernels.information import entropy, joint_information, node_bound, node_information
from labelward.kernels.leaf_signatures import merge_identical_rows

Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class LeakageBounds:
    """Information about the labels in visible leaves, in nats.

    Attributes:
        nodes: number of visible nodes of all trees, including roots and inner nodes.
        leaves: number of the finest visible nodes.
        max_node_information: the largest mutual information of the labels with the indicator of a node; 0 without
            nodes.
        max_node_bound: the largest bound (Eq. 3) of a node.
        joint_information: mutual information of the labels with the merged groups.
        joint_bound: Eq. 3 for the merged groups: the largest divergence of a group's class shares from those of all
            rows, at most the entropy of the labels and at least ``joint_information``.
        label_entropy: entropy of the labels, the upper limit of all information.
    """

    nodes: int
    leaves: int
    max_node_information: float
    max_node_bound: float
    joint_information: float
    joint_bound: float
    label_entropy: float


def leakage_bounds(leaves: NDArray[np.int32], labels: Labels) -> LeakageBounds:
    """Return the information in visible leaves.

    Args:
        leaves: int32 [trees, rows]: the finest visible node of each row in each tree, -1 for rows that the tree did not
            sample; the children of node i are 2i+1 and 2i+2.
        labels: int64 [rows], class numbers.
    """
    totals = np.bincount(labels)
    classes = len(totals)
    counts = [visible_node_counts(tree, labels) for tree in leaves]
    nodes = np.concatenate([np.zeros((0, classes), np.int64), *counts])
    groups = merge_identical_rows(np.ascontiguousarray(leaves)).group
    cells = np.zeros((int(groups.max(initial=0)) + 1, classes), np.int64)
    np.add.at(cells, (groups, labels), 1)
    total_entropy = float(entropy(totals))
    joint = joint_information(groups, labels)
    return LeakageBounds(
        nodes=len(nodes),
        leaves=sum(len(np.unique(tree[tree >= 0])) for tree in leaves),
        max_node_information=float(node_information(nodes, totals).max(initial=0.0)),
        max_node_bound=float(node_bound(nodes, totals).max(initial=0.0)),
        joint_information=joint,
        joint_bound=max(joint, min(total_entropy, float(node_bound(cells, totals).max()))),
        label_entropy=total_entropy,
    )


def visible_node_counts(leaf: NDArray[np.int32], labels: Labels) -> NDArray[np.int64]:
    """Return int64 [nodes, classes]: class counts of the visible nodes of one tree: leaves and their ancestors."""
    inside = leaf >= 0
    numbers, position = np.unique(leaf[inside], return_inverse=True)
    classes = int(labels.max()) + 1
    counts = np.bincount(position * classes + labels[inside], minlength=len(numbers) * classes)
    of_node: dict[int, NDArray[np.int64]] = {}
    for number, own in zip(numbers.tolist(), counts.reshape(-1, classes), strict=True):
        node = number
        while True:  # add the leaf's counts to itself and all its ancestors
            of_node[node] = of_node.get(node, np.zeros(classes, np.int64)) + own
            if node == 0:
                break
            node = (node - 1) // 2
    return np.array([of_node[node] for node in sorted(of_node)], dtype=np.int64).reshape(-1, classes)
