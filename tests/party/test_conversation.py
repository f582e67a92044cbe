"""Contexts and handshakes: who fails is named to all at once, who differs is told where, nothing private is said."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from blames import blamed, refused_about
from labelward.errors import (
    Code,
    CodecError,
    DataError,
    HandshakeError,
    JobError,
    LabelwardError,
    OutputError,
    PeerDisagreementError,
    PeerError,
    PeerRestartedError,
)
from labelward.he import Layout, engine
from labelward.messages.base import Array, RowMask
from labelward.messages.codec import decode_fields, encode
from labelward.messages.handshake import Hello, PairStart, RowIdDigests, RowSplit
from labelward.messages.splitnn import BatchEmbeddings
from labelward.messages.tree import EncryptedTreeRows, OwnSplit, PredictRequest, TrainingEnd, TreeStart
from labelward.party import handshake
from labelward.party.checkpoint import Checkpoints
from labelward.party.context import Context
from labelward.party.exchange import Exchange
from labelward.party.handshake import Agreement, Proposal, RowMasks
from labelward.party.in_process import run_parties
from labelward.party.roles import Topology
from labelward.party.row_ids import bound, digest_ids
from labelward.party.transcript import Header, Transcript
from labelward.party.view import View
from labelward.rng import SecureRandom
from labelward.transport.base import Transport
from labelward.transport.in_process import connect_in_process
from refusals import refused
from released import released

NAMES = ("active", "left", "right")
SOON = 2.0  # seconds within which a failure must have ended all parties
Program = Callable[[Context], Any]


def context(end: Transport, names: tuple[str, ...] = NAMES, timeout: float = 30.0) -> Context:
    others = tuple(name for name in names if name != end.party)
    role = "active" if end.party == names[0] else "passive"
    header = Header(1, "test", end.party, role, others, (3, 0), "plain", 0, ("test",), {})
    return Context(end, topology=Topology.star(*names), transcript=Transcript(header), seed=1, timeout=timeout)


def live(programs: dict[str, Program], timeout: float = 30.0, make: Callable[..., Context] = context) -> dict[str, Any]:
    return run_parties({name: (lambda end: make(end, tuple(programs), timeout), programs[name]) for name in programs})


def errors_of(
    programs: dict[str, Program], timeout: float = 30.0, make: Callable[..., Context] = context
) -> dict[str, BaseException]:
    """Run to the end and return what each party raised; ``make``: of its end, all names and the timeout."""
    raised: dict[str, BaseException] = {}

    def caught(name: str) -> Program:
        def program(ctx: Context) -> None:
            try:
                programs[name](ctx)
            except BaseException as error:
                raised[name] = error
                raise

        return program

    with pytest.raises(BaseException):  # noqa: B017, PT011
        live({name: caught(name) for name in programs}, timeout, make)
    return raised


def pair() -> tuple[Context, Context, dict[str, Transport]]:
    ends = connect_in_process(("active", "left"))
    return context(ends["active"], ("active", "left")), context(ends["left"], ("active", "left"), 0.3), ends


def wait_for_active(ctx: Context) -> None:
    ctx.recv("active", TrainingEnd, (7,))


class Empty(msgspec.Struct):
    """A state of a test."""


class Secret(Exception):  # noqa: N818
    """An error whose text says what it should not."""


# -- sending and receiving -------------------------------------------------------------------------------------------


def test_messages_wait_for_their_turn() -> None:
    """Keyed by peer, type and step: the order of arrival does not matter."""
    active, left, _ = pair()
    for step in (2, 0, 1):
        active.send("left", TrainingEnd(step, 0), (step,))
    active.send("left", PredictRequest("m", 0, 5), (0,))
    assert left.recv("active", PredictRequest, (0,)) == PredictRequest("m", 0, 5)
    assert [left.recv("active", TrainingEnd, (step,)).trees for step in range(3)] == [0, 1, 2]


def test_one_of_several_types() -> None:
    active, left, _ = pair()
    active.send("left", TrainingEnd(0, 0), (0,))
    assert left.recv("active", (TreeStart, TrainingEnd), (0,)) == TrainingEnd(0, 0)


def test_what_is_sent_is_counted_as_it_travels() -> None:
    active, left, _ = pair()
    message = TrainingEnd(5, 0)
    active.send("left", message, (5,))
    left.recv("active", TrainingEnd, (5,))
    size = len(encode(message, (5,)))
    assert (active.meter.messages, active.meter.bytes) == ({"TrainingEnd": 1}, {"TrainingEnd": size})
    view = View(active.transcript.header, active.transcript.entries)
    assert view.counts()["sent", "TrainingEnd"] == (1, size)
    assert list(view.content()) == []  # what a party sent is no part of what it saw
    assert left.meter.messages == {}
    assert left.meter.seconds.keys() == {"wait"}


def test_a_silent_peer_is_named_with_message_and_step() -> None:
    _, left, _ = pair()
    start = time.monotonic()
    with blamed("active", "peer-silent", message="TrainingEnd", step=(3,), value=0.3):
        left.recv("active", TrainingEnd, (3,))
    assert time.monotonic() - start < SOON


def test_chatter_does_not_extend_the_time_limit() -> None:
    """The limit is for the awaited message, whatever else arrives."""
    active, left, _ = pair()
    start = time.monotonic()
    for step in range(20):
        active.send("left", TrainingEnd(step, 0), (step,))
    with blamed("active", "peer-silent", message="PredictRequest", step=(0,)):
        left.recv("active", PredictRequest, (0,))
    assert time.monotonic() - start < SOON


def test_the_same_message_twice() -> None:
    active, left, _ = pair()
    for _ in range(2):
        active.send("left", TrainingEnd(1, 0), (1,))
    active.send("left", TrainingEnd(2, 0), (2,))
    with blamed("active", "peer-message", message="TrainingEnd", step=(1,), about="twice"):
        left.recv("active", TrainingEnd, (2,))


def test_a_peer_that_has_ended() -> None:
    active, left, _ = pair()
    active.send("left", TrainingEnd(1, 0), (1,))
    active.close()
    assert left.recv("active", TrainingEnd, (1,)) == TrainingEnd(1, 0)
    with blamed("active", "peer-gone", message="TrainingEnd", step=(2,)):
        left.recv("active", TrainingEnd, (2,))
    with blamed("active", "peer-gone", message="TrainingEnd", step=(0,)):
        left.send("active", TrainingEnd(0, 0), (0,))


@pytest.mark.parametrize("frame", [b"no frame", b"LW\x01\x93\xa1\xff", encode(TrainingEnd(1, 0), (1,))[:-1]])
def test_bytes_that_are_no_message(frame: bytes) -> None:
    _, left, ends = pair()
    ends["active"].send("left", frame)
    with blamed("active", "malformed", message="TrainingEnd", step=(1,)):
        left.recv("active", TrainingEnd, (1,))


def test_observations_are_kept_and_ciphertexts_are_not() -> None:
    active, left, _ = pair()
    private = engine("plain").generate(0, protection=SecureRandom(), insecure=True)
    block = private.encrypt(np.arange(3)[:, None], Layout((9,), 3, 1)).block()
    active.send("left", EncryptedTreeRows(0, 0, 1, block), (0, 0))
    assert left.recv("active", EncryptedTreeRows, (0, 0)).gradients == block
    seen = OwnSplit(0, 0, "c", 0.25, 0, RowMask(3, "bits", b"\x01"))
    left.observe(seen)
    view = View(left.transcript.header, left.transcript.entries)
    kept = next(view.received(EncryptedTreeRows)).message.gradients
    assert (type(kept).__name__, kept.size) == ("CipherDigest", len(block.data))
    assert list(view.observed(OwnSplit)) == [seen]
    assert not any(block.data in entry.payload for entry in left.transcript.entries)


# -- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", NAMES)
def test_a_party_that_raises_ends_all_and_is_named(culprit: str) -> None:
    """At once, by the error's type only: its text may hold a label."""

    def fail(ctx: Context) -> None:
        time.sleep(0.1)
        raise Secret("row 17 has label 1")

    def wait(ctx: Context) -> None:
        ctx.recv(next(peer for peer in ctx.peers if peer != culprit), TrainingEnd, (7,))

    start = time.monotonic()
    raised = errors_of({name: fail if name == culprit else wait for name in NAMES})
    assert time.monotonic() - start < SOON
    for name in set(NAMES) - {culprit}:
        error = raised[name]
        assert isinstance(error, PeerError)
        assert (error.peer, error.code) == (culprit, "peer-failed")
        assert "Secret" in error.reason
        told = [str(error), repr(error.__cause__), repr(error.__context__)]
        assert not any("label 1" in text or "row 17" in text for text in told)


def test_the_error_of_the_culprit_is_raised() -> None:
    """Not that of a party that was merely told."""

    def fail(ctx: Context) -> None:
        time.sleep(0.1)
        raise Secret("here it may be read")

    with pytest.raises(Secret, match="may be read"):
        live({"active": wait_for_left, "left": fail})


def wait_for_left(ctx: Context) -> None:
    ctx.recv("left", TrainingEnd, (7,))


def test_a_silent_peer_ends_the_run() -> None:
    """The one that waited says whom it waited for; the silent one is told when it speaks again."""

    def dawdle(ctx: Context) -> None:
        time.sleep(1.0)
        ctx.send("active", TrainingEnd(7, 0), (7,))

    raised = errors_of({"active": wait_for_left, "left": dawdle}, timeout=0.3)
    with blamed("left", "peer-silent", message="TrainingEnd", step=(7,), value=0.3):
        raise raised["active"]
    with blamed("active", "peer-failed", message="TrainingEnd", step=(7,)) as caught:
        raise raised["left"]
    for part in ("'left'", "TrainingEnd", "[7]"):  # whom, and for what, the active party waited
        assert part in caught.value.reason


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (OutputError("cannot be written", code="unwritable", field="/data/run"), "write"),
        (ValueError("age 42 of row c00017"), "ValueError"),
        (DataError("age 42 of row c00017", code="values", field="/data/run"), "its table"),
        (JobError("is for 42 rows", code="range", field="/data/run"), "its job file"),
    ],
)
def test_what_the_others_hear_of_a_failure(error: BaseException, word: str) -> None:
    """A reason in plain words, without anything that the text of the error says."""

    def stumble(ctx: Context) -> None:
        raise error

    raised = errors_of({"active": wait_for_left, "left": stumble})
    with blamed("left", "peer-failed", message="TrainingEnd", step=(7,), about=word) as caught:
        raise raised["active"]
    assert caught.value.value is None
    assert not any(private in str(caught.value) for private in ("/data/run", "42", "c00017"))


def test_results_of_all_parties() -> None:
    def lead(ctx: Context) -> str:
        for peer in ctx.peers:
            ctx.send(peer, TrainingEnd(7, 0), (7,))
        return "led"

    def follow(ctx: Context) -> str:
        wait_for_active(ctx)
        return "followed " + ctx.active

    assert live({"active": lead, "left": follow, "right": follow}) == {
        "active": "led",
        "left": "followed active",
        "right": "followed active",
    }


def test_a_transcript_that_cannot_be_finished_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk: what was recorded is not whole, so the run is not either."""
    close = Transcript.close

    def full(self: Transcript, *, complete: bool) -> None:
        close(self, complete=complete)
        if self.header.party == "left":
            raise OutputError("no space left", code="unwritable")

    monkeypatch.setattr(Transcript, "close", full)
    with refused(OutputError, "unwritable"):
        live({"active": lambda ctx: None, "left": lambda ctx: None})


_INTERRUPTED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
sys.path[:0] = {folders!r}
from test_conversation import live
from labelward.messages.tree import TrainingEnd

def wait(ctx):
    try:
        ctx.recv(ctx.peers[0], TrainingEnd, (1,))
    finally:
        sys.stdout.write(f"ended {{ctx.party}}\\n")

begun = []
def wait(ctx, wait=wait):
    begun.append(ctx.party)
    if len(begun) == 3:
        print("started", flush=True)
    wait(ctx)

try:
    live({{"active": wait, "left": wait, "right": wait}}, 600.0)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


def test_ctrl_c_ends_all_parties() -> None:
    folders = [str(folder) for folder in Path(__file__).parents[:2]]
    script = [sys.executable, "-c", _INTERRUPTED.format(folders=folders)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()  # where it did not end by itself, so that the test fails and does not hang
    assert process.returncode == 130, err
    lines = out.split("\n")
    assert sorted(lines[:3]) == ["ended active", "ended left", "ended right"]
    assert lines[3] == "interrupted"
    assert err == ""


def test_large_arrays_may_be_kept_as_digests_only() -> None:
    values = np.arange(6.0).reshape(2, 3)

    def lead(ctx: Context) -> None:
        ctx.recv("left", BatchEmbeddings, (0, 0)).values.value.unpack()  # the program has them in full
        (entry,) = [entry for entry in ctx.transcript.entries if entry.kind == "received"]
        kept = decode_fields(entry.type, entry.payload)
        assert kept.values.value.shape == (2, 3)
        assert kept.values.value.data == b""
        with refused(CodecError, "incomplete", value=(2, 3)):
            kept.values.value.unpack()

    def follow(ctx: Context) -> None:
        ctx.send("active", BatchEmbeddings(released(Array.pack(values))), (0, 0))

    ends = connect_in_process(["active", "left"])
    parts = {
        name: Context(end, topology=Topology.star("active", "left"), transcript=Transcript(None), seed=1, digests=True)
        for name, end in ends.items()
    }
    follow(parts["left"])
    lead(parts["active"])


def test_a_frame_that_comes_before_the_own_greeting_ended_is_in_the_exchange() -> None:
    """The sender ended its greeting first; a message of the greeting is in neither exchange."""
    names = ("active", "left")
    active, left = (context(end, names) for end in connect_in_process(names).values())
    start = Exchange.begin(b"key", "left", ())
    active.link("left", start, 0)
    active.send("left", TrainingEnd(1, 0), (1,))
    active.send("left", PairStart(b"nonce"), ())
    left.recv("active", PairStart, ())
    left.link("active", start, 0)
    left.send("active", TrainingEnd(2, 0), (2,))
    active.recv("left", TrainingEnd, (2,))
    left.recv("active", TrainingEnd, (1,))
    assert left.exchanges["active"].frames == (1, 1)
    assert left.exchanges["active"].digest == active.exchanges["left"].digest
    for ctx, peer in ((active, "left"), (left, "active")):
        assert View(ctx.transcript.header, ctx.transcript.entries[1:]).exchanges()[peer][0] == ctx.exchanges[peer]


# -- handshake -------------------------------------------------------------------------------------------------------

JOB = {"model.kind": '"secureboost"', "model.trees": "5", "run.seed": "1"}
IDS = ["x", "y", "z"]


def offer(job: dict[str, str] = JOB, ids: Sequence[str] = IDS) -> Proposal:
    return Proposal(parties=NAMES, job=job, ids=ids, bits=0, precision=30, insecure=True)


def greet(active: Proposal, passive: Proposal) -> dict[str, BaseException]:
    """Greet with a peer that differs, and return what each party raised."""
    sides = RowMasks.in_order(len(active.ids) - 1, 0, 1)
    return errors_of(
        {
            "active": lambda ctx: handshake.handshake_active(ctx, active, sides),
            "left": lambda ctx: handshake.handshake_passive(ctx, passive),
            "right": lambda ctx: handshake.handshake_passive(ctx, active),
        }
    )


def first(raised: dict[str, BaseException]) -> HandshakeError:
    """Return the error of those parties that found out themselves; they agree on what differs."""
    found = [error for error in raised.values() if not isinstance(error, PeerError)]
    assert found
    assert all(isinstance(error, HandshakeError) for error in found)
    assert isinstance(found[0], HandshakeError)
    assert found[0].code == "disagreement"
    return found[0]


def test_parties_that_agree() -> None:
    """All parties come out with the sides that the active party told."""
    validation, test = np.array([False, True, False, False]), np.array([True, False, False, True])
    mine = offer(ids=["a", "b", "c", "d"])
    agreed = live(
        {
            "active": lambda ctx: handshake.handshake_active(ctx, mine, RowMasks(validation=validation, test=test)),
            "left": lambda ctx: handshake.handshake_passive(ctx, mine),
            "right": lambda ctx: handshake.handshake_passive(ctx, mine),
        }
    )
    for each in agreed.values():
        assert each.sides.validation.tolist() == validation.tolist()
        assert each.sides.test.tolist() == test.tolist()
        assert each.sides.train.tolist() == [False, False, True, False]
        assert (each.parties, each.job, each.rows, each.resume) == (NAMES, JOB, (1, 2), None)


def test_no_rows_at_all() -> None:
    """Shares that talk of a model alone agree on no rows."""
    agreed = live(
        {
            "active": lambda ctx: handshake.handshake_active(ctx, offer(ids=[]), RowMasks.in_order(0, 0, 0)),
            "left": lambda ctx: handshake.handshake_passive(ctx, offer(ids=[])),
        }
    )
    assert agreed["left"].rows == (0, 0)


def test_every_differing_key_is_named_with_both_values() -> None:
    other = {"model.kind": '"secureboost"', "model.trees": "7", "model.depth": "3"}
    raised = greet(offer(), offer(other))
    told = first(raised)
    assert told.value == {
        "model.depth": {"active": "absent", "left": "3"},
        "model.trees": {"active": "5", "left": "7"},
        "run.seed": {"active": "1", "left": "absent"},
    }
    for key, values in told.value.items():
        assert key in told.reason
        assert all(value in told.reason for value in values.values())
    for error in raised.values():  # whoever found it out, all know it, and that to start again is of no use
        assert isinstance(error, HandshakeError | PeerDisagreementError)
        assert (error.code, error.exit_code) == ("disagreement", 2)
        assert told.reason in error.reason


def test_versions_of_libraries() -> None:
    """Compared key by key as the job is, where a model says which ones matter."""
    told = first(greet(replace(offer(), terms={"version of torch": "2.1"}), offer()))
    assert told.value == {"version of torch": {"active": "2.1", "left": "absent"}}


def test_sizes_are_agreed() -> None:
    """Each side hears the other's; the active party does not hear its own columns, nor a passive party's classes."""
    sides, agreed = RowMasks.in_order(2, 0, 1), dict[str, Agreement]()

    def met(ctx: Context) -> None:
        if ctx.party == "active":
            agreed["active"] = handshake.handshake_active(ctx, replace(offer(), classes=4, columns=9), sides)
        else:
            agreed[ctx.party] = handshake.handshake_passive(ctx, replace(offer(), classes=3, columns=7))

    live(dict.fromkeys(NAMES, met), 30.0)
    assert agreed["active"].columns == {"left": 7, "right": 7}
    assert agreed["left"].columns == {}
    assert [each.classes for each in agreed.values()] == [4, 4, 4]


@pytest.mark.parametrize("size", [-1, (1 << 20) + 1])
def test_a_size_that_no_table_has(size: int) -> None:
    raised = with_left(says(msgspec.structs.replace(hello("left"), columns=size)))
    with blamed("left", "peer-message", message="Hello", step=(0,), value=size):
        raise raised["active"]


@pytest.mark.parametrize("progress", [{"active": 3}, {"left": 3}, {"active": 3, "left": 3}, {"active": 2, "right": 2}])
def test_checkpoints_without_a_common_history(tmp_path: Path, progress: dict[str, int]) -> None:
    """All refuse, with the progress of each; nothing is removed, and nothing is written."""
    for party, last in progress.items():
        kept = Checkpoints(tmp_path / party)
        peers = NAMES[1:] if party == "active" else ("active",)
        for number in range(last + 1):
            exchanges = {peer: Exchange.begin(party.encode(), peer, ()) for peer in peers}
            kept.save(number, Empty(), peers=dict.fromkeys(peers, number), exchanges=exchanges)

    def met(party: str, ctx: Context) -> None:
        ctx.checkpoints = Checkpoints(tmp_path / party)
        if party == "active":
            handshake.handshake_active(ctx, offer(), RowMasks.in_order(2, 0, 1))
        else:
            handshake.handshake_passive(ctx, offer())

    before = {path: path.read_bytes() for path in tmp_path.rglob("*.lwc")}
    told = first(errors_of({name: partial(met, name) for name in NAMES}))
    assert told.value == dict.fromkeys(NAMES, 0) | progress
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.lwc")} == before


@pytest.mark.parametrize("resume", [0, 2])
def test_a_passive_party_refuses_a_beginning_that_costs_its_progress(tmp_path: Path, resume: int) -> None:
    """By itself, whatever the active party says; and a checkpoint with another history than the one that it has."""
    kept = Checkpoints(tmp_path)
    kept.save(2, Empty(), exchanges={"active": Exchange.begin(b"n", "left", ())})
    none = RowMask.pack(np.zeros(3, np.bool_))

    def begin(ctx: Context) -> None:
        ctx.recv("left", Hello, (0,))
        ctx.send("left", hello("active"), (0,))
        ids = bound(b"", digest_ids(b"", offer().ids), "active")
        ctx.send("left", RowSplit(none, none, resume, b"x" * 32 if resume else b"", ids), (0,))
        ctx.recv("left", RowIdDigests, (0,))

    def answer(ctx: Context) -> None:
        ctx.checkpoints = kept
        handshake.handshake_passive(ctx, offer())

    raised = errors_of({"active": begin, "left": answer})["left"]
    if resume:
        with blamed("active", "peer-message", message="Begin", step=(0,), value=2):
            raise raised
    else:
        with refused(HandshakeError, "disagreement", value={"active": 0, "left": 2}):
            raise raised
    assert kept.numbers() == (2,)


@pytest.mark.parametrize("earlier", ["other", "same", "unknown"])
def test_rows_are_divided_on_as_the_training_began(tmp_path: Path, earlier: str) -> None:
    """Else the active party is named; a checkpoint of an earlier version does not say how rows were divided."""
    sides, other = RowMasks.in_order(2, 0, 1), RowMasks.in_order(1, 1, 1)
    kept, exchange = Checkpoints(tmp_path), Exchange.begin(b"n", "left", ())
    kept.row_split = {"other": other.digest(), "same": sides.digest(), "unknown": ""}[earlier]
    kept.save(2, Empty(), exchanges={"active": exchange})
    validation, test = RowMask.pack(sides.validation), RowMask.pack(sides.test)

    def begin(ctx: Context) -> None:
        ctx.recv("left", Hello, (0,))
        ctx.send("left", hello("active"), (0,))
        ids = bound(b"", digest_ids(b"", offer().ids), "active")
        ctx.send("left", RowSplit(validation, test, 2, exchange.digest, ids), (0,))
        ctx.recv("left", RowIdDigests, (0,))

    def answer(ctx: Context) -> None:
        ctx.checkpoints = Checkpoints(tmp_path)
        assert handshake.handshake_passive(ctx, offer()).resume == 2

    if earlier == "other":
        with blamed("active", "peer-message", message="Begin", step=(0,), value=2):
            raise errors_of({"active": begin, "left": answer})["left"]
    else:
        live({"active": begin, "left": answer})
    assert Checkpoints(tmp_path).numbers() == (2,)


def hello(party: str, released: str | None = None, rows: int = 3) -> Hello:
    return Hello(version("labelward") if released is None else released, party, JOB, rows, b"", ())


def says(mine: Hello) -> Program:
    """Return the program of a peer that hears the active party's greeting, answers and ends."""

    def program(ctx: Context) -> None:
        ctx.recv("active", Hello, (0,))
        ctx.send("active", mine, (0,))

    return program


def with_left(program: Program) -> dict[str, BaseException]:
    sides = RowMasks.in_order(2, 0, 1)
    return errors_of({"active": lambda ctx: handshake.handshake_active(ctx, offer(), sides), "left": program})


def test_versions() -> None:
    raised = with_left(says(hello("left", "0.0.1")))
    with refused(HandshakeError, "disagreement", value={"active": version("labelward"), "left": "0.0.1"}):
        raise raised["active"]


def test_what_a_peer_says_of_itself_is_safe_to_print() -> None:
    """It goes to the terminal and to the log, and on to all other parties."""
    raised = with_left(says(hello("left", "9\x1b[2J\n" + "9" * 100_000)))
    with refused_about("9?[2J?999", HandshakeError, "disagreement") as caught:
        raise raised["active"]
    assert caught.value.value["left"].startswith("9?[2J?999")
    assert max(len(str(caught.value)), len(str(caught.value.value))) < 1000
    job = {f"key{number}\x1b": "\x1b" * 1000 for number in range(1000)}
    raised = with_left(says(Hello(version("labelward"), "left", job, 3, b"", ())))
    with refused_about("more", HandshakeError, "disagreement") as caught:
        raise raised["active"]
    for text in (str(caught.value), *caught.value.value):
        assert text.isprintable()
    assert max(len(str(caught.value)), len(str(caught.value.value))) < 10_000


def test_a_peer_under_another_name() -> None:
    raised = with_left(says(hello("right")))
    with refused_about("'left'", HandshakeError, "identity", value="right"):
        raise raised["active"]


def test_sides_that_cannot_be() -> None:
    """An active party that names a row twice, or more rows than there are, or a checkpoint that nobody has."""
    some, none, many = (RowMask.pack(np.array(mask)) for mask in ([True, False, False], [False] * 3, [False] * 4))
    wrong: list[tuple[RowSplit, Code, int | None, str]] = [
        (RowSplit(some, some, 0), "peer-message", None, "validation and a test"),
        (RowSplit(none, many, 0), "malformed", 4, "mask"),
        (
            RowSplit(none, some, 7, ids=bound(b"", digest_ids(b"", offer().ids), "active")),
            "peer-message",
            7,
            "checkpoint",
        ),
    ]
    for begin, code, value, about in wrong:

        def lie(ctx: Context, begin: RowSplit = begin) -> None:
            ctx.recv("left", Hello, (0,))
            ctx.send("left", hello("active"), (0,))
            ctx.send("left", begin, (0,))

        raised = errors_of({"active": lie, "left": lambda ctx: handshake.handshake_passive(ctx, offer())})
        with blamed("active", code, message="Begin", step=(0,), value=value, about=about):
            raise raised["left"]


def test_ids_travel_only_as_digests_under_a_fresh_key() -> None:
    """Two runs give two digests, and no frame holds an id."""
    ids = ["patient-8431", "patient-1207"]
    digests = []
    for _ in range(2):
        contexts: dict[str, Context] = {}

        def keep(ctx: Context, contexts: dict[str, Context] = contexts) -> Context:
            contexts[ctx.party] = ctx
            return ctx

        live(
            {
                "active": lambda ctx: handshake.handshake_active(keep(ctx), offer(ids=ids), RowMasks.in_order(2, 0, 0)),
                "left": lambda ctx: handshake.handshake_passive(keep(ctx), offer(ids=ids)),
            }
        )
        entries = [entry for ctx in contexts.values() for entry in ctx.transcript.entries]
        assert not any(name.encode() in entry.payload for entry in entries for name in ids)
        view = View(contexts["active"].transcript.header, contexts["active"].transcript.entries)
        ready = next(view.received(RowIdDigests)).message
        digests.append(ready.ids)
    assert len(set(digests)) == 2


def test_errors_have_exit_codes() -> None:
    assert issubclass(PeerError, LabelwardError)
    assert (PeerError("a", "b", code="peer-gone").exit_code, HandshakeError("x", code="disagreement").exit_code) == (
        3,
        2,
    )
    assert (
        PeerRestartedError("a", "b", code="peer-restarted").exit_code,
        PeerDisagreementError("a", "b", code="disagreement").exit_code,
    ) == (3, 2)
