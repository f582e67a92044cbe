"""``labelward relay``: forwards sealed messages between parties that cannot accept connections."""

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

_SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "listening": lambda event: f"listening at {event['listen']}",
    "connected": lambda event: (
        f"{event['peer']} connected from {event['address']} (certificate {event['fingerprint'][:16]})"
    ),
    "certificate": lambda event: f"the files of certificates changed; own certificate {event['fingerprint'][:16]}",
    "disconnected": lambda event: f"{event['peer']} disconnected: {event['reason']}",
    "refused": lambda event: f"refused {event.get('peer', 'somebody')} from {event['address']}: {event['reason']}",
    "stopped": lambda event: "stopped; parties reconnect without loss when the relay is restarted",
}


def relay_command(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on, such as 0.0.0.0:7443.")],
    party: Annotated[
        list[str],
        typer.Option("--party", metavar="NAME", help="Party that may connect, by certificate. Give all parties."),
    ],
    certificates: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder with NAME.crt, NAME.key and authority.crt.")
    ] = Path("certs"),
    name: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Name of the relay, given as listener in the job files.")
    ] = "relay",
    heartbeat: Annotated[
        float, typer.Option(min=0.1, max=3600.0, help="Seconds between heartbeats, as in the job files.")
    ] = 5.0,
    json_log: Annotated[bool, typer.Option("--json", help="Print JSON lines on stderr instead of sentences.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors on stderr.")] = False,
) -> None:
    """Relay sealed messages for parties that cannot accept connections, until stopped by SIGTERM or Ctrl-C.

    The relay sees who is connected and how many bytes are sent to whom, but not their content. It stores nothing.
    """
    from labelward.cli._output import StderrWriter
    from labelward.errors import InputError
    from labelward.transport.certificates import Credentials
    from labelward.transport.grpc import serve_relay

    if len(set(party)) != len(party) or len(party) < 2:
        reason = f"give two or more different names; got {', '.join(map(repr, party))}"
        raise InputError(reason, code="duplicate", field="--party", value=tuple(party))
    credentials = Credentials.load(certificates, name)

    def log(event: str, details: Mapping[str, Any]) -> None:
        if quiet or (event not in _SENTENCES and not json_log):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, **details}) if json_log else _SENTENCES[event](details)
        writer(line)

    writer = StderrWriter()
    try:
        with _stop_signal() as stop:
            served = serve_relay(listen, credentials, tuple(party), log=log, heartbeat=heartbeat)
            try:
                stop.recv(1)
            finally:
                served.close()
        log("stopped", {})
    finally:
        writer.close()


@contextlib.contextmanager
def _stop_signal() -> Iterator[socket.socket]:
    """Yield a socket that receives a byte at SIGTERM or Ctrl-C.

    Waiting for an event instead would miss a signal that arrives just before the wait starts.
    """
    receiver, sender = socket.socketpair()
    with receiver, sender:
        sender.setblocking(False)
        previous = signal.set_wakeup_fd(sender.fileno())
        handlers = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield receiver
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous)
