"""Union: rows that share a leaf are assigned one class; alone, and combined with the attacker's own columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import TREE_MODELS, Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import cluster_features, kmeans_seed, validate_features, validate_rows
from labelward.attacks.instance_spaces import observed_leaves
from labelward.kernels.connected_components import label_components
from labelward.kernels.leaf_signatures import merge_identical_rows
from labelward.party.view import View


@dataclass(frozen=True, kw_only=True)
class Union(Attack):
    """Connected components of rows that share a visible leaf of any tree.

    There may be more parts than classes, and often there is one, which says nothing. Rows in no visible leaf form one
    part; a row that is alone in its leaves is a part of its own. A view without trees gives one part.

    Setting: a curious passive party; its own columns serve only to route rows that a tree's sample left out through
        its own splits. Auxiliary knowledge: none.

    Reference: UNI, a baseline of the ID2Graph paper, after the approximation that Cheng et al. 2021 (SecureBoost)
        discuss.

    Difference from the paper: it joins rows "assigned together to at least one node"; since all rows meet in the root,
        nodes are read as the visible leaves.
    """

    kind: ClassVar[str] = "union"
    models: ClassVar[tuple[str, ...]] = TREE_MODELS

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return the part of every training row; notes give the visible trees and the parts.

        Raises:
            DataError: ``own`` does not hold the view's rows.
            FileFormatError: records of the view contradict each other.
        """
        validate_rows(view, own)
        part, notes = _parts(view, own)
        return LabelGuess(values=part.astype(np.int64), notes=notes)


@dataclass(frozen=True, kw_only=True)
class UnionClustering(Attack):
    """K-means on the attacker's columns and the components of the union attack, one cluster per class.

    It clusters [min-max scaled own columns, 1 × indicators of the parts].

    Setting: as :class:`Union`. Auxiliary knowledge: the number of classes. With a single part the guess is that of
        :class:`~labelward.attacks.clustering.Clustering` with the same generator.

    Reference: UNI+CL, a baseline of the ID2Graph paper.
    """

    kind: ClassVar[str] = "union-clustering"
    models: ClassVar[tuple[str, ...]] = TREE_MODELS

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row; notes give the visible trees and the parts.

        Raises:
            DataError: ``own`` does not hold the view's rows, or has no column, or an infinite value.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        validate_features(view, own, aux)
        part, notes = _parts(view, own)
        values = cluster_features(own.numbers(), aux.classes, kmeans_seed(rng), community=part, alpha=1.0)
        return LabelGuess(values=values, notes=notes)


def _parts(view: View, own: AttackerData) -> tuple[NDArray[np.int32], dict[str, float]]:
    """Return int32 [rows], numbered from 0, and the number of trees and of components."""
    leaves = observed_leaves(view, own)
    signatures = merge_identical_rows(leaves)
    part = label_components(signatures)
    return part[signatures.group], {"trees": float(len(leaves)), "parts": float(part.max(initial=-1) + 1)}
