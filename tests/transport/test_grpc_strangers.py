"""Who is refused, and why, in words; and what those can do who are not."""

from __future__ import annotations

import gc
import itertools
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from loopback import RUN, Log, authority, credentials, network, networks, together

from blames import blamed
from labelward.errors import InputError
from labelward.transport.certificates import Credentials, new_authority, new_party
from labelward.transport.grpc import Network, diagnose_listener, hub_client, serve_relay
from labelward.transport.grpc.envelope import HELLO, LARGEST, pack_envelope
from labelward.transport.grpc.hub import Registration, encode_registration
from labelward.transport.grpc.rpc import METHOD, REGISTER, load_grpc
from refusals import refused

pytestmark = pytest.mark.network

TWO = ("bank", "telco")
THREE = ("bank", "telco", "shop")
LONG_AGO = datetime.now(UTC) - timedelta(days=100)
LATER = datetime.now(UTC) + timedelta(days=10)


def issued(party: str, *, by: Any = None, trust: Any = None, **how: Any) -> Credentials:
    made = new_party(by or authority(), party, addresses=["127.0.0.1"], **how)
    return Credentials(party=party, chain=made.certificate, key=made.key, authority=(trust or authority()).certificate)


def as_party(made: Credentials, party: str) -> Credentials:
    return Credentials(party=party, chain=made.chain, key=made.key, authority=made.authority)


@contextmanager
def waiting(bank: Credentials | None = None, **changes: Any) -> Iterator[tuple[Network, Log, Network, Log]]:
    """A bank and a telco of which one is not what it should be."""
    logs = Log(), Log()
    first = network("bank", TWO, credentials=bank, log=logs[0])
    second = network("telco", TWO, first.port or 0, log=logs[1], timeout=0.2, **changes)
    try:
        with patch.object(hub_client, "_UNFIT", 60.0):  # which ends a wait with another error
            until(lambda: logs[1].of("disconnected"))
            yield first, logs[0], second, logs[1]
    finally:
        second.close()
        first.close()


OTHER = new_authority(name="another authority")
CASES = {
    "expired": (issued("telco", days=30, now=LONG_AGO), "expired"),
    "not yet valid": (issued("telco", now=LATER), "own certificate: .*clock"),
    "unknown authority": (issued("telco", by=OTHER), "authority"),
    "of another party": (as_party(issued("shop"), "telco"), "shop"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_certificate_of_who_connects(case: str) -> None:
    wrong, words = CASES[case]
    with waiting(credentials=wrong) as (_, _, telco, log):
        with blamed("bank", "peer-gone") as caught:
            telco.attempt()
        assert re.search(f"(?i:{words})", caught.value.reason)
        assert not log.of("session")


LISTENERS = {
    "expired": (issued("bank", days=30, now=LONG_AGO), "expired"),
    "unknown authority": (issued("bank", by=OTHER), "authority"),
    "of another party": (as_party(issued("shop"), "bank"), "shop"),
    "of another machine": (
        Credentials(
            party="bank",
            chain=(elsewhere := new_party(authority(), "bank", addresses=["bank.example"])).certificate,
            key=elsewhere.key,
            authority=authority().certificate,
        ),
        "bank.example.*'127.0.0.1'",
    ),
}


@pytest.mark.parametrize("case", LISTENERS)
def test_a_wrong_certificate_of_the_listener(case: str) -> None:
    wrong, words = LISTENERS[case]
    with waiting(wrong) as (_, _, telco, log):
        with blamed("bank", "peer-gone") as caught:
            telco.attempt()
        assert re.search(f"(?i:{words})", caught.value.reason)
        assert not log.of("session")


def test_a_listener_that_trusts_another_authority_says_so_to_the_one_who_connects() -> None:
    other = issued("bank", trust=OTHER)
    with waiting(other) as (_, log, telco, _), blamed("bank", "peer-gone", about="this party's certificate"):
        assert "authority.crt" in log.of("refused")[0]["reason"]
        telco.attempt()


def test_a_valid_certificate_of_a_stranger_is_refused_and_logged() -> None:
    with networks(TWO, log=(log := Log())) as made:
        stranger = network("shop", THREE, made["bank"].port or 0)
        try:
            until(lambda: log.of("refused"))
        finally:
            stranger.close()
        line = log.of("refused")[0]
        assert line["peer"] == "shop"
        assert len(line["fingerprint"]) == 64
        assert "127.0.0.1" in line["address"]
        assert "no party" in line["reason"]


def test_who_says_to_be_somebody_else_is_refused_and_logged() -> None:
    """A party with a certificate of its own name registers under another's."""
    with networks(THREE, log=(log := Log())) as made:
        answer = raw_call(made["bank"].port or 0, credentials("shop"), Registration(1, RUN, "telco", bytes(16)))
        assert "'shop'" in answer
        assert "'telco'" in answer
        assert any("says to be 'telco'" in line["reason"] for line in log.of("refused"))
        assert None not in together(**{party: each.attempt for party, each in made.items()}).values()


@pytest.mark.parametrize(
    ("register", "words"),
    [
        (Registration(9, RUN, "telco", bytes(16)), "version 9 of"),
        (Registration(1, "f" * 64, "telco", bytes(16)), "another run"),
        (Registration(1, RUN, "telco", b"short"), "which process"),
        (None, "nothing that this version"),
    ],
)
def test_what_is_said_when_connecting_is_looked_at(register: Registration | None, words: str) -> None:
    with networks(TWO, log=(log := Log())) as made:
        assert words in raw_call(made["bank"].port or 0, credentials("telco"), register)
        assert any(words in line["reason"] for line in log.of("refused"))


def test_a_party_that_sends_in_anothers_name_is_disconnected() -> None:
    with networks(THREE, log=(log := Log())) as made:
        linked(made)
        register = Registration(1, RUN, "telco", b"t" * 16)
        forged = pack_envelope(HELLO, "shop", "bank", b"x")
        answer = raw_call(made["bank"].port or 0, credentials("telco"), register, forged, hold=True)
        assert "from 'shop' to 'bank'" in answer
        assert any("from 'shop' to 'bank'" in line["reason"] for line in log.of("refused"))


def test_an_envelope_over_the_limit_closes_the_connection_with_a_reason() -> None:
    with networks(THREE) as made:
        linked(made)
        register = Registration(1, RUN, "telco", b"t" * 16)
        answer = raw_call(made["bank"].port or 0, credentials("telco"), register, bytes(LARGEST + 1), hold=True)
        assert answer.strip()


def test_tls_older_than_1_3_is_not_spoken() -> None:
    with networks(TWO) as made:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with (
            socket.create_connection(("127.0.0.1", made["bank"].port or 0)) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(plain)


def test_who_stays_silent_or_takes_nothing_holds_nobody_up() -> None:
    """Connections that say nothing, connections that never read: the others talk on."""
    with networks(THREE) as made:
        port = made["bank"].port or 0
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        deaf = network("deaf", ("bank", "telco", "shop", "deaf"), port)  # is refused again and again
        try:
            ends = together(**{party: each.attempt for party, each in made.items()})
            for number in range(100):
                ends["telco"].send("shop", b"%d" % number)
                assert ends["shop"].receive(30.0) == ("telco", b"%d" % number)
        finally:
            deaf.close()
            for each in silent:
                each.close()


def test_a_member_that_never_reads_is_disconnected_and_the_queue_is_bounded() -> None:
    with networks(THREE) as made:
        hub = made["bank"]._hub
        assert hub is not None
        linked(made)
        hub._limit = 100_000
        done = threading.Event()
        shop = Registration(1, RUN, "shop", b"s" * 16)
        port = made["bank"].port or 0
        thread = threading.Thread(target=lambda: raw_call(port, credentials("shop"), shop, stop=done))
        thread.start()
        until(lambda: (found := hub.member("shop")) is not None and found.register.incarnation == b"s" * 16)
        member = hub.member("shop")
        assert member is not None
        for _ in range(1000):  # what others would send to it
            hub.post(pack_envelope(HELLO, "bank", "shop", bytes(50_000)))
            assert member.outbox._size <= 100_000
            if member.closed:
                break
        assert "too slowly" in str(member.closed[0])
        done.set()
        thread.join(30)


MARKER = b"SECRET-LABELS-OF-THE-BANK"


def test_a_relay_never_holds_a_readable_frame() -> None:
    """Every byte that passes the relay, and all that its process holds afterwards, from a process of its own."""
    program = f"""
import gc, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from labelward.transport.certificates import Credentials
from labelward.transport.grpc import serve_relay
read = lambda name: open(sys.argv[1] + "/" + name, "rb").read()
mine = Credentials(party="relay", chain=read("relay.crt"), key=read("relay.key"), authority=read("authority.crt"))
relay = serve_relay("127.0.0.1:0", mine, ("bank", "telco", "shop"), log=lambda event, fields: None)
passed, route = [], relay.hub.arrived
def arrived(member, raw):
    passed.append(bytes(raw))
    route(member, raw)
relay.hub.arrived = arrived
print(relay.port, flush=True)
sys.stdin.readline()  # until the test has looked into this process
print(len(passed), sum(map(len, passed)), flush=True)
sys.stdin.readline()
relay.close()
"""
    with _relay_files() as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            made = {party: network(party, THREE, port, listener="relay") for party in THREE}
            ends = together(**{party: each.attempt for party, each in made.items()})
            for sender, receiver in itertools.permutations(THREE, 2):
                ends[sender].send(receiver, MARKER * 1000)
            for party in THREE:
                assert [len(ends[party].receive(30.0)[1]) for _ in range(2)] == [len(MARKER) * 1000] * 2  # type: ignore[index]
            for each in made.values():
                each.close()
            found = memory_count(process.pid, MARKER)
            process.stdin.write(b"\n")
            process.stdin.flush()
            count, size = map(int, process.stdout.readline().split())
            assert count > 6
            assert size > 6 * len(MARKER) * 1000  # it did pass, and all of it was still there
            assert found == 0
            assert memory_count(process.pid, b"BEGIN CERTIFICATE") > 0  # the search does find what is there
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert sorted(path.name for path in folder.iterdir()) == ["authority.crt", "relay.crt", "relay.key"]
            process.wait(30)
        finally:
            process.kill()
            process.communicate()


def test_the_listening_party_relays_what_it_cannot_read() -> None:
    """Between passive parties: neither what passes the hub nor any object of it holds the marker."""
    passed: list[bytes] = []
    with networks(THREE) as made:
        hub = made["bank"]._hub
        assert hub is not None
        arrived = hub.arrived

        def tap(member: Any, raw: bytes) -> None:
            passed.append(bytes(raw))
            arrived(member, raw)

        hub.arrived = tap  # type: ignore[method-assign]
        ends = together(**{party: each.attempt for party, each in made.items()})
        ends["telco"].send("shop", MARKER * 1000)
        assert ends["shop"].receive(30.0) == ("telco", MARKER * 1000)
        seen: set[int] = set()
        reached = _reachable(hub, seen)
    assert sum(map(len, passed)) > len(MARKER) * 1000
    assert not any(MARKER in raw for raw in passed)
    assert reached
    assert not any(MARKER in raw for raw in reached)


def test_two_relays_of_one_name_cannot_be() -> None:
    with refused(InputError, "conflict", value="bank"):
        serve_relay("127.0.0.1:0", credentials("bank"), TWO, log=Log())


def test_parties_of_two_runs_do_not_meet_at_a_relay() -> None:
    relay = serve_relay("127.0.0.1:0", credentials("relay"), TWO, log=Log(), heartbeat=0.2)
    bank = network("bank", TWO, relay.port, listener="relay", timeout=0.2)
    telco = network("telco", TWO, relay.port, listener="relay", run="f" * 64, timeout=60.0)
    try:
        until(lambda: "another run" in bank._node.peers["telco"].reason)
        with blamed("telco", "peer-gone", value=0.2, about="another run"):
            bank.attempt()
    finally:
        telco.close()
        bank.close()
        relay.close()


def test_the_probe_tells_why() -> None:
    mine = credentials("telco")
    with networks(TWO) as made:
        found = diagnose_listener(f"127.0.0.1:{made['bank'].port}", mine, "bank")
        assert (found.reason, found.tls) == (None, "TLSv1.3")
        assert "'bank'" in str(diagnose_listener(f"127.0.0.1:{made['bank'].port}", mine, "shop").reason)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        assert "within 0.3 s" in str(diagnose_listener(f"127.0.0.1:{port}", mine, "bank", timeout=0.3).reason)
    assert "nobody listens" in str(diagnose_listener(f"127.0.0.1:{port}", mine, "bank").reason)
    assert "is not known (DNS)" in str(diagnose_listener("no-such-machine.invalid:7443", mine, "bank").reason)
    assert "expired" in str(diagnose_listener("127.0.0.1:1", CASES["expired"][0], "bank").reason)


def test_other_programs_can_be_started_while_the_network_works() -> None:
    """As the encryption workers are."""
    with networks(TWO) as made:
        ends = together(**{party: each.attempt for party, each in made.items()})
        for number in range(3):
            out = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
            assert (out.stdout, out.stderr) == ("42\n", "")
            ends["bank"].send("telco", b"%d" % number)
            assert ends["telco"].receive(30.0) == ("bank", b"%d" % number)


# -- helpers -----------------------------------------------------------------------------------------------------------


def until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.01)


def linked(made: dict[str, Network]) -> None:
    """Wait until all parties are connected, so that who connects next in a party's name is the newer one."""
    hub = made["bank"]._hub
    assert hub is not None
    until(lambda: all(hub.member(party) is not None for party in made if party != "bank"))


def raw_call(
    port: int,
    made: Credentials,
    register: Registration | None,
    *envelopes: bytes,
    hold: bool = False,
    stop: threading.Event | None = None,
) -> str:
    """Speak to a listener without a network's manners; return its last words."""
    grpc = load_grpc()
    secure = grpc.ssl_channel_credentials(made.authority, made.key, made.chain)
    released = threading.Event()

    def requests() -> Iterator[bytes]:
        yield from envelopes
        if hold or stop is not None:
            (stop or released).wait(30)

    settings = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(f"127.0.0.1:{port}", secure, settings) as channel:
        said = encode_registration(register) if register else b"\xff\xff"
        call = channel.stream_stream(METHOD)(requests(), metadata=((REGISTER, said),))
        try:
            if stop is not None:
                stop.wait(30)
            for _ in call:
                pass
        except grpc.RpcError as error:
            return str(error.details())
        finally:
            released.set()
            call.cancel()
    return ""


def memory_count(process: int, marker: bytes) -> int:
    """Return how often some bytes are in the memory of another process, all of it."""
    count = 0
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        for line in maps:
            where, mode = line.split()[:2]
            if not mode.startswith("r") or "[v" in line:
                continue
            low, high = (int(each, 16) for each in where.split("-"))
            memory.seek(low)
            for load_grpc in range(low, high, 1 << 24):
                try:
                    count += memory.read(min(1 << 24, high - load_grpc)).count(marker)
                except OSError:  # pages that are not there
                    break
    return count


def _reachable(root: object, seen: set[int]) -> list[bytes]:
    """Return all bytes that can be reached from the hub, but not through the listening party itself."""
    found, waiting = [], [root]
    while waiting:
        each = waiting.pop()
        if (
            id(each) in seen
            or isinstance(each, type | Network)
            or type(each).__name__ in ("module", "Station", "frame")
        ):
            continue
        seen.add(id(each))
        if isinstance(each, bytes):
            found.append(each)
        elif not callable(each) or hasattr(each, "__self__"):
            waiting.extend(gc.get_referents(each))
    return found


@contextmanager
def _relay_files() -> Iterator[Path]:
    import tempfile

    made = credentials("relay")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "relay.crt").write_bytes(made.chain)
        (folder / "relay.key").write_bytes(made.key)
        (folder / "authority.crt").write_bytes(made.authority)
        yield folder
