"""Endpoint: the place of a party in the network, and what it knows of its peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from labelward.errors import InputError

Log = Callable[[str, Mapping[str, Any]], None]
"""Called with (event, its fields) from any thread, with locks held: it must be quick and must not call the network."""


FrameLimit = Callable[[memoryview], int | None]
"""Called with the first bytes of a message, returns how many bytes it may have; None: as many as any message."""


def split_host_port(address: str, field: str) -> tuple[str, int]:
    """Split ``host:port`` (``[host]:port`` for IPv6); :class:`InputError` names the field."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not (colon and host and port.isdecimal() and int(port) < 65536) or (":" in host and not bracketed):
        raise InputError(f"{field} = {address!r} is no HOST:PORT", code="type", value=address)
    return (host[1:-1] if bracketed else host), int(port)


def silence_limit(heartbeat: float) -> float:
    """Return the number of seconds after which a silent connection is renewed.

    grpcio's own keepalive was seen to take a minute. A whole envelope of 512 KiB needs less than 20 s at 256 kbit/s.
    """
    return max(2.0, 4 * heartbeat)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Place of one party in the network."""

    party: str
    parties: tuple[str, ...]  # all parties of the run, the active one first
    listener: str  # the party that listens, or, if no party has this name, a relay
    address: str  # ``host:port`` at which the others reach the listener
    listen: str | None = None  # ``host:port`` at which the listening party listens; None at the others
    timeout: float = 600.0  # seconds that a peer may be away before the run ends
    message_limit: int = 1 << 30  # bytes of one message
    frame_limit: FrameLimit = lambda head: None  # a further one, by what the message is
    heartbeat: float = 5.0  # seconds between two heartbeats
    silence: float = 21600.0  # seconds that a connected peer may make no progress before the run ends
    place: bytes = b""  # of the process: equal for processes of one folder, one of which may follow another

    def __post_init__(self) -> None:
        if self.party not in self.parties or len(self.parties) < 2 or len(set(self.parties)) != len(self.parties):
            reason = f"parties = {list(self.parties)} are not two or more, {self.party!r} among them"
            raise InputError(reason, code="conflict", value=self.parties)
        if (self.party == self.listener) != (self.listen is not None):
            reason = f"listen is for the listener {self.listener!r} only, and it needs one"
            raise InputError(reason, code="conflict", value=self.listen)
        if any(not 0 < len(name.encode()) < 256 for name in (*self.parties, self.listener)):
            raise InputError("the name of a party has 1 to 255 bytes", code="range")
        split_host_port(self.address, "address")
        if self.listen is not None:
            split_host_port(self.listen, "listen")
        for field in ("timeout", "message_limit", "heartbeat", "silence"):
            if not getattr(self, field) > 0:
                raise InputError(
                    f"{field} = {getattr(self, field)!r} is not positive", code="range", value=getattr(self, field)
                )

    @property
    def active(self) -> str:
        """Name of the active party."""
        return self.parties[0]

    @property
    def peers(self) -> tuple[str, ...]:
        """All other parties, in party order."""
        return tuple(name for name in self.parties if name != self.party)


@dataclass(frozen=True, kw_only=True)
class PeerInfo:
    """Connection and identity of a peer."""

    party: str
    identity: str  # subject of its certificate
    fingerprint: str  # SHA-256 of its certificate, in hexadecimal
    tls: str | None  # TLS version of the connection; None before the first one
    cipher: str | None
    address: str
    sealed: bool  # whether a session, sealed end to end, exists
