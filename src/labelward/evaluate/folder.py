"""The folder of an audit or a training: who may write into it, and what is stored beside the results."""

from __future__ import annotations

import contextlib
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from labelward.data import Rehearsal
from labelward.errors import OutputError
from labelward.evaluate.results import RESULTS_FILE
from labelward.job import Job

__all__ = ["JOB_FILE", "check_output", "claim", "data_folder", "private_folder", "store_data"]

JOB_FILE = "job.toml"
_PARTIAL = f"{JOB_FILE}.partial"
_REPORT_FILE = "report.html"

Purpose = Literal["audit", "train"]


def private_folder(path: Path) -> Path:
    """Make a folder that only its owner can enter; :class:`OutputError` where that is impossible."""
    with _as_output_error(path):
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)
    return path


def data_folder(out: Path, seed: int) -> Path:
    """Return where an audit keeps each party's own training columns of a seed, and the true labels."""
    return out / "data" / str(seed)


def check_output(out: Path, job: Job, purpose: Purpose, *, force: bool) -> None:
    """Refuse an output folder before anything is made or removed.

    Args:
        job: completed.
        purpose: ``"audit"`` resumes a folder of the same job; ``"train"`` never does.
        force: whether a folder of another job, made for the same purpose, may be cleared.

    Raises:
        OutputError: a file in the way, a folder that holds something else, or one that cannot be written.
    """
    with _as_output_error(out):
        if not out.is_dir():
            if out.exists() or out.is_symlink():
                raise OutputError(f"{out}: is a file, not a folder")
            _check_parent(out)
            return
        if not os.access(out, os.W_OK | os.X_OK):
            raise OutputError(f"{out}: cannot be written")
        if not _entries(out):
            return
        text = _stored_job(out, purpose)
        if force:
            return
        if purpose == "train":
            raise OutputError(f"{out}: exists already; --force replaces it")
        differing = _differing(text, job.to_toml())
        if differing:
            raise OutputError(
                f"{out}: holds the audit of another job: {', '.join(differing)} differ; "
                "choose another folder, or --force to replace it"
            )


def claim(out: Path, job: Job, purpose: Purpose, *, force: bool) -> None:
    """Make the folder with its ``job.toml``, or go on in one of the same job; ``force`` clears what such a run wrote.

    Raises:
        OutputError: as :func:`check_output`.
    """
    check_output(out, job, purpose, force=force)
    with _as_output_error(out):
        if force and out.is_dir() and _entries(out):
            _clear(out, _stored_job(out, purpose), purpose)
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        out.chmod(0o700)
        if not (out / JOB_FILE).exists():
            partial = out / _PARTIAL
            partial.write_text(_marker(purpose) + job.to_toml(), encoding="utf-8")
            partial.replace(out / JOB_FILE)


def store_data(out: Path, data: Rehearsal, seed: int) -> None:
    """Write ``<party>.parquet`` (id, own training columns) and ``truth.parquet`` (id, label), rows in the views' order.

    Files that are there already must be the same: an audit goes on with the data that it began with.

    Raises:
        OutputError: the data changed since, or cannot be written.
    """
    import pyarrow as pa

    private_folder(out / "data")
    folder = private_folder(data_folder(out, seed))
    ids = pa.array(data.train_ids.tolist(), pa.string())
    for party in data.parties:
        columns = {name: party.train[:, position] for position, name in enumerate(party.columns)}
        _write(folder / f"{party.name}.parquet", {"id": ids, **columns})
    names = np.asarray(data.classes)[data.train_labels]
    _write(folder / "truth.parquet", {"id": ids, "label": pa.array(names.tolist(), pa.string())})


def _write(path: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_arrays([pa.array(each) for each in columns.values()], list(columns))
    if path.exists():
        try:
            same = pq.read_table(path).equals(table)
        except (OSError, pa.ArrowException) as error:
            raise OutputError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
        if not same:
            raise OutputError(
                f"{path}: the data of the job have changed since this audit began; use --force or another folder"
            )
        return
    partial = path.with_suffix(".partial")
    with _as_output_error(path):
        pq.write_table(table, partial)
        partial.replace(path)


def _marker(purpose: Purpose) -> str:
    return f"# Written by labelward {purpose}: the job, completed with defaults.\n\n"


def _entries(out: Path) -> list[Path]:
    return [path for path in out.iterdir() if path.name != _PARTIAL]


def _stored_job(out: Path, purpose: Purpose) -> str:
    """Return the job of a folder that a run for the same purpose wrote; nothing else is ever cleared or continued."""
    path = out / JOB_FILE
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if not text.startswith(_marker(purpose)):
        made = "an audit" if purpose == "audit" else "a training"
        raise OutputError(f"{out}: exists already and was not made by {made}; choose another folder")
    return text


def _check_parent(out: Path) -> None:
    """Refuse a path of which the nearest existing folder is a file or cannot be written."""
    above = out.absolute().parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise OutputError(f"{out}: cannot be made, since {above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(f"{out}: cannot be made, since {above} cannot be written")


def _clear(out: Path, job: str, purpose: Purpose) -> None:
    owned = [RESULTS_FILE, _REPORT_FILE, "data", "runs"]
    if purpose == "train":
        with contextlib.suppress(tomllib.TOMLDecodeError):
            owned = [str(name) for name in tomllib.loads(job).get("parties", {})]
    for name in [*owned, JOB_FILE]:  # the job last, so that a clearing that is killed can be repeated
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _differing(stored: str, wanted: str) -> list[str]:
    """Return the keys that differ between two job files, as ``model.depth``."""
    try:
        mine, theirs = _flat(tomllib.loads(wanted)), _flat(tomllib.loads(stored))
    except tomllib.TOMLDecodeError:
        return [f"{JOB_FILE} is damaged; all keys"]
    return sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


@contextlib.contextmanager
def _as_output_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror})") from error
