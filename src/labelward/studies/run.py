"""Running a study: its tasks in sequence or in parallel, each an audit that resumes where it stopped."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from labelward.auditing.audit import audit
from labelward.data.catalog import catalog_entries, load_catalog_table
from labelward.errors import DataError, InputError, LabelwardError, OutputError
from labelward.federation.components import with_defaults
from labelward.federation.progress import Watch, no_log
from labelward.federation.simulation import VIEW
from labelward.job import Job
from labelward.runs.directory import relocate_table
from labelward.runs.private_seeds import keep_seeds, resolve_seeds, stored_seeds
from labelward.runs.secure_files import (
    LOCK_FILE,
    atomic_write,
    directory_lock,
    output_errors,
    private_folder,
    write_bytes,
)
from labelward.runs.worker_process import check_jobs, worker_pool
from labelward.studies.attribute_inference import ensure_attribute_inference
from labelward.studies.datasets import dealt
from labelward.studies.own_tables import read_own, with_own_tables
from labelward.studies.searches import store_hypervolumes
from labelward.studies.spec import Study, StudyDataset, StudyPart, StudyTask
from labelward.tuning.tune import tune

if TYPE_CHECKING:
    import pyarrow as pa

STUDY_FILE = "study.json"
_TABLES = "tables"
_NO_COPY = "no copy of it is known"


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """What was requested of a study, and how it ended."""

    study: Study
    parts: tuple[StudyPart, ...]
    datasets: tuple[StudyDataset, ...]  # the requested datasets that are present
    seeds: int
    jobs: Mapping[StudyTask, Job]
    missing: Mapping[str, str] = field(default_factory=dict)  # why requested datasets are absent, by title
    failed: Mapping[str, str] = field(default_factory=dict)  # why tasks failed, by path


def run_study(
    study: Study,
    out: Path,
    *,
    parts: Sequence[str] = (),
    datasets: Sequence[str] = (),
    tables: Mapping[str, Path] | None = None,
    seeds: int | None = None,
    jobs: int = 1,
    watch: Watch = no_log,
) -> StudyResult:
    """Run what parts of a study need and is not finished yet.

    A task whose job is invalid or whose training fails is reported, and the others run.

    Args:
        out: a new folder, or one of the same study, which is resumed, whatever parts it was begun for.
        parts: names; empty: all but those on request.
        datasets: names; empty: all, but without ``parts`` only those that need not be requested.
        tables: files of the user's by dataset (:func:`~labelward.studies.own_tables.with_own_tables`).
        seeds: number of seeds; None: the study's.
        jobs: number of parallel tasks, each in a process of its own; 1 runs them in this process.
        watch: receives the progress of tasks as event ``"runs"``.

    Raises:
        InputError: an unknown part or dataset, or a dataset that none of the parts shows; or ``jobs`` below 1.
        DataError: a file is not the dataset that it is given as.
        OutputError: the folder holds something else, cannot be written, or is used by another process; or a worker
            process was killed.
    """
    check_jobs(jobs)
    study = with_own_tables(study, tables or {})
    _selected(study, parts, datasets)  # what cannot be is refused before there is a folder
    with _claim_folder(out, study):
        planned = plan_study(study, out, parts=parts, datasets=datasets, seeds=seeds)
        audits = {out / task.path: job for task, job in planned.jobs.items()}
        for folder, job in audits.items():
            if job.tune is not None:
                _keep_start(folder, job)
        failed = _run(audits, jobs, watch, study.attackers)
        ended = {task: job for task, job in planned.jobs.items() if out / task.path not in failed}
        searches = {task: job.tune for task, job in ended.items() if job.tune is not None}
        store_hypervolumes({task: out / task.path for task in searches}, searches)
        for task, job in ended.items():
            ensure_attribute_inference(study, task, job, out / task.path)
    return replace(planned, failed={str(path.relative_to(out)): reason for path, reason in failed.items()})


def plan_study(
    study: Study, out: Path, *, parts: Sequence[str] = (), datasets: Sequence[str] = (), seeds: int | None = None
) -> StudyResult:
    """Return what :func:`run_study` would run; nothing is trained.

    What an unfinished study has stored so far, :func:`~labelward.studies.results.study_figures` reads from it.

    Args:
        study: with the user's own tables, if it has any.
        out: the study's folder, or a new one; gets the tables that a dataset generates or converts.
        parts, datasets, seeds: as :func:`run_study` takes them.

    Raises:
        InputError: an unknown part or dataset, or a dataset that none of the parts shows.
        DataError: a file of the user's cannot be read.
        OutputError: the folder cannot be written.
    """
    selected, requested = _selected(study, parts, datasets)
    own = {each.name for each in study.own}
    missing = {
        title: f"{_NO_COPY}; --table {name}=FILE reads yours" if name in own else _NO_COPY
        for name, title in study.unavailable.items()
        if not datasets or name in datasets
    }
    columns: dict[str, tuple[str, ...]] = {}
    for dataset in requested:
        try:
            columns[dataset.name] = _columns(dataset)
        except DataError as error:
            missing[dataset.title] = str(error)
    present = tuple(dataset for dataset in requested if dataset.name in columns)
    count = study.seeds if seeds is None else seeds
    jobs = {task: _job(study, out, task, columns) for task in study.tasks(selected, present, count)}
    return StudyResult(study=study, parts=selected, datasets=present, seeds=count, jobs=jobs, missing=missing)


def _selected(
    study: Study, parts: Sequence[str], datasets: Sequence[str]
) -> tuple[tuple[StudyPart, ...], tuple[StudyDataset, ...]]:
    """Return the parts of these names, and the datasets that they show, where any are named of these."""
    selected = study.select_parts(parts)
    requested = study.select_datasets(datasets, on_request=bool(parts))
    if datasets:
        _check_shown(study, selected, requested)
    return selected, tuple(each for each in requested if any(study.datasets_of(part, (each,)) for part in selected))


def _check_shown(study: Study, parts: Sequence[StudyPart], datasets: Sequence[StudyDataset]) -> None:
    """Refuse a dataset that none of the parts shows."""
    for dataset in datasets:
        showing = [part for part in study.parts if study.datasets_of(part, (dataset,))]
        if not any(part in showing for part in parts):
            asked, others = (", ".join(part.name for part in group) or "no part" for group in (parts, showing))
            reason = f"dataset {dataset.name!r} is not in {asked}, but in {others}; name another part or dataset"
            raise InputError(reason, code="conflict", field=f"study {study.name!r}", value=dataset.name)


@contextmanager
def _claim_folder(out: Path, study: Study) -> Iterator[None]:
    """Reserve the folder of a study for this process; refuse one that holds something else."""
    marker = out / STUDY_FILE
    with output_errors(out):
        if out.exists() and not out.is_dir():
            raise OutputError("is a file, not a folder", code="exists", field=str(out))
        present = {path.name for path in out.iterdir()} - {LOCK_FILE} if out.exists() else set()
        if present and _stored_name(marker) != study.name:
            reason = f"exists and does not contain study {study.name!r}; choose another folder"
            raise OutputError(reason, code="exists", field=str(out))
        out.parent.mkdir(parents=True, exist_ok=True)
    with directory_lock(private_folder(out)):
        if not marker.exists():
            write_bytes(marker, json.dumps({"format": 1, "study": study.name}).encode())
        yield


def _stored_name(marker: Path) -> str | None:
    """Return the name of the study that a folder holds; None without a readable marker."""
    try:
        return str(json.loads(marker.read_text(encoding="utf-8"))["study"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _columns(dataset: StudyDataset) -> tuple[str, ...]:
    """Return the columns of a dataset's table in the catalog; none for one that is purely synthetic.

    Raises:
        DataError: there is no such table.
    """
    if dataset.file is not None or (dataset.generate is not None and not dataset.catalog_name):
        return ()
    name = dataset.catalog_name or dataset.name
    if name not in catalog_entries():
        raise DataError(_NO_COPY, code="not-found", value=name)
    return tuple(load_catalog_table(name).column_names[:-1])


def _job(study: Study, out: Path, task: StudyTask, columns: Mapping[str, tuple[str, ...]]) -> Job:
    """Return the job of a task; a generated or converted table is written first, if it is not there yet."""
    dataset = task.dataset
    if dataset.generate is None and dataset.file is None:
        return study.job(task, dataset.catalog_name or dataset.name, columns[dataset.name])
    import pyarrow.parquet as pq

    made_from = task.seed if dataset.file is None else f"own-{_file_digest(dataset.file)}"  # the same for any seed
    with output_errors(out):
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{dataset.name}-{task.setting.parties}-parties" if dataset.patches else dataset.name
    path = private_folder(out / _TABLES).resolve() / f"{name}-{made_from}.parquet"
    if not path.exists():
        with atomic_write(path) as file:
            pq.write_table(_made(task), file)
    return study.job(task, str(path), pq.read_schema(path).names[:-1])


def _file_digest(path: Path) -> str:
    """Return 16 hexadecimal digits that a changed file of the user's does not have."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", code="unreadable", field=str(path)) from error


def _made(task: StudyTask) -> pa.Table:
    """Return the table that is trained on, the label last."""
    dataset = task.dataset
    if dataset.file is None:
        assert dataset.generate is not None
        table = dataset.generate(task.seed)
    else:
        table = read_own(dataset.file)
        table = table if dataset.convert is None else dataset.convert(table)
    return dealt(table, task.setting.parties) if dataset.patches else table


def _run(tasks: Mapping[Path, Job], jobs: int, watch: Watch, attackers: Sequence[str]) -> dict[Path, str]:
    """Run all audits; return why some failed, by folder."""
    failed: dict[Path, str] = {}
    for done, (folder, reason) in enumerate(_results(tasks, jobs, watch, attackers), start=1):
        if reason is not None:
            failed[folder] = reason
        watch("runs", done, len(tasks), "")
    return failed


def _results(
    tasks: Mapping[Path, Job], jobs: int, watch: Watch, attackers: Sequence[str]
) -> Iterator[tuple[Path, str | None]]:
    """Yield each folder with the reason of its failure, or None, as the audits end."""
    if jobs == 1:
        for done, (folder, job) in enumerate(tasks.items()):
            watch("runs", done, len(tasks), _describe(folder))
            yield folder, _audit(job, folder, attackers)
        return
    with worker_pool(jobs) as pool:
        running = {pool.submit(_audit, job, folder, attackers): folder for folder, job in tasks.items()}
        watch("runs", 0, len(tasks), f"{len(tasks)} trainings, {jobs} in parallel")
        for each in as_completed(running):
            yield running[each], each.result()


def _audit(job: Job, folder: Path, attackers: Sequence[str]) -> str | None:
    """Run one audit or search, or the rest of it; return why it failed.

    A generated table lies in the study's folder, which may have been moved since the audit began. Only passive
    parties' views are kept: the active party's, with all sums that it decrypted, would fill a disk.
    """
    try:
        kind: Literal["audit", "tune"] = "audit" if job.tune is None else "tune"
        relocate_table(folder, with_defaults(job), kind)
        if job.tune is not None:
            same_start = sorted(folder.parents[1].glob(f"*/{folder.name}"))
            tune(job, out=folder, repeat=() if stored_seeds(folder) else (_start(folder),), beside=same_start)
            return None
        audit(job, folder, explained=False, attackers=attackers)
        for view in folder.glob(f"runs/*/*/{job.active.name}/{VIEW}"):
            with output_errors(view):
                shutil.rmtree(view)
    except (LabelwardError, MemoryError) as error:
        return str(error) or "out of memory"
    return None


def _start(folder: Path) -> Path:
    """Return the folder of the private draws that all searches of a start have, from that of one of them."""
    return folder.parents[1] / "start" / folder.name


def _keep_start(folder: Path, job: Job) -> None:
    """Draw what the searches of a start have in common, if no other one of them has done so."""
    start = _start(folder)
    with output_errors(start):
        start.mkdir(mode=0o700, parents=True, exist_ok=True)
    keep_seeds(start, resolve_seeds([party.name for party in job.parties], start))


def _describe(folder: Path) -> str:
    """Return what a task is, from its folder."""
    setting, dataset, model, seed = folder.parts[-4:]
    return f"{dataset}, {model}, {setting}, seed {seed}"
