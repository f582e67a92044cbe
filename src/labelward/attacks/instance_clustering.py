"""Instance clustering: spectral clusters of rows by shared leaves, labeled with a few known rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

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
    3. The class of some rows is known; a cluster takes the most frequent class of the known rows in it.

    Step 3 is part of scoring (``accuracy``), as an attack never sees a label. Rows with the same visible leaves share a
    cluster.

    Setting: a curious passive party; its own columns serve only to route rows that a tree's sample left out through
        its own splits. Auxiliary knowledge: the number of classes, and the class of ``known_per_cluster`` rows of each
        cluster, as in the paper, or of ``known_per_class`` rows of each class, wherever they lie. A cluster without a
        known row is named at random. A view without trees gives one cluster.

    Reference: the instance clustering attack (ICA) of the CMOSB paper, Section V-B, Algorithm 2 and Equation 3; it
        takes the clustering of Ng, Jordan and Weiss 2001 (its reference 25).

    Differences from the paper: the leaves are those visible to the party, not the model's; no matrix of rows
        by rows is made, so that it is exact at any size. ``normalization = "shi-malik"`` is the clustering of
        scikit-learn: eigenvectors of the random walk, in which connected parts of few rows lie far away and take
        clusters.
    """

    kind: ClassVar[str] = "instance-clustering"
    models: ClassVar[tuple[str, ...]] = TREE_MODELS
    primary: ClassVar[str] = "accuracy"

    normalization: Annotated[
        Literal["njw", "shi-malik"],
        Meta(
            description="Points that are clustered: rows of the eigenvectors scaled to length 1 ('njw', as in the "
            "paper), or eigenvectors of the random walk ('shi-malik')."
        ),
    ] = "njw"
    known_per_cluster: Annotated[
        int,
        Meta(ge=1, le=100, description="Number of rows of each cluster whose class the attacker knows, from 1 to 100."),
    ] = 1
    known_per_class: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="Number of rows of each class that the attacker knows, drawn from all rows, instead of rows of "
            "each cluster; 0: rows of each cluster.",
        ),
    ] = 0

    def check_parameters(self) -> None:
        """Refuse known rows both of each cluster and of each class."""
        if self.known_per_class and self.known_per_cluster != 1:
            raise self.error("known_per_class", "replaces known_per_cluster; give one of them")

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
            points = embedding.unit_length() if self.normalization == "njw" else embedding.points
            values = kmeans(points, aux.classes, seed, weights=signatures.size.astype(np.float64))
        notes = {"trees": float(len(leaves)), "groups": float(groups), "parts": float(embedding.parts)}
        return LabelGuess(
            values=values[signatures.group],
            notes=notes,
            known_per_cluster=0 if self.known_per_class else self.known_per_cluster,
            known_per_class=self.known_per_class,
        )
