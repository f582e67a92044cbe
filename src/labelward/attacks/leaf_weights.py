"""Labels from the leaf weights that a source of PIVODL is told: the attack of the paper.

Setting: a party is curious about the labels of the others. Of the leaves below its own splits it knows all rows, and it
is told their weights, clean or with noise (``partial-dp``). The sum of these weights over the trees ranks the labels;
its sign guesses them. Rows in no such leaf get the sum 0.

Reference: Zhu et al., PIVODL (2023), Section V-E and Definition 9. The paper prints an accuracy above 60 % without
noise and below 50 % with it; an accuracy far below one half tells as much as one above, so balanced accuracy and AUC
stand here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.shared_trees import SharedTreeAttack, known_trees
from labelward.party.view import View


@dataclass(frozen=True, kw_only=True)
class LeafWeightGuess(SharedTreeAttack):
    """Labels of others from the leaf weights told to the source of a split (PIVODL)."""

    kind: ClassVar[str] = "leaf-weights"

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return for each row the sum of the weights of the leaves that the party knows it to reach."""
        score, known = np.zeros(view.rows), 0
        for tree in known_trees(view):
            for node, weight in tree.weights.items():
                score[tree.leaf_rows[node]] += weight
                known += len(tree.leaf_rows[node])
        guess = LabelGuess.of_scores(np.stack([-score, score], axis=1))
        guess.notes["weights_of_a_row"] = known / max(1, view.rows)
        return guess
