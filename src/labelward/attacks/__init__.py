"""Attacks: functions of one party's view, its own data, and stated auxiliary knowledge.

A new one is one module and one line here.
"""

from __future__ import annotations

from labelward.attacks.base import Attack
from labelward.registry import Registry

__all__ = ["ATTACKS", "STANDING", "fitting_attacks"]

# The kinds that a job file may name; ATTACKS.make(kind, parameters) builds one, ATTACKS.classes() lists them.
ATTACKS: Registry[Attack] = Registry(
    "attack",
    __name__,
    [
        "active_completion:ActiveCompletion",
        "attribute_inference:AttributeInference",
        "batch_gradients:BatchGradientGuess",
        "bin_bounds:BinBounds",
        "bin_reconstruction:BinReconstruction",
        "clustering:Clustering",
        "consensus:Consensus",
        "differential:Differential",
        "embedding_inversion:EmbeddingInversion",
        "goss_sample:GossSample",
        "gradient_directions:GradientDirections",
        "gradient_modes:GradientModes",
        "gradient_sign:GradientSign",
        "gradient_trajectories:GradientCompletion",
        "gradient_trajectories:GradientTrajectories",
        "id2graph:ID2Graph",
        "instance_clustering:InstanceClustering",
        "inversion:Inversion",
        "latent_classes:LatentClasses",
        "leaf_smoothing:LeafSmoothing",
        "leaf_weights:LeafWeightGuess",
        "lying_sums:LyingSums",
        "monotone_sides:MonotoneSides",
        "node_sums:NodeSums",
        "opened_tree:OpenedTreeGuess",
        "passive_completion:PassiveCompletion",
        "pure_leaves:PureLeaves",
        "spectral_clustering:SpectralClustering",
        "row_ranking:NormAttack",
        "row_ranking:SpectralAttack",
        "split_evidence:SplitEvidence",
        "split_gains:SplitGains",
        "split_posterior:SplitPosterior",
        "split_replay:SplitReplay",
        "union:Union",
        "union:UnionClustering",
    ],
    "attacks",
)

STANDING = "split-posterior"
"""The attack that is part of every audit of classes, listed or not: it shows that the row split no longer leaks."""


def fitting_attacks(model: str) -> list[str]:
    """Return the kinds of attacks on labels for honest views of a kind of model, whatever its parameters and columns.

    That of every audit is not among them.

    The strongest attack differs from table to table, so all of them are run; an attack without the view is one of them.
    """
    return [
        kind
        for kind, each in ATTACKS.classes().items()
        if each.target == "labels"
        and kind != STANDING
        and each.behavior is Attack.behavior
        and not each.needs
        and not each.reads_directions
        and model in (each.models or (model,))
    ]
