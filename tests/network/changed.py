"""``labelward`` with something changed, as texts ``CHANGE=VALUE`` say.

``noise=FILE``: a defense draws from a seeded stream whose number is that of the line that the draw adds to the file.
``version=V``: it calls itself another version.
``transport=V``: it speaks another version of the transport.
``heard=FILE``: a piece of each long message that it sends is written to the file, in hexadecimal, before it is sealed.
``mangle=SEED``: as a relay it delivers some envelopes twice, late or never.
``fails=STEP``: an error that nobody foresaw, when so many trees are done.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import fixed_seeds  # noqa: F401  (companies draw privately what the undisturbed run draws)

TWICE, LATE, LOST = 0.05, 0.05, 0.02
LATER = 3  # envelopes that overtake the late one


def noise(path: str) -> None:
    """Count draws across the processes of a party, and make the draw with a number the same in all runs."""
    from labelward.defenses.label_dp import NoisyLabels
    from labelward.rng import SecureRandom

    original = NoisyLabels.before_targets

    def before_targets(self: Any, targets: Any) -> Any:
        with Path(path).open("a+") as drawn:
            drawn.seek(0)
            number = len(drawn.readlines())
            drawn.write("drawn\n")
        return original(self, replace(targets, protection=SecureRandom(seed=number)))

    NoisyLabels.before_targets = before_targets  # type: ignore[method-assign]


def version(value: str) -> None:
    from labelward.party import handshake

    assert "version" in vars(handshake)
    vars(handshake)["version"] = lambda name: value


def transport(value: str) -> None:
    from labelward.transport.grpc import hub, network, peer, session_handshake

    for module in (session_handshake, hub, network, peer):
        vars(module)["VERSION"] = int(value)


def fails(trees: str) -> None:
    from labelward.party.checkpoint import Checkpoints

    original = Checkpoints.save

    def save(self: Any, number: int, *args: Any, **more: Any) -> None:
        if number >= int(trees):
            raise RuntimeError("the value 42 of row c00017 is odd")
        original(self, number, *args, **more)

    Checkpoints.save = save  # type: ignore[method-assign]


def heard(path: str) -> None:
    from labelward.transport.grpc.attempt import NetworkEnd

    original = NetworkEnd.send

    def send(self: Any, peer: str, frame: bytes) -> None:
        middle = len(frame) // 2
        piece = frame[middle : middle + 48]
        if len(set(piece)) >= 16:  # no run of zeros, which is everywhere
            with Path(path).open("a") as file:
                file.write(piece.hex() + "\n")
        original(self, peer, frame)

    NetworkEnd.send = send  # type: ignore[method-assign]


def mangle(seed: str) -> None:
    """Deliver envelopes twice, late and never; each direction between two parties has draws of its own."""
    from labelward.transport.grpc import envelope
    from labelward.transport.grpc.hub import Hub

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


CHANGES = {"mangle": mangle, "heard": heard, "noise": noise, "version": version, "transport": transport, "fails": fails}


def run(changes: Sequence[str], arguments: Sequence[str]) -> None:
    """Make the changes, and run ``labelward`` with arguments."""
    for change in changes:
        name, _, value = change.partition("=")
        CHANGES[name](value)
    sys.argv = ["labelward", *arguments]
    from labelward.cli import main

    main()
