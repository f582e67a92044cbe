"""Defenses: policies that change what leaves a party. A new one is one module and one line here."""

from __future__ import annotations

from labelward.policy.base import Policy
from labelward.registry import Registry

__all__ = ["DEFENSES"]

DEFENSES: Registry[Policy] = Registry(
    "defense",
    __name__,
    [
        "local_trees:LocalTrees",
        "id_lmid:IdLmid",
        "purity_threshold:PurityThreshold",
        "label_dp:RandomizedLabels",
        "label_dp:LpMst",
        "grafting:Grafting",
        "noisy_gradients:NoisyGradients",
        "gradient_compression:GradientCompression",
        "ppdl:Ppdl",
        "discrete_sgd:DiscreteSgd",
        "sign_sgd:SignSgd",
        "partial_dp:PartialDP",
        "label_dp_sums:LabelDPSums",
        "min_bin_rows:MinBinRows",
        "lpsc:Lpsc",
        "adversarial:Adversarial",
        "marvell:Marvell",
        "mid:Mid",
        "coae:Coae",
        "distance_correlation:DistanceCorrelation",
    ],
    "defenses",
)
