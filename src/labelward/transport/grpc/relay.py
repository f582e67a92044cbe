"""Relay: a hub on a machine of no party. It sees names, sizes and sealed bytes, and stores nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labelward.errors import InputError
from labelward.transport.grpc.endpoint import Log
from labelward.transport.grpc.hub import Hub
from labelward.transport.grpc.rpc import Listener

if TYPE_CHECKING:
    from labelward.transport.certificates import Credentials


class Relay:
    """A hub that serves all runs of its parties; see :func:`serve_relay`."""

    def __init__(self, hub: Hub, listener: Listener) -> None:
        self.hub, self._listener = hub, listener
        self.port = listener.port

    def close(self) -> None:
        """Close all connections; parties reconnect to the next process of the relay and lose nothing."""
        self._listener.close()


def serve_relay(
    listen: str, credentials: Credentials, parties: tuple[str, ...], *, log: Log, heartbeat: float = 5.0
) -> Relay:
    """Start a relay in threads of its own.

    Args:
        listen: ``host:port``; port 0: any that is free.
        credentials: the relay's; ``credentials.party`` is what the parties call ``listener``.
        log: called with (event, fields) from any thread: "connected", "disconnected", "refused", "listening".
        heartbeat: seconds between two heartbeats.

    Raises:
        InputError: a party has the relay's name, or the relay cannot listen there.
    """
    from labelward.transport.certificates import CredentialSource, fingerprint

    if credentials.party in parties:
        reason = f"{credentials.party!r} is a party and cannot be the relay as well"
        raise InputError(reason, code="conflict", value=credentials.party)
    hub = Hub(credentials.party, parties, log, run=None)
    source = CredentialSource(
        credentials, lambda new: log("certificate", {"fingerprint": fingerprint(new.certificate)})
    )
    listener = Listener(hub, listen, source.current, heartbeat)
    log("listening", {"listen": listen, "port": listener.port})
    return Relay(hub, listener)
