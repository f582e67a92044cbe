"""Attacks on a view, scored against the true labels: the same arithmetic within an audit and for a stored guess."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward import rng
from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.passive_completion import Completion
from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import DataError
from labelward.federation.adapter import attacker_data
from labelward.leakage.baselines import fit_boosted, fit_logistic, oracle_upper_bound
from labelward.metrics.leakage import cluster_chance, label_chance, score_clusters, score_labels
from labelward.party.view import View
from labelward.runs.checks import Metrics

__all__ = [
    "FOLDS",
    "AttackResult",
    "attack_and_score",
    "run_attack",
    "sample_known_rows",
    "score_baselines",
    "score_label_guess",
    "score_values",
    "score_without_view",
]

FOLDS = 5
"""Of the upper bound."""


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """One attack by one party.

    Attributes:
        leakage: as a result row holds it, but for what the attack reaches without the view.
        auxiliary: what the attack was given besides the view and the party's own columns.
        seconds: of the attack on the view.
    """

    leakage: Metrics
    auxiliary: dict[str, Any]
    notes: dict[str, float]
    seconds: float


def run_attack(attack: Attack, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, seed: int) -> LabelGuess:
    """Run an attack; its draws depend on seed, party and kind of attack alone."""
    draws = rng.learning(seed, view.party, 0, f"attack {attack.kind}")
    return attack(view, own, aux, rng=draws)


def sample_known_rows(labels: NDArray[np.int64], count: int, *, seed: int) -> NDArray[np.int64]:
    """Return int64 [count], ascending: rows whose labels an attacker is told, as many of each class as of any other.

    Where a class has too few rows, all of them are known, and the rest are drawn from the others. The draws depend on
    the seed alone, so that all attacks and parties know the same rows.

    Args:
        labels: int64 [rows], class numbers.
        count: how many; 0: none.
        seed: of the run.

    Raises:
        DataError: fewer than there are classes, or as many as there are rows.
    """
    if not count:
        return np.empty(0, np.int64)
    classes = np.unique(labels)
    if not len(classes) <= count < len(labels):
        raise DataError(
            f"{count} known labels of {len(labels)} rows; at least one of each of the {len(classes)} "
            "classes must be known, and one row at least must be left to guess",
            code="labels",
            field="auxiliary",
            value=count,
        )
    order = rng.learning(seed, "", 0, "known labels").permutation(len(labels))
    place = np.empty(len(labels), np.int64)
    for label in classes:
        of_class = order[labels[order] == label]
        place[of_class] = np.arange(len(of_class))
    first = order[np.argsort(place[order], kind="stable")]
    return np.sort(first[:count])


def score_values(
    values: NDArray[np.int64],
    labels: Sequence[str],
    quantities: NDArray[np.float64] | None = None,
    *,
    known_per_cluster: int = 0,
) -> dict[str, Any]:
    """Return the metrics of a guess, with ``cluster_chance`` beside them.

    Args:
        values: int64 [rows], the guess.
        labels: the true labels of the same rows, or the bins that they are cut into, as text: numbered here, so that it
            does not matter which table they come from.
        quantities: the labels themselves, where they are quantities.
        known_per_cluster: as the guess has it.
    """
    truth = np.unique(np.asarray(labels, dtype=np.str_), return_inverse=True)[1].astype(np.int64)
    known = known_per_cluster
    return {
        **score_clusters(values, truth, quantities, known_per_cluster=known),
        "chance": cluster_chance(values, truth, quantities, known_per_cluster=known),
    }


def score_label_guess(
    guess: LabelGuess, truth: NDArray[np.int64], aux: AuxiliaryKnowledge, outside_truth: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """Return the metrics of guessed labels, with ``cluster_chance`` beside them; known rows are not scored.

    Metrics of rows outside the training set begin with ``outside_``.

    Args:
        guess: of kind ``"labels"``.
        truth: int64 [rows], class numbers.
        aux: what the attacker was told.
        outside_truth: int64 [rows outside], where the guess speaks of them.
    """
    left = np.setdiff1d(np.arange(len(truth)), aux.known_rows)
    scored = [("", _rows_of(guess, left), truth[left])]
    if guess.outside is not None and outside_truth is not None:
        scored.append(("outside_", (guess.outside.values, guess.outside.scores), outside_truth))
    found: dict[str, Any] = {}
    by_chance: dict[str, float] = {}
    for prefix, (values, scores), labels in scored:
        for into, how in ((found, score_labels), (by_chance, label_chance)):
            metrics = how(values, labels, scores, classes=aux.classes)
            into.update({f"{prefix}{name}": value for name, value in metrics.items()})
    return {**found, "chance": by_chance}


def _rows_of(guess: LabelGuess, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    return guess.values[rows], None if guess.scores is None else guess.scores[rows]


def attack_and_score(
    attack: Attack, view: View, data: VerticalDataset, *, seed: int, own: AttackerData | None = None
) -> AttackResult:
    """Attack a party's view and score the guess.

    Args:
        attack: with its parameters.
        view: the party's.
        data: of all parties; of it the attack is given the party's own columns and the labels that it must know.
        seed: of the run.
        own: what the party owns besides its columns, such as its bottom model; None: its columns alone.
    """
    own, aux = own or attacker_data(_held(view, data)), _auxiliary(attack, data, seed)
    start = time.perf_counter()
    guess = run_attack(attack, view, own, aux, seed=seed)
    seconds = time.perf_counter() - start
    leakage = {**_score(guess, data, aux), "primary": attack.primary}
    told = {"classes" if data.classes else "bins of the labels": aux.classes}
    if guess.known_per_cluster:
        told["known rows of each cluster"] = guess.known_per_cluster
    if len(aux.known_rows):
        told["known labels"] = len(aux.known_rows)
    if attack.needs_class_counts and aux.class_counts is not None:
        told["rows of each class"] = aux.class_counts.tolist()
    if own.other_runs:
        told["other runs"] = len(own.other_runs)
    return AttackResult(leakage=leakage, auxiliary=told, notes=guess.notes, seconds=seconds)


def score_without_view(
    attack: Attack, view: View, data: VerticalDataset, *, seed: int, own: AttackerData | None = None
) -> dict[str, float]:
    """Return the metrics of the same attack on the empty view of the same party.

    Of a completion that is the paper's direct semi-supervised baseline: the same, on the untrained bottom model.
    """
    own, aux = own or attacker_data(_held(view, data)), _auxiliary(attack, data, seed)
    metrics = _score(run_attack(attack, view.without_records(), own, aux, seed=seed), data, aux)
    metrics.pop("chance")
    return metrics


def score_baselines(
    attack: Attack,
    view: View,
    data: VerticalDataset,
    *,
    seed: int,
    own: AttackerData | None = None,
    folds: int = FOLDS,
    kept: dict[Hashable, LabelGuess] | None = None,
) -> dict[str, dict[str, float]]:
    """Return what else the known labels give, with the metric names of the attack; it does not depend on the run.

    Args:
        folds: of the upper bound; 0: it is left out.
        kept: guesses of earlier calls for the same data and seed, which many attacks share; it is added to.

    Returns:
        ``"logistic"`` and ``"boosted"``: supervised models of the known labels on raw columns; ``"all labels"``: the
        party's own network trained on the labels of all other rows, where the attack completes one. Nothing for an
        attack that is told no label.
    """
    own, aux = own or attacker_data(_held(view, data)), _auxiliary(attack, data, seed)
    if not len(aux.known_rows):
        return {}
    kept = {} if kept is None else kept
    made: dict[str, tuple[Hashable, Callable[[], LabelGuess]]] = {
        name: ((view.party, name, attack.labels_needed), partial(model, own, aux))
        for name, model in (("logistic", fit_logistic), ("boosted", fit_boosted))
    }
    if folds and isinstance(attack, Completion) and own.untrained is not None:
        recipe = (view.party, folds, attack.learning_rate, attack.shrink, attack.alpha, attack.mix)  # all it depends on
        draws = rng.learning(seed, view.party, 0, "all labels")
        made["all labels"] = (
            recipe,
            partial(oracle_upper_bound, attack, own, data.train_labels, classes=aux.classes, folds=folds, rng=draws),
        )
    found = {}
    for name, (key, make) in made.items():
        if key not in kept:
            kept[key] = make()
        found[name] = kept[key]
    return {
        name: {metric: value for metric, value in _score(guess, data, aux).items() if metric != "chance"}
        for name, guess in found.items()
    }


def _held(view: View, data: VerticalDataset) -> PartyDataset:
    """Return what the view's party holds."""
    return next(party for party in data.parties if party.name == view.party)


def _auxiliary(attack: Attack, data: VerticalDataset, seed: int) -> AuxiliaryKnowledge:
    """Return what the attacker is told: how many classes or bins there are, the classes' counts, and some labels."""
    rows = sample_known_rows(data.train_labels, attack.labels_needed, seed=seed)
    classes, counts = int(data.train_labels.max()) + 1, None
    if data.classes:
        values = np.concatenate([data.train_values, data.validation_values, data.test_values]).astype(np.int64)
        classes, counts = len(data.classes), np.bincount(values, minlength=len(data.classes))
    return AuxiliaryKnowledge(
        classes=classes, known_rows=rows, known_labels=data.train_labels[rows], class_counts=counts
    )


def _score(guess: LabelGuess, data: VerticalDataset, aux: AuxiliaryKnowledge) -> dict[str, Any]:
    """Compare a guess with the true labels of the training rows, and of rows outside where it says something of them.

    Of these the test rows are meant: the only ones that a party holds and does not train on.
    """
    if guess.kind == "labels":
        return score_label_guess(guess, data.train_labels, aux, data.test_labels)
    known = guess.known_per_cluster
    if data.classes:
        names = np.asarray(data.classes)[data.train_labels].tolist()
        return score_values(guess.values, names, known_per_cluster=known)
    bins = data.train_labels.astype(np.str_).tolist()
    return score_values(guess.values, bins, data.train_values, known_per_cluster=known)
