"""Warm start: checks that parties, columns, split and rows are unchanged, so no former training row is tested on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from labelward.data import PartyDataset, VerticalDataset
from labelward.errors import DataError, FileFormatError, JobError
from labelward.federation.model_shares import load_shares, trained_job
from labelward.job import Job
from labelward.protocols.family import ModelFamily, PartyShare
from labelward.runs.private_seeds import stored_seeds
from labelward.runs.training_record import RowCounts, read_record


def load_warm_start(programs: ModelFamily[Any], run: Path, job: Job, data: VerticalDataset) -> Mapping[str, PartyShare]:
    """Return the shares of an earlier training that a job continues.

    Args:
        programs: family of the job's model.
        run: folder of the earlier training.
        job: job with defaults filled in and a single seed.
        data: dataset of this job and seed.

    Raises:
        FileFormatError: the folder is not that of a training, or a file in it is missing or damaged.
        JobError: parties, kind of model, seed, split or starting point differ.
        DataError: columns, categories, classes or rows differ.
    """
    if not programs.grows:
        raise JobError(
            f"{job.model.kind!r} cannot be warm-started; only tree models can continue {run}",
            code="unsupported",
            field="[model] kind",
            value=job.model.kind,
        )
    before = trained_job(run)
    names, theirs = ([party.name for party in each.parties] for each in (job, before))
    if names != theirs:
        raise JobError(
            f"contains a model of the parties {', '.join(theirs)}; the job has {', '.join(names)}",
            code="other-run",
            field=str(run),
            value=theirs,
        )
    if before.model.kind != job.model.kind:
        raise JobError(
            f"{run} contains a model of kind {before.model.kind!r}, not {job.model.kind!r}",
            code="other-run",
            field="[model] kind",
            value=job.model.kind,
        )
    if before.run.seeds != job.run.seeds:
        raise JobError(
            f"was trained with seed {before.run.seeds[0]}; with seed {job.run.seeds[0]} some of its training "
            "rows would be used for testing; use the same seed",
            code="other-run",
            field=str(run),
            value=before.run.seeds[0],
        )
    shares = load_shares(programs, run, before)
    for party in data.parties:
        _check_columns(run, party, shares[party.name])
    active = shares[names[0]]
    if active.classes != data.classes:
        was, now = (", ".join(each) or "a regression target" for each in (active.classes, data.classes))
        raise DataError(
            f"its label was {was}, but {data.label} is {now}", code="other-run", field=str(run), value=active.classes
        )
    _check_split(run, before, job)
    if not stored_seeds(run):
        raise FileFormatError(
            "was trained by a version whose split leaked the labels and must not be reused; train a new model",
            code="other-run",
            field=str(run),
        )
    _check_rows(run, data, has_ids=job.data.table is None or job.data.id is not None)
    programs.check_start(run, data, active)
    return shares


def _check_columns(run: Path, party: PartyDataset, share: PartyShare) -> None:
    if share.columns != party.columns:
        missing = [name for name in share.columns if name not in party.columns]
        more = [name for name in party.columns if name not in share.columns]
        differences = [
            f"{word}: {', '.join(map(repr, names[:5]))}{', …' if len(names) > 5 else ''}"
            for word, names in (("missing", missing), ("unexpected", more))
            if names
        ]
        raise DataError(
            f"does not match the columns of the model in {run}: {'; '.join(differences) or 'the order differs'}",
            code="columns",
            field=f"party {party.name!r}",
            value=tuple(missing + more),
        )
    categories = {party.columns[position]: names for position, names in party.categories.items()}
    for name in party.columns:
        if categories.get(name) != share.categories.get(name):
            raise DataError(
                f"has other categories than the model in {run}",
                code="columns",
                field=f"party {party.name!r}, column {name!r}",
                value=categories.get(name),
            )


def _check_split(run: Path, before: Job, job: Job) -> None:
    was, now = _split_of(before), _split_of(job)
    keys = [key for key, value in now.items() if was[key] != value]
    changed = [f"{key} = {_describe(was[key])}, not {_describe(now[key])}" for key in keys]
    if changed:
        raise JobError(
            f"was trained with {'; '.join(changed)}: some of its training rows could be used for testing; use "
            "the same split",
            code="other-run",
            field=str(run),
            value=tuple(keys),
        )


def _split_of(job: Job) -> dict[str, Any]:
    """Return the split settings of a job, without table paths: the rows themselves are compared."""
    data = {key: getattr(job.data, key) for key in ("label", "id", "split", "test_size", "validation_size")}
    own = {f"[parties.{job.active.name}] label": job.active.label} if job.data.table is None else {}
    return {f"[data] {key}": value for key, value in data.items()} | own


def _describe(value: Any) -> str:
    return "nothing" if value is None else repr(value)


def _check_rows(run: Path, data: VerticalDataset, *, has_ids: bool) -> None:
    before, now = read_record(run).rows, RowCounts.of(data)
    if before.train_digest != now.train_digest or before.test_ids != now.test_ids:
        learned = len(np.setdiff1d(data.test_ids, before.test_ids))
        raise DataError(
            f"was trained on another set of rows: {before.train} training, {before.validation} validation and "
            f"{before.test} test rows; now {now.train}, {now.validation} and {now.test}, and {learned} of these test "
            "rows were not test rows then, so former training rows would be used for testing",
            code="rows",
            field=str(run),
            value=learned,
        )
    if not has_ids and before.content_digest != now.content_digest:
        raise DataError(
            "was trained on other labels or columns than the table now has; rows without ids must be the same "
            "in the same order, or training rows could be used for testing (name an id column in [data] id)",
            code="rows",
            field=str(run),
        )
