"""Network: the process of one party in a run over gRPC, from attempt to attempt until the end of the run.

::

    network = Network(endpoint, credentials, run=identity, log=log)
    while (end := network.attempt()) is not None:
        ... run the role program on this end ...      # PeerRestarted: continue the loop
        end.close()
        ... write the share ...
        network.conclude(mark)                        # PeerRestarted: continue the loop
        break
    network.close()

What is lost when something is lost:

- a connection, or the process of the hub or relay: nothing; sessions continue;
- the process of a party: the present attempt; the next one begins when the party is back;
- all processes: the present attempt; the next one begins when all parties are back.

``README.md`` in this folder lists the modules in reading order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from labelward.transport.base import Transport
from labelward.transport.grpc.attempt import NetworkEnd
from labelward.transport.grpc.coordinator import ActiveCoordinator, PassiveCoordinator
from labelward.transport.grpc.endpoint import Endpoint, Log, PeerInfo, silence_limit
from labelward.transport.grpc.hub import Hub, Registration, encode_registration
from labelward.transport.grpc.hub_client import HubClient
from labelward.transport.grpc.node import Node
from labelward.transport.grpc.rpc import Listener
from labelward.transport.grpc.session_handshake import VERSION

if TYPE_CHECKING:
    from labelward.transport.certificates import Credentials

_FLUSH: Final = 5.0  # seconds to wait, at the end, for acknowledgments of what was sent last


class Network:
    """Network of one process and run; its own threads do what waits for other machines.

    Args:
        run: identity of the run, which all parties must name; 1 to 100 characters.
        log: called with (event, fields) from any thread; it must be quick and must not call the network. Events:
            "listening", "connected", "disconnected", "session", "refused", "waiting", "attempt", "away", "finished",
            "unacknowledged", "expiry", "clock". No field carries a private value.

    Raises:
        InputError: this party listens, and cannot at ``endpoint.listen``.
    """

    def __init__(self, endpoint: Endpoint, credentials: Credentials, *, run: str, log: Log) -> None:
        self.endpoint = endpoint
        self._node = Node(endpoint, credentials, run, log)
        coordinator = ActiveCoordinator if endpoint.party == endpoint.active else PassiveCoordinator
        self._side: ActiveCoordinator | PassiveCoordinator = coordinator(self._node)
        self._hub: Hub | None = None
        self._listener: Listener | None = None
        self._hub_client: HubClient | None = None
        self._closed = threading.Event()
        if endpoint.listen is not None:
            self._listen(endpoint.listen)
        else:
            register = Registration(VERSION, run, endpoint.party, self._node.incarnation, endpoint.place)
            self._hub_client = HubClient(self._node, encode_registration(register))
            self._node.post = self._hub_client.post
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="labelward-heartbeat")
        self._ticker.start()

    @property
    def port(self) -> int | None:
        """The port at which this party listens; None if it does not."""
        return self._listener.port if self._listener else None

    def attempt(self, *, finished: bool = False) -> Transport | None:
        """Wait until all parties are here, and return this party's end in the next attempt.

        Args:
            finished: the active party: the run is marked as finished, and this call only tells those who still wait
                (at most ``timeout`` seconds, 30 where nobody is there). A passive party: its share is on disk.

        Returns:
            The end; None where the run is finished. A passive party then marks it with :meth:`conclude`; before that,
            the active party is not told that it knows, and tells it again.

        Raises:
            PeerError: a peer is away for ``timeout`` seconds (names it, and the last reason), or has failed.
        """
        attempt = self._side.await_parties(finished)
        return None if attempt is None else NetworkEnd(self._node, attempt)

    def conclude(self, mark: Callable[[], None]) -> None:
        """End the run together with all parties; the share of this party must be on disk.

        Args:
            mark: called once, when the shares of all parties are on disk; its errors are raised, and the active party
                is then not told that this one knows of the end.

        Raises:
            PeerRestarted: a peer came back without its share; the run goes on with the next attempt.
            PeerError: a peer is away for ``timeout`` seconds, or has failed.
        """
        self._side.finish(mark)

    def uninformed(self) -> tuple[str, ...]:
        """Return the parties that have not acknowledged the end of the run; at a passive party none."""
        return self._side.uninformed()

    def fail(self, reason: str) -> None:
        """Report to all peers that the run has failed here, outside of an attempt."""
        self._side.fail(reason)

    def announce(self, reason: str, patience: float) -> tuple[str, ...]:
        """Tell each peer, as soon as it is there, that this party cannot begin; return those that were told.

        Args:
            reason: what they are told; without private values.
            patience: seconds to wait for them.
        """
        return self._side.announce(reason, patience)

    def peers(self) -> dict[str, PeerInfo]:
        """Return connection and identity of each peer that has had a session."""
        from labelward.transport.certificates import fingerprint

        tls, cipher = self._tls()
        infos = {}
        with self._node.lock:
            for name, peer in self._node.peers.items():
                if peer.certificate is None:
                    continue
                member = self._hub.member(name) if self._hub else None
                infos[name] = PeerInfo(
                    party=name,
                    identity=peer.certificate.subject.rfc4514_string(),
                    fingerprint=fingerprint(peer.certificate),
                    tls=tls,
                    cipher=cipher,
                    address=member.address if member else self.endpoint.address,
                    sealed=peer.session is not None,
                )
        return infos

    def close(self) -> None:
        """Wait a few seconds for acknowledgments, send good-bye, and end all threads."""
        if self._closed.is_set():
            return
        self._side.acknowledge()
        self._flush()
        self._closed.set()
        self._ticker.join()
        with self._node.lock:
            for peer in self._node.peers.values():
                peer.close(bye=True)
        if self._hub_client is not None:
            self._hub_client.close()
        if self._listener is not None:
            self._listener.close()

    def _listen(self, listen: str) -> None:
        node, endpoint = self._node, self.endpoint
        self._hub = Hub(
            endpoint.party,
            endpoint.parties,
            node.log,
            run=node.run,
            deliver=node.deliver,
            joined=node.refresh,
            left=node.away,
            refused=node.refused,
            disturbed=node.disturbed,
            disagreed=node.disagreed,
        )
        node.post = self._hub.post
        self._listener = Listener(self._hub, listen, lambda: node.credentials, endpoint.heartbeat)
        node.log("listening", {"listen": listen, "port": self._listener.port})

    def _tls(self) -> tuple[str | None, str | None]:
        """Return the TLS version and cipher, which are those of the listener for all connections."""
        if self._listener is not None:
            return self._listener.tls
        found = self._hub_client.found if self._hub_client is not None else None
        return (None, None) if found is None else (found.tls, found.cipher)

    def _tick(self) -> None:
        pause = min(1.0, max(0.05, self.endpoint.heartbeat / 4))
        while not self._closed.wait(pause):
            self._node.tick()
            if self._hub_client is not None:
                self._hub_client.tick()

    def _flush(self) -> None:
        """Wait for acknowledgments of the peers that are still connected."""
        until, lock = time.monotonic() + min(_FLUSH, self.endpoint.timeout), self._node.lock
        silence = silence_limit(self.endpoint.heartbeat)
        with lock:
            if self._node.fatal is not None:
                return
            sessions = [peer.session for peer in self._node.peers.values() if peer.session is not None]
            for session in sessions:
                if not session.settled:
                    session.control(ask=True)
            while (now := time.monotonic()) < until and any(
                not (each.settled or each.gone) and now - each.heard < silence for each in sessions
            ):
                lock.wait(0.1)
