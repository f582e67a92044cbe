"""Networks of this process, on loopback, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from labelward.transport.certificates import Credentials, Issued, new_authority, new_party
from labelward.transport.grpc import Endpoint, Network

RUN = "5eed" * 16


@cache
def authority() -> Issued:
    return new_authority(now=datetime.now(UTC) - timedelta(days=200))  # older than the certificates that have expired


@cache
def credentials(party: str) -> Credentials:
    issued = new_party(authority(), party, addresses=["localhost", "127.0.0.1"])
    return Credentials(party=party, chain=issued.certificate, key=issued.key, authority=authority().certificate)


@dataclass
class Log:
    """What a network has told."""

    lines: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, event: str, fields: Mapping[str, Any]) -> None:
        self.lines.append((event, dict(fields)))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in list(self.lines) if name == event]


def endpoint(party: str, parties: tuple[str, ...], port: int, **changes: Any) -> Endpoint:
    listener = changes.pop("listener", parties[0])
    return Endpoint(
        party=party,
        parties=parties,
        listener=listener,
        address=f"127.0.0.1:{port or 1}",
        listen=f"127.0.0.1:{port}" if party == listener else None,
        **{"heartbeat": 0.2, "timeout": 60.0, **changes},
    )


def network(party: str, parties: tuple[str, ...], port: int = 0, *, log: Any = None, **changes: Any) -> Network:
    made = changes.pop("credentials", None) or credentials(party)
    run = changes.pop("run", RUN)
    return Network(endpoint(party, parties, port, **changes), made, run=run, log=log or Log())


@contextmanager
def networks(parties: tuple[str, ...], **changes: Any) -> Iterator[dict[str, Network]]:
    """A network for each party; the first is active and listens."""
    made = {parties[0]: network(parties[0], parties, **changes)}
    port = made[parties[0]].port
    assert port is not None
    try:
        for party in parties[1:]:
            made[party] = network(party, parties, port, **changes)
        yield made
    finally:
        for each in reversed(made.values()):
            each.close()


def together(**work: Callable[[], Any]) -> dict[str, Any]:
    """Do things at the same time; return what each gave, or raise what one raised."""
    results: dict[str, Any] = {}
    errors: list[BaseException] = []

    def do(name: str) -> None:
        try:
            results[name] = work[name]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=do, args=(name,), daemon=True) for name in work]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 120
    while any(thread.is_alive() for thread in threads) and not errors:
        assert time.monotonic() < until, "a party hangs"
        time.sleep(0.005)
    if errors:
        raise errors[0]
    return results


def kill(victim: Network) -> None:
    """As near to SIGKILL as a process can come to one of its own networks: nothing more is said."""
    victim._closed.set()
    victim._ticker.join()
    victim._node.post = lambda raw: None
    if victim._hub_client is not None:
        victim._hub_client.close()
    if victim._listener is not None:
        victim._listener.close()
