"""``[network]``: where the parties of a real run meet, and how patient they are."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from labelward.errors import JobError
from labelward.job import _check as check

__all__ = ["NetworkSection", "split_address"]

_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?)*"
)
_LONGEST = 30 * 86400  # seconds
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class NetworkSection:
    """One party, or a relay, listens; all others connect to it.

    Attributes:
        address: where the others reach the listener, ``"HOST:PORT"``; an IPv6 address stands in brackets.
        listen: where the listener listens; None: on all addresses of its machine, at the port of ``address``.
        listener: the name of who listens; None: the active party. A name that is no party's is a relay.
        certificates: folder with ``NAME.crt``, ``NAME.key`` and ``authority.crt``.
        timeout: seconds that a peer may be away before the run ends.
        silence: seconds that a peer that is there may leave a message unsent before the run ends.
        message_limit: bytes of one message, from 1 MiB to 1 TiB.
        heartbeat: seconds between two signs of life; less than ``timeout``.
        run: tells this run from others of the same parties over the same relay; all parties give the same.
    """

    address: str = ""
    listen: str | None = None
    listener: str | None = None
    certificates: str = "certs"
    timeout: float = 600.0
    silence: float = 21600.0
    message_limit: int = 1 << 30
    heartbeat: float = 5.0
    run: str | None = None

    def __post_init__(self) -> None:
        if self.address == "":
            raise JobError(
                'required (where the others reach the listener, such as "bank.example:7443")',
                code="missing",
                field="[network] address",
            )
        split_address("[network] address", self.address)
        if self.listen is not None:
            split_address("[network] listen", self.listen)
        if self.listener is not None:
            check.name("[network] listener", self.listener)
        if self.run is not None:
            check.name("[network] run", self.run)
        check.string("[network] certificates", self.certificates)
        for key in ("timeout", "silence", "heartbeat"):
            _seconds(f"[network] {key}", getattr(self, key))
        if self.heartbeat >= self.timeout:
            raise JobError(
                f"must be less than the timeout of {self.timeout:g} s but got {self.heartbeat:g}",
                code="range",
                field="[network] heartbeat",
                value=self.heartbeat,
            )
        check.whole("[network] message_limit", self.message_limit, _MIB, 1 << 40)

    @property
    def listens_at(self) -> str:
        """Where the listener listens, ``"HOST:PORT"``."""
        return self.listen or f"0.0.0.0:{split_address('[network] address', self.address)[1]}"


def split_address(place: str, value: object) -> tuple[str, int]:
    """Return host, without brackets, and port of ``"HOST:PORT"``.

    Raises:
        JobError: names ``place`` and what is wrong.
    """
    check.string(place, value)
    host, colon, port = str(value).rpartition(":")
    if not colon or not host:
        raise JobError(
            f'must be a host and a port, such as "bank.example:7443", but got {value!r}',
            code="type",
            field=place,
            value=value,
        )
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise JobError(
            f"the port must be a number from 1 to 65535 but got {port!r} in {value!r}",
            code="range",
            field=place,
            value=value,
        )
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_address(host, ipaddress.IPv6Address):
            raise JobError(
                f"must be an IPv6 address in brackets but got {host!r} in {value!r}",
                code="type",
                field=place,
                value=value,
            )
    elif ":" in host and _is_address(host, ipaddress.IPv6Address):
        raise JobError(
            f'an IPv6 address stands in brackets, "[{host}]:{port}", but got {value!r}',
            code="type",
            field=place,
            value=value,
        )
    elif not _HOST.fullmatch(host) or (_looks_like_ipv4(host) and not _is_address(host, ipaddress.IPv4Address)):
        raise JobError(
            f"must be a host name or an IP address but got {host!r} in {value!r}", code="type", field=place, value=value
        )
    return host, int(port)


def _looks_like_ipv4(host: str) -> bool:
    return host.replace(".", "").isdigit()


def _is_address(host: str, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]) -> bool:
    try:
        kind(host)
    except ValueError:
        return False
    return True


def _seconds(place: str, value: float) -> None:
    check.number(place, value)
    if not 0 < value <= _LONGEST:  # refuses nan as well
        raise JobError(
            f"must be seconds, more than 0 and at most {_LONGEST} (30 days), but got {value}",
            code="range",
            field=place,
            value=value,
        )
