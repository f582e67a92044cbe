"""What is fuzzed: everything that a peer, a disk or a user hands to the package.

A target takes bytes and says whether they were accepted. It raises where something is accepted that differs from what
was written, or where anything but the package's own errors is raised: :func:`check` lets these alone pass.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import seeds

from labelward.data.tables import read_ids, read_table
from labelward.errors import DataNote, LabelwardError
from labelward.federation.components import model_family
from labelward.job import ComponentSpec, parse_job
from labelward.messages import codec
from labelward.messages.base import Array, Released, RowMask
from labelward.party import transcript
from labelward.party.checkpoint import Checkpoints
from labelward.party.exchange import Exchange
from labelward.party.view import View
from labelward.transport.grpc import envelope, session_handshake, session_records

SCRATCH = "LABELWARD_FUZZ_SCRATCH"
"""Variable that names a folder for files, which its maker removes: atheris ends a process without a word."""
LARGEST = 1 << 14
"""Bytes of an input."""


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
        seeds: valid inputs.
        feed: takes an input; returns whether it was accepted.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    feed: Callable[[bytes], bool]


def check(target: Target, data: bytes) -> bool:
    """Return whether an input is accepted; the package's own errors refuse it."""
    try:
        return target.feed(data)
    except LabelwardError as error:
        refusal = str(error)
    assert len(refusal) < 10_000, "an error repeats its input"
    return False


@cache
def scratch() -> Path:
    """Return a folder in memory, for readers of files; it is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="labelward-fuzz-", dir=os.environ.get(SCRATCH) or memory()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def memory() -> Path | None:
    """Return the place of files in memory; None where there is none."""
    place = Path("/dev/shm")
    return place if place.is_dir() else None


# -- what peers send ---------------------------------------------------------------------------------------------------


def _frames() -> list[bytes]:
    return [codec.encode(each, (0, 1)) for each in seeds.messages()]


def _frame(data: bytes) -> bool:
    message, _ = codec.decode(data)
    again = codec.encode_fields(message)
    name = codec.first_text(memoryview(data)[3:])
    assert codec.encode_fields(codec.decode_fields(name, again)) == again, "another message after a round trip"
    stored = codec.encode_fields(codec.redacted(message, bulk=True))
    assert codec.encode_fields(codec.decode_fields(name, stored)) == stored, "another record in the view"
    assert codec.decoded_size(data) >= len(data)
    for value in _values(message):
        _unpack(value)
    return True


def _values(value: Any) -> Iterator[RowMask | Array]:
    if isinstance(value, Released):
        value = value.value
    if isinstance(value, RowMask | Array):
        yield value
    elif isinstance(value, tuple):
        for each in value[:100]:
            yield from _values(each)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _values(getattr(value, name))


def _unpack(value: RowMask | Array) -> None:
    """Unpack as a party does: masks of the rows that it expects, arrays whose size it has looked at."""
    try:
        if isinstance(value, Array):
            value.unpack()
        elif 0 <= value.total <= 1 << 16:
            mask = value.unpack(value.total)
            assert np.array_equal(RowMask.pack(mask).unpack(value.total), mask)
    except LabelwardError:
        pass


def _records() -> list[bytes]:
    notes = [
        session_records.AttemptReady(1, True),
        session_records.AttemptCall("a", "b"),
        session_records.AttemptBegin(bytes(16), {"a": bytes(16)}),
        session_records.AttemptEnd(bytes(16)),
        session_records.RunFailed(bytes(16), "a", "b"),
        session_records.ShareSaved(),
        session_records.RunFinished(),
        session_records.EndAcknowledged(),
    ]
    frame = memoryview(_frames()[0])
    attempt = bytes(session_records.ATTEMPT)
    chunks = [
        session_records.chunk_record(attempt, frame, total=len(frame), last=True),
        session_records.chunk_record(attempt, frame[:9], total=len(frame), last=False),
        session_records.chunk_record(attempt, frame[9:], total=None, last=True),
    ]
    singles = [*map(session_records.note_record, notes), *chunks]
    return [*(seeds.joined([each]) for each in singles), seeds.joined(chunks[1:]), seeds.joined(singles)]


def _record(data: bytes) -> bool:
    """Several records in a row, whose chunks one assembler joins."""
    assembler = session_records.Assembler(1 << 20, codec.frame_limit)
    accepted = False
    for raw in seeds.pieces(data):
        record = session_records.decode_record(raw)
        if isinstance(record, session_records.Chunk):
            total = record.total if record.first else None
            again = session_records.chunk_record(record.attempt, record.data, total=total, last=record.last)
            assert again == raw, "another chunk"
            frame = assembler.feed(record)
            assert frame is None or len(frame) <= 1 << 20
        else:
            again = session_records.note_record(record)
            assert session_records.decode_record(again) == record, "another note"
        accepted = True
    return accepted


def _envelopes() -> list[bytes]:
    kinds = (envelope.HELLO, envelope.DATA, envelope.CONTROL, envelope.REFUSAL, envelope.ABSENT)
    made = [envelope.pack_envelope(kind, "bank", "telco", b"payload") for kind in kinds]
    return [*made, envelope.pack_envelope(envelope.WELCOME, "relay", "telco"), *_greetings()]


def _greetings() -> list[bytes]:
    identity = session_handshake.ProcessIdentity(
        session_handshake.VERSION, "train", "bank", "telco", bytes(16), bytes(32), (b"certificate",)
    )
    core = session_handshake.encode_greeting(identity)
    hello = session_handshake.encode_greeting(session_handshake.Greeting(core, bytes(32), bytes(64), True, 1.0))
    return [envelope.pack_envelope(envelope.HELLO, "bank", "telco", each) for each in (hello, core)]


def _envelope(data: bytes) -> bool:
    read = envelope.unpack_envelope(data)
    again = envelope.pack_envelope(read.kind, read.source, read.target, bytes(read.payload))
    assert again == data, "another envelope"
    if read.kind == envelope.HELLO:
        for kind in (session_handshake.Greeting, session_handshake.ProcessIdentity):
            _greeting(read.payload, kind)
    return True


def _greeting(payload: memoryview, kind: Any) -> None:
    try:
        hello = session_handshake.decode_greeting(payload, kind)
        encoded = session_handshake.encode_greeting(hello)
        assert session_handshake.encode_greeting(session_handshake.decode_greeting(encoded, kind)) == encoded
        if isinstance(hello, session_handshake.ProcessIdentity):
            hello.check(run="train", source="bank", target="telco")
    except LabelwardError:
        pass


# -- what lies on a disk -----------------------------------------------------------------------------------------------
# The first byte of these inputs says whether checksums are made to fit: else nothing behind them would be reached.


class _State(msgspec.Struct, frozen=True):
    trees: int
    rows: tuple[float, ...]


_MAGIC, _HASH = len(b"labelward checkpoint\n"), 32
_SAVED = _State(3, (0.5, -1.0))


@cache
def _checkpoint_folder() -> Path:
    folder = scratch() / "checkpoint"
    kept = Checkpoints(folder, run={"job": "1"})
    exchange = Exchange.begin(b"nonce", "telco", (b"terms",))
    for number in (0, 3):
        kept.save(
            number, _SAVED, peers={"telco": number}, blocks={f"trees-{number}": b"block"}, exchanges={"telco": exchange}
        )
    return folder


def _checkpoints() -> list[bytes]:
    whole = (_checkpoint_folder() / "000003.lwc").read_bytes()
    nested = whole[: _MAGIC + _HASH] + seeds.NESTED
    return [flag + each for flag in (b"\0", b"\1") for each in (whole, nested)]


def _checkpoint(data: bytes) -> bool:
    folder, resealed = _checkpoint_folder(), data[:1] == b"\1"
    path = folder / "000003.lwc"
    kept = path.read_bytes()
    body = data[1:]
    if resealed:
        body = body[:_MAGIC] + hashlib.sha256(body[_MAGIC + _HASH :]).digest() + body[_MAGIC + _HASH :]
    try:
        path.write_bytes(body)
        read = Checkpoints(folder, run={"job": "1"})
        read.digests("telco")
        if 3 not in read.numbers():
            return False
        state, block = read.load(3, _State)
        if not resealed:
            assert (state, block("trees-3")) == (_SAVED, b"block"), "another state"
        return True
    finally:
        path.write_bytes(kept)


@cache
def _view_entries(file: Path) -> tuple[transcript.TranscriptEntry, ...]:
    """Return the records of a view, of one that was cut off those before the cut."""
    entries = []
    with contextlib.suppress(LabelwardError):
        for entry in transcript.read_entries(file):
            entries.append(entry)
    return tuple(entries)


def _view_files() -> list[Path]:
    found = [each for each in seeds.ASSETS.glob("*/*/view/transcript.lwt") if each.stat().st_size < LARGEST]
    assert found
    return sorted(found)


def _views() -> list[bytes]:
    whole = [b"\0" + each.read_bytes() for each in _view_files()]
    parts = [[msgspec.msgpack.encode(entry) for entry in _view_entries(each)][:40] for each in _view_files()]
    header = parts[0][0]
    known = [
        msgspec.msgpack.encode(transcript.TranscriptEntry("received", "a", codec.wire_name(type(each)), (0,), body))
        for each in (*seeds.messages(), *seeds.observations())
        for body in [codec.encode_fields(each)]
    ]
    deep = transcript.TranscriptEntry("header", "", "Header", (), seeds.NESTED)
    resealed = [*parts, [header, *known[:20]], [header, *known[20:]], [msgspec.msgpack.encode(deep)]]
    return [*whole, *(b"\1" + seeds.joined(each) for each in resealed)]


def _view(data: bytes) -> bool:
    path, resealed = scratch() / "transcript.lwt", data[:1] == b"\1"
    path.write_bytes(_chained(data[1:]) if resealed else data[1:])
    view = View.load(path)
    if not resealed:
        read = tuple(transcript.read_entries(path))
        known = (_view_entries(each)[: len(read)] for each in _view_files())
        assert read in known, "records that were not written"
    _ = view.counts(), view.attempts, view.ended, view.digest(), view.exchanges(), list(view.applied())
    return True


def _chained(data: bytes) -> bytes:
    """Return a transcript of these bodies, with the hashes that belong to them."""
    chain, content = bytes(32), b"labelward transcript\n"
    for body in seeds.pieces(data):
        chain = hashlib.sha256(chain + body).digest()
        content += len(body).to_bytes(4, "little") + body + chain
    return content


@cache
def _share_of(kind: str) -> bytes:
    """Return the stored share of a model of some kind, with the number of the kind before it."""
    files = {"secureboost": "model/active/model/share.json", "splitnn": "net/telco/model/share.lwn"}
    if kind in files:
        return (seeds.ASSETS / files[kind]).read_bytes()
    from labelward.protocols.logistic.share import LogisticShare
    from labelward.protocols.pivodl.share import PivodlShare
    from labelward.protocols.pivot.share import PivotShare

    kinds: dict[str, type[Any]] = {"pivodl": PivodlShare, "pivot": PivotShare, "logistic": LogisticShare}
    made: PivodlShare | PivotShare | LogisticShare = seeds.make(kinds[kind])
    return made.save(scratch() / f"made-{kind}").read_bytes()


SHARES = {
    "secureboost": "share.json",
    "splitnn": "share.lwn",
    "pivodl": "share.json",
    "pivot": "share.json",
    "logistic": "share.json",
}
"""Kind of model → file of its share."""
_KINDS = tuple(SHARES)


def _shares() -> list[bytes]:
    whole = [bytes((number,)) + _share_of(kind) for number, kind in enumerate(_KINDS)]
    nested = [bytes((number,)) + b"[" * 3000 for number in (2, 3, 4)]
    return [*whole, b"\0" + b'{"sha256":"","share":' + b"[" * 3000, *nested]


def _share(data: bytes) -> bool:
    number = data[0] % len(_KINDS) if data else 0
    folder = scratch() / f"share-{_KINDS[number]}"
    folder.mkdir(exist_ok=True)
    path = folder / SHARES[_KINDS[number]]
    path.write_bytes(data[1:])
    family = model_family(ComponentSpec(_KINDS[number]))
    share = family.load(folder)
    # a fuzzer that sees what is compared can work out the checksum, which is no signature, of other content
    same = share == _whole_share(number) or _checksum(data[1:]) != _checksum(_share_of(_KINDS[number]))
    assert same, "another share"
    return True


class _Stated(msgspec.Struct):
    sha256: str


def _checksum(share: bytes) -> object:
    """Return the SHA-256 that a share's file states; fields that nobody reads may be no text."""
    magic, line, rest = share.partition(b"\n")
    return rest[:32] if line and b"{" not in magic else msgspec.json.decode(share, type=_Stated).sha256


@cache
def _whole_share(number: int) -> Any:
    folder = scratch() / f"whole{number}"
    folder.mkdir()
    (folder / SHARES[_KINDS[number]]).write_bytes(_share_of(_KINDS[number]))
    return model_family(ComponentSpec(_KINDS[number])).load(folder)


# -- what users write --------------------------------------------------------------------------------------------------


def _jobs() -> list[bytes]:
    root = Path(__file__).parents[2]
    files = [*root.glob("examples/*.toml"), *root.glob("examples/two-companies/*/job.toml")]
    files += [*root.glob("examples/reference/*.toml"), *root.glob("src/labelward/job/template.toml")]
    return [each.read_bytes() for each in sorted(files)] + [b"a = " + b"[" * 3000, b"[a" + b".a" * 3000 + b"]"]


def _job(data: bytes) -> bool:
    job = parse_job(data.decode(errors="replace"))
    assert parse_job(job.to_toml()).shared() == job.shared(), "another job"
    return True


def _tables() -> list[bytes]:
    text = b"id,age,name\n001,3.5,a\n002,,b\n003,7,\n"
    path = scratch() / "seed.parquet"
    import pyarrow as pa
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({"id": ["1", "2"], "age": [1.0, None]}), path)
    quoted = b'id,"a ""b"""\n1,"x\ny"\n'
    return [b"\0" + text, b"\0" + quoted, b"\0\xef\xbb\xbf" + text, b"\1" + path.read_bytes()]


def _table(data: bytes) -> bool:
    parquet = data[:1] == b"\1"
    path = scratch() / ("table.parquet" if parquet else "table.csv")
    path.write_bytes(data[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataNote)  # what was recognized is said, and is no fault
        table = read_table(path, text=["id"])
    ids = read_ids(table, "id", "table")
    assert len(ids) == table.num_rows > 0
    assert len({*ids.tolist()}) == len(ids), "ids that repeat"
    return True


TARGETS = {
    each.name: each
    for each in (
        Target("codec", _frames, _frame),
        Target("records", _records, _record),
        Target("envelopes", _envelopes, _envelope),
        Target("checkpoints", _checkpoints, _checkpoint),
        Target("views", _views, _view),
        Target("shares", _shares, _share),
        Target("jobs", _jobs, _job),
        Target("tables", _tables, _table),
    )
}
