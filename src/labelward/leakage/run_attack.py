"""Run an attack on a view and score its guess against the true labels, in an audit or for a stored guess."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labelward import rng
from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, Baseline, ColumnGuess, Guess, LabelGuess
from labelward.attacks.known_label_models import fit_boosted, fit_logistic
from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import DataError, InputError, JobError, unknown_name
from labelward.leakage.attributes import attribute_values, known_attribute
from labelward.leakage.column_scores import score_columns
from labelward.leakage.known_rows import sample_known_rows
from labelward.metrics.leakage import (
    cluster_chance,
    label_chance,
    permutation_chance,
    score_clusters,
    score_labels,
)
from labelward.metrics.registry import BESIDE_METRICS, COMMON, METRICS, OUTSIDE
from labelward.parameters import check_instance
from labelward.party.view import View
from labelward.protocols.family import attacker_data
from labelward.runs.checks import Metrics


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """Result of one attack by one party.

    Attributes:
        guess: what the attack returned.
        leakage: metrics as in a result row, except for those without the view.
        auxiliary: what the attack was given in addition to the view and the party's own columns.
        notes: see :attr:`labelward.attacks.base.LabelGuess.notes`.
        seconds: duration of the attack on the view.
    """

    guess: Guess
    leakage: Metrics
    auxiliary: dict[str, Any]
    notes: dict[str, float]
    seconds: float


class ScoredGuess(NamedTuple):
    """A guess without the view, and its metrics."""

    guess: Guess
    metrics: dict[str, float]


def run_attack(attack: Attack, view: View, own: AttackerData, aux: AuxiliaryKnowledge, *, seed: int) -> Any:
    """Run an attack, and return its guess; its draws depend only on the seed, the party and the kind of attack.

    Raises:
        InputError: what the attack returns is no guess of its target, of all rows.
    """
    draws = rng.learning(seed, view.party, 0, f"attack {attack.kind}")
    guess = attack(view, own, aux, rng=draws)
    place = f"attack {attack.kind!r}"
    check_instance(place, guess, ColumnGuess if attack.target == "columns" else LabelGuess, "what it returns")
    if isinstance(guess, LabelGuess):
        _check_guess(guess, view.rows, place)
    return guess


def _check_guess(guess: LabelGuess, rows: int, place: str) -> None:
    """Refuse a guess that is not one whole number for each row, or whose scores are not of these rows."""
    values, scores = guess.values, guess.scores
    if guess.kind not in ("clusters", "labels"):
        reason = f"its guess must be of kind 'clusters' or 'labels', not {guess.kind!r}"
        raise InputError(reason, code="choice", field=place, value=guess.kind)
    kind = getattr(values, "dtype", type(values))
    if getattr(kind, "kind", "") not in ("i", "u"):
        reason = f"the values of its guess must be an array of integers, not {kind}"
        raise InputError(reason, code="type", field=place, value=str(kind))
    if values.shape != (rows,):
        reason = f"the values of its guess must be one for each of the {rows} rows, not {values.shape}"
        raise InputError(reason, code="rows", field=place, value=values.shape)
    if scores is None:
        return
    if scores.ndim != 2 or len(scores) != rows:
        reason = f"the scores of its guess must be {rows} rows of one for each class, not {scores.shape}"
        raise InputError(reason, code="rows", field=place, value=scores.shape)
    if np.isnan(scores).any():
        raise InputError("the scores of its guess must be numbers, not NaN", code="values", field=place)


def score_values(
    values: NDArray[np.int64],
    labels: Sequence[str],
    targets: NDArray[np.float64] | None = None,
    *,
    known_per_cluster: int = 0,
    known_per_class: int = 0,
    attack: Attack | None = None,
    numbers: NDArray[np.int64] | None = None,
    by_chance: bool = True,
) -> dict[str, Any]:
    """Return the metrics of guessed clusters, and their ``chance`` level.

    Args:
        values: int64 [rows], the guess.
        labels: true labels of the same rows as text, or bins of regression targets. They are numbered here, so that it
            does not matter which table they come from.
        targets: float64 [rows], regression targets; None for classes.
        known_per_cluster: as in the guess.
        known_per_class: as in the guess.
        attack: adds its own metrics.
        numbers: int64 [rows], class numbers as the attack counts them; None: in the order of the labels' text.
        by_chance: whether the level of chance is computed, most of which is estimated over permutations.
    """
    truth = np.unique(np.asarray(labels, dtype=np.str_), return_inverse=True)[1].astype(np.int64)
    guess = LabelGuess(values=values, known_per_cluster=known_per_cluster, known_per_class=known_per_class)
    found = score_clusters(values, truth, targets, **guess.known_rows)
    chance = cluster_chance(values, truth, targets, **guess.known_rows) if by_chance else {}
    _add_own_metrics(attack, guess, truth if numbers is None else numbers, found, chance)
    return {**found, "chance": chance}


def score_label_guess(
    guess: LabelGuess,
    truth: NDArray[np.int64],
    aux: AuxiliaryKnowledge,
    outside_truth: NDArray[np.int64] | None = None,
    *,
    attack: Attack | None = None,
) -> dict[str, Any]:
    """Return the metrics of guessed labels, and their ``chance`` level; known rows are not scored.

    Names of metrics over rows outside the training set begin with :data:`labelward.metrics.registry.OUTSIDE`.

    Args:
        guess: of kind ``"labels"``.
        truth: int64 [rows], class numbers.
        aux: the labels that the attacker was told.
        outside_truth: int64 [rows outside], for a guess about these.
        attack: adds its own metrics.
    """
    unknown = np.setdiff1d(np.arange(len(truth)), aux.known_rows)
    scores = None if guess.scores is None else guess.scores[unknown]
    scored = [("", LabelGuess(values=guess.values[unknown], kind="labels", scores=scores), truth[unknown])]
    if guess.outside is not None and outside_truth is not None:
        scored.append((OUTSIDE, guess.outside, outside_truth))
    found: dict[str, float] = {}
    chance: dict[str, float] = {}
    for prefix, part, labels in scored:
        metrics = score_labels(part.values, labels, part.scores, classes=aux.classes)
        by_chance = label_chance(part.values, labels, part.scores, classes=aux.classes)
        if not prefix:  # of any guess, so that attacks are ranked on one scale
            groups, by_groups = score_clusters(part.values, labels), cluster_chance(part.values, labels)
            metrics |= {name: groups[name] for name in COMMON}
            by_chance |= {name: by_groups[name] for name in COMMON}
        _add_own_metrics(attack, part, labels, metrics, by_chance)
        found |= {f"{prefix}{name}": value for name, value in metrics.items()}
        chance |= {f"{prefix}{name}": value for name, value in by_chance.items()}
    return {**found, "chance": chance}


def _add_own_metrics(
    attack: Attack | None,
    guess: LabelGuess,
    truth: NDArray[np.int64],
    found: dict[str, float],
    chance: dict[str, float],
) -> None:
    if attack is not None and attack.metrics:
        check_own_metrics(attack)
        score = partial(_own_scores, attack, guess)
        found |= score(truth)
        chance |= permutation_chance(attack.metrics, score, truth)


def check_own_metrics(attack: Attack) -> None:
    """Refuse metrics of an attack whose names are taken, and a primary metric that does not exist.

    Raises:
        InputError: as said.
    """
    place, own = f"attack {attack.kind!r}", [each.name for each in attack.metrics]
    for name in own:
        if name in METRICS or name in BESIDE_METRICS or own.count(name) > 1:
            reason = f"the name of its metric {name!r} is taken; choose another"
            raise InputError(reason, code="duplicate", field=place, value=name)
    if attack.primary.removeprefix(OUTSIDE) not in (*METRICS, *own):
        reason = f"primary: {unknown_name('metric', attack.primary, (*METRICS, *own))}"
        raise InputError(reason, code="unknown", field=place, value=attack.primary)


def _own_scores(attack: Attack, guess: LabelGuess, truth: NDArray[np.int64]) -> dict[str, float]:
    """Return what an attack scores of its own, or refuse other names than those of its metrics, and no numbers."""
    found, place, names = attack.score(guess, truth), f"attack {attack.kind!r}", [each.name for each in attack.metrics]
    check_instance(place, found, dict, "what its score returns")
    for name, value in found.items():
        if name not in names:
            raise InputError(f"score: {unknown_name('metric', name, names)}", code="unknown", field=place, value=name)
        if not (isinstance(value, float | int | np.number) and np.isfinite(value)):
            reason = f"its score gives {value!r} for the metric {name!r}; it must be a finite number"
            raise InputError(reason, code="values", field=place, value=value)
    for name in names:
        if name not in found:
            reason = f"its score gives no value for its metric {name!r}; add it, or leave the metric out"
            raise InputError(reason, code="missing", field=place, value=name)
    return {name: float(value) for name, value in found.items()}


def attack_and_score(
    attack: Attack,
    view: View,
    data: VerticalDataset,
    *,
    seed: int,
    own: AttackerData | None = None,
    by_chance: bool = True,
) -> AttackResult:
    """Attack a party's view and score the guess.

    Args:
        attack: with its parameters.
        view: the party's.
        data: of all parties; the attack gets the party's own columns and the labels that it needs to be told.
        seed: of the run.
        own: what the party has in addition to its columns, such as its bottom model; None: its columns only.
        by_chance: whether the level of chance of a guess of clusters is computed.
    """
    check_own_metrics(attack)
    own, aux = own or attacker_data(_party_data(view, data)), _auxiliary(attack, data, seed, view.party)
    start = time.perf_counter()
    guess = run_attack(attack, view, own, aux, seed=seed)
    seconds = time.perf_counter() - start
    leakage = {**_score(attack, guess, data, aux, view, by_chance=by_chance), "primary": attack.primary}
    if attack.primary not in leakage:
        reason = f"its primary metric {attack.primary!r} is not scored for these labels; name another as primary"
        raise InputError(reason, code="missing", field=f"attack {attack.kind!r}", value=attack.primary)
    if attack.target != "labels":
        leakage["target"] = attack.target
    auxiliary: dict[str, Any] = {"classes" if data.classes else "bins of the labels": aux.classes}
    if isinstance(guess, LabelGuess) and guess.known_per_cluster:
        auxiliary["known rows of each cluster"] = guess.known_per_cluster
    if isinstance(guess, LabelGuess) and guess.known_per_class:
        auxiliary["known rows of each class"] = guess.known_per_class
    if len(aux.known_rows):
        what = "labels" if attack.known_column is None else f"values of {'.'.join(attack.known_column)}"
        auxiliary[f"known {what}"] = len(aux.known_rows)
    if attack.attribute is not None and aux.attribute is not None:
        auxiliary[f"known values of {attack.attribute[0]}"] = len(aux.attribute.known_rows)
    if attack.needs_class_counts and aux.class_counts is not None:
        auxiliary["rows of each class"] = aux.class_counts.tolist()
    if attack.reads_directions:
        auxiliary["columns with a monotone constraint"] = len(own.monotone)
    if own.other_runs:
        auxiliary["other runs"] = len(own.other_runs)
    return AttackResult(guess=guess, leakage=leakage, auxiliary=auxiliary, notes=guess.notes, seconds=seconds)


def score_without_view(
    attack: Attack, view: View, data: VerticalDataset, *, seed: int, own: AttackerData | None = None
) -> ScoredGuess:
    """Return the guess of the same attack on an empty view of the same party, and its metrics.

    For a completion attack this is the paper's direct semi-supervised baseline: the attack on the untrained bottom
    model.
    """
    own, aux = own or attacker_data(_party_data(view, data)), _auxiliary(attack, data, seed, view.party)
    guess = run_attack(attack, view.without_records(), own, aux, seed=seed)
    return ScoredGuess(guess, _without_chance(_score(attack, guess, data, aux, view, by_chance=False)))


def score_baselines(
    attack: Attack,
    view: View,
    data: VerticalDataset,
    *,
    seed: int,
    own: AttackerData | None = None,
    upper_bound: bool = True,
    cache: dict[Hashable, Guess] | None = None,
) -> dict[str, ScoredGuess]:
    """Return baselines by name, with the attack's metric names; they do not depend on the run.

    Args:
        attack: whose baselines are scored.
        view: of the attacking party; only its name is used.
        data: of all parties.
        seed: of the run.
        own: as in :func:`attack_and_score`.
        upper_bound: whether baselines may use the labels of all rows.
        cache: guesses of earlier calls for the same data and seed, which several attacks share; extended here.

    Returns:
        For an attack on labels that is told some, ``"logistic"`` and ``"boosted"``: supervised models of the known
        labels on raw columns. Where several parties hold labels, ``"majority"``: the most frequent class. For any
        attack, its own (:meth:`labelward.attacks.base.Attack.baselines`).
    """
    own, aux = own or attacker_data(_party_data(view, data)), _auxiliary(attack, data, seed, view.party)
    cache = {} if cache is None else cache
    found: dict[str, Baseline] = {}
    if len(aux.known_rows) and attack.target == "labels":
        for name, model in (("logistic", fit_logistic), ("boosted", fit_boosted)):
            found[name] = Baseline(guess=_deterministic(model, own, aux), depends_on=attack.labels_needed)
    if len(data.holders) > 1 and data.classes and attack.target == "labels":
        most = LabelGuess(
            values=np.full(len(data.train_labels), np.bincount(data.train_labels).argmax()), kind="labels"
        )
        found["majority"] = Baseline(guess=lambda _: most, depends_on="majority")
    found |= attack.baselines(own, aux, truth=data.train_labels if upper_bound else None)
    scores = {}
    for name, baseline in found.items():
        key = (view.party, name, attack if baseline.depends_on is None else baseline.depends_on)
        if key not in cache:
            cache[key] = baseline.guess(rng.learning(seed, view.party, 0, name))
        scores[name] = ScoredGuess(
            cache[key], _without_chance(_score(attack, cache[key], data, aux, view, by_chance=False))
        )
    return scores


def _deterministic(
    model: Callable[[AttackerData, AuxiliaryKnowledge], LabelGuess], own: AttackerData, aux: AuxiliaryKnowledge
) -> Callable[[np.random.Generator], LabelGuess]:
    return lambda _: model(own, aux)


def _without_chance(metrics: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name != "chance"}


def _party_data(view: View, data: VerticalDataset) -> PartyDataset:
    return next(party for party in data.parties if party.name == view.party)


def told_rows(attack: Attack, data: VerticalDataset, seed: int, party: str) -> NDArray[np.int64]:
    """Return the training rows whose labels an attacker knows.

    Of several label holders each knows its own labels, and is told no others.
    """
    rows = _held(data, party)
    if attack.known_column is not None:
        return sample_known_rows(told_column(attack, data), attack.labels_needed, seed=seed)
    return rows if len(rows) else sample_known_rows(data.train_labels, attack.labels_needed, seed=seed)


def _auxiliary(attack: Attack, data: VerticalDataset, seed: int, party: str) -> AuxiliaryKnowledge:
    """Return what the attacker is told: the number of classes or bins, the classes' counts, and some labels."""
    rows = told_rows(attack, data, seed, party)
    told = data.train_labels if attack.known_column is None else told_column(attack, data)
    classes, counts = int(data.train_labels.max()) + 1, None
    if data.classes:
        values = np.concatenate([data.train_values, data.validation_values, data.test_values]).astype(np.int64)
        classes, counts = len(data.classes), np.bincount(values, minlength=len(data.classes))
    further = known_attribute(attack, data, seed=seed)
    return AuxiliaryKnowledge(
        classes=classes, known_rows=rows, known_labels=told[rows], class_counts=counts, attribute=further
    )


def check_rows_of_classes(attack: Attack, data: VerticalDataset, parties: Sequence[str]) -> None:
    """Refuse known rows of each class that leave none of a class to score, which would then count the others alone.

    Args:
        attack: whose :attr:`~labelward.attacks.base.Attack.known_per_class` is checked.
        data: of all parties.
        parties: that attack; the labels that each of them holds are not scored.

    Raises:
        DataError: a class has no more training rows than are known.
    """
    known = attack.known_per_class
    for party in parties if known else ():
        labels = np.delete(data.train_labels, _held(data, party))
        counts = np.bincount(labels[labels >= 0])
        for number in np.flatnonzero((counts > 0) & (counts <= known)).tolist():
            named = f"class {data.classes[number]!r}" if data.classes else f"bin {number} of the labels"
            reason = f"{named} has {counts[number]} training rows, and none is left to score; know fewer of each class"
            raise DataError(reason, code="labels", field="known_per_class", value=known)


def told_column(attack: Attack, data: VerticalDataset) -> NDArray[np.int64]:
    """Return the values of the column that an attack names, int64 [training rows], numbered in ascending order.

    Raises:
        JobError: there is no such column, an active party holds it, or it has not two values.
    """
    party, column = attack.known_column or ("", "")
    active, *passive = data.parties
    own = {each.name: each for each in passive}.get(party)
    if own is None or column not in own.columns:
        held = party == active.name and column in active.columns
        reason = "is the active party's own" if held else "is no column of a passive party"
        raise JobError(
            f"'{party}.{column}' {reason}",
            code="conflict" if held else "unknown",
            field="column",
            value=f"{party}.{column}",
        )
    values, codes = np.unique(own.train[:, own.columns.index(column)], return_inverse=True)
    if len(values) != 2 or np.isnan(values).any():
        raise JobError(
            f"'{party}.{column}' has {len(values)} different values; two are needed",
            code="values",
            field="column",
            value=f"{party}.{column}",
        )
    return codes.astype(np.int64)


def _score(
    attack: Attack,
    guess: Guess,
    data: VerticalDataset,
    aux: AuxiliaryKnowledge,
    view: View,
    *,
    by_chance: bool = True,
) -> dict[str, Any]:
    """Compare a guess with the true labels of the training rows, and of the test rows if it covers them.

    Test rows are the only rows that a party has and does not train on. A guess of columns is compared with those of
    all other parties, and of a further attribute with that.
    """
    if isinstance(guess, ColumnGuess):
        own = {member.party for member in view.members}
        model = {key: view.parameter(f"model.{key}") for key in ("bins", "candidates")}
        truth = {} if attack.attribute is None else {("", name := attack.attribute[0]): attribute_values(data, name)}
        return score_columns(guess, [party for party in data.parties if party.name not in own], model, truth)
    if guess.kind == "labels":
        return score_label_guess(guess, data.train_labels, aux, data.test_labels, attack=attack)
    scored = np.setdiff1d(np.arange(len(guess.values)), _held(data, view.party))
    names = np.asarray(data.classes)[data.train_labels] if data.classes else data.train_labels.astype(np.str_)
    targets = None if data.classes else data.train_values[scored]
    numbers = data.train_labels[scored] if data.classes else None
    return score_values(
        guess.values[scored],
        names[scored].tolist(),
        targets,
        **guess.known_rows,
        attack=attack,
        numbers=numbers,
        by_chance=by_chance,
    )


def _held(data: VerticalDataset, party: str) -> NDArray[np.int64]:
    """Return the training rows whose labels an attacker holds while others hold the rest; they are not scored."""
    if len(data.holders) < 2:
        return np.empty(0, np.int64)
    return np.flatnonzero(data.holds(party)[: len(data.train_labels)])
