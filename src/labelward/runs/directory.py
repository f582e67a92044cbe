"""Output folder of an audit, a training or a party's run: ownership checks, locking, and the stored job and data."""

from __future__ import annotations

import contextlib
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import quote

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset, VerticalDataset, table_digest
from labelward.errors import OutputError
from labelward.job import Job, parse_job
from labelward.party.json_file import read_versioned
from labelward.runs.party_record import PARTY_FILE
from labelward.runs.private_seeds import PRIVATE_FILE
from labelward.runs.schema import RESULTS_FILE
from labelward.runs.secure_files import (
    LOCK_FILE,
    atomic_write,
    directory_lock,
    output_errors,
    private_folder,
    write_bytes,
    write_json,
)

if TYPE_CHECKING:
    import pyarrow as pa

JOB_FILE = "job.toml"
SOURCE_FILE = "source.json"
TRAINING_FILE = "training.json"
_PASSING = (f"{JOB_FILE}.partial", LOCK_FILE)
_REPLACED = ".replaced"
_REPORT_FILE = "report.html"

PARTY_LOG = "log.jsonl"
SEARCH_FILES = (
    "search.json",
    "evaluations.jsonl",
    "evaluations.jsonl.gz",
    "front.jsonl",
    "result.json",
    "settings",
    "optuna.journal",
    "tune.html",
)
"""What a search writes, besides its job and its private seeds."""
Purpose = Literal["audit", "train", "party", "tune"]
_DESCRIPTIONS: dict[Purpose, str] = {
    "audit": "an audit",
    "train": "a training",
    "party": "a party's run",
    "tune": "a search",
}


def data_folder(out: Path, seed: int) -> Path:
    """Return the folder of an audit with each party's training columns for a seed, and the true labels."""
    return out / "data" / str(seed)


def check_output(out: Path, job: Job, purpose: Purpose, *, force: bool) -> None:
    """Refuse an unsuitable output folder before anything is created or removed.

    Args:
        job: job with defaults filled in.
        purpose: ``"audit"``, ``"tune"`` and ``"party"`` resume in a folder of the same job (a party even
            with other network settings); ``"train"`` never does.
        force: whether a folder of another job with the same purpose may be cleared.

    Raises:
        OutputError: the path is a file, the folder has other content or lies in the folder of another run, or it
            cannot be written.
    """
    with output_errors(out):
        _check_above(out)
        if not out.is_dir():
            if out.exists() or out.is_symlink():
                raise OutputError("is a file, not a folder", code="exists", field=str(out))
            _check_parent(out)
            return
        if not os.access(out, os.W_OK | os.X_OK):
            raise OutputError("cannot be written", code="unwritable", field=str(out))
        if not _entries(out):
            return
        text = _stored_job(out, purpose)
        if force:
            _check_strangers(out, text, job, purpose)
            return
        if purpose == "train":
            raise OutputError("already exists; use --force to replace it", code="exists", field=str(out))
        free = {"party": _of_machine, "audit": _grows}.get(purpose)
        differing = [key for key in _differing(text, job.to_toml()) if free is None or not free(key)]
        if differing:
            raise OutputError(
                f"contains {_DESCRIPTIONS[purpose]} of another job: {', '.join(differing)} differ; "
                "choose another folder, or use --force to replace it",
                code="other-run",
                field=str(out),
                value=tuple(differing),
            )


def stored_job(out: Path) -> Job | None:
    """Return the job of an earlier run in a folder, which :func:`check_output` accepts; None if there is none."""
    text = _job_text(out)
    return parse_job(text, str(out / JOB_FILE)) if text else None


@contextlib.contextmanager
def locked_output(out: Path, job: Job, purpose: Purpose = "audit", *, force: bool) -> Iterator[None]:
    """Lock a folder for this process and write ``job.toml``; ``force`` clears the files of an earlier run.

    Raises:
        OutputError: as :func:`check_output`; or another process holds the lock.
    """
    check_output(out, job, purpose, force=force)
    with output_errors(out):
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        out.chmod(0o700)
    with directory_lock(out):
        check_output(out, job, purpose, force=force)  # another process may have started meanwhile
        with output_errors(out):
            if force and _entries(out):
                for name in [
                    *_owned(_stored_job(out, purpose), purpose),
                    JOB_FILE,
                ]:  # job last, so that clearing can be repeated
                    _remove(out / name)
        if purpose in ("party", "audit") or not (out / JOB_FILE).exists():
            _write_job(out, job, purpose)
        yield


@contextlib.contextmanager
def atomic_directory(out: Path, job: Job) -> Iterator[Path]:
    """Yield a temporary sibling of ``out`` with ``job.toml``, which replaces ``out`` at the end.

    Until then, and after an error, ``out`` is unchanged. The remains of a killed training are cleared.

    Raises:
        OutputError: the folder cannot be written, or another process is writing it.
    """
    target = out.resolve()
    side = target.with_name(f".{target.name}.partial")
    with output_errors(side):
        if side.exists() and _entries(side):
            _stored_job(side, "train")
        side.parent.mkdir(parents=True, exist_ok=True)
    private_folder(side)
    with directory_lock(side):
        try:
            with output_errors(side):
                _empty(side)
            _write_job(side, job, "train")
            yield side
            with output_errors(out):
                _take_place(side, target)
        finally:
            if side.exists():
                with contextlib.suppress(OSError):
                    _empty(side)
                    _remove(side)


def relocate_table(out: Path, job: Job, kind: Literal["audit", "tune"] = "audit") -> None:
    """Update the table path in the stored job of an audit, or of a search, after folder and table were moved.

    Nothing is changed if anything else in the job differs, or if the file has another name. The rows themselves are
    compared when the audit resumes.

    Args:
        job: job with defaults filled in.

    Raises:
        OutputError: the folder cannot be written.
    """
    with output_errors(out):
        text = _job_text(out)
        if text.startswith(_marker(kind)) and _differing(text, job.to_toml()) == ["data.table"]:
            stored = str(tomllib.loads(text)["data"].get("table"))
            if Path(stored).name == Path(str(job.data.table)).name:
                _write_job(out, job, kind)


def _take_place(side: Path, out: Path) -> None:
    """Move the new training into place; the old files are moved aside first, so only names change."""
    if not out.exists():
        (side / LOCK_FILE).unlink()
        side.rename(out)
        return
    replaced = private_folder(side / _REPLACED)
    created = [path for path in _entries(side) if path != replaced]
    for name in _owned(_job_text(out), "train"):
        if (out / name).exists():
            (out / name).rename(replaced / name)
    for path in sorted(
        created, key=lambda path: path.name != JOB_FILE
    ):  # job first, so that --force can repeat the move
        path.replace(out / path.name)
    out.chmod(0o700)


def _empty(folder: Path) -> None:
    for path in sorted(
        _entries(folder), key=lambda path: path.name == JOB_FILE
    ):  # job last, so that clearing can be repeated
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write_job(folder: Path, job: Job, purpose: Purpose) -> None:
    write_bytes(folder / JOB_FILE, (_marker(purpose) + job.to_toml()).encode())


def source_digests(tables: Sequence[pa.Table]) -> tuple[str, ...]:
    """Return the digests of a job's tables, as an audit stores them."""
    return tuple(map(table_digest, tables))


def store_source(out: Path, digests: tuple[str, ...]) -> None:
    """Write ``data/source.json`` with the digests of the job's tables, if an audit begins.

    Raises:
        OutputError: as :func:`check_source`; or the file cannot be written.
    """
    check_source(out, digests)
    path = out / "data" / SOURCE_FILE
    if not path.exists():
        private_folder(path.parent)
        write_json(path, _Source(tables=digests))


def check_source(out: Path, digests: tuple[str, ...]) -> None:
    """Compare tables with those of the audit in a folder, which goes on only with the same ones.

    Raises:
        OutputError: a table has changed since the audit began.
    """
    path = out / "data" / SOURCE_FILE
    if path.exists() and read_versioned(path, _Source, _Source.VERSION).tables != digests:
        raise OutputError(
            "the data of the job have changed since this audit began; use --force or another folder",
            code="other-run",
            field=str(path),
        )


def stored_source(out: Path) -> tuple[str, ...]:
    """Return the digests of the tables of a stored audit; empty for audits of versions that kept none."""
    path = out / "data" / SOURCE_FILE
    return read_versioned(path, _Source, _Source.VERSION).tables if path.exists() else ()


class _Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``data/source.json``: SHA-256 of the common table, or of each party's."""

    VERSION: ClassVar[int] = 1
    format: int = VERSION
    tables: tuple[str, ...]


def store_data(
    out: Path,
    data: VerticalDataset,
    seed: int,
    known: Sequence[NDArray[np.int64]] = (),
    values: Sequence[tuple[str, NDArray[np.int64], NDArray[np.int64]]] = (),
) -> None:
    """Write ``<party>.parquet`` (id, own training columns) and ``truth.parquet`` (id, label), rows in the views' order.

    Categories are strings, and missing values are null. For each nonempty set of known rows, the labels known to
    attackers are written as ``known-<number of rows>.parquet`` (id, label); known rows of a column and their ``values``
    as ``known-<number of rows>-<column>.parquet`` (id, column).

    Existing files must have the same content: an audit resumes only with the data it started with.

    Raises:
        OutputError: the data have changed, or cannot be written.
    """
    import pyarrow as pa

    private_folder(out / "data")
    folder = private_folder(data_folder(out, seed))
    ids = pa.array(data.train_ids.tolist(), pa.string())
    for party in data.parties:
        columns = {name: _column(party, position) for position, name in enumerate(party.columns)}
        _write(folder / f"{party.name}.parquet", {"id": ids, **columns})
    truth = data.train_values
    if data.classes:
        truth = pa.array(np.asarray(data.classes)[data.train_labels].tolist(), pa.string())
    _write(folder / "truth.parquet", {"id": ids, "label": truth})
    bins = pa.array(data.train_labels)
    for rows in known:
        if len(rows):
            labels = (truth if data.classes else bins).take(pa.array(rows))
            _write(folder / f"known-{len(rows)}.parquet", {"id": ids.take(pa.array(rows)), "label": labels})
    for column, rows, numbers in values:
        place = folder / f"known-{len(rows)}-{quote(column, safe='')}.parquet"
        _write(place, {"id": ids.take(pa.array(rows)), column: pa.array(numbers)})


def _column(party: PartyDataset, position: int) -> Any:
    import pyarrow as pa

    values, names = party.train[:, position], party.categories.get(position)
    if names is None:
        return pa.array(values, from_pandas=True)
    return pa.array([names[int(code)] if code >= 0 else None for code in values.tolist()], pa.string())


def _write(path: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_arrays([pa.array(each) for each in columns.values()], list(columns))
    if path.exists():
        try:
            same = pq.read_table(path).equals(table)
        except (OSError, pa.ArrowException) as error:
            raise OutputError(
                f"cannot be read ({' '.join(str(error).split())})", code="unreadable", field=str(path)
            ) from error
        if not same:
            raise OutputError(
                "the data of the job have changed since this audit began; use --force or another folder",
                code="other-run",
                field=str(path),
            )
        return
    with atomic_write(path) as file:
        pq.write_table(table, file)


def made_for(folder: Path) -> Purpose | None:
    """Return what the folder of a stored job was made for; None where labelward did not write the job."""
    job = _job_text(folder)
    return next((purpose for purpose in _DESCRIPTIONS if job.startswith(_marker(purpose))), None)


def _marker(purpose: Purpose) -> str:
    return f"# Written by labelward {purpose}: the job, completed with defaults.\n\n"


def _entries(out: Path) -> list[Path]:
    return [path for path in out.iterdir() if path.name not in _PASSING]


def _stored_job(out: Path, purpose: Purpose) -> str:
    """Return the stored job of a folder with the same purpose; no other folder is ever cleared or resumed."""
    text = _job_text(out)
    if not text.startswith(_marker(purpose)):
        raise OutputError(
            f"already exists and was not created by {_DESCRIPTIONS[purpose]}; choose another folder",
            code="foreign",
            field=str(out),
        )
    return text


def _job_text(folder: Path) -> str:
    path = folder / JOB_FILE
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _check_above(out: Path) -> None:
    """Refuse a folder inside the folder of another run, which would be cleared with it."""
    for above in out.resolve().parents:
        for purpose, description in _DESCRIPTIONS.items():
            if _job_text(above).startswith(_marker(purpose)):
                raise OutputError(
                    f"lies in {above}, the folder of {description}; choose a folder outside",
                    code="exists",
                    field=str(out),
                    value=str(above),
                )


def _check_strangers(out: Path, stored: str, job: Job, purpose: Purpose) -> None:
    """Refuse to overwrite files that the earlier run did not write."""
    owned = _owned(stored, purpose)
    for name in _owned(job.to_toml(), purpose):
        if name not in owned and (out / name).exists():
            raise OutputError(
                f"contains {name!r}, which the earlier run did not write; choose another folder",
                code="foreign",
                field=str(out),
                value=name,
            )


def _check_parent(out: Path) -> None:
    """Refuse a path whose nearest existing ancestor is a file or cannot be written."""
    above = out.absolute().parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise OutputError(
            f"cannot be created, since {above} is a file", code="unwritable", field=str(out), value=str(above)
        )
    if not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(
            f"cannot be created, since {above} cannot be written", code="unwritable", field=str(out), value=str(above)
        )


def _owned(job: str, purpose: Purpose) -> list[str]:
    """Return the names that a run of this job writes into its folder, except ``job.toml``."""
    if purpose == "audit":
        return [RESULTS_FILE, _REPORT_FILE, PRIVATE_FILE, "data", "runs"]
    if purpose == "tune":
        return [*SEARCH_FILES, PRIVATE_FILE]
    own = [PARTY_FILE, PARTY_LOG, _REPORT_FILE] if purpose == "party" else [TRAINING_FILE]
    own.append(PRIVATE_FILE)
    with contextlib.suppress(tomllib.TOMLDecodeError):
        return [*own, *map(str, tomllib.loads(job).get("parties", {}))]
    return []


def _differing(stored: str, wanted: str) -> list[str]:
    """Return the keys that differ between two job files, as ``model.depth``."""
    try:
        mine, theirs = flat_keys(tomllib.loads(wanted)), flat_keys(tomllib.loads(stored))
    except tomllib.TOMLDecodeError:
        return [f"{JOB_FILE} is damaged; all keys"]
    return sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))


def _of_machine(key: str) -> bool:
    """Whether a key describes a party's machine, not the model: a run may resume with another value."""
    return key.startswith("network.") or key in ("encryption.workers", "encryption.memory_limit")


def _grows(key: str) -> bool:
    """Whether an audit may go on with another value: it has more to do, or the key changes no figure."""
    return key in ("attack", "defense", "run.seeds") or _of_machine(key)


def flat_keys(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of a job by key, with the names of the tables that hold it: ``model.kind``."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flat_keys(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
