"""Checkpoints: the state from which a party resumes an interrupted run, with the same final result.

A folder (mode 0700, files 0600) holds for each checkpoint ``NUMBER.lwc`` and its blocks ``NAME.lwb``. A checkpoint
file is ``magic``, the SHA-256 of its body, and the body: a MessagePack map with the format version, the number, the
identity of the run, the numbers of the peers, the SHA-256 of each block, and the state. Each file is written under
another name, flushed to disk and renamed, so a kill or a power cut leaves a complete file or none.

A checkpoint is as sensitive as the view: the active party's holds margins and training labels. It never
contains a private key; each attempt generates its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from labelward.errors import FileFormatError, InputError, OutputError

FORMAT: Final = 1
NOISE_FILE = "noise-drawn.json"
_MAGIC = b"labelward checkpoint\n"
_HASH = 32
_STATE, _BLOCK, _PARTIAL = ".lwc", ".lwb", ".partial"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")

T = TypeVar("T")


class _Stored(msgspec.Struct, frozen=True):
    """The body of a checkpoint file."""

    format: int
    number: int
    run: dict[str, str]
    peers: dict[str, int]
    blocks: dict[str, bytes]
    state: msgspec.Raw


class _Version(msgspec.Struct, frozen=True):
    format: int


@dataclass(frozen=True)
class _Known:
    """Index entry of an intact checkpoint."""

    peers: dict[str, int]
    blocks: dict[str, bytes]


class Checkpoints:
    """The checkpoints of one party in one run.

    Number 0 is the state before training. It is never removed; of the others, the newest ``keep`` are retained.

    Args:
        folder: created with the first checkpoint. None: nothing is stored or loaded.
        noise: record of drawn noise (:mod:`.noise_record`), outside the folder; by default beside it.
        keep: number of checkpoints to retain.
        run: identity of the run, by key, such as the shared job and a digest of the row ids.

    Attributes:
        run: as given.
        noise: where noise is recorded; None: nowhere.
        damaged: one sentence for each damaged file; these files are ignored.

    Raises:
        FileFormatError: a checkpoint is of another format version.
        InputError: the folder contains a checkpoint of another run; names the keys that differ.
        OutputError: the folder cannot be read.
    """

    def __init__(
        self, folder: Path | None, *, noise: Path | None = None, keep: int = 3, run: Mapping[str, str] | None = None
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1 but got {keep}")
        self.folder, self.keep, self.run = folder, keep, dict(run or {})
        self.noise = folder.parent / NOISE_FILE if folder and not noise else noise
        self.damaged: tuple[str, ...] = ()
        self._known: dict[int, _Known] = {}
        self._blocks: dict[str, bytes] = {}
        if folder is not None:
            try:
                self._scan(folder)
            except OSError as error:
                raise OutputError(
                    f"the checkpoints in {folder} cannot be read: {error.strerror}", code="unreadable", value=folder
                ) from error

    @property
    def kept(self) -> bool:
        """Whether checkpoints are stored; if not, no state needs to be assembled."""
        return self.folder is not None

    def save(
        self,
        number: int,
        state: msgspec.Struct,
        *,
        peers: Mapping[str, int] | None = None,
        blocks: Mapping[str, bytes] | None = None,
        keep: int | None = None,
    ) -> None:
        """Write a checkpoint; it is on disk when this returns.

        Args:
            number: progress of the party; larger than all numbers since :meth:`discard`.
            state: data that changes from checkpoint to checkpoint.
            peers: at the active party, the number that each peer has at this point.
            blocks: immutable data, such as a finished tree. The checkpoint has these and all blocks of the previous
                checkpoint.
            keep: number of checkpoints to retain this time.

        Raises:
            OutputError: the folder cannot be written, such as on a full disk; earlier checkpoints are intact.
        """
        if self.folder is None:
            return
        folder, added = self.folder, dict(blocks or {})
        for name in added:
            if not _NAME.fullmatch(name):
                raise ValueError(f"a block is named by lower-case letters, digits and hyphens, not {name!r}")
        known = _Known(dict(peers or {}), {**self._blocks, **{name: _digest(data) for name, data in added.items()}})
        encoded = msgspec.Raw(msgspec.msgpack.encode(state))
        body = msgspec.msgpack.encode(_Stored(FORMAT, number, self.run, known.peers, known.blocks, encoded))
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
            for name, data in added.items():
                _write(folder / f"{name}{_BLOCK}", data)
            _write(_path(folder, number), _MAGIC, _digest(body), body)
            _flush(folder)
            self._known[number], self._blocks = known, known.blocks
            newest = sorted(self._known)[-(keep or self.keep) :]
            self._forget([each for each in self._known if each and each not in newest])
        except OSError as error:
            raise OutputError(
                f"a checkpoint cannot be written to {folder}: {error.strerror}", code="unwritable", value=folder
            ) from error

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of all intact checkpoints, ascending."""
        return tuple(sorted(self._known))

    def load(self, number: int, kind: type[T]) -> tuple[T, Callable[[str], bytes]]:
        """Return a checkpoint's state and a function that reads its blocks by name.

        Raises:
            FileFormatError: the checkpoint or one of its blocks is missing or damaged; names the file.
        """
        if self.folder is None or number not in self._known:
            raise FileFormatError(f"there is no checkpoint {number} in {self.folder}", code="not-found", value=number)
        folder, known = self.folder, self._known[number]
        stored = _read(_path(folder, number))
        try:
            state = msgspec.msgpack.decode(stored.state, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise FileFormatError(
                f"a damaged checkpoint: {error}", code="damaged", field=str(_path(folder, number))
            ) from error

        def block(name: str) -> bytes:
            if name not in known.blocks:
                raise FileFormatError(
                    f"the checkpoint has no block {name!r}",
                    code="damaged",
                    field=str(_path(folder, number)),
                    value=name,
                )
            return _read_block(folder, name, known.blocks[name])

        return state, block

    def common(self, theirs: Mapping[str, tuple[int, ...]]) -> tuple[int, dict[str, int]] | None:
        """Return the newest checkpoint for which every peer has its counterpart, with the peers' numbers.

        Args:
            theirs: the numbers that each peer has; number 0, "from the start", all of them have.

        Returns:
            None if there is none: all parties start from the beginning.
        """
        for number in reversed(self.numbers()):
            peers = self._known[number].peers
            if all(each == 0 or each in theirs.get(peer, ()) for peer, each in peers.items()):
                return number, dict(peers)
        return None

    def discard(self, after: int | None) -> None:
        """Remove all checkpoints after a given one (None: all), since an attempt starts from it.

        Damaged files remain until they are overwritten or purged.

        Raises:
            FileFormatError: there is no such checkpoint.
            OutputError: a file cannot be removed.
        """
        if self.folder is None:
            return
        if after is not None and after not in self._known:
            raise FileFormatError(f"there is no checkpoint {after} in {self.folder}", code="not-found", value=after)
        self._blocks = self._known[after].blocks if after is not None else {}
        try:
            forgotten = [number for number in self._known if after is None or number > after]
            self._forget(forgotten)
            if forgotten:  # a power cut must not bring back what an earlier attempt wrote under these numbers
                _flush(self.folder)
        except OSError as error:
            raise OutputError(
                f"a checkpoint in {self.folder} cannot be removed: {error.strerror}",
                code="unwritable",
                value=self.folder,
            ) from error

    def purge(self) -> None:
        """Remove all checkpoints, damaged ones included, and the folder if it is then empty."""
        if self.folder is None:
            return
        self._known, self._blocks, self.damaged = {}, {}, ()
        try:
            for path in _files(self.folder, _STATE, _BLOCK, _PARTIAL):
                path.unlink()
            with contextlib.suppress(OSError):
                self.folder.rmdir()
        except OSError as error:
            raise OutputError(
                f"the checkpoints in {self.folder} cannot be removed: {error.strerror}",
                code="unwritable",
                value=self.folder,
            ) from error

    def _scan(self, folder: Path) -> None:
        """Index all checkpoints that are intact, including their blocks."""
        for path in _files(folder, _PARTIAL):
            path.unlink()
        broken: dict[tuple[str, bytes], str] = {}
        whole: set[tuple[str, bytes]] = set()
        for path in _files(folder, _STATE):
            try:
                stored = _read(path)
            except _DamageError as error:
                self.damaged = (*self.damaged, str(error))
                continue
            self._compare(path, stored)
            for named in stored.blocks.items():
                if named not in whole and named not in broken:
                    try:
                        _read_block(folder, *named)
                        whole.add(named)
                    except FileFormatError as error:
                        broken[named] = str(error)
            if not any(named in broken for named in stored.blocks.items()):
                self._known[stored.number] = _Known(stored.peers, stored.blocks)
        self.damaged = (*self.damaged, *broken.values())

    def _compare(self, path: Path, stored: _Stored) -> None:
        there, here = stored.run, self.run
        differing = sorted(key for key in there.keys() | here.keys() if there.get(key) != here.get(key))
        if differing:
            values = {key: (there.get(key, "absent"), here.get(key, "absent")) for key in differing}
            differences = "; ".join(f"{key} is {its} there and {own} here" for key, (its, own) in values.items())
            raise InputError(f"{path} is a checkpoint of another run: {differences}", code="other-run", value=values)

    def _forget(self, numbers: list[int]) -> None:
        """Remove checkpoints, and the blocks that no other checkpoint refers to."""
        assert self.folder is not None
        gone = {name for number in numbers for name in self._known.pop(number).blocks}
        for number in numbers:
            _path(self.folder, number).unlink(missing_ok=True)
        for name in gone - self._blocks.keys() - {name for known in self._known.values() for name in known.blocks}:
            (self.folder / f"{name}{_BLOCK}").unlink(missing_ok=True)


class _DamageError(FileFormatError):
    """A file whose content is not what was written."""


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}{_STATE}"


def _files(folder: Path, *suffixes: str) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


def _read(path: Path) -> _Stored:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _DamageError(
            f"the checkpoint cannot be read: {error.strerror}", code="unreadable", field=str(path)
        ) from error
    start = len(_MAGIC) + _HASH
    if not data.startswith(_MAGIC) or _digest(data[start:]) != data[len(_MAGIC) : start]:
        raise _DamageError("a damaged checkpoint (its checksum does not match)", code="damaged", field=str(path))
    try:
        version = msgspec.msgpack.decode(data[start:], type=_Version).format
        if version != FORMAT:
            raise FileFormatError(
                f"a checkpoint of format {version}; this version reads format {FORMAT}",
                code="format-version",
                field=str(path),
                value=version,
            )
        return msgspec.msgpack.decode(data[start:], type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _DamageError(f"a damaged checkpoint: {error}", code="damaged", field=str(path)) from error


def _read_block(folder: Path, name: str, digest: bytes) -> bytes:
    path = folder / f"{name}{_BLOCK}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _DamageError(
            f"a block of a checkpoint cannot be read: {error.strerror}", code="unreadable", field=str(path)
        ) from error
    if _digest(data) != digest:
        raise _DamageError(
            "a damaged block of a checkpoint (its checksum does not match)", code="damaged", field=str(path)
        )
    return data


def _write(path: Path, *parts: bytes) -> None:
    """Write a file atomically: complete, or not at all."""
    partial = path.with_name(path.name + _PARTIAL)
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def _flush(folder: Path) -> None:
    """Flush the directory entries of a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_durably(path: Path, *parts: bytes) -> None:
    """Write a file atomically; it is on disk, under its name, when this returns."""
    _write(path, *parts)
    _flush(path.parent)
