"""Processes that die and come back, and what a run's end says to each of them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from loopback import Log, credentials, kill, network, networks, together

from blames import blamed, refused_about
from labelward.errors import Code, InputError, OutputError, PeerDisagreementError, PeerError, PeerRestartedError
from labelward.transport.base import Failure, Transport
from labelward.transport.grpc import Network, attempt, coordinator, hub, serve_relay, session_records
from refusals import refused

pytestmark = pytest.mark.network

THREE = ("bank", "telco", "shop")


class Run:
    """Networks of three parties, each of which may be killed and started again."""

    def __init__(self) -> None:
        self.made: dict[str, Network] = {}
        self.logs: dict[str, Log] = {}
        self.marked: list[str] = []
        self.port = 0
        for party in THREE:
            self.start(party)

    def start(self, party: str) -> None:
        self.logs[party] = Log()
        self.made[party] = network(party, THREE, self.port, log=self.logs[party])
        self.port = self.port or self.made[party].port or 0

    def restart(self, party: str) -> None:
        kill(self.made[party])
        self.start(party)

    def attempt(self, **finished: bool) -> dict[str, Transport | None]:
        def begin(party: str) -> Transport | None:
            return self.made[party].attempt(finished=finished.get(party, False))

        return together(**{party: lambda party=party: begin(party) for party in THREE})  # type: ignore[misc]

    def conclude(self, party: str) -> None:
        self.made[party].conclude(lambda: self.marked.append(party))


@pytest.fixture
def run() -> Iterator[Run]:
    made = Run()
    yield made
    for each in reversed(made.made.values()):
        each.close()


def background(work: Callable[[], object]) -> list[BaseException | None]:
    """Start something; the list gets what it raised, or None, when it ends."""
    ended: list[BaseException | None] = []

    def go() -> None:
        try:
            work()
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    threading.Thread(target=go, daemon=True).start()
    return ended


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it does not come about"
        time.sleep(0.01)


def drain(end: Transport) -> None:
    """Take what has arrived before an end, and raise the end."""
    while end.receive(60.0) is not None:
        pass


def end_all(run: Run, ends: dict[str, Transport | None]) -> None:
    for end in ends.values():
        assert end is not None
        end.close()


def test_all_processes_die_and_come_back(run: Run) -> None:
    run.attempt()
    for party in THREE:
        kill(run.made[party])
    for party in reversed(THREE):  # the listener is the last
        if party != "bank":
            run.start(party)
    run.start("bank")
    ends = run.attempt()
    assert ends["telco"] is not None
    assert ends["shop"] is not None
    ends["telco"].send("shop", b"hello")
    assert ends["shop"].receive(30.0) == ("telco", b"hello")


def test_many_restarts_in_a_row(run: Run) -> None:
    for party in ("telco", "bank", "shop", "shop", "bank", "telco"):
        ends = run.attempt()
        run.restart(party)
        for other in set(THREE) - {party}:
            end = ends[other]
            assert end is not None
            with refused(PeerRestartedError, "peer-restarted"):
                end.receive(30.0)
    ends = run.attempt()
    assert None not in ends.values()


def test_a_passive_party_killed_before_its_share_was_saved(run: Run) -> None:
    """The active party's conclude is interrupted, and so is that of the others, which have saved theirs."""
    end_all(run, run.attempt())
    waiting = {party: background(lambda party=party: run.conclude(party)) for party in ("bank", "telco")}  # type: ignore[misc]
    run.restart("shop")
    again = background(lambda: run.made["shop"].attempt())
    eventually(lambda: waiting["bank"])
    assert isinstance(waiting["bank"][0], PeerRestartedError)
    assert "shop" in str(waiting["bank"][0])
    more = background(lambda: run.made["bank"].attempt())
    eventually(lambda: waiting["telco"])
    assert isinstance(waiting["telco"][0], PeerRestartedError)
    assert run.made["telco"].attempt() is not None
    eventually(lambda: again and more)
    assert again == more == [None]
    assert run.marked == []


def test_a_passive_party_killed_after_its_share_was_saved(run: Run) -> None:
    end_all(run, run.attempt())
    waiting = {party: background(lambda party=party: run.conclude(party)) for party in ("bank", "shop")}  # type: ignore[misc]
    eventually(lambda: run.made["bank"]._node.peers["shop"].progress.saved)
    run.restart("shop")
    assert not waiting["bank"]
    told: list[object] = []
    again = background(lambda: told.append(run.made["shop"].attempt(finished=True)))
    run.conclude("telco")
    eventually(lambda: again)
    assert told == [None]
    run.conclude("shop")  # acknowledges, so that nobody lingers
    eventually(lambda: waiting["bank"])
    assert waiting["bank"] == [None]
    assert sorted(run.marked) == ["bank", "shop", "telco"]


def come_back(run: Run) -> None:
    """All have saved their shares; shop is killed before it hears that the run is finished, and is back."""
    end_all(run, run.attempt())
    run.made["shop"]._node.on_note = lambda *_: None
    waiting = [background(lambda party=party: run.conclude(party)) for party in THREE]  # type: ignore[misc]
    eventually(lambda: run.made["bank"]._side.over)
    run.restart("shop")
    eventually(lambda: waiting[0] and waiting[1])
    assert waiting[:2] == [[None], [None]]
    run.made["shop"].attempt(finished=True)


def test_an_end_that_a_party_hears_when_it_is_back_is_acknowledged_once_it_is_marked(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it ends before it asks, before it marks the run, or since it cannot."""
    monkeypatch.setattr(coordinator, "_LINGER", 0.0)
    come_back(run)
    run.made["shop"].close()
    assert run.made["bank"].uninformed() == ("shop",)

    run.start("shop")
    eventually(lambda: run.made["shop"]._side.over)
    run.made["shop"].close()
    assert run.made["bank"].uninformed() == ("shop",)

    def full() -> None:
        raise OutputError("cannot be written", code="unwritable")

    run.start("shop")
    assert run.made["shop"].attempt(finished=True) is None
    with refused(OutputError, "unwritable"):
        run.made["shop"].conclude(full)
    run.made["shop"].close()
    assert run.made["bank"].uninformed() == ("shop",)

    run.start("shop")
    assert run.made["shop"].attempt(finished=True) is None
    before: list[tuple[str, ...]] = []
    run.made["shop"].conclude(lambda: before.append(run.made["bank"].uninformed()))
    eventually(lambda: run.made["bank"].uninformed() == ())
    assert before == [("shop",)]


def test_the_active_party_killed_after_it_marked_the_run(run: Run) -> None:
    """It comes back to tell those that wait."""
    end_all(run, run.attempt())
    waiting = [background(lambda party=party: run.conclude(party)) for party in ("telco", "shop")]  # type: ignore[misc]
    kill(run.made["bank"])
    run.start("bank")
    assert run.made["bank"].attempt(finished=True) is None
    for ended in waiting:
        eventually(lambda ended=ended: ended)  # type: ignore[misc]
        assert ended == [None]
    assert sorted(run.marked) == ["shop", "telco"]


def test_the_active_party_killed_before_it_marked_the_run(run: Run) -> None:
    """Those that wait for the end are called to the next attempt."""
    end_all(run, run.attempt())
    waiting = [background(lambda party=party: run.conclude(party)) for party in ("telco", "shop")]  # type: ignore[misc]
    run.restart("bank")
    again = background(lambda: run.made["bank"].attempt())
    for ended in waiting:
        eventually(lambda ended=ended: ended)  # type: ignore[misc]
        assert isinstance(ended[0], PeerRestartedError)
    both = [background(lambda party=party: run.made[party].attempt(finished=True)) for party in ("telco", "shop")]  # type: ignore[misc]
    eventually(lambda: again and all(both))
    assert again == [None]
    assert run.marked == []


def test_a_failure_between_attempts_reaches_those_who_wait(run: Run) -> None:
    end_all(run, run.attempt())
    waiting = [background(lambda party=party: run.conclude(party)) for party in ("bank", "telco")]  # type: ignore[misc]
    run.made["shop"].fail("OutputError")
    eventually(lambda: all(waiting))
    with blamed("shop", "peer-failed", about="OutputError"):
        raise waiting[0][0]  # type: ignore[misc]
    (told,) = waiting[1]  # by the bank, where shop has no session with telco yet
    assert isinstance(told, PeerError)
    assert (told.peer, told.about) in (("shop", None), ("bank", "shop"))


def test_a_failure_reaches_those_whom_the_party_has_not_met(run: Run) -> None:
    end_all(run, run.attempt())
    waiting = background(lambda: run.conclude("bank")), background(lambda: run.conclude("telco"))
    node = run.made["shop"]._node
    eventually(lambda: node.peers["telco"].session is not None)
    with node.lock:
        node.peers["telco"].session = None
        node.broadcast(session_records.RunFailed(b"", "shop", "failed: OutputError"))
    eventually(lambda: all(waiting), 10.0)
    with blamed("bank", "peer-failed", about="OutputError"):
        raise waiting[1][0]  # type: ignore[misc]


def test_a_failure_in_an_attempt_reaches_those_who_have_ended_their_part(run: Run) -> None:
    """Up to now they waited for the party that failed until it was away for longer than the timeout of a minute."""
    ends = run.attempt()
    waiting = []
    for party in ("telco", "shop"):
        end = ends[party]
        assert end is not None
        end.close()
        waiting.append(background(lambda party=party: run.conclude(party)))  # type: ignore[misc]
    eventually(lambda: all(run.made["bank"]._node.peers[party].progress.saved for party in ("telco", "shop")))
    own = ends["bank"]
    assert own is not None
    own.fail(Failure("peer-failed", "MemoryError"))
    for ended in waiting:
        eventually(lambda ended=ended: ended, 10.0)  # type: ignore[misc]
        with blamed("bank", "peer-failed", about="MemoryError"):
            raise ended[0]
    assert run.marked == []


@pytest.mark.parametrize("failed", THREE)
def test_a_failure_after_the_last_message_reaches_those_who_end_their_part(run: Run, failed: str) -> None:
    """It arrives before the others have ended their part, and after they looked for the last time."""
    ends = run.attempt()
    own, others = ends[failed], [party for party in THREE if party != failed]
    assert own is not None
    own.fail(Failure("peer-failed", "MemoryError"))
    for party in others if failed == "bank" else ["bank"]:
        eventually(lambda party=party: not run.made[party]._node.attempt.running)  # type: ignore[misc, union-attr]
    waiting = []
    for party in others:
        end = ends[party]
        assert end is not None
        end.close()
        waiting.append(background(lambda party=party: run.conclude(party)))  # type: ignore[misc]
    for ended in waiting:
        eventually(lambda ended=ended: ended, 10.0)  # type: ignore[misc]
        (told,) = ended  # by the bank, where shop has no session with telco yet
        assert isinstance(told, PeerError)
        assert (told.peer, told.about) in ((failed, None), ("bank", failed))
    assert run.marked == []


def test_an_invalid_record_ends_the_wait_of_its_receiver(run: Run) -> None:
    end_all(run, run.attempt())
    waiting = background(lambda: run.conclude("bank"))
    session = run.made["telco"]._node.peers["bank"].session
    assert session is not None
    with run.made["telco"]._node.lock:
        session.push(b"\x01no note")
    eventually(lambda: waiting, 10.0)
    with blamed("telco", "malformed", about="an invalid record"):
        raise waiting[0]


@pytest.mark.parametrize(
    ("said", "code"),
    [([], "peer-failed"), (["disagreement"], "disagreement"), (["budget"], "peer-failed"), (["new"], "peer-failed")],
)
def test_what_a_peer_says_of_a_failure_is_read(said: list[str], code: Code) -> None:
    """Of a process that says no code, one that peers use, one of another matter, and one that does not exist."""
    raw = b"\x01" + msgspec.msgpack.encode(["Failed", b"", "shop", "failed: for a reason", *said])
    item = session_records.decode_record(raw)
    assert isinstance(item, session_records.RunFailed)
    with blamed("shop", code, kind=PeerDisagreementError if code == "disagreement" else PeerError):
        raise attempt.from_record("shop", item)


def test_what_a_peer_says_of_another_party_is_a_claim_of_that_peer() -> None:
    item = session_records.RunFailed(b"", "shop", "failed: MemoryError")
    with blamed("telco", "peer-failed") as caught:
        raise attempt.from_record("telco", item)
    assert isinstance(caught.value, PeerError)
    assert caught.value.about == "shop"


def test_a_claim_that_is_passed_on_is_of_the_same_party_and_says_whose_it_is() -> None:
    """Up to now the third party was told that the one who claimed it had done it."""
    claimed = attempt.from_record("bank", session_records.RunFailed(b"", "shop", "sent a message of 5 bytes"))
    with blamed("telco", "peer-failed", about="as 'bank' says") as caught:
        raise attempt.from_record("telco", attempt.to_record(b"", claimed))
    assert isinstance(caught.value, PeerError)
    assert caught.value.about == "shop"


def test_a_peer_that_speaks_for_another_ends_the_run_in_its_own_name(run: Run) -> None:
    """Up to now the others ended with a failure of the party that it named."""
    ends = run.attempt()
    liar = run.made["telco"]._node
    with liar.lock:
        liar.broadcast(session_records.RunFailed(liar.attempt.name, "shop", "failed: MemoryError"))
    end = ends["bank"]
    assert end is not None
    with blamed("telco", "peer-failed") as caught:
        end.receive(30.0)
    assert isinstance(caught.value, PeerError)
    assert caught.value.about == "shop"


def test_a_claim_before_the_first_attempt_is_passed_on_as_a_claim(run: Run) -> None:
    """Up to now the listener passed it on in its own name."""
    waiting = {party: background(lambda party=party: run.made[party].attempt()) for party in ("bank", "shop")}  # type: ignore[misc]
    liar = run.made["telco"]._node
    eventually(lambda: liar.peers["bank"].confirmed and run.made["bank"]._node.peers["shop"].confirmed)
    with liar.lock:
        session = liar.peers["bank"].session
        assert session is not None
        session.push(session_records.note_record(session_records.RunFailed(b"", "bank", "failed: MemoryError")))
    eventually(lambda: all(waiting.values()), 30.0)
    with blamed("telco", "peer-failed") as caught:
        raise waiting["bank"][0]  # type: ignore[misc]
    assert isinstance(caught.value, PeerError)
    assert caught.value.about == "bank"
    with blamed("bank", "peer-failed", about="as 'telco' says"):
        raise waiting["shop"][0]  # type: ignore[misc]


def test_after_an_interruption_a_failure_tells_nobody(run: Run) -> None:
    """Programs that fail because an attempt was interrupted do not end the run."""
    ends = run.attempt()
    run.restart("shop")
    for party in ("bank", "telco"):
        end = ends[party]
        assert end is not None
        with refused(PeerRestartedError, "peer-restarted"):
            end.receive(30.0)
        end.fail(Failure("peer-restarted", "PeerRestarted"))
        end.close()
    assert None not in run.attempt().values()


def test_who_waits_for_a_party_that_never_comes_is_told_who_and_why() -> None:
    bank = network("bank", THREE, timeout=3.0)
    log = Log()
    telco = network("telco", THREE, bank.port or 0, timeout=60.0, log=log)
    try:
        told = background(lambda: telco.attempt())
        eventually(lambda: bank._node.peers["telco"].progress.ready)
        with blamed("shop", "peer-gone", value=3.0, about="has not connected yet"):
            bank.attempt()
        eventually(lambda: told)
        with blamed("bank", "peer-gone", about="has not connected yet") as heard:
            raise told[0]
        assert isinstance(heard.value, PeerError)
        assert heard.value.about == "shop"
        assert any("bank" in line["for"] for line in log.of("waiting"))
    finally:
        telco.close()
        bank.close()


def test_why_the_next_process_of_a_party_that_has_ended_is_refused_is_told() -> None:
    """Its end is told only as long as it does not come back."""
    with networks(("bank", "telco")) as made:
        together(**{party: each.attempt for party, each in made.items()})
        made["telco"].close()
        bank, port = made["bank"]._node, made["bank"].port or 0
        peer = bank.peers["telco"]
        eventually(lambda: bank.reason(peer) == "it has ended")
        other = network("telco", ("bank", "telco"), port, run="another")
        eventually(lambda: "another run" in bank.reason(peer))
        other.close()
        made["telco"] = network("telco", ("bank", "telco"), port)
        eventually(lambda: peer.confirmed and bank.reason(peer) == peer.reason)


def test_nobody_listens() -> None:
    log = Log()
    lonely = network("telco", THREE, 1, timeout=0.2, log=log)
    try:
        eventually(lambda: log.of("disconnected"))
        with blamed("bank", "peer-gone", value=0.2, about="nobody listens there"):
            lonely.attempt()
    finally:
        lonely.close()


def test_a_port_in_use_and_an_address_of_another_machine() -> None:
    with networks(("bank", "telco")) as made, refused_about("in use", InputError, "unsupported"):
        network("bank", ("bank", "telco"), made["bank"].port or 0)
    with refused(InputError, "unsupported", value="192.0.2.7:0"):
        serve_relay("192.0.2.7:0", credentials("relay"), ("bank", "telco"), log=Log())


def test_a_second_process_of_a_party_takes_the_place_of_the_first() -> None:
    """The first is told, and does not come back to throw out the second."""
    with networks(("bank", "telco")) as made:
        together(bank=made["bank"].attempt, telco=made["telco"].attempt)
        first = made["telco"]
        made["telco"] = network("telco", ("bank", "telco"), made["bank"].port or 0)
        try:
            with blamed("telco", "peer-failed", about="a newer process"):
                first.attempt()
        finally:
            first.close()
        newer, peer = made["telco"]._node.incarnation, made["bank"]._node.peers["telco"]
        eventually(lambda: peer.session is not None and peer.session.incarnation == newer)
        together(bank=made["bank"].attempt, telco=made["telco"].attempt)


def test_of_processes_in_two_folders_the_first_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to now the newer one took its place; two services that are started again displaced each other for ever."""
    parties = ("bank", "telco")
    log = Log()
    bank = network("bank", parties, log=log)
    port = bank.port or 0
    first = network("telco", parties, port, place=b"first")
    try:
        together(bank=bank.attempt, telco=first.attempt)
        for _ in range(5):  # as a service does
            copy = network("telco", parties, port, place=b"copy")
            with blamed("telco", "peer-failed", about="in another folder"):
                copy.attempt()
            copy.close()
        peer = bank._node.peers["telco"]
        assert peer.session is not None
        assert peer.session.incarnation == first._node.incarnation
        assert bank._node.attempt is not None
        assert bank._node.attempt.running
        assert any("in another folder" in line["reason"] for line in log.of("refused"))
        monkeypatch.setattr(hub, "_SEAT", 0.1)
        kill(first)
        eventually(lambda: log.of("disconnected"))
        time.sleep(0.2)
        second = network("telco", parties, port, place=b"copy")  # the first is away for long enough
        together(bank=bank.attempt, telco=second.attempt)
        second.close()
    finally:
        first.close()
        bank.close()


def test_a_relay_that_dies_loses_nothing() -> None:
    relay = serve_relay("127.0.0.1:0", credentials("relay"), THREE, log=Log(), heartbeat=0.2)
    made = {party: network(party, THREE, relay.port, listener="relay") for party in THREE}
    try:
        ends = together(**{party: each.attempt for party, each in made.items()})
        ends["telco"].send("shop", b"one")
        port = relay.port
        relay.close()
        ends["telco"].send("shop", b"two")
        ends["bank"].send("shop", b"three")
        relay = serve_relay(f"127.0.0.1:{port}", credentials("relay"), THREE, log=Log(), heartbeat=0.2)
        arrived = [ends["shop"].receive(30.0) for _ in range(3)]
        assert arrived.index(("telco", b"one")) < arrived.index(("telco", b"two"))
        assert ("bank", b"three") in arrived
    finally:
        for each in made.values():
            each.close()
        relay.close()


_PROCESS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from loopback import network
from labelward.errors import PeerRestartedError
from labelward.transport.certificates import Credentials
import pathlib
folder = pathlib.Path(sys.argv[2])
party, port = sys.argv[3], int(sys.argv[4])
read = lambda name: (folder / name).read_bytes()
mine = Credentials(party=party, chain=read(party + ".crt"), key=read(party + ".key"), authority=read("authority.crt"))
net = network(party, ("bank", "telco", "shop"), port, credentials=mine)
while True:
    try:
        end = net.attempt()
        while True:
            arrived = end.receive(60.0)
            if arrived and arrived[1]:
                end.send(*arrived)
            else:
                end.close()
                net.conclude(lambda: None)
                net.close()
                sys.exit(0)
    except PeerRestartedError:
        continue
"""


def test_a_process_killed_with_sigkill_comes_back(tmp_path: Path) -> None:
    """Two processes echo what they get; one is killed, twice, in the midst of it."""
    for party in ("telco", "shop"):
        made = credentials(party)
        (tmp_path / f"{party}.crt").write_bytes(made.chain)
        (tmp_path / f"{party}.key").write_bytes(made.key)
        (tmp_path / "authority.crt").write_bytes(made.authority)
    bank = network("bank", THREE)

    def start(party: str) -> subprocess.Popen[bytes]:
        here = str(Path(__file__).parent)
        return subprocess.Popen([sys.executable, "-c", _PROCESS, here, str(tmp_path), party, str(bank.port)])

    running = {party: start(party) for party in ("telco", "shop")}
    try:
        for kills in range(3):
            end = bank.attempt()
            assert end is not None
            for number in range(50):
                for party in running:
                    end.send(party, str(number).encode())
            if kills == 2:
                break
            running["telco"].kill()
            running["telco"].wait()
            running["telco"] = start("telco")
            with refused(PeerRestartedError, "peer-restarted") as caught:
                drain(end)
            assert isinstance(caught.value, PeerRestartedError)
            assert caught.value.peer in running  # shop may have met the new process before the bank did
        got = [end.receive(60.0) for _ in range(100)]
        for party in running:
            assert [each[1] for each in got if each and each[0] == party] == [b"%d" % number for number in range(50)]
        end.close()
        bank.conclude(lambda: None)
        assert [process.wait(60) for process in running.values()] == [0, 0]
    finally:
        for process in running.values():
            process.kill()
            process.wait()
        bank.close()
