"""A stored view attacked with one party's features alone, a stored guess scored: an audit's work in separate processes.

A guess is a Parquet file with the columns ``id`` (text) and ``guess`` (int64); its metadata under ``labelward`` holds a
format version, the attack, party and seed that made it, and how its view ended. A guess of labels has ``known`` (bool:
the attacker was told this row's label) besides, and ``scores`` (lists of float64) where the attack gave any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.data import DataSplit, read_ids, read_table, source_column, transform
from labelward.data.labels import encode_labels, encode_regression_targets, quantile_edges
from labelward.data.tables import find_column
from labelward.errors import DataError, FileFormatError, JobError
from labelward.federation.components import make_attack
from labelward.job import Kind
from labelward.leakage.run_attack import run_attack, score_label_guess, score_values
from labelward.messages.handshake import RowSplit
from labelward.party.transcript import ids_digest
from labelward.party.view import View
from labelward.runs.secure_files import atomic_write

__all__ = [
    "FORMAT",
    "AttackerKnowledge",
    "StoredGuess",
    "attack_view",
    "read_guess",
    "read_known",
    "score_guess",
    "write_guess",
]

FORMAT = 1
_METADATA = b"labelward"


@dataclass(frozen=True, kw_only=True)
class StoredGuess:
    """A guess as it lies in a file.

    Attributes:
        ids: text [rows].
        values: int64 [rows].
        known_per_cluster: known rows of each cluster.
        kind: ``"clusters"`` or ``"labels"``.
        scores: float64 [rows, classes], of labels; None where the attack gave none.
        known: bool [rows]: rows whose labels the attacker was told; they are not scored.
        names: of the classes that the labels number, as far as the attacker knows them.
        about: what its writer noted: ``attack``, ``party``, ``seed``, ``view``.
    """

    ids: tuple[str, ...]
    values: NDArray[np.int64]
    known_per_cluster: int
    about: dict[str, Any]
    kind: str = "clusters"
    scores: NDArray[np.float64] | None = None
    known: NDArray[np.bool_] | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AttackerKnowledge:
    """What an attacker brings besides its view and its columns.

    Attributes:
        known: table of row ids and labels of those training rows whose labels it was told; None: of none.
        label: the label column of that table.
        other_runs: folders of the same party's views in other runs over the same rows.
        bottoms: what gives the trained and the untrained bottom model of the view's party; None: it has none.
    """

    known: Path | None = None
    label: str = "label"
    other_runs: tuple[Path, ...] = ()
    bottoms: tuple[Callable[[], Any], Callable[[], Any]] | None = None


def attack_view(
    view_dir: Path,
    features: Path,
    kind: str,
    params: Mapping[str, Any],
    *,
    classes: int,
    seed: int,
    id_column: str | None = None,
    incomplete: bool = False,
    told: AttackerKnowledge | None = None,
) -> tuple[tuple[str, ...], LabelGuess]:
    """Attack a stored view, and return row ids and guess.

    Args:
        view_dir: folder of the view.
        features: table of the columns that the view's party had, of the training rows. Where it has row ids, they must
            be the view's, in any order; a passive party may bring all rows of the run. Without ids only the number of
            rows is checked: they must be in the view's order, and are numbered from 0.
        kind: of the attack.
        params: of the attack. Of those with known labels the table of these says how many there are; ``auxiliary`` may
            stand here, too, where it is their number.
        classes: number of classes that the attacker knows there to be; of quantities, of the bins to guess.
        seed: of the run; gives the draws that the audit's attack had.
        id_column: the table's column of row ids; by default ``id``, if there is one. Likewise of the known labels.
        told: what the attacker knows and has besides.
        incomplete: whether a view without its closing record may be attacked.

    Raises:
        FileFormatError: the view is damaged or cut off, or does not say whose rows it speaks of.
        DataError: the table cannot be used, or has other columns or rows than the view's party had.
        JobError: an unknown attack or parameter, or one that reads views of other models; no known labels where the
            attack needs some, or another number of them than ``auxiliary``.
    """
    attack = make_attack(Kind(kind, params), "")
    view = View.load(view_dir)
    if view.ended == "cut off" and not incomplete:
        raise FileFormatError(
            "no closing record; the run was killed, or records at the end are missing, "
            "so that an attack would find less than there was to see",
            code="incomplete",
            field=str(view_dir),
        )
    _check_model(attack, view)
    if not view.header.ids:
        raise FileFormatError("the view does not say which rows it speaks of", code="unsupported", field=str(view_dir))
    table = read_table(features, text=[id_column or "id"])
    place = f"table {str(features)!r}"
    named = id_column is not None or "id" in table.column_names
    outside: pa.Table | None = None
    if named and table.num_rows != view.rows:
        table, outside = _training_rows(view, table, id_column or "id", place)
    if table.num_rows != view.rows:
        raise DataError(
            f"has {table.num_rows} rows, but the view of {view.party!r} speaks of {view.rows}",
            code="rows",
            field=place,
            value=table.num_rows,
        )
    ids = _ids(table, id_column, place)
    if named:
        order = _view_order(view, ids, place)
        table, ids = table.take(pa.array(order)), tuple(ids[row] for row in order)
    _check_columns(view, [name for name in table.column_names if name != (id_column or "id")], place)
    columns, categories = view.header.columns, view.header.categories
    own_columns = transform(table, columns, categories, place)
    told = told or AttackerKnowledge()
    bottom, untrained = told.bottoms or (None, None)
    wide = {name: len(each) for name, each in categories.items()}
    own = AttackerData(
        features=own_columns,
        columns=columns,
        categories=wide,
        outside=None if outside is None else transform(outside, columns, categories, place),
        bottom=bottom,
        untrained=untrained,
        other_runs=tuple(_other_run(view, folder) for folder in told.other_runs),
    )
    aux = AuxiliaryKnowledge(classes=classes)
    if told.known is not None:
        rows, labels, _ = read_known(told.known, ids, told.label, id_column)
        if "auxiliary" in params:
            _check_count(attack, len(rows), told.known)
        aux = AuxiliaryKnowledge(classes=classes, known_rows=rows, known_labels=labels)
    if attack.labels_needed and not len(aux.known_rows):
        raise JobError(
            f"{kind} needs the labels of some rows; give a table of those that the attacker was told",
            code="missing",
            value=kind,
        )
    if attack.needs_class_counts:
        reason = "required for a stored view: how many rows each class has, such as [212, 357]"
        raise JobError(reason, code="missing", field=f"attack {kind!r}, class_counts")
    return ids, run_attack(attack, view, own, aux, seed=seed)


def _other_run(view: View, folder: Path) -> View:
    other = View.load(folder)
    if other.party != view.party:
        reason = f"is a view of {other.party!r}, not of {view.party!r}"
        raise DataError(reason, code="other-run", field=str(folder), value=other.party)
    return other


def read_known(
    path: Path, ids: Sequence[str], label: str, id_column: str | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Return which rows an attacker was told the labels of, ascending, their class numbers, and the classes' names.

    Classes are numbered in the order of their names, of numbers where all are whole numbers: as training numbers them
    where each has a known row.

    Args:
        path: table with row ids and labels.
        ids: of the view's rows.
        label: its label column.
        id_column: its column of row ids; by default ``id``.

    Raises:
        DataError: the table cannot be used, or names a row that is not the view's.
    """
    place = f"table {str(path)!r}"
    table = read_table(path, text=[id_column or "id", label])
    names = read_ids(table, id_column or "id", place).tolist()
    found = [str(value) for value in find_column(table, label, place).to_pylist()]
    row_of = {name: row for row, name in enumerate(ids)}
    unknown = [name for name in names if name not in row_of]
    if unknown:
        raise DataError(
            f"row {unknown[0]!r} is none of the view's training rows ({len(unknown)} in all)",
            code="rows",
            field=place,
            value=unknown[0],
        )
    classes = sorted(set(found), key=_class_order(found))
    rows = np.array([row_of[name] for name in names], np.int64)
    labels = np.array([classes.index(value) for value in found], np.int64)
    order = np.argsort(rows)
    return rows[order], labels[order], tuple(classes)


def write_guess(
    path: Path,
    ids: Sequence[str],
    guess: LabelGuess,
    about: Mapping[str, Any],
    *,
    known: NDArray[np.int64] | None = None,
    names: Sequence[str] = (),
) -> None:
    """Write a guess.

    Args:
        known: positions of rows whose labels the attacker was told, and
        names: of the classes, as :func:`read_known` gives both.
        about: what is to be noted: ``attack``, ``party``, ``seed``, ``view`` (how it ended: ``View.ended``).

    Raises:
        OutputError: the file cannot be written.
    """
    more = {"notes": guess.notes, "known_per_cluster": guess.known_per_cluster, "names": list(names)}
    text = json.dumps({"format": FORMAT, "kind": guess.kind, **about, **more})
    columns = {"id": pa.array(list(ids), pa.string()), "guess": pa.array(guess.values, pa.int64())}
    if guess.kind == "labels":
        told = np.zeros(len(ids), dtype=np.bool_)
        told[[] if known is None else known] = True
        columns["known"] = pa.array(told)
    if guess.scores is not None:
        columns["scores"] = pa.array(list(guess.scores), pa.list_(pa.float64(), guess.scores.shape[1]))
    table = pa.table(columns)
    with atomic_write(path) as file:
        pq.write_table(table.replace_schema_metadata({_METADATA: text}), file)


def read_guess(path: Path) -> StoredGuess:
    """Read a guess.

    Raises:
        FileFormatError: it is missing, damaged, no guess, or of another format version.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise FileFormatError(
            f"no guess can be read ({' '.join(str(error).split())})", code="unreadable", field=str(path)
        ) from error
    try:
        about = json.loads((table.schema.metadata or {})[_METADATA])
        version = about["format"]
        if version != FORMAT:
            raise FileFormatError(
                f"a guess of format {version!r}; this version reads format {FORMAT}",
                code="format-version",
                field=str(path),
                value=version,
            )
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
            about=about,
            kind=kind,
            scores=scores,
            known=known,
            names=tuple(about["names"]),
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise FileFormatError(
            f"is no guess that labelward attack wrote ({error})", code="foreign", field=str(path)
        ) from error


def score_guess(
    guess: Path, truth: Path, *, label: str = "label", id_column: str | None = None, bins: int | None = None
) -> dict[str, Any]:
    """Compare a stored guess with the true labels; metric names as in result rows, with ``chance``.

    Args:
        guess: as :func:`write_guess` wrote it.
        truth: table with the labels of these rows, of others too, in any order.
        label: its label column.
        id_column: its column of row ids; by default ``id``, or row numbers from 0 where there is none.
        bins: the labels are quantities; they are cut into so many bins of equal numbers of the guess's rows.

    Raises:
        FileFormatError: the guess cannot be read.
        DataError: the table cannot be used, or lacks a row of the guess.
    """
    stored = read_guess(guess)
    place = f"table {str(truth)!r}"
    table = read_table(truth, text=[id_column or "id"])
    if bins is None:
        classes, numbers = encode_labels(table, label, place)
    else:
        quantities = encode_regression_targets(table, label, place)
    row_of = {name: row for row, name in enumerate(_ids(table, id_column, place))}
    missing = [name for name in stored.ids if name not in row_of]
    if missing:
        told = f"has no row {missing[0]!r}, and {len(missing)} rows of the guess are missing in all"
        if id_column is None and "id" not in table.column_names:
            columns = ", ".join(map(repr, table.column_names))
            told += f"; it has no column 'id', so that its rows count from 0 (its columns: {columns}); give --id"
        raise DataError(told, code="rows", field=place, value=missing[0])
    rows = [row_of[name] for name in stored.ids]
    known = stored.known_per_cluster
    if stored.kind == "labels":
        if bins is not None:
            numbers, classes = np.searchsorted(quantile_edges(quantities[rows], bins), quantities), ()
        return _score_labels(stored, numbers[rows], classes, place)
    if bins is None:
        return score_values(stored.values, np.asarray(classes)[numbers[rows]].tolist(), known_per_cluster=known)
    values = quantities[rows]
    if np.ptp(values) == 0:
        raise DataError(
            f"all rows of the guess have the label {values[0]:g}",
            code="labels",
            field=f"{place}, label column {label!r}",
            value=float(values[0]),
        )
    numbers = np.searchsorted(quantile_edges(values, bins), values)
    return score_values(stored.values, numbers.astype(np.str_).tolist(), values, known_per_cluster=known)


def _score_labels(
    stored: StoredGuess, numbers: NDArray[np.int64], classes: Sequence[str], place: str
) -> dict[str, Any]:
    """Score a guess of labels; the truth is renumbered as the guess numbers classes, where that knows their names."""
    truth = np.asarray(numbers, np.int64)
    if stored.names and classes:
        absent = [name for name in classes if name not in stored.names]
        if absent:
            raise DataError(
                f"class {absent[0]!r} is none of the guess's ({', '.join(stored.names)})",
                code="labels",
                field=place,
                value=absent[0],
            )
        truth = np.array([stored.names.index(name) for name in classes], np.int64)[truth]
    count = max(int(truth.max()) + 1, int(stored.about.get("classes", 0)), len(stored.names))
    known = np.flatnonzero(stored.known) if stored.known is not None else np.empty(0, np.int64)
    guess = LabelGuess(values=stored.values, kind="labels", scores=stored.scores)
    return score_label_guess(guess, truth, AuxiliaryKnowledge(classes=count, known_rows=known))


def _class_order(values: Sequence[str]) -> Callable[[str], Any]:
    """Return what sorts classes: as whole numbers where all are such, else as text."""
    try:
        for value in values:
            int(value)
    except ValueError:
        return str
    return int


def _ids(table: pa.Table, column: str | None, place: str) -> tuple[str, ...]:
    if column is None and "id" not in table.column_names:
        return tuple(map(str, range(table.num_rows)))
    return tuple(read_ids(table, column or "id", place).tolist())


def _view_order(view: View, ids: Sequence[str], place: str) -> Sequence[int]:
    """Return the order in which the table's rows are those of the view: as they stand, or sorted as an audit sorts."""
    for order in _orders(ids):
        if ids_digest(ids[row] for row in order) == view.header.ids:
            return order
    raise DataError(
        f"its row ids are not those of the view of {view.party!r}, or are in another order; "
        "is it of another seed, or are these not the training rows?",
        code="rows",
        field=place,
    )


def _orders(ids: Sequence[str]) -> list[Sequence[int]]:
    """Return the orders in which rows may be shared: as they stand, sorted by id, or by number, as rows without ids."""
    orders: list[Sequence[int]] = [range(len(ids)), sorted(range(len(ids)), key=ids.__getitem__)]
    if all(name.isdecimal() for name in ids):
        orders.append(sorted(range(len(ids)), key=lambda row: int(ids[row])))
    return orders


def _training_rows(view: View, table: pa.Table, column: str, place: str) -> tuple[pa.Table, pa.Table | None]:
    """Return the training rows and the test rows of a table of all rows of a run, if it is one: the view says which."""
    began = next(view.received(RowSplit), None)
    if began is None or began.message.test.total != table.num_rows:
        return table, None
    begin, ids = began.message, read_ids(table, column, place).tolist()
    split = DataSplit.of(begin.validation.unpack(table.num_rows), begin.test.unpack(table.num_rows))
    for order in map(np.array, _orders(ids)):
        if ids_digest(ids[row] for row in order[split.train]) == view.header.ids:
            return table.take(pa.array(order[split.train])), table.take(pa.array(order[split.test]))
    return table.take(pa.array(np.argsort(ids)[split.train])), None


def _check_model(attack: Attack, view: View) -> None:
    """Refuse an attack that reads views of other models, as a job would."""
    model = {key.removeprefix("model."): view.parameter(key) for key in view.header.job if key.startswith("model.")}
    if "kind" in model:
        attack.check_model(model)


def _check_count(attack: Attack, count: int, known: Path) -> None:
    """Refuse a table of another number of known labels than was asked for: an attacker knows all that it was told."""
    wanted = attack.labels_needed
    if wanted not in (0, count):
        raise JobError(
            f"auxiliary is {wanted}, but table {str(known)!r} has the labels of {count} rows, and the attack learns "
            f"from all of them; leave auxiliary out, or give a table of {wanted} rows",
            code="conflict",
            value=wanted,
        )


def _check_columns(view: View, held: Sequence[str], place: str) -> None:
    wanted = {source_column(name, held) or name: name for name in view.header.columns}
    missing = [name for column, name in wanted.items() if column not in held]
    extra = [name for name in held if name not in wanted]
    told = [
        f"{word} {', '.join(map(repr, names[:5]))}{', …' if len(names) > 5 else ''}"
        for word, names in (("lacks", missing), ("has besides", extra))
        if names
    ]
    if told:
        raise DataError(
            f"has not the columns of the view of {view.party!r}: it {' and '.join(told)}",
            code="columns",
            field=place,
            value=tuple(missing + extra),
        )
