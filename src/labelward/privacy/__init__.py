"""Differential privacy: noisy labels, noise for numbers, and accounts of what releases spend. No models."""

from labelward.privacy.accounting import Budget, Spend, parallel, sequential
from labelward.privacy.mechanisms import RandomizedResponse, RRTopK, RRWithPrior, uniform_priors
from labelward.privacy.stages import LabelPrior, multi_stage

__all__ = [
    "Budget",
    "LabelPrior",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "Spend",
    "multi_stage",
    "parallel",
    "sequential",
    "uniform_priors",
]
