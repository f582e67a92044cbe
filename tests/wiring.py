"""Whole runs with all parties in one process, and what tests look at afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.he import engine as make_engine
from labelward.messages.base import CipherDigest
from labelward.party.context import Context, Meter
from labelward.party.handshake import Agreed
from labelward.party.local import run_parties
from labelward.party.policy import Policy, PolicyChain
from labelward.party.transcript import Header, Transcript, ids_digest
from labelward.party.view import View
from labelward.protocols.tree.active import Trained, train_active
from labelward.protocols.tree.columns import Columns
from labelward.protocols.tree.params import SecureBoost
from labelward.protocols.tree.roles import ActiveOutcome, PassiveOutcome, Task, run_active, run_passive
from labelward.transport.base import Transport
from labelward.transport.inprocess import connect

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class Wire(Transport):
    """A party's end that remembers what was sent, and may dawdle, to disturb the threads' timing."""

    def __init__(self, inner: Transport, nap: Callable[[], float] | None = None) -> None:
        self.inner, self.party, self.nap = inner, inner.party, nap
        self.sent: list[tuple[str, bytes]] = []

    def send(self, peer: str, frame: bytes) -> None:
        self.sent.append((peer, frame))
        self._pause()
        self.inner.send(peer, frame)

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        self._pause()
        return self.inner.receive(timeout)

    def fail(self, reason: str) -> None:
        self.inner.fail(reason)

    def close(self) -> None:
        self.inner.close()

    def _pause(self) -> None:
        if self.nap is not None:
            time.sleep(self.nap())


@dataclass
class Run:
    """What a run left behind."""

    active: ActiveOutcome
    passive: dict[str, PassiveOutcome]
    views: dict[str, View]
    wires: dict[str, Wire]
    meters: dict[str, Meter]

    def frames_to(self, party: str) -> list[bytes]:
        return [frame for wire in self.wires.values() for peer, frame in wire.sent if peer == party]


@dataclass
class Setting:
    """A run to be made; ``parts`` and ``test`` hold each party's columns, the active party's first."""

    parts: Mapping[str, Floats]
    labels: Labels
    params: SecureBoost = field(default_factory=lambda: SecureBoost(trees=2, depth=3))
    test: Mapping[str, Floats] | None = None
    engine: str = "plain"
    bits: int = 0
    insecure: bool = True
    policies: Iterable[Policy] = ()
    seed: int = 1
    folder: Path | None = None
    timeout: float = 60.0
    job: Mapping[str, str] = field(default_factory=lambda: {"model.kind": '"secureboost"'})
    nap: Callable[[], float] | None = None

    def run(self, **changes: Any) -> Run:
        return _run(replace(self, **changes) if changes else self)

    @property
    def active(self) -> str:
        return next(iter(self.parts))

    @property
    def held_out(self) -> Mapping[str, Floats]:
        return self.parts if self.test is None else self.test


def column_names(party: str, x: Floats) -> tuple[str, ...]:
    return tuple(f"{party}{position}" for position in range(x.shape[1]))


def header(setting: Setting, party: str) -> Header:
    return Header(
        format=1,
        version="test",
        party=party,
        role="active" if party == setting.active else "passive",
        peers=tuple(other for other in setting.parts if other != party),
        rows=(len(setting.labels), len(setting.held_out[party])),
        engine=setting.engine,
        bits=setting.bits,
        insecure=("test",),
        job=dict(setting.job),
        columns=column_names(party, setting.parts[party]),
        ids=ids_digest(map(str, range(len(setting.labels)))),
    )


def _run(setting: Setting) -> Run:
    names, active = tuple(setting.parts), setting.active
    rows = (len(setting.labels), len(setting.held_out[active]))
    agreed = Agreed(
        parties=names,
        job=dict(setting.job),
        ids=[str(row) for row in range(sum(rows))],
        rows=rows,
        bits=setting.bits,
        precision=30,
        insecure=setting.insecure,
    )
    task = Task(params=setting.params, agreed=agreed)
    transcripts: dict[str, Transcript] = {}
    wires: dict[str, Wire] = {}
    columns = {party: Columns(column_names(party, x), x) for party, x in setting.parts.items()}
    engine = make_engine(setting.engine)

    def maker(party: str) -> Callable[[Transport], Context]:
        def make(end: Transport) -> Context:
            folder = None if setting.folder is None else setting.folder / party
            transcripts[party] = Transcript(header(setting, party), folder)
            wires[party] = Wire(end, setting.nap)
            return Context(
                wires[party],
                active=active,
                peers=tuple(other for other in names if other != party),
                transcript=transcripts[party],
                seed=setting.seed,
                policies=PolicyChain(setting.policies if party == active else ()),
                timeout=setting.timeout,
            )

        return make

    def lead(ctx: Context) -> tuple[Any, Meter]:
        own, test = columns[active], setting.held_out[active]
        return run_active(ctx, task, own, test, setting.labels, ("0", "1"), engine), ctx.meter

    def follow(ctx: Context) -> tuple[Any, Meter]:
        return run_passive(ctx, task, columns[ctx.party], setting.held_out[ctx.party], engine), ctx.meter

    try:
        out = run_parties({party: (maker(party), lead if party == active else follow) for party in names})
    finally:
        engine.close()
    if setting.folder is None:
        views = {party: View(transcripts[party].header, transcripts[party].entries) for party in names}
    else:
        views = {party: View.load(setting.folder / party) for party in names}
    assert len({out[party][0].share.model for party in names}) == 1
    ended = {party: _renamed(out[party][0]) for party in names}
    passive = {party: ended[party] for party in names[1:]}
    return Run(ended[active], passive, views, wires, {party: out[party][1] for party in names})


def _renamed(outcome: Any) -> Any:
    """Give the model a fixed identifier, so that equal runs leave equal shares; a real one is drawn at random."""
    return replace(outcome, share=msgspec.structs.replace(outcome.share, model="model"))


def joined(setting: Setting) -> Trained:
    """Train on the joined table: the active party holds every block, and there is no peer."""
    blocks = {party: Columns(column_names(party, x), x) for party, x in setting.parts.items()}
    alone = connect([setting.active])[setting.active]
    transcript = Transcript(header(setting, setting.active))
    ctx = Context(alone, active=setting.active, peers=(), transcript=transcript, seed=setting.seed)
    return train_active(ctx, setting.params, blocks, setting.labels, None)


def readable_content(view: View) -> list[bytes]:
    """Return a view's content without all that tells of ciphertexts: what two engines must agree on."""
    lines = []
    for kind, peer, name, step, fields in view.content():
        plain = {key: value for key, value in fields.items() if not isinstance(value, CipherDigest)}
        lines.append(msgspec.msgpack.encode([kind, peer, name, step, plain]))
    return sorted(lines)


def make_parts(seed: int, rows: int, widths: Mapping[str, int], *, levels: int | None = None) -> dict[str, Floats]:
    """Draw each party's columns; with ``levels`` few distinct values, so that there are many ties."""
    rng = np.random.default_rng(seed)
    parts = {}
    for party, width in widths.items():
        x = rng.normal(size=(rows, width)) if levels is None else rng.integers(0, levels, (rows, width)).astype(float)
        parts[party] = np.ascontiguousarray(x)
    return parts


def make_labels(seed: int, parts: Mapping[str, Floats]) -> Labels:
    """Draw labels that depend on every party's columns, with some noise; both classes occur."""
    rng = np.random.default_rng(seed + 1)
    score = sum(x.sum(axis=1) for x in parts.values())
    labels = (score + rng.normal(size=len(score)) > np.median(score)).astype(np.int64)
    labels[:2] = (0, 1)
    return labels
