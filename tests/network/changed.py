"""``labelward`` with something changed, as texts ``CHANGE=VALUE`` say.

``noise=FILE``: a defense draws from a seeded stream whose number is that of the line that the draw adds to the file.
``keys=FILE``: defenses draw their keys from a seeded stream, whose number is that of the lines in the file; a line is
added when a checkpoint has the keys.
``version=V``: it calls itself another version.
``transport=V``: it speaks another version of the transport.
``seat=SECONDS``: so long the listener keeps the place of a party that is away for the folder of its process.
``heard=FILE``: a piece of each long message that it sends is written to the file, in hexadecimal, before it is sealed.
``mangle=SEED``: as a relay it delivers some envelopes twice, late or never.
``umask=OCTAL``: of the process.
``temporary=DIR``: where it makes temporary files.
``secrets=FILE``: what must be on no disk is written to the file, in hexadecimal: primes, labels, gradients.
``hostile=KIND,COUNT``: from the message with this number on it does what :data:`HOSTILE` says; when it begins, it makes
the file ``PARTY.hostile``.
``lies=KIND``: what it sends is of other cells, counts or keys than it should be.
``fails=STEP``: an error that nobody foresaw, when so many trees are done.
``dawdles=STEP``: it stays connected and does nothing for a minute, when so many trees are done.
``interrupted=STEP``: Ctrl-C within native code, when so many trees are done.
``stops=EVENT,COUNT``: it stops (SIGSTOP) when it has logged the event so often, so that no training ends before a test
has done with it what it wants.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
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


def keys(path: str) -> None:
    """Make the first key that is stored the same in all runs, and every later one another."""
    from labelward.party.checkpoint import Checkpoints
    from labelward.policy.chain import PolicyChain
    from labelward.protocols.pivodl import boosting
    from labelward.rng import SecureRandom

    begin, record, save, file = PolicyChain.begin, boosting.record_draws, Checkpoints.save, Path(path)

    def begun(self: Any, setup: Any, protection: Any) -> None:
        number = len(file.read_text().splitlines()) if file.exists() else 0
        begin(self, setup, SecureRandom(seed=number))

    def recorded(drawing: Any, checkpoints: Any) -> None:
        record(drawing, checkpoints)
        if checkpoints.kept:
            with file.open("a") as stored:
                stored.write("stored\n")

    def saved(self: Any, number: int, *args: Any, **more: Any) -> None:
        save(self, number, *args, **more)
        if self.kept and number:
            with file.open("a") as stored:
                stored.write("stored\n")

    PolicyChain.begin = begun  # type: ignore[method-assign]
    Checkpoints.save = saved  # type: ignore[method-assign]
    boosting.record_draws = recorded


def version(value: str) -> None:
    from labelward.party import handshake

    assert "version" in vars(handshake)
    vars(handshake)["version"] = lambda name: value


def transport(value: str) -> None:
    from labelward.transport.grpc import hub, network, peer, session_handshake

    for module in (session_handshake, hub, network, peer):
        vars(module)["VERSION"] = int(value)


def seat(seconds: str) -> None:
    from labelward.transport.grpc import hub

    assert "_SEAT" in vars(hub)
    vars(hub)["_SEAT"] = float(seconds)


def fails(trees: str) -> None:
    _raises(int(trees), RuntimeError("the value 42 of row c00017 is odd"))


def dawdles(trees: str) -> None:
    from labelward.party.checkpoint import Checkpoints

    original = Checkpoints.save

    def save(self: Any, number: int, *args: Any, **more: Any) -> None:
        if number >= int(trees):
            time.sleep(60)
        original(self, number, *args, **more)

    Checkpoints.save = save  # type: ignore[method-assign]


def interrupted(trees: str) -> None:
    error = SystemError("<function f> returned a result with an exception set")
    error.__cause__ = KeyboardInterrupt()
    _raises(int(trees), error)


def _raises(trees: int, error: Exception) -> None:
    from labelward.party.checkpoint import Checkpoints

    original = Checkpoints.save

    def save(self: Any, number: int, *args: Any, **more: Any) -> None:
        if number >= trees:
            raise error
        original(self, number, *args, **more)

    Checkpoints.save = save  # type: ignore[method-assign]


def stops(value: str) -> None:
    from labelward.cli._run_log import RunLog

    (name, _, count), original = value.partition(","), RunLog._write
    left = [int(count)]

    def write(self: Any, event: str, details: Any) -> str:
        line = original(self, event, details)
        left[0] -= event == name
        if event == name and left[0] == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return line

    RunLog._write = write  # type: ignore[method-assign]


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


def umask(value: str) -> None:
    os.umask(int(value, 8))


def temporary(path: str) -> None:
    import tempfile

    Path(path).mkdir(mode=0o700, exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = path


def secrets(path: str) -> None:
    import numpy as np

    from labelward.he.paillier import engine
    from labelward.protocols.common import LabelVector
    from labelward.protocols.secureboost.row_encoding import GradientEncoder

    assert "generate_primes" in vars(engine)
    make, encode, first = vars(engine)["generate_primes"], GradientEncoder.encode, LabelVector.first
    told = dict[str, int]()

    def write(name: str, secret: bytes) -> None:
        number = told[name] = told.get(name, 0) + 1
        with Path(path).open("a") as file:
            file.write(f"{name}{os.getpid()}{number:04d} {secret.hex()}\n")  # of all processes

    def made(*args: Any) -> Any:
        primes = make(*args)
        for prime in primes:
            write("prime", int(prime.p).to_bytes((int(prime.p).bit_length() + 7) // 8, "big"))
        product = int(primes[0].p * primes[1].p)
        write("public", product.to_bytes((product.bit_length() + 7) // 8, "big"))
        return primes

    def encoded(self: Any, g: Any, *args: Any) -> Any:
        found = encode(self, g, *args)
        write("gradients", g[:16].tobytes())
        write("integers", found.values[:16].tobytes())
        return found

    def part(self: LabelVector, rows: int) -> LabelVector:
        values = self.values[:64]
        for form in (values, values.astype(np.int64), values.astype(np.uint8)):
            write("labels", form.tobytes())
        for order in ("little", "big"):
            write("bits", np.packbits(values.astype(np.uint8), bitorder=order).tobytes())  # type: ignore[call-overload]
        return first(self, rows)

    vars(engine)["generate_primes"] = made
    GradientEncoder.encode = encoded  # type: ignore[method-assign]
    LabelVector.first = part  # type: ignore[method-assign]


Send = Callable[[bytes], None]


def _garbage(node: Any, peer: str, send: Send) -> bytes:
    return bytes(range(7, 207))


def _nested(node: Any, peer: str, send: Send) -> bytes:
    return b"LW\x01\x93\xa5Hello\x90" + b"\x91" * 5000 + b"\xc0"


def _long(node: Any, peer: str, send: Send) -> bytes:
    """A text of 2 MB, where 64 kB are allowed."""
    return b"LW\x01\x93\xa5Hello\x90\x91\xdb" + (1 << 21).to_bytes(4, "big") + b"x" * (1 << 21)


def _observation(node: Any, peer: str, send: Send) -> bytes:
    """What a party keeps to itself and never sends."""
    return b"LW\x01\x93\xaaEpochOrder\x90\x80"


def _unknown(node: Any, peer: str, send: Send) -> bytes:
    return b"LW\x01\x93\xa4\x1b[2J\x90\x80"


def _future(node: Any, peer: str, send: Send) -> bytes:
    return b"LW\x09\x93\xa5Hello\x90\x80"


def _greetings(node: Any, peer: str, send: Send) -> bytes:
    """A flood of greetings, beside the run."""
    from labelward.transport.grpc import envelope

    def flood() -> None:
        while True:
            node.post(envelope.pack_envelope(envelope.HELLO, node.endpoint.party, peer, bytes(100)))
            time.sleep(0.001)

    threading.Thread(target=flood, daemon=True).start()
    return b""


def _controls(node: Any, peer: str, send: Send) -> bytes:
    """A flood of control records, beside the run."""

    def flood() -> None:
        while True:
            with node.lock:
                if (session := node.peers[peer].session) is not None:
                    session.control(ask=True)

    threading.Thread(target=flood, daemon=True).start()
    return b""


def _unawaited(node: Any, peer: str, send: Send) -> bytes:
    """Valid messages that nobody asked for, until the run ends."""
    for number in itertools.count(10**6):
        send(_of_the_model(30_000, number))
    return b""


def _large(node: Any, peer: str, send: Send) -> bytes:
    """A message of 300 MB, of a type that has no limit of its own."""
    return _of_the_model(300 << 20, 10**6)


def _fitting(node: Any, peer: str, send: Send) -> bytes:
    """Valid messages that nobody asked for, each as long as any that is always taken."""
    from labelward.party.context import LEAST

    for number in itertools.count(10**6):
        send(_of_the_model(LEAST - 1000, number))
    return b""


def _of_the_model(size: int, number: int) -> bytes:
    """Return a message of a type that a passive party of this job's model sends, of about so many bytes."""
    import numpy as np

    from labelward.job import load_job
    from labelward.messages.base import Array, Message, Releaser
    from labelward.messages.codec import encode
    from labelward.messages.logistic import PartialScores
    from labelward.messages.pivodl import MaskedMargins, SplitSides
    from labelward.messages.pivot import MaskedShares
    from labelward.messages.splitnn import EmbeddingAnswer
    from labelward.messages.tree import PredictAnswers

    array = Array.pack(np.zeros(size // 8, np.int64))
    released = Releaser()._released(array)
    made: dict[str, Message] = {
        "pivodl": MaskedMargins(array),
        "federboost": SplitSides(1, 8, array.data),
        "pivot": MaskedShares(array),
        "logistic": PartialScores(released),
        "splitnn": EmbeddingAnswer(released),
    }
    kind = load_job(Path(sys.argv[2])).model.kind
    return encode(made.get(kind, PredictAnswers(1, 8, array.data)), (number,))


def _leaves(node: Any, peer: str, send: Send) -> bytes:
    """Not hostile: what an honest party does whose user interrupts it."""
    raise KeyboardInterrupt


HOSTILE = {
    "controls": _controls,
    "unawaited": _unawaited,
    "large": _large,
    "fitting": _fitting,
    "leaves": _leaves,
    "garbage": _garbage,
    "nested": _nested,
    "long": _long,
    "observation": _observation,
    "unknown": _unknown,
    "future": _future,
    "greetings": _greetings,
}


def hostile(value: str) -> None:
    from labelward.transport.grpc.attempt import NetworkEnd

    kind, _, count = value.partition(",")
    original, left = NetworkEnd.send, [int(count)]

    def send(self: Any, peer: str, frame: bytes) -> None:
        left[0] -= 1
        if left[0] == 0:
            Path(f"{self.party}.hostile").touch()
            frame = HOSTILE[kind](self._node, peer, partial(original, self, peer)) or frame
        original(self, peer, frame)

    NetworkEnd.send = send  # type: ignore[method-assign]


def lies(kind: str) -> None:
    """Send something else in the messages of a kind of ``pivodl``: sums of other cells, or of other rows, or no key."""
    import msgspec

    from labelward.messages.base import Array
    from labelward.messages.codec import decode, encode
    from labelward.messages.pivodl import MaskedSums, PartyKeys
    from labelward.transport.grpc.attempt import NetworkEnd

    original = NetworkEnd.send

    def send(self: Any, peer: str, frame: bytes) -> None:
        message, step = decode(frame)
        if kind == "cells" and isinstance(message, MaskedSums):
            frame = encode(MaskedSums(Array.pack(message.sums.unpack()[:, 1:])), step)
        elif kind == "counts" and isinstance(message, MaskedSums):
            frame = encode(MaskedSums(Array.pack(message.sums.unpack() + 10_000)), step)
        elif kind == "key" and isinstance(message, PartyKeys):
            frame = encode(msgspec.structs.replace(message, masks=b"short"), step)
        original(self, peer, frame)

    NetworkEnd.send = send  # type: ignore[method-assign]


CHANGES = {
    "hostile": hostile,
    "lies": lies,
    "umask": umask,
    "temporary": temporary,
    "secrets": secrets,
    "mangle": mangle,
    "heard": heard,
    "noise": noise,
    "keys": keys,
    "version": version,
    "transport": transport,
    "seat": seat,
    "fails": fails,
    "dawdles": dawdles,
    "interrupted": interrupted,
    "stops": stops,
}


def run(changes: Sequence[str], arguments: Sequence[str]) -> None:
    """Make the changes, and run ``labelward`` with arguments."""
    for change in changes:
        name, _, value = change.partition("=")
        CHANGES[name](value)
    sys.argv = ["labelward", *arguments]
    from labelward.cli import main

    main()
