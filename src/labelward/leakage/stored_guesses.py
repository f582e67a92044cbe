"""Guesses in files, and their scores.

A guess is a Parquet file with the columns ``id`` (text) and ``guess`` (int64). Its metadata under ``labelward`` holds a
format version, the attack, party and seed, and how the view ended. A guess of labels also has the columns ``known``
(bool: the attacker was told the label of the row) and, if the attack gives scores, ``scores`` (lists of float64).
:mod:`.stored_columns` has guesses of columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AuxiliaryKnowledge, ColumnGuess, Guess, LabelGuess
from labelward.data import read_table
from labelward.data.labels import encode_labels, encode_regression_targets, quantile_edges
from labelward.data.tables import row_ids
from labelward.errors import DataError, JobError
from labelward.federation.components import make_attack
from labelward.job import ComponentSpec
from labelward.leakage.run_attack import score_label_guess, score_values
from labelward.leakage.stored_columns import FORMAT, METADATA, guess_errors, guess_table, open_guess
from labelward.runs.secure_files import atomic_write


@dataclass(frozen=True, kw_only=True)
class StoredGuess:
    """A guess in a file.

    Attributes:
        ids: text [rows].
        values: int64 [rows].
        known_per_cluster: number of known rows of each cluster.
        known_per_class: number of known rows of each class.
        kind: ``"clusters"`` or ``"labels"``.
        scores: float64 [rows, classes], for labels; None: the attack gave none.
        known: bool [rows]: rows whose labels the attacker was told, which are not scored.
        names: class names by number, as far as the attacker knows them.
        about: metadata: ``attack``, ``party``, ``seed``, ``view``.
    """

    ids: tuple[str, ...]
    values: NDArray[np.int64]
    known_per_cluster: int
    about: dict[str, Any]
    known_per_class: int = 0
    kind: str = "clusters"
    scores: NDArray[np.float64] | None = None
    known: NDArray[np.bool_] | None = None
    names: tuple[str, ...] = ()


def write_guess(
    path: Path,
    ids: Sequence[str],
    guess: Guess,
    about: Mapping[str, Any],
    *,
    known: NDArray[np.int64] | None = None,
    names: Sequence[str] = (),
) -> None:
    """Write a guess; one of columns as :func:`labelward.leakage.stored_columns.guess_table` lays it out.

    Args:
        path: of the file.
        ids: row ids.
        guess: to be written.
        about: metadata: ``attack``, ``party``, ``seed``, ``view`` (how it ended: ``View.ended``).
        known: positions of rows with known labels, from :func:`~labelward.leakage.stored_views.read_known`.
        names: class names, from the same.

    Raises:
        OutputError: the file cannot be written.
    """
    if isinstance(guess, ColumnGuess):
        with atomic_write(path) as file:
            pq.write_table(guess_table(ids, guess, about), file)
        return
    details = {"notes": guess.notes, **guess.known_rows, "names": list(names)}
    text = json.dumps({"format": FORMAT, "kind": guess.kind, **about, **details})
    columns = {"id": pa.array(list(ids), pa.string()), "guess": pa.array(guess.values, pa.int64())}
    if guess.kind == "labels":
        is_known = np.zeros(len(ids), dtype=np.bool_)
        is_known[[] if known is None else known] = True
        columns["known"] = pa.array(is_known)
    if guess.scores is not None:
        columns["scores"] = pa.array(list(guess.scores), pa.list_(pa.float64(), guess.scores.shape[1]))
    table = pa.table(columns)
    with atomic_write(path) as file:
        pq.write_table(table.replace_schema_metadata({METADATA: text}), file)


def read_guess(path: Path) -> StoredGuess:
    """Read a guess.

    Raises:
        FileFormatError: as :func:`~labelward.leakage.stored_columns.open_guess`.
    """
    table, about = open_guess(path)
    with guess_errors(path):
        values = table.column("guess").cast(pa.int64()).to_numpy().astype(np.int64)
        ids = tuple(table.column("id").cast(pa.string()).to_pylist())
        kind, known, scores = str(about["kind"]), None, None
        if kind == "labels":
            known = table.column("known").cast(pa.bool_()).to_numpy().astype(np.bool_)
        if "scores" in table.column_names:
            scores = np.array(table.column("scores").to_pylist(), np.float64).reshape(len(ids), -1)
        return StoredGuess(
            ids=ids,
            values=values,
            known_per_cluster=int(about["known_per_cluster"]),
            known_per_class=int(about.get("known_per_class", 0)),  # 0.1.0 had none
            about=about,
            kind=kind,
            scores=scores,
            known=known,
            names=tuple(about["names"]),
        )


def score_guess(
    guess: Path, truth: Path, *, label: str = "label", id_column: str | None = None, bins: int | None = None
) -> dict[str, Any]:
    """Score a stored guess against the true labels; metric names as in result rows, with ``chance``.

    Args:
        guess: file of :func:`write_guess`.
        truth: table with the labels of these rows and possibly others, in any order.
        label: its label column.
        id_column: its column of row ids; by default ``id``, otherwise row numbers from 0.
        bins: for regression targets: number of bins, with equal numbers of the guess's rows; None: classes.

    Raises:
        FileFormatError: the guess cannot be read.
        DataError: the table cannot be used, or lacks a row of the guess.
    """
    stored = read_guess(guess)
    place = f"table {str(truth)!r}"
    table = read_table(truth, text=[id_column or "id"])
    if bins is None:
        classes, numbers = encode_labels(table, label, place, quantities="give --bins")
    else:
        targets = encode_regression_targets(table, label, place, classes="leave out --bins")
    rows = guessed_rows(stored, table, id_column, place)
    attack = attack_of_guess(stored)
    if stored.kind == "labels":
        if bins is not None:
            numbers, classes = np.searchsorted(quantile_edges(targets[rows], bins), targets), ()
        return _score_labels(stored, numbers[rows], classes, place, attack)
    score = partial(
        score_values,
        stored.values,
        known_per_cluster=stored.known_per_cluster,
        known_per_class=stored.known_per_class,
        attack=attack,
    )
    if bins is None:
        names, found = np.asarray(classes)[numbers[rows]].tolist(), numbers[rows]
        return score(names, numbers=found)
    values = targets[rows]
    if np.ptp(values) == 0:
        raise DataError(
            f"all rows of the guess have the same label {values[0]:g}",
            code="labels",
            field=f"{place}, label column {label!r}",
            value=float(values[0]),
        )
    numbers = np.searchsorted(quantile_edges(values, bins), values)
    return score(numbers.astype(np.str_).tolist(), values)


def guessed_rows(stored: StoredGuess, table: pa.Table, id_column: str | None, place: str) -> list[int]:
    """Return the positions of a guess's rows in a table; :class:`~labelward.errors.DataError` if it lacks one."""
    row_of = {name: row for row, name in enumerate(row_ids(table, id_column, place))}
    missing = [name for name in stored.ids if name not in row_of]
    if missing:
        message = f"has no row {missing[0]!r}; {len(missing)} rows of the guess are missing"
        if id_column is None and "id" not in table.column_names:
            columns = ", ".join(map(repr, table.column_names))
            message += f". Without a column 'id', rows are numbered from 0 (columns: {columns}); give --id"
        raise DataError(message, code="rows", field=place, value=missing[0])
    return [row_of[name] for name in stored.ids]


def attack_of_guess(stored: StoredGuess) -> Attack | None:
    """Return the attack of a guess; None if this version does not know it."""
    described = dict(stored.about.get("attack", {}))
    try:
        attack: Attack = make_attack(ComponentSpec(str(described.pop("kind", "")), described), "")
    except JobError:
        return None
    return attack


def _score_labels(
    stored: StoredGuess, numbers: NDArray[np.int64], classes: Sequence[str], place: str, attack: Attack | None
) -> dict[str, Any]:
    """Score a guess of labels."""
    truth = named_truth(stored, numbers, classes, place)
    count = max(int(truth.max()) + 1, int(stored.about.get("classes", 0)), len(stored.names))
    known = np.flatnonzero(stored.known) if stored.known is not None else np.empty(0, np.int64)
    guess = LabelGuess(values=stored.values, kind="labels", scores=stored.scores)
    return score_label_guess(guess, truth, AuxiliaryKnowledge(classes=count, known_rows=known), attack=attack)


def named_truth(
    stored: StoredGuess, numbers: NDArray[np.int64], classes: Sequence[str], place: str
) -> NDArray[np.int64]:
    """Return class numbers by the class names of the guess, if it has any."""
    truth = np.asarray(numbers, np.int64)
    if stored.names and classes:
        absent = [name for name in classes if name not in stored.names]
        if absent:
            raise DataError(
                f"class {absent[0]!r} is not one of the guess ({', '.join(stored.names)})",
                code="labels",
                field=place,
                value=absent[0],
            )
        truth = np.array([stored.names.index(name) for name in classes], np.int64)[truth]
    return truth
