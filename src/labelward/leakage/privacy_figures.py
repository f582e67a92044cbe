"""Figures of privacy of the attacks on one party's view: evidence about epsilon, and reconstruction advantage.

Setting: in scoring, with the true labels and the columns of all parties. Quantities have no evidence about epsilon, as
their labels are no classes; neither have images and texts, for want of a model that predicts labels from these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward import rng
from labelward.attacks.base import Attack, AttackerData, LabelGuess
from labelward.attacks.instance_spaces import observed_leaves
from labelward.data import VerticalDataset
from labelward.leakage.label_model import LabelModel, Labels, fit_label_model
from labelward.leakage.observational_audit import count_contradictions, epsilon_evidence
from labelward.leakage.run_attack import told_rows
from labelward.metrics.reconstruction import Flags, reconstruction_advantages, right_rows
from labelward.party.view import View
from labelward.protocols.family import attacker_data


@dataclass(frozen=True, kw_only=True)
class ViewGuess:
    """An attack on a view with its result.

    Attributes:
        own: as the attack got it.
        guess: with the view.
        blind: guesses without the view: first of the same attack, then of its baselines.
    """

    attack: Attack
    own: AttackerData
    guess: LabelGuess
    blind: tuple[LabelGuess, ...]


@dataclass
class PrivacyScorer:
    """Scores the attacks of one seed; the model of the labels is fitted once.

    Attributes:
        data: of all parties.
        seed: of the run.
    """

    data: VerticalDataset
    seed: int

    def score(self, view: View, attacks: Sequence[ViewGuess], *, delta: float = 0.0) -> list[dict[str, Any]]:
        """Return for each attack ``advantage`` and, if labels are classes, ``epsilon``, as a result row has them.

        Args:
            view: of the attacking party.
            attacks: all attacks on it.
            delta: of the label DP that is claimed; 0: pure.
        """
        labels = self.data.train_labels
        known = [told_rows(each.attack, self.data, self.seed, view.party) for each in attacks]
        left = np.setdiff1d(np.arange(len(labels)), np.concatenate([np.empty(0, np.int64), *known]))
        with_view = [_right(each.guess, each.attack, labels, left) for each in attacks]
        without = [found for each in attacks for found in _right_without(each, labels, left)]
        draws = rng.learning(self.seed, view.party, 0, "reconstruction")
        found: list[dict[str, Any]] = [
            {"advantage": msgspec.to_builtins(each)}
            for each in reconstruction_advantages(with_view, without, labels[left], rng=draws)
        ]
        leaves = observed_leaves(view, attacks[0].own) if any(each.attack.reads_trees for each in attacks) else None
        for figures, each, told in zip(found, attacks, known, strict=True):
            if self.data.classes and each.own.columns:
                shown = leaves if each.attack.reads_trees else None
                figures["epsilon"] = self._epsilon(view, each, told, shown, delta)
        return found

    @cached_property
    def _model(self) -> LabelModel:
        columns = np.hstack([attacker_data(each).numbers() for each in self.data.parties if each.columns])
        draws = rng.learning(self.seed, "", 0, "label model")
        return fit_label_model(columns, self.data.train_labels, len(self.data.classes), rng=draws)

    def _epsilon(
        self, view: View, attacked: ViewGuess, known: Labels, leaves: NDArray[np.int32] | None, delta: float
    ) -> dict[str, Any]:
        draws = rng.learning(self.seed, "", 0, "observational audit")
        evidence = epsilon_evidence(
            attacked.guess,
            attacked.blind[0],
            self.data.train_labels,
            self._model,
            known=known,
            leaves=leaves,
            delta=delta,
            rng=draws,
        )
        data, order = self.data, np.concatenate([rows for _, rows in self.data.split.items()])
        labels = np.empty(len(order), np.int64)
        labels[order] = np.concatenate([data.train_values, data.validation_values, data.test_values])
        changed, contradicted = count_contradictions(
            attacked.attack, view, attacked.own, labels, len(data.classes), rng=draws
        )
        return msgspec.structs.replace(evidence, changed=changed, contradicted=contradicted).figures()


def _right(guess: LabelGuess, attack: Attack | None, labels: Labels, rows: Labels) -> Flags:
    """Return of which rows a guess is right: of an attack that leaves the names open, under the best ones."""
    named = guess.kind == "labels" and (attack is None or attack.names_classes)
    return right_rows(guess.values[rows], labels[rows], named=named)


def _right_without(attacked: ViewGuess, labels: Labels, rows: Labels) -> list[Flags]:
    """Return the same of all guesses without the view; baselines name classes whatever the attack does."""
    same = [attacked.attack, *(None for _ in attacked.blind[1:])]
    return [_right(guess, attack, labels, rows) for guess, attack in zip(attacked.blind, same, strict=False)]
