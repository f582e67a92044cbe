"""Instance clustering: spectral clusters of rows by shared leaves, labeled with a few known rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from labelward.attacks.base import TREE_MODELS, Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import kmeans, kmeans_seed, validate_classes, validate_rows
from labelward.attacks.instance_spaces import observed_leaves
from labelward.kernels.leaf_signatures import merge_identical_rows
from labelward.kernels.spectral import spectral_embedding
from labelward.party.view import View


@dataclass(frozen=True, kw_only=True)
class InstanceClustering(Attack):
    """Spectral clustering of rows by the fraction of trees in which they share a leaf.

    1. Two rows are similar by the share of the visible trees in which they share a visible leaf.
    2. Spectral clustering gives as many clusters as there are classes.
    3. The class of some rows of each cluster is known; the cluster takes the most frequent one.

    Step 3 is part of scoring (``accuracy``), as an attack never sees a label. Rows with the same visible leaves share a
    cluster.

    Setting: a curious passive party; its own columns serve only to route rows that a tree's sample left out through
        its own splits. Auxiliary knowledge: the number of classes, and the class of ``known_per_cluster`` rows of each
        cluster. A view without trees gives one cluster.

    Reference: the instance clustering attack (ICA) of the CMOSB paper, Section V-B, Algorithm 2 and Equation 3.

    Differences from the paper: the leaves are those visible to the party, not the model's; no matrix of rows
        by rows is made, so that it is exact at any size; spectral clustering is that of scikit-learn (a row is not
        similar to itself, the eigenvectors are those of the random walk).
    """

    kind: ClassVar[str] = "instance-clustering"
    models: ClassVar[tuple[str, ...]] = TREE_MODELS
    primary: ClassVar[str] = "accuracy"

    known_per_cluster: Annotated[
        int,
        Meta(ge=1, le=100, description="Number of rows of each cluster whose class the attacker knows, from 1 to 100."),
    ] = 1

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row; notes give visible trees, groups of rows, and connected parts.

        Raises:
            DataError: ``own`` does not hold the view's rows.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        validate_rows(view, own)
        validate_classes(view, aux)
        seed = kmeans_seed(rng)
        leaves = observed_leaves(view, own)
        signatures = merge_identical_rows(leaves)
        groups = len(signatures.size)
        embedding = spectral_embedding(signatures, aux.classes, rng=rng)
        values = np.arange(groups)
        if groups > aux.classes:
            values = kmeans(embedding.points, aux.classes, seed, weights=signatures.size.astype(np.float64))
        notes = {"trees": float(len(leaves)), "groups": float(groups), "parts": float(embedding.parts)}
        return LabelGuess(values=values[signatures.group], notes=notes, known_per_cluster=self.known_per_cluster)
