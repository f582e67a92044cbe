"""A party's process in the network: attempts of a run, and its end.

::

    network = Network(endpoint, credentials, run=identity, log=log)
    while (end := network.attempt()) is not None:
        ... the program, with this end ...            # PeerRestarted: the next turn of the loop
        end.close()
        ... the share is written ...
        network.conclude(mark)                        # PeerRestarted: the next turn of the loop
        break
    network.close()

Parts: :mod:`.hub` and :mod:`.link` carry envelopes; :mod:`.agreement`, :mod:`.session` and :mod:`.peer` make of them
sealed streams between processes that lose nothing; :mod:`.coordination` says who begins attempts and when a run ends;
:mod:`.attempt` is what a program sees. What survives what:

- a connection, the hub's or a relay's process: sessions go on where they were;
- a party's process: the present attempt is interrupted at all parties, and the next one begins when it is back;
- all processes: the next attempt begins when all are back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from labelward.transport.base import Transport
from labelward.transport.grpc.attempt import NetworkEnd
from labelward.transport.grpc.coordinator import Active, Passive
from labelward.transport.grpc.diagnose import Probe, probe
from labelward.transport.grpc.endpoint import Endpoint, Log, PeerInfo, host_port, too_long
from labelward.transport.grpc.hub import Hub, Register, encode_register
from labelward.transport.grpc.hub_client import Link
from labelward.transport.grpc.node import Station
from labelward.transport.grpc.rpc import Listener
from labelward.transport.grpc.session_handshake import VERSION

if TYPE_CHECKING:
    from labelward.transport.certificates import Credentials

__all__ = ["Network"]

_FLUSH: Final = 5.0  # seconds to wait, at the end, for acknowledgements of what was sent last


class Network:
    """One for each process and run. Threads of its own do all that waits for other machines.

    Args:
        endpoint: own place.
        credentials: own certificate, key and authority.
        run: identity of the run, which all parties must name; 1 to 100 characters.
        log: called with (event, fields) from any thread; it must be quick and must not call the network. Events:
            "listening", "connected", "disconnected", "session", "refused", "waiting", "attempt", "away", "finished",
            "unacknowledged". No field carries a private value.

    Raises:
        InputError: this party listens, and cannot at ``endpoint.listen``.
    """

    def __init__(self, endpoint: Endpoint, credentials: Credentials, *, run: str, log: Log) -> None:
        self.endpoint = endpoint
        self._station = Station(endpoint, credentials, run, log)
        active = endpoint.party == endpoint.active
        self._active = Active(self._station) if active else None
        self._passive = None if active else Passive(self._station)
        self._hub: Hub | None = None
        self._listener: Listener | None = None
        self._link: Link | None = None
        self._own: Probe | None = None
        self._closed = threading.Event()
        if endpoint.listen is not None:
            self._listen(endpoint.listen)
        else:
            register = Register(VERSION, run, endpoint.party, self._station.incarnation)
            self._link = Link(self._station, encode_register(register))
            self._station.post = self._link.post
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="labelward-heartbeat")
        self._ticker.start()

    @property
    def port(self) -> int | None:
        """The port at which this party listens; None where it does not."""
        return self._listener.port if self._listener else None

    def attempt(self, *, finished: bool = False) -> Transport | None:
        """Wait until all parties are here, and return this party's end in the next attempt.

        Args:
            finished: the active party: the run is marked as finished, and this call only tells those who still wait
                (at most ``timeout`` seconds, 30 where nobody is there). A passive party: its share is on disk.

        Returns:
            The end; None where the run is finished. A passive party then marks it, and :meth:`close` tells the active
            party that it knows.

        Raises:
            PeerError: a peer is away for ``timeout`` seconds (names it, and the last reason), or has failed.
        """
        if self._active is not None:
            if finished:
                self._active.linger()
                return None
            return NetworkEnd(self._station, self._active.gather())
        assert self._passive is not None
        attempt = self._passive.gather(finished)
        return None if attempt is None else NetworkEnd(self._station, attempt)

    def conclude(self, mark: Callable[[], None]) -> None:
        """This party's share is on disk: end the run together with all others.

        Args:
            mark: called once, when the shares of all parties are on disk; its errors are raised.

        Raises:
            PeerRestarted: a peer came back without its share; the run goes on with the next attempt.
            PeerError: a peer is away for ``timeout`` seconds, or has failed.
        """
        side = self._active or self._passive
        assert side is not None
        side.conclude(mark)

    def uninformed(self) -> tuple[str, ...]:
        """Return who has not said that it knows of the run's end, once the active party has told it; else nobody."""
        return () if self._active is None else self._active.uninformed()

    def fail(self, reason: str) -> None:
        """Tell all peers that the run has failed here, where there is no attempt whose end could be told."""
        side = self._active or self._passive
        assert side is not None
        side.fail(reason)

    def peers(self) -> dict[str, PeerInfo]:
        """Return what is known of each peer that has had a session."""
        from labelward.transport.certificates import fingerprint

        found = self._look()
        infos = {}
        with self._station.lock:
            for name, peer in self._station.peers.items():
                if peer.certificate is None:
                    continue
                member = self._hub.member(name) if self._hub else None
                infos[name] = PeerInfo(
                    party=name,
                    identity=peer.certificate.subject.rfc4514_string(),
                    fingerprint=fingerprint(peer.certificate),
                    tls=found.tls if found else None,
                    cipher=found.cipher if found else None,
                    address=member.address if member else self.endpoint.address,
                    sealed=peer.session is not None,
                )
        return infos

    def close(self) -> None:
        """Send what has to arrive, say good-bye, and end all threads; at most some seconds."""
        if self._closed.is_set():
            return
        if self._passive is not None:
            self._passive.acknowledge()
        self._flush()
        self._closed.set()
        self._ticker.join()
        with self._station.lock:
            for peer in self._station.peers.values():
                peer.close(bye=True)
        if self._link is not None:
            self._link.close()
        if self._listener is not None:
            self._listener.close()

    def _listen(self, listen: str) -> None:
        station, endpoint = self._station, self.endpoint
        self._hub = Hub(
            endpoint.party,
            endpoint.parties,
            station.log,
            run=station.run,
            deliver=station.deliver,
            joined=station.refresh,
            left=station.away,
        )
        station.post = self._hub.post
        self._listener = Listener(self._hub, listen, station.credentials, endpoint.heartbeat)
        station.log("listening", {"listen": listen, "port": self._listener.port})

    def _look(self) -> Probe | None:
        """Return what TLS the links have: all end at the listener, which offers one version."""
        if self._link is not None:
            return self._link.found
        if self._own is None and self._listener is not None:
            host, port = host_port(self.endpoint.listen or "", "listen")[0], self._listener.port
            via = ({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)
            self._own = probe(self.endpoint.address, self._station.credentials, self.endpoint.party, via=via)
        return self._own

    def _tick(self) -> None:
        pause = min(1.0, max(0.05, self.endpoint.heartbeat / 4))
        while not self._closed.wait(pause):
            self._station.tick()
            if self._link is not None:
                self._link.tick()

    def _flush(self) -> None:
        """Wait for acknowledgements, from those that are still there."""
        until, lock = time.monotonic() + min(_FLUSH, self.endpoint.timeout), self._station.lock
        silence = too_long(self.endpoint.heartbeat)
        with lock:
            if self._station.fatal is not None:
                return
            sessions = [peer.session for peer in self._station.peers.values() if peer.session is not None]
            for session in sessions:
                if not session.settled:
                    session.control(ask=True)
            while (now := time.monotonic()) < until and any(
                not (each.settled or each.gone) and now - each.heard < silence for each in sessions
            ):
                lock.wait(0.1)
