"""Attacks on a view, scored against the true labels: the same arithmetic within an audit and for a stored guess."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward import rng
from labelward.attacks.contract import Attack, Aux, Guess, Own
from labelward.data import PartyData, Rehearsal
from labelward.errors import DataError
from labelward.evaluate.results import Metrics
from labelward.evaluate.scores import chance, score
from labelward.party.view import View

__all__ = ["Attacked", "attack_and_score", "guess_labels", "known_rows", "own_of", "score_values", "score_without_view"]


@dataclass(frozen=True, kw_only=True)
class Attacked:
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


def guess_labels(attack: Attack, view: View, own: Own, *, classes: int, seed: int) -> Guess:
    """Run an attack; its draws depend on seed, party and kind of attack alone."""
    draws = rng.learning(seed, view.party, 0, f"attack {attack.kind}")
    return attack(view, own, Aux(classes=classes), rng=draws)


def known_rows(labels: NDArray[np.int64], count: int, *, seed: int) -> NDArray[np.int64]:
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
            f"auxiliary: {count} known labels of {len(labels)} rows; at least one of each of the {len(classes)} "
            "classes must be known, and one row at least must be left to guess"
        )
    order = rng.learning(seed, "", 0, "known labels").permutation(len(labels))
    place = np.empty(len(labels), np.int64)
    for label in classes:
        of_class = order[labels[order] == label]
        place[of_class] = np.arange(len(of_class))
    first = order[np.argsort(place[order], kind="stable")]
    return np.sort(first[:count])


def own_of(held: PartyData) -> Own:
    """Return a party's training columns as its attacks take them."""
    categories = {held.columns[position]: len(names) for position, names in held.categories.items()}
    return Own(features=held.train, columns=held.columns, categories=categories)


def score_values(
    values: NDArray[np.int64],
    labels: Sequence[str],
    quantities: NDArray[np.float64] | None = None,
    *,
    known_per_cluster: int = 0,
) -> dict[str, Any]:
    """Return the metrics of a guess, with ``chance`` beside them.

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
        **score(values, truth, quantities, known_per_cluster=known),
        "chance": chance(values, truth, quantities, known_per_cluster=known),
    }


def attack_and_score(attack: Attack, view: View, data: Rehearsal, *, seed: int) -> Attacked:
    """Attack a party's view and score the guess."""
    own, classes = _known(view, data)
    start = time.perf_counter()
    guess = guess_labels(attack, view, own, classes=classes, seed=seed)
    seconds = time.perf_counter() - start
    leakage = {**_score(guess, data), "primary": attack.primary}
    auxiliary = {"classes" if data.classes else "bins of the labels": classes}
    if guess.known_per_cluster:
        auxiliary["known rows of each cluster"] = guess.known_per_cluster
    return Attacked(leakage=leakage, auxiliary=auxiliary, notes=guess.notes, seconds=seconds)


def score_without_view(attack: Attack, view: View, data: Rehearsal, *, seed: int) -> dict[str, float]:
    """Return the metrics of the same attack on the empty view of the same party."""
    own, classes = _known(view, data)
    metrics = _score(guess_labels(attack, view.without_records(), own, classes=classes, seed=seed), data)
    metrics.pop("chance")
    return metrics


def _known(view: View, data: Rehearsal) -> tuple[Own, int]:
    """Return what the view's party owns, and the number of classes, or of bins."""
    held = next(party for party in data.parties if party.name == view.party)
    return own_of(held), int(data.train_labels.max()) + 1


def _score(guess: Guess, data: Rehearsal) -> dict[str, Any]:
    """Compare a guess with the true labels of the training rows."""
    known = guess.known_per_cluster
    if data.classes:
        names = np.asarray(data.classes)[data.train_labels].tolist()
        return score_values(guess.values, names, known_per_cluster=known)
    bins = data.train_labels.astype(np.str_).tolist()
    return score_values(guess.values, bins, data.train_values, known_per_cluster=known)
