"""A party that disturbs instead of taking part: all others end within seconds, and know what it did."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from loopback import RUN, credentials, networks, together

from blames import blamed
from labelward.errors import PeerError
from labelward.transport.base import Transport
from labelward.transport.grpc import Network, envelope
from labelward.transport.grpc.hub import Registration, encode_registration
from labelward.transport.grpc.rate import Rate
from labelward.transport.grpc.rpc import METHOD, REGISTER, load_grpc
from labelward.transport.grpc.session import Session
from labelward.transport.grpc.session_handshake import VERSION
from labelward.transport.grpc.session_records import AttemptReady, note_record

pytestmark = pytest.mark.network

THREE = ("bank", "telco", "shop")
SECONDS = 30.0


@contextlib.contextmanager
def bank_session(telco: Network) -> Iterator[Session]:
    """Telco's session with the bank, under the lock that it needs."""
    with telco._node.lock:
        session = telco._node.peers["bank"].session
        assert session is not None
        yield session


def garbage(telco: Network) -> None:
    """The listener closes the connection; the party connects again."""
    _post(telco, b"no envelope")
    time.sleep(0.01)


def forged(telco: Network) -> None:
    _post(telco, envelope.pack_envelope(envelope.DATA, "shop", "bank", bytes(100)))
    time.sleep(0.01)


def greetings(telco: Network) -> None:
    _post(telco, envelope.pack_envelope(envelope.HELLO, "telco", "bank", bytes(100)))


def controls(telco: Network) -> None:
    with bank_session(telco) as session:
        session.control(ask=True)


def losses(telco: Network) -> None:
    """Control records that tell of records which were never sent, so that the other side asks for them."""
    with bank_session(telco) as session:
        session._next, session._generation = session._next + 1, session._generation + 1
        session.control()
        session._next -= 1


def refusals(telco: Network) -> None:
    _post(telco, envelope.pack_envelope(envelope.REFUSAL, "telco", "bank", bytes(100)))


def notes(telco: Network) -> None:
    with bank_session(telco) as session:
        for _ in range(10):
            session.push(note_record(AttemptReady(99, False)))


def broken(telco: Network) -> None:
    with bank_session(telco) as session:
        _post(telco, session._out[envelope.DATA] + session._next.to_bytes(8, "big") + bytes(100))


def useless(telco: Network) -> None:
    _post(telco, envelope.pack_envelope(envelope.DATA, "telco", "bank", bytes(40)))


def registrations(telco: Network) -> None:
    grpc, made = load_grpc(), credentials("telco")
    secure = grpc.ssl_channel_credentials(made.authority, made.key, made.chain)
    with grpc.secure_channel(telco.endpoint.address, secure, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        for _ in range(20):
            said = encode_registration(Registration(VERSION, RUN, "telco", telco._node.incarnation))
            call = channel.stream_stream(METHOD)(iter([]), metadata=((REGISTER, said),))
            with contextlib.suppress(grpc.RpcError):
                next(call)
            call.cancel()


@pytest.mark.parametrize(
    "disturb",
    [
        *(garbage, forged, refusals, useless, registrations),
        *(pytest.param(each, marks=pytest.mark.slow) for each in (greetings, controls, losses, notes, broken)),
    ],
)
def test_a_disturber_ends_the_run_within_seconds_by_name(disturb: Callable[[Network], None]) -> None:
    """The other parties' patience is a minute."""
    done = threading.Event()
    with networks(THREE) as made:
        ends: dict[str, Transport] = together(**{party: each.attempt for party, each in made.items()})
        rates = made["bank"]._node.peers["telco"].rates
        rates.useless = Rate(500, 20)  # a busy machine reaches no higher one within the time

        def disturbing() -> None:
            while not done.is_set():
                disturb(made["telco"])
                time.sleep(0.0005)  # else threads of the others, in the same process, may get no turn for seconds

        threading.Thread(target=disturbing, daemon=True).start()
        start = time.monotonic()
        try:
            with blamed("telco", "peer-message"):
                while ends["bank"].receive(SECONDS) is not None:
                    pass
            with blamed("bank", "peer-message") as claimed:
                while ends["shop"].receive(SECONDS) is not None:
                    pass
            assert isinstance(claimed.value, PeerError)
            assert claimed.value.about == "telco"
            assert time.monotonic() - start < SECONDS
        finally:
            done.set()


@pytest.mark.slow
def test_a_run_beside_heartbeats_and_messages_is_not_blamed() -> None:
    """Much traffic of short messages, and connections that are lost again and again."""
    with networks(THREE) as made:
        ends: dict[str, Transport] = together(**{party: each.attempt for party, each in made.items()})

        def send() -> None:
            for number in range(3000):
                ends["telco"].send("bank", b"%d" % number)

        def receive() -> None:
            for number in range(3000):
                assert ends["bank"].receive(30.0) == ("telco", b"%d" % number)
                if number in (500, 1000, 2000):
                    link = made["telco"]._hub_client
                    assert link is not None
                    link._call.cancel()

        together(telco=send, bank=receive)


def _post(telco: Network, raw: bytes) -> None:
    link = telco._hub_client
    assert link is not None
    with contextlib.suppress(PeerError):
        link.post(raw)
