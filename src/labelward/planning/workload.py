"""Planner input: local tables as they are, synthetic columns of the same shape for remote parties."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from labelward.data import (
    DataSplit,
    PartyTable,
    VerticalDataset,
    encode_party,
    load_active,
    load_dataset,
    load_party_table,
    load_tables,
)
from labelward.errors import JobError, unknown_name
from labelward.federation.components import check_job, make_policies, model_family, with_defaults
from labelward.federation.leakage_monitor import monitored_chains, with_monitor
from labelward.federation.train import defense_variant
from labelward.job import Job
from labelward.planning.cost_model import training_data
from labelward.planning.dry_run import ANY_SEED, TrainingData
from labelward.policy.base import Policy
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.inputs import Columns
from labelward.runs.short_names import variant_without_defaults

P = TypeVar("P")

_INFORMATIVE = 8  # columns on which synthetic labels depend
_MIN_ROWS = 10
_MAX_SYNTHETIC = 250_000_000
"""Rows times synthetic columns, at most: 2 GB."""


@dataclass(frozen=True, kw_only=True)
class RemoteShape:
    """The shape of tables at other parties; unused if all tables are here.

    Attributes:
        rows: of each table, test rows included; None if some table is here.
        columns: number of columns by party.
        classes: of the label, if it is remote; 0 for a regression target; None for two, or for a regression target if
            the job says so.

    Raises:
        JobError: a number out of range.
    """

    rows: int | None = None
    columns: Mapping[str, int] = field(default_factory=dict)
    classes: int | None = None

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < _MIN_ROWS:
            raise JobError(
                f"must be at least {_MIN_ROWS} but got {self.rows}", code="range", field="--rows", value=self.rows
            )
        for name, count in self.columns.items():
            if count < 0:
                raise JobError(
                    f"must be at least 0 but got {count} for {name!r}", code="range", field="--columns", value=count
                )
        if self.classes is not None and (self.classes < 0 or self.classes == 1):
            reason = f"must be 0 for a regression target, or at least 2, but got {self.classes}"
            raise JobError(reason, code="range", field="--classes", value=self.classes)


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """The data of a run."""

    dataset: str  # name of the data; empty if all tables are remote
    data: TrainingData
    generated: tuple[str, ...]  # parties with synthetic columns
    policies: tuple[Policy, ...]  # the defenses of the run, with the leakage meter if the labels are here


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedRun(Generic[P]):
    """A run to be planned: its job, completed and checked, the parameters of its model, and its data."""

    job: Job
    seed: int
    params: P
    variant: str  # slug of the defenses
    defended: bool
    workload: Workload


def plan_run(
    job: Job,
    model: type[P],
    unsupported: str,
    *,
    seed: int | None,
    variant: str | None,
    remote: RemoteShape | None,
) -> PlannedRun[P]:
    """Complete and check a job for a plan, and load its data.

    Args:
        model: class of the parameters of the models that can be planned.
        unsupported: what is said of another model.
        seed: of the run; None for the job's first.
        variant: slug of one of ``job.variants()``; None for the undefended run.
        remote: the shape of tables that are not here.

    Raises:
        InputError: of any kind, as training the job would; or for another model.
    """
    seed = job.run.seeds[0] if seed is None else seed
    job = with_defaults(replace(job, run=replace(job.run, seeds=(seed,))))
    chosen = variant_without_defaults(job.variants()[0]).slug if variant is None else variant
    defended = defense_variant(job, chosen)
    check_job(job)
    params = model_family(job.model).params
    if not isinstance(params, model):
        raise JobError(unsupported, code="unsupported", field="[model] kind", value=job.model.kind)
    checked = job if variant is None else replace(job, defenses=(defended,) if defended.chain else ())
    return PlannedRun(
        job=job,
        seed=seed,
        params=params,
        variant=variant_without_defaults(defended).slug,
        defended=bool(defended.chain),
        workload=load_workload(checked, seed, remote or RemoteShape(), make_policies(defended)),
    )


def load_workload(job: Job, seed: int, remote: RemoteShape, policies: tuple[Policy, ...]) -> Workload:
    """Read the local tables of a completed job, of which each variant must fit them, and generate the rest.

    Raises:
        InputError: the data cannot be used, or the shape of a remote table is not given.
    """
    away = tuple(party.name for party in job.parties if party.elsewhere)
    for name in remote.columns:
        if name not in away:
            known = name in [party.name for party in job.parties]
            reason = f"the data of {name!r} are here" if known else unknown_name("remote party", name, away)
            raise JobError(reason, code="conflict" if known else "unknown", field="--columns", value=name)
    if away:
        return _partly_remote(job, seed, remote, policies, away)
    for name, given in (("rows", remote.rows), ("classes", remote.classes)):
        if given is not None:
            raise JobError(
                f"got {given} but all data of the job are here", code="conflict", field=f"--{name}", value=given
            )
    data = load_dataset(job, seed, load_tables(job), private={party.name: ANY_SEED for party in job.parties})
    chain = with_monitor(job, data, policies, seed=seed)
    _check_variants(job, data, seed)
    return Workload(dataset=data.name, data=training_data(data), generated=(), policies=chain)


def _check_variants(job: Job, data: VerticalDataset, seed: int) -> None:
    """Refuse what an audit would: any variant of the job that does not fit the data."""
    here, passive = {party.name for party in data.parties}, tuple(party.name for party in job.passive)
    for variant in job.variants():
        chains = monitored_chains(job, data, variant, seed=seed)
        own = {name: chain for name, chain in chains.items() if name in here}
        model_family(job.model).check(data, own, passive=passive)


def _partly_remote(
    job: Job, seed: int, remote: RemoteShape, policies: tuple[Policy, ...], away: tuple[str, ...]
) -> Workload:
    local = {party.name: load_party_table(job, party.name) for party in job.parties if not party.elsewhere}
    _check_shape(job, remote, local, away)
    split = _synthetic_split(job, local, remote)
    columns: dict[str, Columns] = {}
    labels: LabelVector | None = None
    for name, table in local.items():  # the active party first: it draws the split
        if name == job.active.name:
            active = load_active(job, table, seed, ANY_SEED)
            policies, split = with_monitor(job, active, policies, seed=seed), active.split
            _check_variants(job, active, seed)
            data = training_data(active)
            labels, columns[name] = data.labels, data.columns[name]
        else:
            own = encode_party(job, table, split, ANY_SEED)
            columns[name] = Columns(own.columns, own.train, own.categories, own.monotone)
    rng, rows = np.random.default_rng(seed), len(split.train)
    classes = _class_count(job, remote, rows)
    for name in away:
        names = tuple(f"{name} {number}" for number in range(remote.columns.get(name, 0)))
        columns[name] = Columns(names, rng.normal(size=(rows, len(names))))
    ordered = {party.name: columns[party.name] for party in job.parties}
    if labels is None:
        labels = _synthetic_labels(np.concatenate([each.x for each in ordered.values()], axis=1), classes, rng)
    return Workload(
        dataset=next((table.name for table in local.values()), ""),
        data=TrainingData(columns=ordered, labels=labels, validation=len(split.validation), test=len(split.test)),
        generated=away,
        policies=policies,
    )


def _check_shape(job: Job, remote: RemoteShape, local: Mapping[str, PartyTable], away: tuple[str, ...]) -> None:
    """Refuse a shape that leaves out the columns of a remote party, or speaks of labels that are here."""
    for name in away:
        if remote.columns.get(name, 0) < (name != job.active.name):
            reason = (
                f"the data of {name!r} are remote; give the number of its columns with "
                f"--columns {name}=COUNT, at least 1"
            )
            raise JobError(reason, code="missing", field=f"[parties.{name}] table")
    if job.active.name in local and remote.classes is not None:
        raise JobError(
            f"got {remote.classes} but the labels are here", code="conflict", field="--classes", value=remote.classes
        )


def _synthetic_split(job: Job, local: Mapping[str, PartyTable], remote: RemoteShape) -> DataSplit:
    """Return a split of as many rows as local tables have, or as remote ones are said to have."""
    total = min((len(table.ids) for table in local.values()), default=remote.rows or 0)
    if not total:
        raise JobError("required, since no table of the job is here", code="missing", field="--rows")
    if local and remote.rows not in (None, total):
        raise JobError(
            f"{remote.rows} but the table here has {total}", code="conflict", field="--rows", value=remote.rows
        )
    width = sum(remote.columns.values())
    if total * width > _MAX_SYNTHETIC:
        reason = f"{width:,} columns of {total:,} rows are more than a plan makes up ({_MAX_SYNTHETIC:,} values)"
        raise JobError(reason, code="range", field="--columns", value=total * width)
    test = math.ceil(total * job.data.test_size)  # rounded up, as in the split of a run
    validation = math.ceil((total - test) * job.data.validation_size)
    if test + validation >= total:
        raise JobError(
            "no training rows remain after the test and validation split", code="range", field="--rows", value=total
        )
    place = np.arange(total)
    return DataSplit.of((place >= test) & (place < test + validation), place < test)


def _class_count(job: Job, remote: RemoteShape, rows: int) -> int:
    """Return the number of classes of synthetic labels; 0 for a regression target."""
    regression = job.data.task == "regression"
    given = remote.classes
    if given is None:
        return 0 if regression else 2
    if regression and given:
        raise JobError(f"got {given} but [data] task is 'regression'", code="conflict", field="--classes", value=given)
    if given > rows:
        raise JobError(f"got {given} but there are {rows} training rows", code="range", field="--classes", value=given)
    return given


def _synthetic_labels(x: NDArray[np.float64], classes: int, rng: np.random.Generator) -> LabelVector:
    """Return labels that depend on a few of the columns and on chance; regression targets are at least 0."""
    score = np.nan_to_num(x[:, :_INFORMATIVE]).sum(axis=1) + rng.normal(size=len(x))
    if classes:
        edges = np.quantile(score, np.arange(1, classes) / classes)
        score = np.searchsorted(edges, score).astype(np.float64)
    else:
        score -= score.min()
    return LabelVector(values=score, weights=np.ones(len(x)), classes=tuple(f"class {each}" for each in range(classes)))
