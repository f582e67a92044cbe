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
        "bin_reconstruction:BinReconstruction",
        "clustering:Clustering",
        "embedding_inversion:EmbeddingInversion",
        "gradient_directions:GradientDirections",
        "gradient_sign:GradientSign",
        "id2graph:ID2Graph",
        "instance_clustering:InstanceClustering",
        "leaf_weights:LeafWeightGuess",
        "node_sums:NodeSums",
        "passive_completion:PassiveCompletion",
        "pure_leaves:PureLeaves",
        "split_posterior:SplitPosterior",
        "union:Union",
        "union:UnionClustering",
    ],
)

STANDING = "split-posterior"
"""The attack that is part of every audit of classes, listed or not: it shows that the row split no longer leaks."""
