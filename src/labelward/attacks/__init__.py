"""Attacks: functions of one party's view, its own data, and stated auxiliary knowledge.

A new one is one module and one line here.
"""

from labelward.attacks.base import Attack
from labelward.registry import Registry

__all__ = ["ATTACKS", "STANDING"]

# The kinds that a job file may name; ATTACKS.make(kind, parameters) builds one, ATTACKS.classes() lists them.
ATTACKS: Registry[Attack] = Registry(
    "attack",
    __name__,
    [
        "active_completion:ActiveCompletion",
        "clustering:Clustering",
        "consensus:Consensus",
        "gradient_sign:GradientSign",
        "id2graph:ID2Graph",
        "instance_clustering:InstanceClustering",
        "latent_classes:LatentClasses",
        "leaf_smoothing:LeafSmoothing",
        "passive_completion:PassiveCompletion",
        "spectral_clustering:SpectralClustering",
        "split_posterior:SplitPosterior",
        "union:Union",
        "union:UnionClustering",
    ],
)

STANDING = "split-posterior"
"""The attack that is part of every audit of classes, listed or not: it shows that the row split no longer leaks."""
