"""Prefixes: a training passes the models of shorter ones, whose figures cost no further training.

A boosted model contains those of its first trees; of a network see :mod:`labelward.tuning.epochs`. They are those of a
training of that length to the last digit: trees are grown one after another, each from draws of its own; a party's view
of the first trees is what it would have seen, and so are the operations up to there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.auditing.measure import FinishedTraining
from labelward.federation.components import make_attack, model_family, policy_chains
from labelward.job import ComponentSpec, Job, TuneSection, Variant
from labelward.metrics.utility import utility_scores
from labelward.protocols.secureboost.predict import leaves_of, margins_of
from labelward.runs.schema import Cost
from labelward.tuning.epochs import MOST
from labelward.tuning.space import EPOCHS, TREES

LENGTHS = {"secureboost": TREES, "splitnn": EPOCHS}
"""By kind of model the variable that says how long it trains."""
_COSTS = ("operations", "unpacked")


def refusal(job: Job, variant: Variant, section: TuneSection) -> str:
    """Return why the first trees or epochs of a training are no settings of their own; empty if they are.

    Args:
        job: completed with defaults.
        variant: the defenses of the training.
    """
    if job.model.kind not in LENGTHS:
        return f"{job.model.kind!r} is grown neither tree by tree nor epoch by epoch"
    trees = LENGTHS[job.model.kind] == TREES
    reason = _refused_trees(job, section) if trees else _refused_epochs(job, section)
    if reason:
        return reason
    for policy in (each for chain in policy_chains(job, variant).values() for each in chain):
        if not policy.begins_alike:
            return f"defense {policy.kind!r} does not say that a shorter training begins alike"
    for attack in map(make_attack, job.attacks):
        if attack.reads_other_runs:
            return f"attack {attack.kind!r} reads other runs"
        if trees and attack.reads_view and not attack.reads_trees:
            return f"attack {attack.kind!r} reads more than trees"
    return ""


def _refused_trees(job: Job, section: TuneSection) -> str:
    model = job.model.params
    if model["mode"] != "standard":
        return f"in mode {model['mode']!r} parties take turns"
    if model["early_stopping_rounds"]:
        return "early stopping chooses the length"
    if section.cost not in _COSTS or "seconds" in section.objectives or "bytes" in section.objectives:
        return "seconds and bytes are those of the whole training"
    return ""


def _refused_epochs(job: Job, section: TuneSection) -> str:
    model = job.model.params
    if model["patience"]:
        return "early stopping chooses the length"
    if model["schedule"] == "cosine":
        return "the learning rate of an epoch follows from the number of epochs"
    if section.cost == "seconds" or "seconds" in section.objectives:
        return "seconds are those of the whole training"
    if model["epochs"] > MOST:
        return f"only the first {MOST} epochs take as many bytes each"
    return ""


def begun_with(whole: int) -> int:
    """Return after how many trees or epochs a training may be cut short: a quarter of it; 0: it has too few."""
    return whole // 4


def rounds_of(trees: int, variant: Variant) -> tuple[int, int]:
    """Return the rounds of a training of so many trees, and those in which passive parties take part."""
    local = next((each.params for each in variant.chain if each.kind == "local-trees"), None)
    if local is None:
        return trees, trees
    return (trees + local["count"], trees) if local["mode"] == "add" else (trees, max(0, trees - local["count"]))


def shortest(variant: Variant) -> int:
    """Return the fewest trees with which the defenses go: local trees cannot replace more than there are."""
    return max(
        (
            int(each.params["count"])
            for each in variant.chain
            if each.kind == "local-trees" and each.params["mode"] == "replace"
        ),
        default=1,
    )


class PrefixScorer:
    """The figures of the first trees of one training."""

    def __init__(self, training: FinishedTraining) -> None:
        self.training, shares = training, training.ended.shares
        self._share = shares[training.job.active.name]
        self._apart = len(self._share.trees) // self.rounds(training.job.model.params["trees"])
        answers = {party.name: shares[party.name].own.answers(party.test) for party in training.data.parties}
        self._leaves = leaves_of(self._share, answers, len(training.data.test_values))

    def rounds(self, trees: int) -> int:
        """Return the rounds of a training of so many trees."""
        return rounds_of(trees, self.training.variant)[0]

    def margins(self, trees: int) -> NDArray[np.float64]:
        """Return the margins of the scored rows by the first trees."""
        count = self.rounds(trees) * self._apart
        return margins_of(msgspec.structs.replace(self._share, trees=self._share.trees[:count]), self._leaves[:count])

    def utility(self, trees: int, names: Collection[str]) -> Mapping[str, float]:
        """Return metrics of the first trees."""
        family = model_family(self.training.job.model)
        return utility_scores(family, self.margins(trees), self.training.data, names)

    def cost(self, trees: int) -> Cost:
        """Return what is not counted operation by operation: that of the whole training."""
        return self.training.ended.cost

    def first(self, trees: int) -> FinishedTraining:
        """Return the training as attackers saw it after the first trees."""
        seen = rounds_of(trees, self.training.variant)[1] * self._apart
        views = {party: view.first_trees(seen) for party, view in self.training.views.items()}
        return dataclasses.replace(self.training, views=views, joined={})


def attackers_left(attackers: Sequence[tuple[str, ComponentSpec]]) -> list[tuple[str, ComponentSpec]]:
    """Return the attackers whose guess depends on the view, so that it differs between lengths."""
    return [pair for pair in attackers if make_attack(pair[1]).reads_view]
