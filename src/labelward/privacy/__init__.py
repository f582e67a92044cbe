"""Differential privacy: noisy labels, noise for numbers, and accounts of what releases spend. No models."""

from .accounting import Budget, Spend, parallel, sequential
from .mechanisms import RandomizedResponse, RRTopK, RRWithPrior, uniform_priors
from .stages import Prior, multi_stage

__all__ = [
    "Budget",
    "Prior",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "Spend",
    "multi_stage",
    "parallel",
    "sequential",
    "uniform_priors",
]
