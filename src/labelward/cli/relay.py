"""``labelward relay``: a listener that is no party, and can read nothing of what it passes on."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["relay_command"]

_SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "listening": lambda told: f"listening at {told['listen']}",
    "connected": lambda told: (
        f"{told['peer']} connects from {told['address']} (certificate {told['fingerprint'][:16]})"
    ),
    "disconnected": lambda told: f"{told['peer']} has left: {told['reason']}",
    "refused": lambda told: f"refused {told['peer']} from {told['address']}: {told['reason']}",
    "stopped": lambda told: "stopped; parties connect again when the relay is back, and lose nothing",
}


def relay_command(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen, such as 0.0.0.0:7443.")],
    party: Annotated[
        list[str], typer.Option("--party", metavar="NAME", help="Who may connect, by certificate; each party.")
    ],
    certificates: Annotated[
        Path, typer.Option(metavar="FOLDER", help="With NAME.crt, NAME.key and authority.crt.")
    ] = Path("certs"),
    name: Annotated[
        str, typer.Option("--as", metavar="NAME", help="What the parties' job files call the listener.")
    ] = "relay",
    heartbeat: Annotated[
        float, typer.Option(min=0.1, max=3600.0, help="Seconds between signs of life, as in the job files.")
    ] = 5.0,
    json_log: Annotated[bool, typer.Option("--json", help="JSON lines on stderr in place of sentences.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")] = False,
) -> None:
    """Pass sealed messages on between parties none of which can listen; until it is stopped (SIGTERM or Ctrl-C).

    It learns who is connected, when, and how many bytes travel between whom. It keeps nothing on disk.
    """
    from labelward.cli._stderr_writer import StderrWriter
    from labelward.errors import InputError
    from labelward.transport.certificates import Credentials
    from labelward.transport.grpc import serve_relay

    if len(set(party)) != len(party) or len(party) < 2:
        raise InputError(
            f"two or more different names are needed, but got {', '.join(map(repr, party))}",
            code="duplicate",
            field="--party",
            value=tuple(party),
        )
    credentials = Credentials.load(certificates, name)

    def log(event: str, told: Mapping[str, Any]) -> None:
        if quiet or (event not in _SENTENCES and not json_log):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, **told}) if json_log else _SENTENCES[event](told)
        voice(line)

    voice = StderrWriter()
    try:
        with _told_to_stop() as stop:
            served = serve_relay(listen, credentials, tuple(party), log=log, heartbeat=heartbeat)
            try:
                stop.recv(1)
            finally:
                served.close()
        log("stopped", {})
    finally:
        voice.close()


@contextlib.contextmanager
def _told_to_stop() -> Iterator[socket.socket]:
    """Give a socket from which a byte comes at SIGTERM or Ctrl-C.

    Who waits for an event instead misses a signal that comes just before the waiting begins.
    """
    told, tells = socket.socketpair()
    with told, tells:
        tells.setblocking(False)
        wakened = signal.set_wakeup_fd(tells.fileno())
        before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield told
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakened)
