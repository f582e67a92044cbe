"""A transcript that goes on after a cut, and what a view of several attempts says."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_transcript import HEADER, MAGIC, digest_of, records

from labelward.errors import FileFormatError, OutputError
from labelward.messages.base import wire_name
from labelward.messages.codec import encode_fields
from labelward.messages.handshake import Hello, RowIdDigests
from labelward.messages.tree import TrainingEnd
from labelward.party.transcript import FILE_NAME, Header, Transcript, read_entries
from labelward.party.view import View
from refusals import refused

# -- several attempts --------------------------------------------------------------------------------------------------


def going_on(folder: Path, header: Header = HEADER, *, finished: bool = False) -> Transcript:
    return Transcript(header, folder, resume=True, finished=finished)


def say(transcript: Transcript, *steps: int) -> None:
    for step in steps:
        transcript.append("received", "active", "TrainingEnd", (step,), encode_fields(TrainingEnd(step, 0)))


def heard(view: View) -> list[int]:
    return [each.message.trees for each in view.received(TrainingEnd)]


def test_a_transcript_goes_on(tmp_path: Path) -> None:
    first = going_on(tmp_path)
    say(first, 0, 1)
    first.close(complete=False)
    second = going_on(tmp_path)
    say(second, 1, 2)
    second.close(complete=True)
    kinds = [each.kind for each in read_entries(tmp_path / FILE_NAME)]
    assert kinds == ["header", "received", "received", "end", "attempt", "received", "received", "end"]
    view = View.load(tmp_path)
    assert (view.attempts, view.ended, heard(view)) == (2, "complete", [0, 1, 2])
    assert view.counts() == {("received", "TrainingEnd"): (4, 4 * len(encode_fields(TrainingEnd(0, 0))))}


@pytest.mark.parametrize("cut", [1, 5, 40, 70])
def test_a_torn_end_is_cut_off(tmp_path: Path, cut: int) -> None:
    """As a kill leaves it, or with zeros, as a power cut does; whole records before it stay."""
    first = going_on(tmp_path)
    say(first, 0, 1, 2)
    first.close(complete=False)
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    parts = [len(each) for each in records(whole)]
    for torn in (whole[:-cut], whole[:-cut] + bytes(cut), whole + bytes(50)):
        path.write_bytes(torn)
        second = going_on(tmp_path)
        second.close(complete=True)
        view = View.load(path)
        assert view.attempts == 2
        assert heard(view) == ([0, 1, 2] if cut <= parts[-1] or torn == whole + bytes(50) else [0, 1])


def test_killed_at_every_byte(tmp_path: Path) -> None:
    """Whatever was written of the file, it goes on, and what it held in full is still there."""
    first = going_on(tmp_path / "first")
    say(first, 0, 1)
    first.close(complete=False)
    whole = (tmp_path / "first" / FILE_NAME).read_bytes()
    parts = records(whole)
    for length in range(len(whole)):
        folder = tmp_path / str(length)
        folder.mkdir()
        (folder / FILE_NAME).write_bytes(whole[:length])
        again = going_on(folder)
        say(again, 7)
        again.close(complete=True)
        held = [len(MAGIC) + sum(map(len, parts[: number + 2])) <= length for number in range(2)]
        assert heard(View.load(folder)) == [step for step, there in enumerate(held) if there] + [7]


def test_damage_before_the_end_is_refused(tmp_path: Path) -> None:
    first = going_on(tmp_path)
    say(first, 0, 1)
    first.close(complete=False)
    path = tmp_path / FILE_NAME
    damaged = bytearray(path.read_bytes())
    damaged[len(MAGIC) + 10] ^= 1
    path.write_bytes(bytes(damaged))
    with refused(FileFormatError, "damaged", value=0):
        going_on(tmp_path)
    assert path.read_bytes() == bytes(damaged)


def test_a_complete_transcript_goes_on_only_if_told(tmp_path: Path) -> None:
    first = going_on(tmp_path)
    first.close(complete=True)
    with refused(OutputError, "exists", value=tmp_path / FILE_NAME):
        going_on(tmp_path)
    going_on(tmp_path, finished=True).close(complete=True)
    assert View.load(tmp_path).attempts == 2


def test_greetings_with_another_table_bind_nobody(tmp_path: Path) -> None:
    """As where the rows were refused, and the table was mended; not where a checkpoint expects more."""
    first = going_on(tmp_path)
    first.append("received", "left", "Hello", (0,), b"")
    first.close(complete=False)
    mended = msgspec.structs.replace(HEADER, rows=(4, 1), ids="x")
    with refused(OutputError, "other-run", value=("rows", "ids")):
        Transcript(mended, tmp_path, resume=True, expected=(9, b""))
    going_on(tmp_path, mended).close(complete=False)
    view = View.load(tmp_path)
    assert (view.header, view.attempts) == (mended, 1)


def test_a_transcript_of_another_run_is_refused(tmp_path: Path) -> None:
    first = going_on(tmp_path)
    say(first, 0)
    first.close(complete=False)
    newer = msgspec.structs.replace(HEADER, version="newer")
    going_on(tmp_path, newer).close(complete=False)
    for changes, named in (
        ({"party": "right"}, ("party",)),
        ({"rows": (4, 1), "ids": "x"}, ("rows", "ids")),
        ({"job": {"model.trees": "7"}}, ("job",)),
    ):
        with refused(OutputError, "other-run", value=named):
            going_on(tmp_path, msgspec.structs.replace(HEADER, **changes))


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_header_that_comes_late(tmp_path: Path, on_disk: bool) -> None:
    """What was recorded until then comes after it; without a header nothing is written."""
    folder = tmp_path / "view" if on_disk else None
    transcript = Transcript(None, folder, resume=True)
    say(transcript, 0)
    with pytest.raises(ValueError, match="no header yet"):
        _ = transcript.header
    assert not (tmp_path / "view").exists()
    transcript.begin(HEADER)
    say(transcript, 1)
    transcript.close(complete=True)
    with pytest.raises(ValueError, match="has a header already"):
        transcript.begin(HEADER)
    view = View.load(tmp_path / "view") if on_disk else View(transcript.header, transcript.entries)
    assert (view.header, heard(view)) == (HEADER, [0, 1])
    silent = Transcript(None, tmp_path / "silent")
    silent.close(complete=False)
    assert not (tmp_path / "silent").exists()


# -- what a view of several attempts says ------------------------------------------------------------------------------


def attempts(*of: list[tuple[str, str, tuple[int, ...], object]]) -> View:
    transcript = Transcript(HEADER)
    for number, entries in enumerate(of):
        if number:
            transcript.append("attempt", "", "Attempt", (number + 1,), b"")
        for kind, peer, step, record in entries:
            transcript.append(kind, peer, wire_name(type(record)), step, encode_fields(record))  # type: ignore[arg-type]
    return View(transcript.header, transcript.entries)


RECORDS = st.builds(
    lambda kind, peer, step, trees: (kind, peer, (step,), TrainingEnd(trees, 0)),
    st.sampled_from(["received", "observed"]),
    st.sampled_from(["active", "right"]),
    st.integers(0, 1),
    st.integers(0, 1),
)


@given(said=st.lists(st.lists(RECORDS, max_size=6), min_size=1, max_size=4))
def test_each_record_is_read_as_often_as_one_attempt_said_it(said: list[list[object]]) -> None:
    """Against the definition: the largest number of times, over the attempts."""
    view = attempts(*said)  # type: ignore[arg-type]
    found = [(kind, peer, step, record) for kind, peer, step, record in view.records()]
    for record in {each for one in said for each in one}:
        assert found.count(record) == max(one.count(record) for one in said)  # type: ignore[arg-type]
    assert len(found) == sum(max(one.count(each) for one in said) for each in {each for one in said for each in one})


def test_a_disturbed_run_has_the_content_of_an_undisturbed_one() -> None:
    """Repeated under other keys, with other ciphertexts; a later attempt that begins in the middle."""
    hello, ready = Hello("1", "active", {}, 3, b"a", ()), RowIdDigests(b"1", ())
    start = [("received", "active", (0,), hello), ("received", "active", (0,), ready)]
    again = [
        ("received", "active", (0,), Hello("1", "active", {}, 3, b"b", (1,))),
        ("received", "active", (0,), RowIdDigests(b"2", ())),
    ]
    first, second, third = (("received", "active", (step,), TrainingEnd(step, 0)) for step in range(3))
    sums = [("received", "left", (0,), digest_of(each)) for each in (b"1", b"2")]
    calm = attempts([*start, first, sums[0], second, third])
    disturbed = attempts([*start, first, sums[0], second], [*again, sums[1], second, third])
    assert list(disturbed.content()) == list(calm.content())
    assert disturbed.digest() == calm.digest()
    assert attempts([*start, first], [*again, third]).digest() != calm.digest()
    assert disturbed.counts()["received", "Hello"][0] == 2


def test_what_only_a_broken_attempt_said_is_read() -> None:
    only = ("received", "active", (5,), TrainingEnd(9, 0))
    view = attempts([only], [("received", "active", (5,), TrainingEnd(1, 0))])
    assert heard(view) == [9, 1]


def test_what_policies_did_is_told_once() -> None:
    transcript = Transcript(HEADER)
    for number in range(2):
        if number:
            transcript.append("attempt", "", "Attempt", (2,), b"")
        transcript.append("applied", "left", "Policy", (), msgspec.msgpack.encode({"spent": 1.0}))
    assert list(View(transcript.header, transcript.entries).applied()) == [{"spent": 1.0}]
