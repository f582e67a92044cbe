"""Union: rows that meet in a leaf are taken to be of one class; alone, and beside the attacker's own columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.clustering import checked_rows, clusters, kmeans_seed, same_rows
from labelward.attacks.contract import Attack, Aux, Guess, Own
from labelward.attacks.visible import visible_leaves
from labelward.kernels.signatures import merge
from labelward.kernels.unions import unions
from labelward.party.view import View

__all__ = ["Union", "UnionClustering"]


@dataclass(frozen=True, kw_only=True)
class Union(Attack):
    """Rows that share a visible leaf of any tree are joined; the guess is the connected parts.

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
    models: ClassVar[tuple[str, ...]] = ("secureboost", "forest")

    def __call__(self, view: View, own: Own, aux: Aux, *, rng: np.random.Generator) -> Guess:
        """Return the part of every training row; notes give the visible trees and the parts.

        Raises:
            DataError: ``own`` does not hold the view's rows.
            FileFormatError: records of the view contradict each other.
        """
        same_rows(view, own)
        part, notes = _parts(view, own)
        return Guess(values=part.astype(np.int64), notes=notes)


@dataclass(frozen=True, kw_only=True)
class UnionClustering(Attack):
    """K-means on own columns and the parts that :class:`Union` joins, with as many clusters as there are classes.

    It clusters [min-max scaled own columns, 1 × indicators of the parts].

    Setting: as :class:`Union`. Auxiliary knowledge: the number of classes. With a single part the guess is that of
        :class:`~labelward.attacks.clustering.Clustering` with the same generator.

    Reference: UNI+CL, a baseline of the ID2Graph paper.
    """

    kind: ClassVar[str] = "union-clustering"
    models: ClassVar[tuple[str, ...]] = ("secureboost", "forest")

    def __call__(self, view: View, own: Own, aux: Aux, *, rng: np.random.Generator) -> Guess:
        """Return a cluster for every training row; notes give the visible trees and the parts.

        Raises:
            DataError: ``own`` does not hold the view's rows, or has no column, or an infinite value.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        checked_rows(view, own, aux)
        part, notes = _parts(view, own)
        values = clusters(own.numbers(), aux.classes, kmeans_seed(rng), community=part, alpha=1.0)
        return Guess(values=values, notes=notes)


def _parts(view: View, own: Own) -> tuple[NDArray[np.int32], dict[str, float]]:
    """Return int32 [rows], numbered from 0, and how many trees and parts there are."""
    leaves = visible_leaves(view, own)
    signatures = merge(leaves)
    part = unions(signatures)
    return part[signatures.group], {"trees": float(len(leaves)), "parts": float(part.max(initial=-1) + 1)}
