"""``labelward`` with something changed, as texts ``CHANGE=VALUE`` say.

``noise=FILE``: a defense draws from a seeded stream whose number is that of the line that the draw adds to the file.
``version=V``: it calls itself another version.
``transport=V``: it speaks another version of the transport.
``heard=FILE``: a piece of each long message that it sends is written to the file, in hexadecimal, before it is sealed.
``fails=STEP``: an error that nobody foresaw, when so many trees are done.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any


def noise(path: str) -> None:
    """Count draws across the processes of a party, and make the draw with a number the same in all runs."""
    from labelward.defenses.label_dp import NoisyLabels
    from labelward.rng import Protection

    original = NoisyLabels.before_targets

    def before_targets(self: Any, targets: Any) -> Any:
        with Path(path).open("a+") as drawn:
            drawn.seek(0)
            number = len(drawn.readlines())
            drawn.write("drawn\n")
        return original(self, replace(targets, protection=Protection(seed=number)))

    NoisyLabels.before_targets = before_targets  # type: ignore[method-assign]


def version(value: str) -> None:
    from labelward.party import handshake

    assert "version" in vars(handshake)
    vars(handshake)["version"] = lambda name: value


def transport(value: str) -> None:
    from labelward.transport.grpc import agreement, hub, network, peer

    for module in (agreement, hub, network, peer):
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


CHANGES = {"heard": heard, "noise": noise, "version": version, "transport": transport, "fails": fails}


def run(changes: Sequence[str], arguments: Sequence[str]) -> None:
    """Make the changes, and run ``labelward`` with arguments."""
    for change in changes:
        name, _, value = change.partition("=")
        CHANGES[name](value)
    sys.argv = ["labelward", *arguments]
    from labelward.cli import main

    main()
