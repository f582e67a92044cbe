"""Opened tree: the classes of the leaves that a row may reach, given the attacker's own side of each split.

Setting: a curious party of Pivot, which opens the tree to all and tells nobody which rows a node has. The attacker
knows its own splits. Where all splits above a leaf are its own, it knows the leaf of a row and so the class that most
rows there have; where they are not, a row may lie in several leaves, of which each unknown split halves the weight.

These labels are coarse, but they are of all rows. A model of the attacker's own columns that is fitted to them sums up
what the columns tell of them, and so ranks the labels of rows that the tree leaves open.

Reference: Wu et al., Pivot (2020), Section 5.1, names the leakage (training label leakage by colluding owners of a
path) and measures none. The model of own columns is in no paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import validate_rows
from labelward.attacks.soft_labels import scaled_columns, soft_regression
from labelward.errors import CodecError, FileFormatError
from labelward.kernels.node_rows import children, parent
from labelward.messages.pivot import OpenedTree
from labelward.party.view import View

Floats = NDArray[np.float64]

_STRENGTH = 0.01  # strong: labels of leaves are coarse, and a weak one follows their errors


@dataclass(frozen=True, kw_only=True)
class OpenedTreeGuess(Attack):
    """Labels from the classes of the leaves that a row may reach (Pivot)."""

    kind: ClassVar[str] = "opened-tree"
    models: ClassVar[tuple[str, ...]] = ("pivot",)
    primary: ClassVar[str] = "auc"

    own_columns: Annotated[
        bool,
        Meta(
            description="Whether a logistic regression of the leaves' classes on the attacker's own columns, fitted to "
            "all rows, ranks them; otherwise the leaves alone."
        ),
    ] = True

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return the weight of each class for every row; a view without a tree gives all classes the same.

        Raises:
            DataError: ``own`` does not hold the view's rows.
            FileFormatError: the observations of the view contradict each other.
        """
        scores = np.zeros((view.rows, aux.classes))
        for tree in view.observed(OpenedTree):
            for label, weight in _reached(tree, view):
                if label < aux.classes:
                    scores[:, label] += weight
        sure = float((scores.max(axis=1) == 1).mean()) if len(scores) else 0.0
        guess = LabelGuess.of_scores(self._ranked(scores, view, own))
        guess.notes["sure_rows"] = sure
        return guess

    def _ranked(self, weights: Floats, view: View, own: AttackerData) -> Floats:
        """Return float64 [rows, classes]: what own columns tell of the weights, or these, where that is nothing.

        The first regression finds the direction, under a penalty. The second scales it, so that the likeliest class
        is not that of most rows throughout.
        """
        if not self.own_columns or not len(weights) or not np.ptp(weights, axis=0).any():
            return weights
        validate_rows(view, own)
        columns = scaled_columns(own.numbers())
        if not columns.any():
            return weights
        direction = scaled_columns(np.log(soft_regression(columns, weights, columns, strength=_STRENGTH)))
        return soft_regression(direction, weights, direction)


def _reached(tree: OpenedTree, view: View) -> list[tuple[int, Floats]]:
    """Return for each leaf its class and, float64 [rows], how likely each row reaches it."""
    mine = [node for node, owner in zip(tree.nodes, tree.owners, strict=True) if owner == view.party]
    if len(mine) != len(tree.left) or len(tree.leaves) != len(tree.classes):
        reason = f"the view of party {view.party!r} holds a tree that contradicts itself"
        raise FileFormatError(reason, code="damaged", value=view.party)
    try:
        sides = {node: mask.unpack(view.rows) for node, mask in zip(mine, tree.left, strict=True)}
    except CodecError as error:
        reason = f"the view of party {view.party!r} holds a tree of other rows: {error}"
        raise FileFormatError(reason, code="damaged", value=view.party) from error
    found = []
    for leaf, label in zip(tree.leaves, tree.classes, strict=True):
        node, weight = leaf, np.ones(view.rows)
        while node:
            above = parent(node)
            goes_here = sides[above] == (node == children(above)[0]) if above in sides else np.full(view.rows, 0.5)
            weight *= goes_here
            node = above
        found.append((label, weight))
    return found
