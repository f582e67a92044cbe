"""Views and checkpoints of a run removed, with a record of what was there; models, results and tables stay."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from labelward.errors import InputError
from labelward.party.purge_record import PURGED_FILE, Purge, PurgedFile, encode_purges, read_purges
from labelward.party.transcript import FILE_NAME
from labelward.runs.directory import JOB_FILE
from labelward.runs.secure_files import atomic_write, directory_lock, output_errors

_MARKER = b"# Written by labelward "
_TRANSCRIPT_MAGIC = b"labelward transcript\n"
_CHECKPOINT_ENDINGS = (".lwc", ".lwb", ".partial")
_STUDY_FILE = "study.json"
_BLOCK = 1 << 20

Kind = Literal["view", "checkpoint"]


@dataclass(frozen=True, kw_only=True)
class PurgeTarget:
    """A folder of a view or of checkpoints that holds something.

    Attributes:
        files: what would be removed.
        size: of all of them, in bytes.
    """

    folder: Path
    kind: Kind
    files: tuple[Path, ...]
    size: int


def enclosing_run(path: Path) -> Path | None:
    """Return the folder of a run in which a path lies, or which it is; None outside of all."""
    path = path.resolve()
    for folder in (path, *path.parents):
        with contextlib.suppress(OSError):
            if _begins(folder / JOB_FILE, _MARKER):
                return folder
    return None


def find_purgeable(folder: Path, kinds: Sequence[Kind] = ("view", "checkpoint")) -> list[PurgeTarget]:
    """Return the views and checkpoints in a folder: of a run or a study, of one party in it, or of a view alone.

    Raises:
        InputError: labelward did not write the folder, or something strange lies among what would be removed.
    """
    if not folder.is_dir():
        raise InputError(
            f"{'is a file' if folder.exists() else 'no such folder'}; the folder of a run is wanted",
            code="not-found",
            field=str(folder),
        )
    if enclosing_run(folder) is None and not _is_view(folder) and not (folder / _STUDY_FILE).is_file():
        raise InputError(
            "is no folder of a run that labelward wrote; nothing is removed", code="foreign", field=str(folder)
        )
    places = [folder] if _is_view(folder) else [folder, *sorted(folder.rglob("*"))]
    found = []
    for place in places:
        if place.is_symlink() and place != folder and place.name in kinds and place.is_dir():
            raise InputError("is a link; purge the folder to which it leads", code="foreign", field=str(place))
        for kind in kinds:
            if place.is_dir() and not place.is_symlink() and (files := _files(place, kind)):
                size = sum(path.stat().st_size for path in files)
                found.append(PurgeTarget(folder=place, kind=kind, files=files, size=size))
    return found


def purge_targets(found: Sequence[PurgeTarget]) -> None:
    """Remove what :func:`find_purgeable` found, and leave a ``purged.json`` in each place.

    The record is written before anything is removed: what is missing is always accounted for.

    Raises:
        OutputError: a run is going on there, or something cannot be removed.
    """
    with contextlib.ExitStack() as stack:
        for run in sorted({run for kept in found if (run := enclosing_run(kept.folder))}):
            stack.enter_context(directory_lock(run))
        for kept in found:
            _purge(kept)


def _purge(kept: PurgeTarget) -> None:
    with output_errors(kept.folder):
        gone = tuple(
            PurgedFile(name=path.name, bytes=path.stat().st_size, sha256=_digest(path) if kept.kind == "view" else "")
            for path in kept.files
        )
        time = datetime.now(UTC).isoformat(timespec="seconds")
        now = Purge(time=time, version=version("labelward"), files=gone)
        with atomic_write(kept.folder / PURGED_FILE) as file:
            file.write(encode_purges((*read_purges(kept.folder), now)))
        for path in kept.files:
            path.unlink(missing_ok=True)
        descriptor = os.open(kept.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _files(folder: Path, kind: Kind) -> tuple[Path, ...]:
    """Return what a folder holds of a kind, nothing where it is no such folder; refuse what else lies in it."""
    if kind == "view":
        ours = (folder / FILE_NAME).is_file()
    else:
        ours = folder.name == kind and any(path.suffix in _CHECKPOINT_ENDINGS[:2] for path in _plain(folder))
    if not ours:
        return ()
    entries = sorted(path for path in folder.iterdir() if path.name != PURGED_FILE)
    for path in entries:
        known = path.name == FILE_NAME if kind == "view" else path.suffix in _CHECKPOINT_ENDINGS
        if not known or path.is_symlink() or not path.is_file():
            raise InputError(
                f"holds {path.name!r}, which labelward did not write; nothing is removed",
                code="foreign",
                field=str(folder),
                value=path.name,
            )
    return tuple(entries)


def _plain(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.is_file())


def _is_view(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return _begins(folder / FILE_NAME, _TRANSCRIPT_MAGIC)
    return False


def _begins(path: Path, start: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(start)) == start


def _digest(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()
