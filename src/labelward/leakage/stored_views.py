"""Attacks on stored views: a step of an audit in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge
from labelward.attacks.coalition import joined_data
from labelward.data import DataSplit, read_ids, read_table, source_column, transform
from labelward.data.labels import encode_labels, encode_regression_targets
from labelward.data.tables import find_column, row_ids
from labelward.errors import DataError, FileFormatError, JobError
from labelward.federation.components import MODELS, make_attack, model_family
from labelward.federation.simulation import MODEL
from labelward.job import ComponentSpec
from labelward.leakage.run_attack import run_attack
from labelward.leakage.stored_columns import rows_by_id
from labelward.messages.handshake import RowSplit
from labelward.party.joined_view import JoinedView
from labelward.party.transcript import ids_digest
from labelward.party.view import View


@dataclass(frozen=True, kw_only=True)
class AttackerKnowledge:
    """Input of an attack in addition to the view and the party's columns.

    Attributes:
        known: table of row ids and labels of training rows whose labels the attacker was told; None: no rows.
        attribute: table of row ids and known values of the attribute that the attack infers, in a column of its name:
            categories, or 0 and 1 for the sides of the median; None: no attribute.
        labels: table of row ids and labels of all training rows, for the view of the party that holds them.
        label: the label column of these tables.
        other_runs: folders of the same party's views in other runs on the same rows.
        models: adds what the party knows of its part of the model (:func:`load_models`); None: nothing.
        colluding: of further passive parties that put their views together with this one: folder of the view, and
            table of the party's columns. Their parts of the model are read beside their views.
    """

    known: Path | None = None
    attribute: Path | None = None
    labels: Path | None = None
    label: str = "label"
    other_runs: tuple[Path, ...] = ()
    models: PartyModel | None = None
    colluding: tuple[tuple[Path, Path], ...] = ()


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
    knowledge: AttackerKnowledge | None = None,
) -> tuple[tuple[str, ...], Any]:
    """Attack a stored view; return row ids and guess: of labels, or of columns of other parties.

    Args:
        view_dir: folder of the view.
        features: table of the party's columns of the training rows. Row ids must be those of the view, in any order; a
            passive party may give all rows of the run. Without ids, rows must be in the order of the view, and are
            numbered from 0.
        kind: of the attack.
        params: of the attack. ``auxiliary``, if given, must be the number of known labels.
        classes: number of classes known to the attacker; for regression, number of bins.
        seed: of the run; with the same seed, the draws are those of the audit's attack.
        id_column: column of row ids in the tables; by default ``id``, if there is one.
        incomplete: accept a view without closing record.
        knowledge: further input of the attack.

    Raises:
        FileFormatError: the view is damaged or truncated, or does not state its rows.
        DataError: a table cannot be used, or its columns or rows are not those of the view.
        JobError: an unknown attack or parameter; an attack on other models; missing known labels or values of an
            attribute, or a number of known labels that differs from ``auxiliary``; knowledge that it does not read.
    """
    attack, knowledge = make_attack(ComponentSpec(kind, params), ""), knowledge or AttackerKnowledge()
    first = _Member(view_dir, features, knowledge.models)
    others = [_Member(*each, load_models(each[0])) for each in knowledge.colluding]
    if others and attack.alone:
        raise JobError(
            f"reads no view of a coalition: {attack.alone}", code="unsupported", field=f"attack {kind!r}", value=kind
        )
    _refuse_unread(attack, knowledge)
    parties = {View.load(member.view_dir).party for member in (first, *others)}
    for folder in knowledge.other_runs:
        if (party := View.load(folder).party) not in parties:
            reason = f"is a view of {party!r}, not of {' or '.join(map(repr, sorted(parties)))}"
            raise DataError(reason, code="other-run", field=str(folder), value=party)
    opened = [
        _opened(member, attack, knowledge, classes, id_column, incomplete=incomplete) for member in (first, *others)
    ]
    ids, view, own = opened[0]
    if others:
        for (other_ids, other, _), member in zip(opened, (first, *others), strict=True):
            if other_ids != ids:
                reason = f"the rows of {other.party!r} are in another order than those of {view.party!r}"
                raise DataError(reason, code="rows", field=f"table {str(member.features)!r}")
        own = joined_data([each.party for _, each, _ in opened], [each for *_, each in opened])
        view = JoinedView([each for _, each, _ in opened])
    if attack.reads_directions and not own.monotone:
        reason = f"the view of {view.party!r} states no column with a monotone constraint, whose splits it reads"
        raise JobError(f"{reason}; choose another attack", code="unsupported", field=f"attack {kind!r}", value=kind)
    aux = AuxiliaryKnowledge(classes=classes)
    if knowledge.known is not None:
        rows, labels, names = read_known(knowledge.known, ids, knowledge.label, id_column)
        if len(names) > classes:
            reason = f"has {len(names)} classes, where the attacker assumes {classes}"
            raise DataError(reason, code="labels", field=f"table {str(knowledge.known)!r}", value=names)
        if "auxiliary" in params:
            _check_count(attack, len(rows), knowledge.known)
        aux = replace(aux, known_rows=rows, known_labels=labels)
    if attack.attribute is not None:
        aux = replace(aux, attribute=_known_attribute(attack.attribute[0], kind, knowledge, ids, id_column))
    if attack.labels_needed and not len(aux.known_rows):
        raise JobError(
            f"{kind} needs the labels of some rows; give a table of known labels",
            code="missing",
            value=kind,
        )
    if attack.needs_class_counts:
        reason = "required for a stored view: the number of rows of each class, such as [212, 357]"
        raise JobError(reason, code="missing", field=f"attack {kind!r}, class_counts")
    return ids, run_attack(attack, view, own, aux, seed=seed)


def _refuse_unread(attack: Attack, knowledge: AttackerKnowledge) -> None:
    """Refuse tables and views that the attack does not read."""
    given = {
        "attribute": knowledge.attribute is not None and attack.attribute is None,
        "labels": knowledge.labels is not None and "active" not in attack.roles,
        "other_runs": bool(knowledge.other_runs) and not attack.reads_other_runs,
    }
    for name in (name for name, unread in given.items() if unread):
        raise JobError(f"{attack.kind!r} does not read it; leave it out", code="conflict", field=name)


def _known_attribute(
    column: str, kind: str, knowledge: AttackerKnowledge, ids: Sequence[str], id_column: str | None
) -> AuxiliaryKnowledge:
    """Return what the attacker knows of an attribute; errors as for :func:`attack_view`."""
    if knowledge.attribute is None:
        reason = f"{kind} needs the values of {column!r} in some rows; give a table of known values"
        raise JobError(reason, code="missing", value=kind)
    rows, values, names = read_known(knowledge.attribute, ids, column, id_column)
    return AuxiliaryKnowledge(classes=len(names), known_rows=rows, known_labels=values)


@dataclass(frozen=True)
class _Member:
    """A party that attacks: folder of its view, table of its columns, and its part of the model, if any."""

    view_dir: Path
    features: Path
    models: PartyModel | None


def _opened(
    member: _Member,
    attack: Attack,
    knowledge: AttackerKnowledge,
    classes: int,
    id_column: str | None,
    *,
    incomplete: bool,
) -> tuple[tuple[str, ...], View, AttackerData]:
    """Return row ids, view and own data of a party; errors as for :func:`attack_view`."""
    view_dir, features = member.view_dir, member.features
    view = View.load(view_dir)
    if view.ended == "cut off" and not incomplete:
        raise FileFormatError(
            "truncated: no closing record; the run was killed, or the file was cut. An attack would read less than "
            "the party saw",
            code="incomplete",
            field=str(view_dir),
        )
    _check_model(attack, view)
    if not {*attack.roles} & _attacks_as(view):
        reason = f"reads views of {' or '.join(attack.roles)} parties, and {view.party!r} is {view.header.role}"
        raise JobError(reason, code="unsupported", field=f"attack {attack.kind!r}", value=view.header.role)
    if view.header.role == "active" and knowledge.labels is None:
        reason = "required for a view of the party that holds them"
        raise JobError(reason, code="missing", field="labels", value=attack.kind)
    if not view.header.ids:
        raise FileFormatError("the view does not state its rows", code="unsupported", field=str(view_dir))
    table = read_table(features, text=[id_column or "id"])
    place = f"table {str(features)!r}"
    named = id_column is not None or "id" in table.column_names
    outside: pa.Table | None = None
    if named and table.num_rows != view.rows:
        table, outside = _training_rows(view, table, id_column or "id", place)
    if table.num_rows != view.rows:
        raise DataError(
            f"has {table.num_rows} rows, but the view of {view.party!r} has {view.rows}",
            code="rows",
            field=place,
            value=table.num_rows,
        )
    ids = row_ids(table, id_column, place)
    if named:
        order = _view_order(view, ids, place)
        table, ids = table.take(pa.array(order)), tuple(ids[row] for row in order)
    _check_columns(view, [name for name in table.column_names if name != (id_column or "id")], place)
    columns, categories = view.header.columns, view.header.categories
    others = [other for other in map(View.load, knowledge.other_runs) if other.party == view.party]
    own = AttackerData(
        features=transform(table, columns, categories, place),
        columns=columns,
        categories={name: len(each) for name, each in categories.items()},
        monotone=view.header.monotone,
        outside=None if outside is None else transform(outside, columns, categories, place),
        shared_start=lambda: model_family(ComponentSpec(view.parameter("model.kind"))).shared_start(view),
        other_runs=tuple(others),
        labels=None
        if knowledge.labels is None
        else _own_labels(knowledge, ids, id_column, classes, None if member.models is None else member.models.classes),
    )
    return ids, view, own if member.models is None else member.models(own)


def _attacks_as(view: View) -> set[str]:
    """Return as which parties the view's party attacks (:class:`~labelward.party.roles.Role`)."""
    roles = model_family(ComponentSpec(view.parameter("model.kind"))).roles
    return {*roles[view.header.role].attacks_as} if view.header.role in roles else {view.header.role}


def _own_labels(
    knowledge: AttackerKnowledge,
    ids: Sequence[str],
    id_column: str | None,
    classes: int,
    names: tuple[str, ...] | None,
) -> NDArray[np.float64]:
    """Return the labels of the view's rows as the training encoded them: class numbers, or values.

    Args:
        knowledge: with the table of labels.
        ids: row ids of the view.
        id_column: of the table.
        classes: where no names are known, labels are values if there are more of them than these.
        names: of the model's classes, in its order; empty: labels are values; None: not known, classes are sorted.
    """
    path, label = knowledge.labels or Path(), knowledge.label
    place = f"table {str(path)!r}"
    table = read_table(path, text=[id_column or "id"])
    rows = rows_by_id(row_ids(table, id_column, place), ids, place)
    quantities = not names if names is not None else len(find_column(table, label, place).unique()) > classes
    if quantities:
        return encode_regression_targets(table, label, place)[rows]
    given, codes = encode_labels(table, label, place)
    strangers = [name for name in given if names is not None and name not in names]
    if strangers:
        reason = f"label {strangers[0]!r} is none of the model's classes; give the labels that it was trained on"
        raise DataError(reason, code="labels", field=place, value=strangers[0])
    numbers = np.array([(names or given).index(name) for name in given], np.float64)
    return numbers[codes][rows]


@dataclass(frozen=True)
class PartyModel:
    """A party's share of a model, read when it is needed; called with the party's data, it adds what is known of it.

    Attributes:
        view: of the party.
        folder: of the share.
    """

    view: View
    folder: Path

    def __call__(self, own: AttackerData) -> AttackerData:
        """Return the data with the party's part of the model.

        Raises:
            FileFormatError: the share is damaged.
            DataError: it belongs to another party.
            DependencyError: it is of a split network, and torch is not installed.
        """
        known: AttackerData = self._programs.own(self.view, own, self._share)
        return known

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes in the active party's share, empty for regression; None in other parties' shares."""
        return self._share.classes if self.view.header.role == "active" else None

    @cached_property
    def _programs(self) -> Any:
        return model_family(ComponentSpec(self.view.parameter("model.kind")))

    @cached_property
    def _share(self) -> Any:
        return self._programs.load(self.folder)


def load_models(view_dir: Path, model: Path | None = None) -> PartyModel | None:
    """Return what adds the knowledge of a view's party about its part of the model; None: it has none.

    Args:
        view_dir: folder of the view.
        model: folder of the party's share; None: the one next to the view, if there is one.

    Raises:
        FileFormatError: the view is damaged or, when called, the share.
        DataError: when called: the share belongs to another party.
        DependencyError: the share is of a split network, and torch is not installed.
    """
    view = View.load(view_dir)
    folder = view_dir.resolve().parent / MODEL if model is None else model
    kind = view.parameter("model.kind")
    if kind not in MODELS.classes():
        raise FileFormatError(
            f"the view is of model {kind!r}, which this version does not know",
            code="unsupported",
            field=str(view_dir),
            value=kind,
        )
    if not folder.exists() and model is None:
        return None
    return PartyModel(view, folder)


def read_known(
    path: Path, ids: Sequence[str], label: str, id_column: str | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
    """Return the rows with known labels (ascending), their class numbers, and the class names.

    Classes are numbered in the order of their names, or by value if all names are integers: as in training, if each
    class has a known row.

    Args:
        path: of a table with row ids and labels.
        ids: row ids of the view.
        label: its label column.
        id_column: its column of row ids; by default ``id``.

    Raises:
        DataError: the table cannot be used, or has a row that is not in the view.
    """
    place = f"table {str(path)!r}"
    table = read_table(path, text=[id_column or "id", label])
    names = read_ids(table, id_column or "id", place).tolist()
    values = find_column(table, label, place)
    if values.null_count:
        reason = f"label column {label!r} lacks {values.null_count} labels; leave out rows whose labels are not known"
        raise DataError(reason, code="labels", field=place, value=values.null_count)
    found = [str(value) for value in values.to_pylist()]
    row_of = {name: row for row, name in enumerate(ids)}
    unknown = [name for name in names if name not in row_of]
    if unknown:
        raise DataError(
            f"row {unknown[0]!r} is not a training row of the view ({len(unknown)} such rows)",
            code="rows",
            field=place,
            value=unknown[0],
        )
    classes = sorted(set(found), key=_class_order(found))
    rows = np.array([row_of[name] for name in names], np.int64)
    labels = np.array([classes.index(value) for value in found], np.int64)
    order = np.argsort(rows)
    return rows[order], labels[order], tuple(classes)


def _class_order(values: Sequence[str]) -> Callable[[str], Any]:
    """Return the sort key of class names: their value if all are integers, otherwise the text."""
    try:
        for value in values:
            int(value)
    except ValueError:
        return str
    return int


def _view_order(view: View, ids: Sequence[str], place: str) -> Sequence[int]:
    """Return the order of the table's rows in the view: the order of the table, or sorted as in an audit."""
    for order in possible_orders(ids):
        if ids_digest(ids[row] for row in order) == view.header.ids:
            return order
    raise DataError(
        f"row ids differ from those of the view of {view.party!r}; give the training rows, of the same seed",
        code="rows",
        field=place,
    )


def possible_orders(ids: Sequence[str]) -> list[Sequence[int]]:
    """Return possible orders of rows: unchanged, sorted by id, or by number, as for rows without ids."""
    orders: list[Sequence[int]] = [range(len(ids)), sorted(range(len(ids)), key=ids.__getitem__)]
    if all(name.isdecimal() for name in ids):
        orders.append(sorted(range(len(ids)), key=lambda row: int(ids[row])))
    return orders


def _training_rows(view: View, table: pa.Table, column: str, place: str) -> tuple[pa.Table, pa.Table | None]:
    """Return training and test rows of a table of all rows of a run; the view states which rows they are."""
    ids = read_ids(table, column, place).tolist()
    split, order = run_rows(view, ids)
    if split is None:
        return table, None
    if order is None:
        return table.take(pa.array(np.argsort(ids)[split.train])), None
    return table.take(pa.array(order[split.train])), table.take(pa.array(order[split.test]))


def run_rows(view: View, ids: Sequence[str]) -> tuple[DataSplit | None, NDArray[np.int64] | None]:
    """Return the split of all rows of a run, as a view states it, and the order of ``ids`` that all parties share."""
    began: Any = next(view.received(RowSplit), None)
    if began is None or began.message.test.total != len(ids):
        return None, None
    split = DataSplit.of(began.message.validation.unpack(len(ids)), began.message.test.unpack(len(ids)))
    for order in map(np.array, possible_orders(ids)):
        if ids_digest(ids[row] for row in order[split.train]) == view.header.ids:
            return split, np.asarray(order, np.int64)
    return split, None


def _check_model(attack: Attack, view: View) -> None:
    """Check that the attack reads views of this model."""
    model = {key.removeprefix("model."): view.parameter(key) for key in view.header.job if key.startswith("model.")}
    if "kind" in model:
        attack.check_model(model)


def _check_count(attack: Attack, count: int, known: Path) -> None:
    """Check that the number of known labels is as requested, as an attack learns from all of them."""
    wanted = attack.labels_needed
    if wanted not in (0, count):
        raise JobError(
            f"auxiliary is {wanted}, but table {str(known)!r} has {count} known labels; omit auxiliary, or give a "
            f"table of {wanted} rows",
            code="conflict",
            value=wanted,
        )


def _check_columns(view: View, present: Sequence[str], place: str) -> None:
    wanted = {source_column(name, present) or name: name for name in view.header.columns}
    missing = [name for column, name in wanted.items() if column not in present]
    extra = [name for name in present if name not in wanted]
    differences = [
        f"{label}: {', '.join(map(repr, names[:5]))}{', …' if len(names) > 5 else ''}"
        for label, names in (("missing columns", missing), ("unexpected columns", extra))
        if names
    ]
    if differences:
        raise DataError(
            f"columns differ from those of the view of {view.party!r}: {'; '.join(differences)}",
            code="columns",
            field=place,
            value=tuple(missing + extra),
        )
