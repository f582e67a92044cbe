"""Labels from the sums of nodes that PIVODL tells everybody in clear.

Setting: any party of PIVODL is curious about the labels of the others. It knows the rows of every node that is no leaf,
and the sums of their gradients and hessians. What a leaf of these rows would weigh ranks the labels: the attack adds up
these weights over the trees, as the model does with its leaves. Where the attacker labels rows of a node itself, it
takes their gradients off first, so that only the others' labels speak. Partial differential privacy of leaf weights
leaves all of this as it is.

Source: an independent reading of Zhu et al., PIVODL (2023), Section IV-A, step 7; the paper names no such attack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.shared_trees import KnownTree, SharedTreeAttack, known_trees
from labelward.party.view import View

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NodeSums(SharedTreeAttack):
    """Labels of others from the public sums of nodes (PIVODL)."""

    kind: ClassVar[str] = "node-sums"

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return for each row the sum of the weights that the nodes above its leaves would have."""
        from scipy.special import expit

        held = None if own.labels is None else ~np.isnan(own.labels)
        scale = 2.0 ** view.parameter("encryption.precision", 30)
        reg_lambda, rate = view.parameter("model.reg_lambda", 1.0), view.parameter("model.learning_rate", 0.3)
        score, margin = np.zeros(view.rows), np.zeros(view.rows)
        for tree in known_trees(view, held):
            mine = np.zeros((view.rows, 2))
            if held is not None and own.labels is not None:
                p = expit(margin[held])
                mine[held] = np.stack([p - own.labels[held], p * (1 - p)], axis=1)
            for rows, (g, h) in self._sums_of_others(tree, mine, scale, view):
                score[rows] -= rate * g / max(h + reg_lambda, 1e-9)
            for node, weight in tree.weights.items():
                margin[tree.leaf_rows[node]] += weight
            for node in tree.public_leaves():
                g, h = tree.sums[node][:2] / scale
                margin[tree.rows[node]] -= rate * g / (h + reg_lambda)
        return LabelGuess.of_scores(np.stack([-score, score], axis=1))

    def _sums_of_others(self, tree: KnownTree, mine: Floats, scale: float, view: View) -> Iterator[tuple[Rows, Floats]]:
        """Yield groups of rows that are disjoint, with the sums of the others' gradients and hessians behind each.

        Args:
            tree: as the party knows it.
            mine: float64 [rows, 2]: gradients and hessians of the rows that the party labels, else 0.
            scale: fixed point of the sums.
            view: the party's.
        """
        nodes = tree.deepest(view.rows, tree.rows.keys() & tree.sums.keys())
        for node in np.unique(nodes):
            yield np.flatnonzero(nodes == node), tree.sums[node][:2] / scale - mine[tree.rows[node]].sum(axis=0)
