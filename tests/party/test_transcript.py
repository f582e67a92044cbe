"""What is kept is found again or named as damaged: the hash chain, format versions, modes of files, the digest."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelward.errors import Code, FileFormatError, OutputError
from labelward.he.base import Layout
from labelward.messages.base import Array, CipherDigest, RowMask, wire_name
from labelward.messages.codec import encode_fields
from labelward.messages.handshake import Hello, RowIdDigests
from labelward.messages.tree import DecryptedSums, LevelHistograms, OwnSplit, TrainingEnd
from labelward.party.transcript import FILE_NAME, Header, Transcript, ids_digest, read_entries
from labelward.party.view import View
from refusals import refused

HEADER = Header(1, "test", "left", "passive", ("active",), (3, 1), "plain", 0, ("plain engine",), {"model.trees": "5"})
MAGIC = b"labelward transcript\n"


def fill(transcript: Transcript) -> Transcript:
    """Some records of each kind."""
    for step in range(3):
        transcript.append("received", "active", "TrainingEnd", (step,), encode_fields(TrainingEnd(step, 0)))
        transcript.append("sent", "active", "Ready", (step,), (40).to_bytes(8, "little"))
    seen = OwnSplit(0, 0, "c", 0.5, 0, RowMask(3, "bits", b"\x05"))
    transcript.append("observed", "left", "OwnSplit", (), encode_fields(seen))
    transcript.append("applied", "left", "Policy", (), msgspec.msgpack.encode({"kind": "none"}))
    transcript.close(complete=True)
    return transcript


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "view"
    fill(Transcript(HEADER, folder))
    return folder


def records(data: bytes) -> list[bytes]:
    """Cut a file into its records, hashes included."""
    found, position = [], len(MAGIC)
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "little") + 32
        found.append(data[position:end])
        position = end
    return found


def loaded(tmp: Path, data: bytes) -> View:
    tmp.write_bytes(data)
    return View.load(tmp)


def test_stored_and_in_memory_views_are_equal(stored: Path) -> None:
    memory = fill(Transcript(HEADER))
    view, other = View.load(stored), View(memory.header, memory.entries[1:])
    assert list(view.content()) == list(other.content())
    assert view.digest() == other.digest()
    assert view.header == HEADER
    assert (view.party, view.rows, view.parameter("model.trees"), view.parameter("model.depth", 6)) == ("left", 3, 5, 6)
    assert [received.message.trees for received in view.received(TrainingEnd)] == [0, 1, 2]
    assert next(view.observed(OwnSplit)).column == "c"
    assert list(view.applied()) == [{"kind": "none"}]
    assert view.counts()["sent", "Ready"] == (3, 120)
    assert View.load(stored / FILE_NAME).digest() == view.digest()


def test_the_empty_view(stored: Path) -> None:
    view = View.load(stored)
    empty = view.without_records()
    assert empty.header == view.header
    assert list(empty.content()) == []
    assert empty.digest() != view.digest()


def test_only_the_owner_may_read(stored: Path) -> None:
    assert stat.S_IMODE(stored.stat().st_mode) == 0o700
    assert stat.S_IMODE((stored / FILE_NAME).stat().st_mode) == 0o600


def test_a_transcript_is_never_overwritten(stored: Path) -> None:
    before = (stored / FILE_NAME).read_bytes()
    with refused(OutputError, "exists", value=stored):
        Transcript(HEADER, stored)
    assert (stored / FILE_NAME).read_bytes() == before


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with refused(OutputError, "unwritable", value=tmp_path / "file" / "view"):
        Transcript(HEADER, tmp_path / "file" / "view")


# -- the chain -------------------------------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=200)
def test_any_altered_byte_is_found_in_its_record(stored: Path, data: st.DataObject) -> None:
    original = (stored / FILE_NAME).read_bytes()
    at = data.draw(st.integers(0, len(original) - 1))
    altered = bytearray(original)
    altered[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FileFormatError) as caught:
        loaded(stored.parent / "altered", bytes(altered))
    position = len(MAGIC)
    if at < position:
        assert caught.value.code == "foreign"
        return
    for number, record in enumerate(records(original)):
        position += len(record)
        if at < position:
            assert (caught.value.code in ("damaged", "incomplete"), caught.value.value) == (True, number)
            return


@given(data=st.data())
@settings(max_examples=60)
def test_dropped_repeated_and_exchanged_records_are_found(stored: Path, data: st.DataObject) -> None:
    parts = records((stored / FILE_NAME).read_bytes())
    first = data.draw(st.integers(0, len(parts) - 2))
    match data.draw(st.sampled_from(["drop", "repeat", "exchange"])):
        case "drop":
            changed, found = parts[:first] + parts[first + 1 :], first
        case "repeat":
            changed, found = [*parts[: first + 1], parts[first], *parts[first + 1 :]], first + 1
        case _:
            second = data.draw(st.integers(first + 1, len(parts) - 1))
            changed, found = list(parts), first
            changed[first], changed[second] = parts[second], parts[first]
    with refused(FileFormatError, "damaged", value=found):
        loaded(stored.parent / "changed", MAGIC + b"".join(changed))


def test_every_cut_within_a_record_is_found(stored: Path) -> None:
    original = (stored / FILE_NAME).read_bytes()
    position = len(MAGIC)
    for number, record in enumerate(records(original)):
        for length in (1, 3, 4, 10, len(record) - 1):
            with refused(FileFormatError, "incomplete", value=number):
                loaded(stored.parent / "cut", original[: position + length])
        position += len(record)


def test_a_file_cut_between_records_says_so(stored: Path) -> None:
    """Such a cut leaves a valid chain: a killed party leaves the same; only the closing record tells."""
    original = (stored / FILE_NAME).read_bytes()
    whole = records(original)
    assert loaded(stored.parent / "whole", original).ended == "complete"
    position = len(MAGIC)
    for number, record in enumerate(whole[:-1]):
        position += len(record)
        assert loaded(stored.parent / f"cut{number}", original[:position]).ended == "cut off"


def test_files_that_are_no_transcript(tmp_path: Path) -> None:
    with refused(FileFormatError, "unreadable"):
        View.load(tmp_path)
    wrong: list[tuple[bytes, Code]] = [(b"", "foreign"), (MAGIC[:-1], "foreign"), (MAGIC, "incomplete")]
    for data, code in wrong:
        with refused(FileFormatError, code):
            loaded(tmp_path / "x", data)


def rechained(bodies: list[bytes]) -> bytes:
    """Write a file whose chain is right, whatever its records say."""
    chain, data = bytes(32), MAGIC
    for body in bodies:
        chain = hashlib.sha256(chain + body).digest()
        data += len(body).to_bytes(4, "little") + body + chain
    return data


def entry(kind: str, name: str, payload: bytes) -> bytes:
    return msgspec.msgpack.encode([kind, "", name, [], payload])


def test_other_format_versions_are_refused(tmp_path: Path) -> None:
    for version in (0, 2, "1", None):
        fields = msgspec.to_builtins(HEADER) | {"format": version}
        with refused(FileFormatError, "format-version", value=version):
            loaded(tmp_path / "x", rechained([entry("header", "Header", msgspec.msgpack.encode(fields))]))


@pytest.mark.parametrize(
    ("bodies", "code"),
    [
        ([entry("received", "TrainingEnd", b"")], "damaged"),
        ([entry("header", "Header", msgspec.msgpack.encode([1]))], "format-version"),
        ([entry("header", "Header", msgspec.msgpack.encode({"format": 1}))], "damaged"),
        ([entry("header", "Header", b"\xc1")], "damaged"),
        ([entry("header", "Header", b"\xa1\xff")], "damaged"),
        ([entry("header", "Header", msgspec.msgpack.encode(HEADER)), entry("rumor", "TrainingEnd", b"")], "damaged"),
        ([entry("header", "Header", msgspec.msgpack.encode(HEADER)), b"\x95\xa1\xff"], "damaged"),
        ([b"\xc1"], "damaged"),
    ],
    ids=["no-header", "a-list", "few-fields", "no-msgpack", "no-text", "unknown-kind", "no-text-inside", "nothing"],
)
def test_records_that_cannot_be_read(tmp_path: Path, bodies: list[bytes], code: Code) -> None:
    """Damage under a chain that fits: written so by another program."""
    with refused(FileFormatError, code):
        loaded(tmp_path / "x", rechained(bodies))


@pytest.mark.parametrize("name", ["Gossip", "TrainingEnd"])
def test_messages_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    header = entry("header", "Header", msgspec.msgpack.encode(HEADER))
    view = loaded(tmp_path / "x", rechained([header, entry("received", name, b"\x80")]))
    with refused(FileFormatError, "damaged", value=name):
        view.digest()


# -- content and digest ----------------------------------------------------------------------------------------------


def view_of(*entries: tuple[str, str, tuple[int, ...], object]) -> View:
    transcript = Transcript(HEADER)
    for kind, peer, step, record in entries:
        transcript.append(kind, peer, wire_name(type(record)), step, encode_fields(record))  # type: ignore[arg-type]
    return View(transcript.header, transcript.entries)


def digest_of(sha256: bytes, size: int = 64) -> LevelHistograms:
    return LevelHistograms(
        0, 0, 0, 1, (0,), (4,), CipherDigest("paillier", "sums", (1, 4), Layout((1,), 9, 1), 2, size, sha256)
    )


def test_a_header_of_a_version_that_stated_no_constraints(tmp_path: Path) -> None:
    """It is read as one without constraints, and its run goes on; constraints that changed are another run."""
    fields = {name: value for name, value in msgspec.to_builtins(HEADER).items() if name != "monotone"}
    old = loaded(tmp_path / "old", rechained([entry("header", "Header", msgspec.msgpack.encode(fields))]))
    assert old.header == HEADER
    rising, falling = (msgspec.structs.replace(HEADER, monotone={"c": direction}) for direction in (1, -1))
    fill(Transcript(HEADER, tmp_path / "unstated"))
    Transcript(rising, tmp_path / "unstated", resume=True, finished=True).close(complete=True)
    assert View.load(tmp_path / "unstated").attempts == 2
    fill(Transcript(rising, tmp_path / "stated"))
    assert View.load(tmp_path / "stated").header.monotone == {"c": 1}
    with refused(OutputError, "other-run", value=("monotone",)):
        Transcript(falling, tmp_path / "stated", resume=True, finished=True)


def test_the_digest_does_not_depend_on_arrival() -> None:
    a, b = ("received", "active", (0,), TrainingEnd(0, 0)), ("received", "active", (1,), TrainingEnd(1, 0))
    assert view_of(a, b).digest() == view_of(b, a).digest()
    assert view_of(a, b).digest() != view_of(a).digest()
    assert view_of(a, a).digest() != view_of(a).digest()


def test_the_digest_depends_on_every_readable_field() -> None:
    base = ("received", "active", (0,), TrainingEnd(0, 0))
    others = [
        ("received", "right", (0,), TrainingEnd(0, 0)),
        ("received", "active", (1,), TrainingEnd(0, 0)),
        ("received", "active", (0,), TrainingEnd(1, 0)),
        ("observed", "active", (0,), TrainingEnd(0, 0)),
    ]
    assert len({view_of(each).digest() for each in (base, *others)}) == 5


def test_the_digest_leaves_out_what_is_drawn_anew_in_each_run() -> None:
    """Keys, nonces, digests of ciphertexts; what was sent; but not the size of a ciphertext."""
    for one, two in (
        (RowIdDigests(b"1", (b"1",)), RowIdDigests(b"2", (b"2",))),
        (Hello("1", "active", {}, 2, b"a", (1,)), Hello("1", "active", {}, 2, b"b", (2, 3))),
        (digest_of(b"1"), digest_of(b"2")),
    ):
        assert view_of(("received", "a", (), one)).digest() == view_of(("received", "a", (), two)).digest()
    small, large = (view_of(("received", "a", (), digest_of(b"1", size))) for size in (64, 128))
    assert small.digest() != large.digest()
    assert view_of(("sent", "a", (), RowIdDigests(b"", ()))).digest() == view_of().digest()


@given(st.lists(st.one_of(st.text(max_size=5), st.sampled_from(["", "7", "\udc80", "é", "x" * 127, "x" * 128]))))
def test_row_ids_are_framed_by_their_bytes(ids: list[str]) -> None:
    encoded = [row.encode(errors="surrogatepass") for row in ids]
    framed = b"".join(len(row).to_bytes(8, "little") + row for row in encoded)
    assert ids_digest(ids) == hashlib.sha256(framed).hexdigest()


def test_observed_arrays_count_in_full() -> None:
    sums = np.arange(6).reshape(1, 2, 3)
    one, two = (
        view_of(("observed", "left", (), DecryptedSums(0, 0, "b", (0,), (0,), 1, Array.pack(each))))
        for each in (sums, sums + 1)
    )
    assert one.digest() != two.digest()
    assert next(one.observed(DecryptedSums)).sums.unpack().tolist() == sums.tolist()


def test_read_entries_is_in_order(stored: Path) -> None:
    kinds = [each.kind for each in read_entries(stored / FILE_NAME)]
    assert kinds == ["header", *["received", "sent"] * 3, "observed", "applied", "end"]
