"""Consensus: what the attacks on shared leaves agree on, without a label to choose one of them by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from labelward.attacks.base import TREE_MODELS, Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.clustering import kmeans_seed, validate_features
from labelward.attacks.id2graph import ID2Graph
from labelward.attacks.instance_clustering import InstanceClustering
from labelward.attacks.latent_classes import LatentClasses, fit_classes, principal_components
from labelward.attacks.leaf_smoothing import LeafSmoothing, cluster_groups, graph_of_view
from labelward.attacks.spectral_clustering import SpectralClustering
from labelward.parameters import NonNegativeInt
from labelward.party.view import View


@dataclass(frozen=True, kw_only=True)
class Consensus(Attack):
    """The clustering that agrees with those of the other attacks, refined by a latent class model.

    1. ID2Graph, leaf smoothing, spectral clustering, instance clustering and latent classes each cluster the rows.
    2. K-means clusters the indicators of their clusters into the classes.
    3. ``rounds`` of expectation-maximization of the latent class model refine the result; the classes share a full
       covariance matrix of the components of the columns.

    An attacker has no label to choose the best attack by. The likelihood of the latent class model does not order
    clusterings by what they tell of the labels; that several attacks agree does. Notes give the mean V-measure of the
    attacks' clusters and the consensus.

    Setting: as :class:`~labelward.attacks.leaf_smoothing.LeafSmoothing`. On a view whose leaves are roots, the guess is
        that of ID2Graph with the same generator.

    Reference: cluster ensembles (Strehl and Ghosh 2002), by the k-means of Topchy et al. 2005.
    """

    kind: ClassVar[str] = "consensus"
    models: ClassVar[tuple[str, ...]] = TREE_MODELS

    rounds: Annotated[NonNegativeInt, Meta(description="Rounds of expectation-maximization after the consensus.")] = 4

    def __call__(
        self, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, rng: np.random.Generator
    ) -> LabelGuess:
        """Return a cluster for every training row; notes give trees, groups of rows, and the agreement of attacks.

        Raises:
            DataError: ``own`` does not hold the view's rows, or has no column, or an infinite value.
            FileFormatError: records of the view contradict each other.
            InputError: fewer classes than one, or more than rows.
        """
        validate_features(view, own, aux)
        first = ID2Graph()(view, own, aux, rng=rng).values
        graph, notes = graph_of_view(view, own, aux, 1.0)
        if graph is None:
            return LabelGuess(values=first, notes=notes)
        points = principal_components(graph, own, aux.classes, rng)
        latent = LatentClasses()
        others = (LeafSmoothing(), SpectralClustering(), InstanceClustering())
        found = [
            first,
            fit_classes(graph, first, aux.classes, points, latent.leaf_weight, latent.rounds),
            *(attack(view, own, aux, rng=rng).values for attack in others),
        ]
        indicators = np.hstack([graph.means(np.eye(aux.classes)[values]) for values in found])
        values = cluster_groups(graph, indicators, aux.classes, kmeans_seed(rng))
        if self.rounds:
            values = fit_classes(graph, values, aux.classes, points, 1.0, self.rounds, full=True)
        from sklearn.metrics import v_measure_score

        agreement = float(np.mean([v_measure_score(values, each) for each in found]))
        return LabelGuess(values=values, notes=notes | {"agreement": agreement})
