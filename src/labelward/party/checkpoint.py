"""Checkpoints: the state from which a party resumes an interrupted run, with the same final result.

A folder (mode 0700, files 0600) holds for each checkpoint ``NUMBER.lwc`` and its blocks ``NAME.lwb``. A checkpoint
file is ``magic``, the SHA-256 of its body, and the body: a MessagePack map with the format version, the number, the
identity of the run, the model, the numbers of the peers, the exchange with each of them, the position of the
transcript, a keyed digest of the party's inputs, a digest of validation and test rows, the SHA-256 of each block (drawn
noise among them), and the state. So the file is bound to one history, and two parties resume only from checkpoints of
equal exchanges (:mod:`.exchange`).
Each file is written under another name, flushed to disk and renamed, so a kill or a power cut leaves a complete file or
none.

A checkpoint is as sensitive as the view: the active party's holds margins and training labels. It never
contains a private key; each attempt generates its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from labelward.errors import FileFormatError, InputError, OutputError
from labelward.party.durable_files import PARTIAL, flush, write_complete
from labelward.party.exchange import Exchange

FORMAT: Final = 2
NOISE_FILE = "noise-drawn.json"
_MAGIC = b"labelward checkpoint\n"
_HASH = 32
_STATE, _BLOCK = ".lwc", ".lwb"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_NO_STATE: Final = msgspec.msgpack.encode({})

T = TypeVar("T")


class _Stored(msgspec.Struct, frozen=True):
    """The body of a checkpoint file."""

    format: int
    number: int
    run: dict[str, str]
    peers: dict[str, int]
    blocks: dict[str, bytes]
    state: msgspec.Raw
    exchanges: dict[str, Exchange]
    position: tuple[int, bytes] | None
    inputs: bytes
    model: str
    row_split: str = ""  # not in files of earlier states of 0.2.0

    @property
    def holds_nothing(self) -> bool:
        """Whether it is a beginning of which nothing would be lost."""
        return self.number == 0 and not self.blocks and bytes(self.state) == _NO_STATE


class _Version(msgspec.Struct, frozen=True):
    format: int


@dataclass(frozen=True)
class _Known:
    """Index entry of an intact checkpoint."""

    peers: dict[str, int]
    blocks: dict[str, bytes]
    exchanges: dict[str, Exchange]
    position: tuple[int, bytes] | None
    inputs: bytes
    model: str
    row_split: str

    def digest(self, peer: str) -> bytes:
        """Return the digest of the exchange with a peer; empty for none."""
        return self.exchanges[peer].digest if peer in self.exchanges else b""


class Checkpoints:
    """The checkpoints of one party in one run.

    Number 0 is the state before training. Of the others, the newest ``keep`` are retained. A number 0 without a state,
    as a passive party that drew nothing has it, binds nobody: where it is of another run, such as one with rows that
    another party refused, it is passed over, and replaced when a training begins. It binds the party's own table as
    soon as an attempt has told or learned more than greetings (:meth:`bind`).

    Args:
        folder: created with the first checkpoint. None: nothing is stored or loaded.
        noise: record of drawn noise (:mod:`.noise_record`), outside the folder; by default beside it.
        keep: number of checkpoints to retain.
        run: identity of the run, by key, such as the shared job and a digest of the row ids.

    Attributes:
        run: as given.
        noise: where noise is recorded; None: nowhere.
        damaged: one sentence for each damaged file; these files are ignored.
        model: identifier of the model that is trained, written to every checkpoint.
        row_split: digest of validation and test rows as the active party announced them, likewise.
        apart: whether this attempt begins with what was drawn before training, and a peer without what it had then.

    Raises:
        FileFormatError: a checkpoint is of another format version. Those of 0.1.0 have no history, and are refused.
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
        self.apart = False
        self.model, self.row_split, self._inputs = "", "", b""
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
        exchanges: Mapping[str, Exchange] | None = None,
        position: tuple[int, bytes] | None = None,
    ) -> None:
        """Write a checkpoint; it is on disk when this returns.

        Args:
            number: progress of the party; larger than all numbers since :meth:`discard`.
            state: data that changes from checkpoint to checkpoint.
            peers: at the active party, the number that each peer has at this point.
            blocks: immutable data, such as a finished tree. The checkpoint has these and all blocks of the previous
                checkpoint.
            keep: number of checkpoints to retain this time.
            exchanges: with each peer, up to this checkpoint.
            position: of the transcript, flushed to disk.

        Raises:
            OutputError: the folder cannot be written, such as on a full disk; earlier checkpoints are intact.
        """
        if self.folder is None:
            return
        folder, added = self.folder, dict(blocks or {})
        for name in added:
            if not _NAME.fullmatch(name):
                raise ValueError(f"a block is named by lower-case letters, digits and hyphens, not {name!r}")
        known = _Known(
            peers=dict(peers or {}),
            blocks={**self._blocks, **{name: _digest(data) for name, data in added.items()}},
            exchanges=dict(exchanges or {}),
            position=position,
            inputs=self._inputs,
            model=self.model,
            row_split=self.row_split,
        )
        encoded = msgspec.Raw(msgspec.msgpack.encode(state))
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
            for name, data in added.items():
                write_complete(folder / f"{name}{_BLOCK}", data)
            self._put(number, known, encoded)
            self._blocks = known.blocks
            newest = sorted(self._known)[-(keep or self.keep) :]
            self._forget([each for each in self._known if each and each not in newest])
        except OSError as error:
            raise OutputError(
                f"a checkpoint cannot be written to {folder}: {error.strerror}", code="unwritable", value=folder
            ) from error

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of all intact checkpoints, ascending."""
        return tuple(sorted(self._known))

    @property
    def progress(self) -> int:
        """The largest number; 0 where nothing is lost by a new start."""
        return max(self._known, default=0)

    @property
    def position(self) -> tuple[int, bytes] | None:
        """The last position of the transcript that a checkpoint names."""
        return max((known.position for known in self._known.values() if known.position), default=None)

    def digests(self, peer: str) -> tuple[bytes, ...]:
        """Return the digest of the exchange with a peer, for each of :meth:`numbers`."""
        return tuple(self._known[number].digest(peer) for number in self.numbers())

    def exchange(self, number: int, peer: str) -> Exchange:
        """Return the exchange with a peer up to a checkpoint."""
        return self._known[number].exchanges[peer]

    def has_row_split(self, number: int) -> bool:
        """Return whether a checkpoint is of the present ``row_split``; those of earlier versions do not say."""
        return self._known[number].row_split in ("", self.row_split)

    def bind(self, inputs: bytes, begun: Callable[[], bool] = lambda: True) -> None:
        """Set the digest of the party's own columns and labels, for itself alone: it never leaves the party.

        Args:
            inputs: keyed with a secret of the party.
            begun: whether an earlier attempt has told or learned more than greetings; else a number 0 without a state
                binds no table.

        Raises:
            InputError: a checkpoint was written with other columns or labels.
            FileFormatError: checkpoint 0 is damaged.
            OutputError: the folder cannot be written.
        """
        self._inputs = inputs
        for number, known in self._known.items():
            if known.inputs and not hmac.compare_digest(known.inputs, inputs) and not self._is_free(number, begun):
                raise InputError(
                    "this party's columns or labels changed since the training began; restore the table, or start over "
                    "with --force",
                    code="other-run",
                    field=str(self.folder),
                    value=number,
                )
        self._change_first(inputs=inputs)

    def _is_free(self, number: int, begun: Callable[[], bool]) -> bool:
        """Whether a checkpoint is a beginning that binds no table."""
        return not number and self.folder is not None and _read(_path(self.folder, 0)).holds_nothing and not begun()

    def name_model(self, model: str, resume: int | None) -> None:
        """Set the model's identifier; InputError where the checkpoint to resume from is of another model."""
        self.model = model
        known = self._known.get(resume or 0)
        if known and known.model not in ("", model):
            raise InputError(
                f"this party's checkpoint {resume} is of model {known.model}, not of {model}",
                code="other-run",
                field=str(self.folder),
                value=known.model,
            )

    def begin(self, state: msgspec.Struct, exchanges: Mapping[str, Exchange]) -> None:
        """Begin a training anew, at a passive party: with what it drew before training, or with ``state``."""
        if 0 in self._known:
            self.restart()
            self.rebind(exchanges)
        else:
            self.discard(None)
            self.save(0, state, exchanges=exchanges)

    def rebind(self, exchanges: Mapping[str, Exchange]) -> None:
        """Give checkpoint 0 the exchanges of a new beginning; what was drawn before training stays as it is.

        Raises:
            FileFormatError: it is damaged.
            OutputError: the folder cannot be written.
        """
        self.apart = 0 in self._known
        self._change_first(exchanges=dict(exchanges), row_split=self.row_split)

    def _change_first(self, **changes: Any) -> None:
        """Change what checkpoint 0 says besides its state; nothing where it says so already, or where it is none."""
        if self.folder is None or 0 not in self._known:
            return
        known = replace(self._known[0], **changes)
        if known == self._known[0]:
            return
        try:
            self._put(0, known, _read(_path(self.folder, 0)).state)
        except OSError as error:
            raise OutputError(
                f"a checkpoint cannot be written to {self.folder}: {error.strerror}",
                code="unwritable",
                value=self.folder,
            ) from error

    def load(self, number: int, kind: type[T]) -> tuple[T, Callable[[str], bytes]]:
        """Return a checkpoint's state and a function that reads its blocks by name.

        Raises:
            FileFormatError: the checkpoint or one of its blocks is missing or damaged; names the file.
        """
        if self.folder is None or number not in self._known:
            raise FileFormatError(f"there is no checkpoint {number} in {self.folder}", code="not-found", value=number)
        folder, known = self.folder, self._known[number]
        stored = _read(_path(folder, number))
        state = decode_stored(stored.state, kind, _path(folder, number))

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

    def common(self, theirs: Mapping[str, Mapping[int, bytes]]) -> tuple[int, dict[str, int]] | None:
        """Return the newest checkpoint for which every peer has its counterpart, with the peers' numbers.

        Args:
            theirs: the numbers that each peer has, with the digests of the exchange.

        Returns:
            None if there is none.
        """
        for number in reversed(self.numbers()):
            known = self._known[number]
            if all(theirs.get(peer, {}).get(each) == known.digest(peer) for peer, each in known.peers.items()):
                return number, dict(known.peers)
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
                flush(self.folder)
        except OSError as error:
            raise OutputError(
                f"a checkpoint in {self.folder} cannot be removed: {error.strerror}",
                code="unwritable",
                value=self.folder,
            ) from error

    def restart(self) -> None:
        """Remove all checkpoints but number 0, what was drawn before training: the next attempt begins there.

        Raises:
            OutputError: a file cannot be removed.
        """
        self.discard(0 if 0 in self._known else None)

    def purge(self) -> None:
        """Remove all checkpoints, damaged ones included, and the folder if it is then empty."""
        if self.folder is None:
            return
        self._known, self._blocks, self.damaged = {}, {}, ()
        try:
            for path in _files(self.folder, _STATE, _BLOCK, PARTIAL):
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
        for path in _files(folder, PARTIAL):
            path.unlink()
        broken: dict[tuple[str, bytes], str] = {}
        whole: set[tuple[str, bytes]] = set()
        for path in _files(folder, _STATE):
            try:
                stored = _read(path)
            except _DamageError as error:
                self.damaged = (*self.damaged, str(error))
                continue
            if stored.holds_nothing and stored.run != self.run:
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
                self._known[stored.number] = _Known(
                    **{name: getattr(stored, name) for name in _Known.__dataclass_fields__}
                )
        self.damaged = (*self.damaged, *broken.values())

    def _put(self, number: int, known: _Known, state: msgspec.Raw) -> None:
        """Write a checkpoint whose blocks are on disk."""
        assert self.folder is not None
        body = msgspec.msgpack.encode(_Stored(format=FORMAT, number=number, run=self.run, state=state, **vars(known)))
        write_complete(_path(self.folder, number), _MAGIC, _digest(body), body)
        flush(self.folder)
        self._known[number] = known

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


class RememberedStates(Checkpoints):
    """The states of a party between rounds, in memory: nothing is resumed from them.

    Attributes:
        states: by number.
    """

    def __init__(self) -> None:
        super().__init__(None)
        self.states: dict[int, msgspec.Struct] = {}

    @property
    def kept(self) -> bool:
        """States are stored."""
        return True

    def save(self, number: int, state: msgspec.Struct, **rest: Any) -> None:
        """Remember a state."""
        self.states[number] = state


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
                f"a checkpoint of format {version}; this version reads format {FORMAT}, so the run cannot be resumed: "
                "start over with --force, or finish it with the version that began it",
                code="format-version",
                field=str(path),
                value=version,
            )
        stored = msgspec.msgpack.decode(data[start:], type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _DamageError(f"a damaged checkpoint: {error}", code="damaged", field=str(path)) from error
    if not all(map(_NAME.fullmatch, stored.blocks)):
        raise _DamageError("a damaged checkpoint: a block has no name", code="damaged", field=str(path))
    return stored


def decode_stored(data: bytes, kind: type[T], place: Path | None) -> T:
    """Decode a state or a block of a checkpoint; :class:`FileFormatError` names its file or folder."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"a damaged checkpoint: {error}", code="damaged", field=str(place)) from error


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
