"""Labels from the sums of nodes that PIVODL tells everybody in clear.

Setting: any party of PIVODL is curious about the labels of the others. It knows the rows of every node that is no leaf,
and the sums of their gradients and hessians. What a leaf of these rows would weigh ranks the labels: the attack adds up
these weights over the trees, as the model does with its leaves. Where the attacker labels rows of a node itself, it
takes their gradients off first, so that only the others' labels speak. Partial differential privacy of leaf weights
leaves all of this as it is.

Source: an independent reading of Zhu et al., PIVODL (2023), Section IV-A, step 7; the paper names no such attack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.shared_trees import known_trees
from labelward.party.view import View


@dataclass(frozen=True, kw_only=True)
class NodeSums(Attack):
    """Labels of others from the public sums of nodes (PIVODL)."""

    kind: ClassVar[str] = "node-sums"
    primary: ClassVar[str] = "auc"
    models: ClassVar[tuple[str, ...]] = ("pivodl",)

    @property
    def alone(self) -> str:
        """See :attr:`Attack.alone`."""
        return "a coalition of parties with labels of their own is not supported"

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
            nodes = tree.deepest_sums(view.rows)
            mine = np.zeros((view.rows, 2))
            if held is not None and own.labels is not None:
                p = expit(margin[held])
                mine[held] = np.stack([p - own.labels[held], p * (1 - p)], axis=1)
            for node in np.unique(nodes):
                rows = tree.rows[node]
                g, h = tree.sums[node][:2] / scale - mine[rows].sum(axis=0)
                score[nodes == node] -= rate * g / max(h + reg_lambda, 1e-9)
            for node, weight in tree.weights.items():
                margin[tree.leaf_rows[node]] += weight
            for node in tree.public_leaves():
                g, h = tree.sums[node][:2] / scale
                margin[tree.rows[node]] -= rate * g / (h + reg_lambda)
        return LabelGuess.of_scores(np.stack([-score, score], axis=1))
