"""A relay as a process: ``relaying.py FOLDER PORT PARTY,PARTY [MANGLE]``; with a seed, it mangles what it carries."""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path
from typing import Any

from labelward.transport.certificates import Credentials
from labelward.transport.grpc import envelope, serve_relay
from labelward.transport.grpc.hub import Hub

TWICE, LATE, LOST = 0.05, 0.05, 0.02
LATER = 3  # envelopes that overtake the late one


def mangle(seed: int) -> None:
    """Deliver envelopes twice, late and never; each direction between two parties has draws of its own."""
    route, lock = Hub._route, threading.Lock()
    draws: dict[tuple[str, str], random.Random] = {}
    waiting: dict[tuple[str, str], list[tuple[int, tuple[Any, ...]]]] = {}

    def _route(self: Hub, run: str, kind: int, source: str, target: str, raw: bytes) -> None:
        way = (source, target)
        with lock:
            rng = draws.setdefault(way, random.Random(f"{seed} {source} {target}"))
            late = waiting.setdefault(way, [])
            draw = rng.random() if kind in (envelope.DATA, envelope.CONTROL) else 1.0
            sent = [(run, kind, source, target, raw)]
            if draw < LOST:
                sent = []
            elif draw < LOST + LATE:
                late.append((rng.randint(1, LATER), sent.pop()))
            elif draw < LOST + LATE + TWICE:
                sent *= 2
            due = [each for left, each in late if left <= 0]
            waiting[way] = [(left - 1, each) for left, each in late if left > 0]
        for each in [*sent, *due]:
            route(self, *each)

    Hub._route = _route  # type: ignore[method-assign]


def main() -> None:
    folder, port, parties, *seed = sys.argv[1:]
    if seed:
        mangle(int(seed[0]))
    credentials = Credentials.load(Path(folder), "relay")
    serve_relay(f"127.0.0.1:{port}", credentials, tuple(parties.split(",")), log=lambda event, told: print(event, told))
    threading.Event().wait()


if __name__ == "__main__":
    main()
