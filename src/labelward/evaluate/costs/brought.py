"""The data that a plan is of: real where they are here, made up in the same shape where they are at other parties."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from labelward.data import (
    DataSplit,
    PartyTable,
    encode_party,
    load_active,
    load_dataset,
    load_party_table,
    load_tables,
)
from labelward.errors import JobError, unknown_name
from labelward.evaluate.costs.dry import ANY_SEED, Subject
from labelward.evaluate.costs.prospect import subject_of
from labelward.federation.components import model_adapter
from labelward.federation.leakage_monitor import with_monitor
from labelward.job import Job
from labelward.policy.base import Policy
from labelward.protocols.tree.columns import Columns, Labels

__all__ = ["Brought", "Elsewhere", "bring"]

_TELLING = 8  # columns on which made-up labels depend
_LEAST_ROWS = 10
_MOST_MADE_UP = 250_000_000
"""Rows times columns that are made up, at most: 2 GB."""


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """The shape of data that lie at other parties; nothing of it is needed where all data are here.

    Attributes:
        rows: of each table, test rows included; None where some table is here.
        columns: by party, how many it has.
        classes: of the label, where it is elsewhere; 0 for quantities; None for two, or for quantities where the job
            says regression.

    Raises:
        JobError: a number that cannot be.
    """

    rows: int | None = None
    columns: Mapping[str, int] = field(default_factory=dict)
    classes: int | None = None

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < _LEAST_ROWS:
            raise JobError(
                f"must be at least {_LEAST_ROWS} but got {self.rows}", code="range", field="--rows", value=self.rows
            )
        for name, count in self.columns.items():
            if count < 0:
                raise JobError(
                    f"must be at least 0 but got {count} for {name!r}", code="range", field="--columns", value=count
                )
        if self.classes is not None and (self.classes < 0 or self.classes == 1):
            raise JobError(
                f"must be 0 for quantities, or at least 2, but got {self.classes}",
                code="range",
                field="--classes",
                value=self.classes,
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Brought:
    """What a run is about.

    Attributes:
        dataset: name of the data; empty where none are here.
        validation, test: numbers of rows beside those of ``subject``.
        generated: parties whose columns were made up.
        policies: what defends the run, the meter included where the labels are here.
    """

    dataset: str
    subject: Subject
    validation: int
    test: int
    generated: tuple[str, ...]
    policies: tuple[Policy, ...]


def bring(job: Job, seed: int, elsewhere: Elsewhere, policies: tuple[Policy, ...]) -> Brought:
    """Read what data of a completed job are here, and make up the rest.

    Args:
        elsewhere: the shape of the rest.
        policies: of the variant.

    Raises:
        InputError: the data cannot be used, or the shape of data elsewhere is not given.
    """
    away = tuple(party.name for party in job.parties if party.elsewhere)
    for name in elsewhere.columns:
        if name not in away:
            known = name in [party.name for party in job.parties]
            told = f"the data of {name!r} are here" if known else unknown_name("party with data elsewhere", name, away)
            raise JobError(told, code="conflict" if known else "unknown", field="--columns", value=name)
    if away:
        return _partly(job, seed, elsewhere, policies, away)
    for name, given in (("rows", elsewhere.rows), ("classes", elsewhere.classes)):
        if given is not None:
            raise JobError(
                f"got {given} but all data of the job are here", code="conflict", field=f"--{name}", value=given
            )
    data = load_dataset(job, seed, load_tables(job), private={party.name: ANY_SEED for party in job.parties})
    chain = with_monitor(job, data, policies, seed=seed)
    model_adapter(job.model).check(data, {data.parties[0].name: chain})
    return Brought(
        dataset=data.name,
        subject=subject_of(data),
        validation=len(data.validation_values),
        test=len(data.test_values),
        generated=(),
        policies=chain,
    )


def _partly(job: Job, seed: int, elsewhere: Elsewhere, policies: tuple[Policy, ...], away: tuple[str, ...]) -> Brought:
    own = {party.name: load_party_table(job, party.name) for party in job.parties if not party.elsewhere}
    for name in away:
        if elsewhere.columns.get(name, 0) < (name != job.active.name):
            raise JobError(
                f"the data of {name!r} are elsewhere; say how many columns it has with "
                f"--columns {name}=COUNT, at least 1",
                code="missing",
                field=f"[parties.{name}] table",
            )
    if job.active.name in own and elsewhere.classes is not None:
        raise JobError(
            f"got {elsewhere.classes} but the labels are here",
            code="conflict",
            field="--classes",
            value=elsewhere.classes,
        )
    columns: dict[str, Columns] = {}
    labels: Labels | None = None
    split = _split(job, own, elsewhere)
    for name, table in own.items():  # the active party first: it draws the sides of the rows
        if name == job.active.name:
            data = load_active(job, table, seed, ANY_SEED)
            policies, split, subject = with_monitor(job, data, policies, seed=seed), data.split, subject_of(data)
            labels, columns[name] = subject.labels, subject.columns[name]
        else:
            held = encode_party(job, table, split, ANY_SEED)
            columns[name] = Columns(held.columns, held.train, held.categories, held.monotone)
    rng, rows = np.random.default_rng(seed), len(split.train)
    classes = _classes(job, elsewhere, rows)
    for name in away:
        names = tuple(f"{name} {number}" for number in range(elsewhere.columns.get(name, 0)))
        columns[name] = Columns(names, rng.normal(size=(rows, len(names))))
    ordered = {party.name: columns[party.name] for party in job.parties}
    if labels is None:
        labels = _labels(np.concatenate([each.x for each in ordered.values()], axis=1), classes, rng)
    return Brought(
        dataset=next((table.name for table in own.values()), ""),
        subject=Subject(columns=ordered, labels=labels),
        validation=len(split.validation),
        test=len(split.test),
        generated=away,
        policies=policies,
    )


def _split(job: Job, own: Mapping[str, PartyTable], elsewhere: Elsewhere) -> DataSplit:
    """Return sides of as many rows as the tables here have, or as are said to be elsewhere."""
    total = min((len(table.ids) for table in own.values()), default=elsewhere.rows or 0)
    if not total:
        raise JobError("required, since no table of the job is here", code="missing", field="--rows")
    if own and elsewhere.rows not in (None, total):
        raise JobError(
            f"{elsewhere.rows} but the table here has {total}", code="conflict", field="--rows", value=elsewhere.rows
        )
    width = sum(elsewhere.columns.values())
    if total * width > _MOST_MADE_UP:
        raise JobError(
            f"{width:,} columns of {total:,} rows are more than a plan makes up ({_MOST_MADE_UP:,} values)",
            code="range",
            field="--columns",
            value=total * width,
        )
    test = math.ceil(total * job.data.test_size)  # rounded up, as rows are drawn
    validation = math.ceil((total - test) * job.data.validation_size)
    if test + validation >= total:
        raise JobError(f"of {total} rows none is left to learn from", code="range", field="--rows", value=total)
    place = np.arange(total)
    return DataSplit.of((place >= test) & (place < test + validation), place < test)


def _classes(job: Job, elsewhere: Elsewhere, rows: int) -> int:
    """Return how many classes made-up labels have."""
    quantities = job.data.task == "regression"
    given = elsewhere.classes
    if given is None:
        return 0 if quantities else 2
    if quantities and given:
        raise JobError(f"got {given} but [data] task is 'regression'", code="conflict", field="--classes", value=given)
    if given > rows:
        raise JobError(f"got {given} but there are {rows} training rows", code="range", field="--classes", value=given)
    return given


def _labels(x: NDArray[np.float64], classes: int, rng: np.random.Generator) -> Labels:
    """Return labels that hang together with a few of the columns, and with chance; quantities are at least 0."""
    score = np.nan_to_num(x[:, :_TELLING]).sum(axis=1) + rng.normal(size=len(x))
    if classes:
        edges = np.quantile(score, np.arange(1, classes) / classes)
        score = np.searchsorted(edges, score).astype(np.float64)
    else:
        score -= score.min()
    return Labels(values=score, weights=np.ones(len(x)), classes=tuple(f"class {each}" for each in range(classes)))
