"""Scoring of inferred columns of other parties; the only reader of the true columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.attacks.base import ColumnGuess
from labelward.data import PartyDataset
from labelward.errors import DataError
from labelward.kernels.binning import bin_columns, missing_code
from labelward.metrics.leakage import label_chance, score_labels

Floats = NDArray[np.float64]

_OF_SCORES = ("auc", "accuracy")
_EXACT = 1e-3  # of the column's standard deviation: a value as close as this is recovered


def true_cells(party: PartyDataset, kind: str, model: Mapping[str, Any]) -> Floats:
    """Return a party's cells of the training rows, float64 [rows, columns].

    Args:
        party: its columns.
        kind: as :attr:`labelward.attacks.base.ColumnGuess.kind`.
        model: the parameters ``bins`` and ``candidates``, as far as it has them; without them each value has a bin.
    """
    if kind == "values":
        return party.train
    if kind == "standardized":
        numbers = [column not in party.categories for column in range(party.train.shape[1])]
        spread = np.where(numbers, np.nanstd(party.train, axis=0), 1.0)
        center = np.where(numbers, np.nanmean(party.train, axis=0), 0.0)
        return (party.train - center) / np.where(spread > 0, spread, 1.0)
    bins = None if model.get("candidates") == "all" else model.get("bins")
    categories = {column: len(names) for column, names in party.categories.items()}
    codes = bin_columns(party.train, bins, categories).codes
    return np.where(codes == missing_code(codes.dtype), -1.0, codes)


def score_columns(
    guess: ColumnGuess,
    parties: Sequence[PartyDataset],
    model: Mapping[str, Any],
    further: Mapping[tuple[str, str], NDArray[np.int64]] | None = None,
) -> dict[str, Any]:
    """Return the metrics of a guess, and their ``chance`` level: the same guess against shuffled rows.

    Args:
        guess: about these parties.
        parties: all parties but the attacker, all of whose cells count.
        model: as for :func:`true_cells`.
        further: classes of columns that are scored beside those of the parties, by the names in ``guess.scores``.

    Returns:
        ``recovered`` and ``wrong``: right and wrong answers as shares of all cells; ``recovered_by_splits``: the right
        ones that the splits alone reveal, where the attack tells them apart. Of values, ``correlation``: the
        mean absolute correlation of the columns guessed. For scores of columns, ``auc`` and ``accuracy``, means over
        these columns.

    Raises:
        DataError: the guess is of other rows or columns.
    """
    right, wrong, by_chance, total = 0, 0, 0.0, 0
    by_splits, by_splits_by_chance = 0, 0.0
    correlations: list[tuple[float, float]] = []
    for party in parties:
        truth = true_cells(party, guess.kind, model)
        total += int(np.isfinite(truth).sum())
        cells, alone = guess.cells.get(party.name), (guess.by_splits or {}).get(party.name)
        if cells is None:
            continue
        if cells.shape != truth.shape:
            reason = f"the guess has shape {cells.shape}, the columns of {party.name!r} {truth.shape}"
            raise DataError(reason, code="columns", value=cells.shape)
        for column, own in zip(cells.T, truth.T, strict=True):
            answered = np.isfinite(column) & np.isfinite(own)
            found, expected = _matches(column, own, answered, guess.kind)
            right, wrong, by_chance = right + found, wrong + int(answered.sum()) - found, by_chance + expected
            if guess.kind != "bins" and answered.any():
                correlations.append(_correlation(column[answered], own[answered]))
        for column, own in () if alone is None else zip(alone.T, truth.T, strict=True):
            found, expected = _matches(column, own, np.isfinite(column) & np.isfinite(own), guess.kind)
            by_splits, by_splits_by_chance = by_splits + found, by_splits_by_chance + expected
    found_metrics: dict[str, float] = {}
    chance: dict[str, float] = {}
    if guess.cells or not guess.scores:
        shares = {"recovered": right / total, "wrong": wrong / total}
        found_metrics |= shares
        chance |= {"recovered": by_chance / total, "wrong": sum(shares.values()) - by_chance / total}
        if guess.by_splits is not None:
            found_metrics["recovered_by_splits"] = by_splits / total
            chance["recovered_by_splits"] = by_splits_by_chance / total
        if guess.kind != "bins":
            means = np.mean(correlations, axis=0).tolist() if correlations else (0.0, 0.0)
            found_metrics["correlation"], chance["correlation"] = means
    values = further or {}
    ranked = [
        _of_scores(scores, values[name] if name in values else _column(parties, *name))
        for name, scores in guess.scores.items()
    ]
    for metric in _OF_SCORES if ranked else ():
        found_metrics[metric] = float(np.mean([each[metric] for each, _ in ranked]))
        chance[metric] = float(np.mean([each[metric] for _, each in ranked]))
    return {**found_metrics, "chance": chance}


def _matches(guess: Floats, truth: Floats, answered: NDArray[np.bool_], kind: str) -> tuple[int, float]:
    """Return the number of right answers, and its mean over all orders of the truth."""
    known = np.isfinite(truth)
    if not answered.any():
        return 0, 0.0
    width = 1.0 if kind == "bins" else 2 * _EXACT * (float(truth[known].std()) or 1.0)
    right = int((np.abs(guess - truth)[answered] <= width / 2).sum())
    numbers, codes = np.unique(np.round(np.concatenate([guess[answered], truth[known]]) / width), return_inverse=True)
    asked = np.bincount(codes[: int(answered.sum())], minlength=len(numbers))
    present = np.bincount(codes[int(answered.sum()) :], minlength=len(numbers))
    return right, float(asked @ present / known.sum())


def _correlation(guess: Floats, truth: Floats) -> tuple[float, float]:
    """Return the absolute correlation, and its mean over all orders of the truth, by a normal approximation."""
    spread = float(guess.std() * truth.std())
    if not spread:
        return 0.0, 0.0
    found = abs(float(np.mean((guess - guess.mean()) * (truth - truth.mean())) / spread))
    return found, min(1.0, math.sqrt(2 / (math.pi * (len(guess) - 1))))


def _column(parties: Sequence[PartyDataset], party: str, column: str) -> NDArray[np.int64]:
    """Return the values of a column, int64 [rows], numbered in ascending order."""
    own = {each.name: each for each in parties}.get(party)
    if own is None or column not in own.columns:
        raise DataError(f"there is no column {column!r} of {party!r}", code="columns", value=column)
    return np.unique(own.train[:, own.columns.index(column)], return_inverse=True)[1].astype(np.int64)


def _of_scores(scores: Floats, truth: NDArray[np.int64]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics of a column's scores, and those by chance; rows whose scores are NaN do not count."""
    answered = np.isfinite(scores).all(axis=1)
    scores, truth = scores[answered], truth[answered]
    guess, values = scores.argmax(axis=1), scores.shape[1]
    return score_labels(guess, truth, scores, classes=values), label_chance(guess, truth, scores, classes=values)
