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

from labelward.federation.session import FederationSession, Participant, run_session
from labelward.he import Engine
from labelward.he import engine as make_engine
from labelward.messages.base import CipherDigest
from labelward.party.context import Context, Meter
from labelward.party.handshake import Agreement, RowMasks
from labelward.party.roles import Topology
from labelward.party.transcript import Header, Transcript
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.active import train_active
from labelward.protocols.secureboost.family import TreeFamily
from labelward.protocols.secureboost.inputs import Columns, TrainingTask, TreeInputs
from labelward.protocols.secureboost.params import SecureBoost, TreeModel
from labelward.protocols.secureboost.session import ActiveOutcome, PassiveOutcome, run_active, run_passive
from labelward.protocols.secureboost.share import ModelShare, TrainingResult
from labelward.rng import SecureRandom
from labelward.transport.base import Failure, Transport
from labelward.transport.in_process import connect_in_process

Floats = NDArray[np.float64]
Values = NDArray[np.int64] | Floats


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

    def hold(self, peer: str, held: bool) -> None:
        self.inner.hold(peer, held)

    def limit(self, peer: str, size: int | None) -> None:
        self.inner.limit(peer, size)

    def fail(self, failure: Failure) -> None:
        self.inner.fail(failure)

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

    @property
    def shares(self) -> dict[str, ModelShare]:
        """Every party's share, the active party's first."""
        return {self.active.share.party: self.active.share} | {party: out.share for party, out in self.passive.items()}


@dataclass
class Setting:
    """A run to be made.

    Attributes:
        parts: each party's columns of the training rows, the active party's first; NaN is missing.
        labels: class numbers or quantities of the training rows.
        classes: their names; empty for quantities.
        weights: of the training rows; all one where there are none.
        validation: each party's columns of the validation rows.
        validation_labels: their class numbers or quantities.
        validation_weights: as ``weights``.
        test: each party's columns of the rows to predict; the training rows where there are none.
        categories: for some parties, for some columns by position, the names of their categories.
        monotone: for some parties, for some columns by position, 1 or -1.
        shares: of an earlier training, for a warm start.
        noise: seeds the draws that protect something, so that two runs meet the same noise.
    """

    parts: Mapping[str, Floats]
    labels: Values
    params: TreeModel = field(default_factory=lambda: SecureBoost(trees=2, depth=3))
    classes: tuple[str, ...] = ("0", "1")
    weights: Floats | None = None
    validation: Mapping[str, Floats] | None = None
    validation_labels: Values | None = None
    validation_weights: Floats | None = None
    test: Mapping[str, Floats] | None = None
    categories: Mapping[str, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    monotone: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    shares: Mapping[str, ModelShare] | None = None
    engine: str = "plain"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    bits: int = 0
    insecure: bool = True
    policies: Iterable[Policy] = ()
    seed: int = 1
    folder: Path | None = None
    timeout: float = 60.0
    job: Mapping[str, str] = field(default_factory=dict)
    nap: Callable[[], float] | None = None
    noise: int | None = None

    def run(self, **changes: Any) -> Run:
        return _run(replace(self, **changes) if changes else self)

    @property
    def active(self) -> str:
        return next(iter(self.parts))

    @property
    def held_out(self) -> Mapping[str, Floats]:
        return self.parts if self.test is None else self.test

    @property
    def rows(self) -> tuple[int, int, int]:
        """Training, validation and prediction rows."""
        validation = 0 if self.validation_labels is None else len(self.validation_labels)
        return len(self.labels), validation, len(self.held_out[self.active])

    def columns(self, party: str) -> Columns:
        """Return a party's columns as it hands them in: training rows, then validation rows."""
        x = self.parts[party]
        if self.validation is not None:
            x = np.concatenate([x, self.validation[party]])
        names = column_names(party, x)
        return Columns(names, x, dict(self.categories.get(party, {})), dict(self.monotone.get(party, {})))

    def targets(self) -> LabelVector:
        """Return what the active party knows of the rows."""
        train, validation, _ = self.rows
        values = [np.asarray(self.labels, dtype=np.float64)]
        weights = [np.ones(train) if self.weights is None else self.weights]
        if self.validation_labels is not None:
            values.append(np.asarray(self.validation_labels, dtype=np.float64))
            weights.append(np.ones(validation) if self.validation_weights is None else self.validation_weights)
        return LabelVector(values=np.concatenate(values), weights=np.concatenate(weights), classes=self.classes)


def column_names(party: str, x: Floats) -> tuple[str, ...]:
    return tuple(f"{party}{position}" for position in range(x.shape[1]))


def shared_job(setting: Setting) -> dict[str, str]:
    return {"model.kind": f'"{setting.params.kind}"'} | dict(setting.job)


def session(setting: Setting) -> FederationSession:
    """Return what the parties agree on."""
    return FederationSession(
        topology=TreeFamily().topology(tuple(setting.parts), (setting.active,)),
        job=shared_job(setting),
        ids=[str(row) for row in range(sum(setting.rows))],
        masks=RowMasks.in_order(*setting.rows),
        engine=setting.engine,
        bits=setting.bits,
        precision=30,
        insecure=setting.insecure,
        reasons=("test",),
        seed=setting.seed,
        shares=setting.shares or {},
    )


def header(setting: Setting, party: str) -> Header:
    names = column_names(party, setting.parts[party])
    return session(setting).header(party, columns=names, monotone=directions(setting, party))


def directions(setting: Setting, party: str) -> dict[str, int]:
    """Return a party's monotone constraints by column, as its view states them."""
    names = column_names(party, setting.parts[party])
    return {names[at]: direction for at, direction in setting.monotone.get(party, {}).items()}


def program(setting: Setting, engine: Engine) -> Callable[[Context, Agreement], Any]:
    """Return the program of any of the parties, after the handshake."""

    def run(ctx: Context, agreed: Agreement) -> Any:
        party, share = ctx.party, (setting.shares or {}).get(ctx.party)
        held = TreeInputs(train=setting.columns(party), test=setting.held_out[party], validation=setting.rows[1])
        task = TrainingTask(params=setting.params, agreed=agreed)
        if party == setting.active:
            return run_active(ctx, task, held, setting.targets(), engine, share=share)
        return run_passive(ctx, task, held, engine, share=share)

    return run


def _run(setting: Setting) -> Run:
    wires: dict[str, Wire] = {}
    engine = make_engine(setting.engine, **({"parameters": setting.parameters} if setting.parameters else {}))

    def participant(party: str) -> Participant[Any]:
        def wrap(end: Transport) -> Transport:
            wires[party] = Wire(end, setting.nap)
            return wires[party]

        return Participant(
            program=program(setting, engine),
            columns=column_names(party, setting.parts[party]),
            monotone=directions(setting, party),
            policies=tuple(setting.policies) if party == setting.active else (),
            folder=None if setting.folder is None else setting.folder / party,
            protection=SecureRandom(setting.noise),
            timeout=setting.timeout,
            wrap=wrap,
        )

    try:
        out = run_session(session(setting), {party: participant(party) for party in setting.parts})
    finally:
        engine.close()
    if setting.folder is None:
        views = {party: each.view for party, each in out.items()}
    else:
        views = {party: View.load(setting.folder / party) for party in out}
    assert len({each.result.share.model for each in out.values()}) == 1
    active, *passive = setting.parts
    ended = {party: _renamed(each.result) for party, each in out.items()}
    meters = {party: each.meter for party, each in out.items()}
    return Run(ended[active], {party: ended[party] for party in passive}, views, wires, meters)


def _renamed(outcome: Any) -> Any:
    """Give the model a fixed identifier, so that equal runs leave equal shares; a real one is drawn at random."""
    return replace(outcome, share=msgspec.structs.replace(outcome.share, model="model"))


def joined(setting: Setting) -> TrainingResult:
    """Train on the joined table: the active party holds every block, and there is no peer."""
    blocks = {party: setting.columns(party) for party in setting.parts}
    alone = connect_in_process([setting.active])[setting.active]
    transcript = Transcript(header(setting, setting.active))
    ctx = Context(alone, topology=Topology.star(setting.active), transcript=transcript, seed=setting.seed)
    return train_active(ctx, setting.params, blocks, setting.targets(), None, validation=setting.rows[1])


def readable_content(view: View) -> list[bytes]:
    """Return a view's content without all that tells of ciphertexts: what two engines must agree on."""
    lines = []
    for kind, peer, name, step, fields in view.content():
        if name == "LevelRows":
            continue
        plain = {key: value for key, value in fields.items() if not isinstance(value, CipherDigest)}
        plain.pop("spacing", None)
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


def make_labels(seed: int, parts: Mapping[str, Floats]) -> NDArray[np.int64]:
    """Draw labels that depend on every party's columns, with some noise; both classes occur."""
    rng = np.random.default_rng(seed + 1)
    score = sum(x.sum(axis=1) for x in parts.values())
    labels = (score + rng.normal(size=len(score)) > np.median(score)).astype(np.int64)
    labels[:2] = (0, 1)
    return labels


def make_targets(seed: int, parts: Mapping[str, Floats], kind: str, classes: int = 3) -> Values:
    """Draw targets that depend on every party's columns: "classes", "quantities", "counts" or "amounts" (many zero)."""
    rng = np.random.default_rng(seed + 2)
    score = sum(np.nan_to_num(x).sum(axis=1) for x in parts.values())
    score = (score - score.mean()) / (score.std() or 1.0)
    noisy = score + 0.5 * rng.normal(size=len(score))
    if kind == "quantities":
        return np.round(10 * noisy + 50, 2)
    if kind == "counts":
        return rng.poisson(np.exp(0.7 * score)).astype(np.float64)
    if kind == "amounts":
        return np.where(rng.random(len(score)) < 0.5, 0.0, np.round(np.exp(noisy), 2))
    found = np.searchsorted(np.quantile(noisy, np.arange(1, classes) / classes), noisy).astype(np.int64)
    found[:classes] = np.arange(classes)[: len(found)]
    return found


def with_missing(seed: int, parts: Mapping[str, Floats], share: float = 0.2) -> dict[str, Floats]:
    """Return the parts with some values missing at random."""
    rng = np.random.default_rng(seed + 3)
    return {party: np.where(rng.random(x.shape) < share, np.nan, x) for party, x in parts.items()}
