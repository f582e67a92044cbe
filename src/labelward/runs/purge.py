"""Purge: removal of a run's views and checkpoints, with a record; models, results and tables remain."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from labelward.errors import InputError
from labelward.installation import version
from labelward.party.durable_files import flush
from labelward.party.purge_record import PURGED_FILE, Purge, PurgedFile, encode_purges, read_purges
from labelward.party.transcript import FILE_NAME
from labelward.runs.directory import JOB_FILE
from labelward.runs.secure_files import directory_lock, output_errors, write_bytes

_MARKER = b"# Written by labelward "
_TRANSCRIPT_MAGIC = b"labelward transcript\n"
_CHECKPOINT_ENDINGS = (".lwc", ".lwb", ".partial")
_STUDY_FILE = "study.json"
_BLOCK = 1 << 20

Kind = Literal["view", "checkpoint"]


@dataclass(frozen=True, kw_only=True)
class PurgeTarget:
    """A nonempty folder of a view or of checkpoints.

    Attributes:
        files: files to remove.
        size: total size in bytes.
    """

    folder: Path
    kind: Kind
    files: tuple[Path, ...]
    size: int


def enclosing_run(path: Path) -> Path | None:
    """Return the folder of the run that contains a path or is the path; None if there is none."""
    path = path.resolve()
    for folder in (path, *path.parents):
        with contextlib.suppress(OSError):
            if _begins(folder / JOB_FILE, _MARKER):
                return folder
    return None


def find_purgeable(folder: Path, kinds: Sequence[Kind] = ("view", "checkpoint")) -> list[PurgeTarget]:
    """Return the views and checkpoints in a folder: of a run or a study, of one party in it, or of a view alone.

    Raises:
        InputError: labelward did not write the folder, or there are foreign files among those to remove, or a link
            leads to some.
    """
    if not folder.is_dir():
        raise InputError(
            f"{'is a file' if folder.exists() else 'no such folder'}; expected the folder of a run",
            code="not-found",
            field=str(folder),
        )
    if enclosing_run(folder) is None and not _is_view(folder) and not (folder / _STUDY_FILE).is_file():
        raise InputError(
            "is not a folder of a run that labelward wrote; nothing was removed", code="foreign", field=str(folder)
        )
    places = [folder] if _is_view(folder) else [folder, *sorted(folder.rglob("*"))]
    targets = []
    for place in places:
        if place.is_symlink() and place != folder and place.is_dir() and _leads_to(place, kinds):
            reason = "is a link to views or checkpoints; put the folder there, or remove by hand what it points to"
            raise InputError(reason, code="foreign", field=str(place))
        for kind in kinds:
            if place.is_dir() and not place.is_symlink() and (files := _files(place, kind)):
                size = sum(path.stat().st_size for path in files)
                targets.append(PurgeTarget(folder=place, kind=kind, files=files, size=size))
    return targets


def purge_targets(found: Sequence[PurgeTarget]) -> None:
    """Remove the targets found by :func:`find_purgeable`, leaving a ``purged.json`` in each folder.

    The record is written before anything is removed, so every missing file is accounted for.

    Raises:
        OutputError: a run is in progress in the folder, or a file cannot be removed.
    """
    with contextlib.ExitStack() as stack:
        for run in sorted({run for target in found if (run := enclosing_run(target.folder))}):
            stack.enter_context(directory_lock(run))
        for target in found:
            _purge(target)


def _purge(target: PurgeTarget) -> None:
    with output_errors(target.folder):
        gone = tuple(
            PurgedFile(name=path.name, bytes=path.stat().st_size, sha256=_digest(path) if target.kind == "view" else "")
            for path in target.files
        )
        time = datetime.now(UTC).isoformat(timespec="seconds")
        now = Purge(time=time, version=version("labelward"), files=gone)
        write_bytes(target.folder / PURGED_FILE, encode_purges((*read_purges(target.folder), now)))
        for path in target.files:
            path.unlink(missing_ok=True)
        flush(target.folder)


def _files(folder: Path, kind: Kind) -> tuple[Path, ...]:
    """Return the files of a kind in a folder, empty if it is no such folder; refuse foreign files in it."""
    if kind == "view":
        ours = (folder / FILE_NAME).is_file()
    else:
        ours = folder.name == kind and any(path.suffix in _CHECKPOINT_ENDINGS for path in _plain(folder))
    if not ours:
        return ()
    entries = sorted(path for path in folder.iterdir() if path.name != PURGED_FILE)
    for path in entries:
        known = path.name == FILE_NAME if kind == "view" else path.suffix in _CHECKPOINT_ENDINGS
        if not known or path.is_symlink() or not path.is_file():
            raise InputError(
                f"contains {path.name!r}, which labelward did not write; nothing was removed",
                code="foreign",
                field=str(folder),
                value=path.name,
            )
    return tuple(entries)


def _leads_to(link: Path, kinds: Sequence[Kind]) -> bool:
    """Return whether a link is a view or checkpoints, or leads to a folder that holds some."""
    return link.name in kinds or any(path.name in kinds and path.is_dir() for path in link.resolve().rglob("*"))


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
