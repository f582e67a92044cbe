"""Running a study: its tasks one after another or several at once, each an audit that goes on where it stopped."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from labelward.auditing.audit import audit
from labelward.data.catalogue import catalogue_entries, load_catalogue_table
from labelward.errors import DataError, InputError, LabelwardError, OutputError
from labelward.evaluate.studies.plan import ATTACKER, DataSet, Part, Study, Task
from labelward.evaluate.studies.second import ensure_second
from labelward.federation.components import with_defaults
from labelward.federation.progress import Watch, no_log
from labelward.federation.simulation import VIEW
from labelward.job import Job
from labelward.runs.directory import relocate_table
from labelward.runs.secure_files import LOCK_FILE, atomic_write, directory_lock, output_errors, private_folder

__all__ = ["STUDY_FILE", "Outcome", "run_study"]

STUDY_FILE = "study.json"
_TABLES = "tables"
_UNKNOWN = "no copy of it is known"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a study was asked for, and what became of it.

    Attributes:
        study: the study.
        parts: that were asked for.
        tables: that were asked for and are at hand.
        seeds: how many were asked for.
        jobs: of all tasks.
        missing: why data sets that were asked for are not there, by title.
        failed: why tasks did not end, by path.
    """

    study: Study
    parts: tuple[Part, ...]
    tables: tuple[DataSet, ...]
    seeds: int
    jobs: Mapping[Task, Job]
    missing: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


def run_study(
    study: Study,
    out: Path,
    *,
    parts: Sequence[str] = (),
    datasets: Sequence[str] = (),
    seeds: int | None = None,
    jobs: int = 1,
    watch: Watch = no_log,
) -> Outcome:
    """Run what parts of a study need, or what is missing of it.

    A task whose job cannot be, or whose training fails, is told of, and the others go on.

    Args:
        study: what is run.
        out: a new folder, or that of the same study, which is gone on with, whatever parts it was begun for.
        parts: their names; all where there are none.
        datasets: their names; all where there are none, but without parts only those that need not be named.
        seeds: how many; the study's own number where None.
        jobs: how many tasks run at once, each in a process of its own; 1 runs them in this one.
        watch: hears of tasks as of an audit's ``"runs"``.

    Raises:
        InputError: an unknown part or data set, or a data set that none of the named parts shows.
        OutputError: the folder holds something else, or cannot be written, or another process has it; or the system
            ended a worker process.
    """
    chosen = study.chosen(parts)
    wanted = _shown(study, chosen, study.data(datasets, every=bool(parts)), named=bool(datasets))
    number = study.seeds if seeds is None else seeds
    missing = {title: _UNKNOWN for name, title in study.absent.items() if not datasets or name in datasets}
    with _claimed(out, study):
        columns: dict[str, tuple[str, ...]] = {}
        for table in wanted:
            try:
                columns[table.name] = _columns(table)
            except DataError as error:
                missing[table.title] = str(error)
        at_hand = tuple(table for table in wanted if table.name in columns)
        made = {task: _job(study, out, task, columns) for task in study.tasks(chosen, at_hand, number)}
        failed = _run({out / task.path: job for task, job in made.items()}, jobs, watch)
        for task, job in made.items():
            if out / task.path not in failed:
                ensure_second(study, task, job, out / task.path)
    return Outcome(
        study=study,
        parts=chosen,
        tables=at_hand,
        seeds=number,
        jobs=made,
        missing=missing,
        failed={str(path.relative_to(out)): reason for path, reason in failed.items()},
    )


def _shown(study: Study, chosen: Sequence[Part], tables: Sequence[DataSet], *, named: bool) -> tuple[DataSet, ...]:
    """Return the data sets that any of these parts shows; refuse one that was named and for which nothing is run."""
    found = tuple(table for table in tables if any(study.shown(part, (table,)) for part in chosen))
    for table in tables if named else ():
        if table not in found:
            asked, others = (
                ", ".join(part.name for part in parts) or "no part"
                for parts in (chosen, [part for part in study.parts if study.shown(part, (table,))])
            )
            raise InputError(
                f"data set {table.name!r} does not stand in {asked}, but in {others}; name another part or data set",
                code="conflict",
                field=f"study {study.name!r}",
                value=table.name,
            )
    return found


@contextmanager
def _claimed(out: Path, study: Study) -> Iterator[None]:
    """Keep the folder of a study to this process; refuse one that holds something else."""
    marker = out / STUDY_FILE
    with output_errors(out):
        if out.exists() and not out.is_dir():
            raise OutputError("is a file, not a folder", code="exists", field=str(out))
        held = {path.name for path in out.iterdir()} - {LOCK_FILE} if out.exists() else set()
        if held and _name(marker) != study.name:
            raise OutputError(
                f"exists already and does not hold study {study.name!r}; choose another folder",
                code="exists",
                field=str(out),
            )
        out.parent.mkdir(parents=True, exist_ok=True)
    with directory_lock(private_folder(out)):
        if not marker.exists():
            with atomic_write(marker) as file:
                file.write(json.dumps({"format": 1, "study": study.name}).encode())
        yield


def _name(marker: Path) -> str | None:
    """Return which study a folder holds, as its marker says; None without a readable one."""
    try:
        return str(json.loads(marker.read_text(encoding="utf-8"))["study"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _columns(table: DataSet) -> tuple[str, ...]:
    """Return the columns of a data set, none of one that is made of nothing; :class:`DataError` where it is missing."""
    if table.generate is not None and not table.table:
        return ()
    name = table.table or table.name
    if name not in catalogue_entries():
        raise DataError(_UNKNOWN, code="not-found", value=name)
    return tuple(load_catalogue_table(name).column_names[:-1])


def _job(study: Study, out: Path, task: Task, columns: Mapping[str, tuple[str, ...]]) -> Job:
    """Return the job of a task; a table that is made has columns of its own."""
    source = _source(out, task)
    if task.table.generate is None:
        return study.job(task, source, columns[task.table.name])
    import pyarrow.parquet as pq

    return study.job(task, source, pq.read_schema(source).names[:-1])


def _source(out: Path, task: Task) -> str:
    """Return the table of a task as a job names it; a generated one is written first, where it is not there yet."""
    if task.table.generate is None:
        return task.table.table or task.table.name
    import pyarrow.parquet as pq

    path = private_folder(out / _TABLES).resolve() / f"{task.table.name}-{task.seed}.parquet"
    if not path.exists():
        with atomic_write(path) as file:
            pq.write_table(task.table.generate(task.seed), file)
    return str(path)


def _run(tasks: Mapping[Path, Job], jobs: int, watch: Watch) -> dict[Path, str]:
    """Run all audits; return why some failed, by folder."""
    failed: dict[Path, str] = {}
    for done, (folder, reason) in enumerate(_results(tasks, jobs, watch), start=1):
        if reason is not None:
            failed[folder] = reason
        watch("runs", done, len(tasks), "")
    return failed


def _results(tasks: Mapping[Path, Job], jobs: int, watch: Watch) -> Iterator[tuple[Path, str | None]]:
    """Yield each folder with the reason of its failure, or None, as they end."""
    if jobs == 1:
        for done, (folder, job) in enumerate(tasks.items()):
            watch("runs", done, len(tasks), _words(folder))
            yield folder, _audit(job, folder)
        return
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_serve)
    try:
        running = {pool.submit(_audit, job, folder): folder for folder, job in tasks.items()}
        watch("runs", 0, len(tasks), f"{len(tasks)} trainings, {jobs} at once")
        for each in as_completed(running):
            yield running[each], each.result()
    except BrokenProcessPool as error:
        raise OutputError(
            "a worker process was ended from outside (no memory?); what is finished stays, and the same command goes "
            "on",
            code="incomplete",
        ) from error
    except BaseException:
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _audit(job: Job, folder: Path) -> str | None:
    """Run one audit, or what is missing of it; return why it failed.

    A table that was made lies in the study's folder, which may have been moved since. Of the views only the
    attacker's are kept: the active party's, with all sums that it decrypted, fill a disk.
    """
    try:
        relocate_table(folder, with_defaults(job))
        audit(job, folder, explained=False, attackers=(ATTACKER,))
        for view in folder.glob(f"runs/*/*/{job.active.name}/{VIEW}"):
            with output_errors(view):
                shutil.rmtree(view)
    except (LabelwardError, MemoryError) as error:
        return str(error) or "out of memory"
    return None


def _serve() -> None:
    """Leave interrupts to the parent process, and end when it does, however it does: it holds the study's folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _words(folder: Path) -> str:
    """Return what a task is, from its folder."""
    setting, table, model, seed = folder.parts[-4:]
    return f"{table}, {model}, {setting}, seed {seed}"
