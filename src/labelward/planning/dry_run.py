"""Dry run: the first rounds of a job, by the real role programs, on a sample of its rows and without encryption.

All parties run in this process, one at a time, so that the time of a phase is that of a party that has the machine to
itself. Models and messages are thrown away; what is kept is what each party did and sent, as the job's engine would
have it. Where all rows are taken, the trees are those of the run itself, up to draws that are private, so that their
operations, messages and bytes are exact.

Defenses act as they do in the run. The leakage meter and its budget do not, since they hold the labels of all rows: the
rows that the meter would read are recorded, and nothing is refused.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from labelward.defenses.leakage_meter import LeakageMeter
from labelward.errors import LabelwardError
from labelward.federation.simulation import job_session
from labelward.he import CipherBlock, Engine, Layout, PublicMaterial
from labelward.he.base import CiphertextFormat
from labelward.job import Job
from labelward.messages.base import Message, RowMask, wire_name
from labelward.messages.codec import encode
from labelward.messages.tree import (
    EncryptedForestRows,
    EncryptedLevelRows,
    EncryptedTreeRows,
    LevelHistograms,
    PredictAnswers,
    TreeStart,
)
from labelward.party.context import Context
from labelward.party.handshake import RowMasks, handshake_active, handshake_passive
from labelward.party.in_process import run_parties
from labelward.party.roles import Topology
from labelward.party.transcript import Transcript
from labelward.planning.counting_engine import CountingEngine
from labelward.policy.base import KnownInstanceSpaces, Policy, Schedule
from labelward.policy.chain import PolicyChain
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.inputs import Columns, TrainingTask, TreeInputs
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.row_encoding import block_count
from labelward.protocols.secureboost.session import run_active, run_passive
from labelward.rng import PrivateSeed, learning
from labelward.transport.base import Transport

_ROUNDS, _MAX_ROUNDS = 3, 8
_CELLS = 6_000_000
"""Rows times columns times rounds of a dry run, at most."""
_LEAST_ROWS, _FEW_ROWS = 2_000, 100

ANY_SEED = PrivateSeed(bytes(PrivateSeed.SIZE))
"""The private seed of all parties in a plan, which trains nothing that is kept."""

_ONCE = ("Hello", "Begin", "Ready", "KeyOffer", "ForestRows", "TrainingEnd", "PredictRequest")
"""Messages whose number does not grow with the trees."""
_loaded: set[str] = set()
"""Kinds of model of which a dry run was made in this process."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    """Training rows, party by party, and how many other rows there are.

    Attributes:
        columns: of each party, the active one first.
        labels: of the rows.
        validation, test: numbers of further rows.
    """

    columns: Mapping[str, Columns]
    labels: LabelVector
    validation: int = 0
    test: int = 0

    @property
    def rows(self) -> int:
        """Number of training rows."""
        return len(self.labels.values)

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the active one first."""
        return tuple(self.columns)

    @property
    def width(self) -> int:
        """Number of columns of all parties, at least 1."""
        return max(1, sum(len(own.names) for own in self.columns.values()))

    def sample(self, rows: int, seed: int) -> TrainingData:
        """Return so many random rows, and others in proportion; all rows where there are no more."""
        if rows >= self.rows:
            return self
        rng = learning(seed, self.parties[0], 0, "dry run")
        chosen = np.sort(rng.choice(self.rows, rows, replace=False))
        weights = self.labels.weights[chosen]
        if (self.labels.weights != 1.0).any() and (weights == 1.0).all():
            weights[0] = np.nextafter(1.0, 2.0)  # weighted rows have another layout, chosen or not
        return TrainingData(
            columns={name: replace(own, x=own.x[chosen]) for name, own in self.columns.items()},
            labels=replace(self.labels, values=self.labels.values[chosen], weights=weights),
            validation=round(self.validation * rows / self.rows),
            test=round(self.test * rows / self.rows),
        )

    def inputs(self, party: str) -> tuple[TreeInputs, LabelVector]:
        """Return a party's columns as its role program takes them, and all labels.

        Only the number of validation and test rows counts, so training rows stand in for them.
        """
        own, labels, every = self.columns[party], self.labels, np.arange(self.rows)
        if self.validation:
            rows = np.concatenate([every, np.resize(every, self.validation)])
            own = replace(own, x=own.x[rows])
            labels = replace(labels, values=labels.values[rows], weights=np.resize(labels.weights, len(rows)))
        return TreeInputs(train=own, test=own.x[np.resize(every, self.test)], validation=self.validation), labels


@dataclass(frozen=True, kw_only=True)
class SentMessage:
    """A message of the dry run, by what its size depends on.

    Attributes:
        receiver, type: to whom, and of which type.
        once: whether there is one in a run, however many trees it has.
        fixed: bytes that do not grow with the rows, ciphertexts of sums among them.
        per_row: sizes of binary fields that grow with the rows, encrypted rows among them.
        entries: rows or sums that it carries in ``ciphertexts``.
        effort: their work in ciphertexts without spacing (:class:`~labelward.he.base.CiphertextFormat`).
        rows: of the tree, forest or level whose encrypted rows come in ``parts`` messages like this one, times their
            spacing; else 0.
    """

    receiver: str
    type: str
    once: bool
    fixed: int
    per_row: tuple[int, ...]
    entries: int = 0
    ciphertexts: int = 0
    effort: float = 0.0
    rows: int = 0
    parts: int = 1

    def scaled(self, scale: float, trees: float) -> tuple[float, float]:
        """Return how many messages of the job it stands for, and their bytes.

        Args:
            scale: rows of the job per row of the sample.
            trees: trees of the job per tree of the dry run.
        """
        # more rows come in more blocks, and predictions hold an answer for each split of all trees
        copies = block_count(round(self.rows * scale)) / self.parts if self.rows else 1.0
        more = scale / copies * (trees if self.once and self.type == "PredictAnswers" else 1.0)
        times = copies * (1.0 if self.once else trees)
        return times, times * (self.fixed + sum(_binary_size(int(each * more)) for each in self.per_row))


def _binary_size(size: int) -> int:
    """Return by how many bytes MessagePack writes a binary field of this size longer than an empty one."""
    return size + (0 if size < 1 << 8 else 1 if size < 1 << 16 else 3)


@dataclass(kw_only=True)
class PartyTrace:
    """What one party did in a dry run.

    Attributes:
        seconds: exclusive time by phase; ``"other"`` is in no phase, ``"wait"`` is not its own.
        turns: the answers that its peers wait for, those that travel together once: whether there is one in a run, the
            type, the number of the trees that grow side by side, and the depth.
        layout: of the blocks that it sent, for all rows of the job; None if there were none.
        widest: of its message with the most columns at a root their number and most bins.
        again: rows that it encrypted for levels, and their work in rows without spacing.
        levels: bytes of such rows in a peer's memory where it sums them, by peer, tree and depth.
    """

    engine: CountingEngine
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sent: list[SentMessage] = field(default_factory=list)
    turns: set[tuple[bool, str, int, tuple[int, ...]]] = field(default_factory=set)
    layout: Layout | None = None
    widest: tuple[int, int] = (1, 2)
    again: tuple[int, float] = (0, 0.0)
    levels: dict[tuple[str, int, int], int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True, kw_only=True, eq=False)
class DryRun:
    """A dry run.

    Attributes:
        leaves: by passive party int32 [trees, rows], the finest node that it knows of each row; empty without a meter.
    """

    sample: TrainingData
    scale: float  # training rows of the job per row of the sample
    trees: int
    encrypted: int  # rows that were encrypted; each as often as it was
    schedule: tuple[frozenset[str], ...]  # who takes part in each round that was run
    whole: tuple[frozenset[str], ...]  # who takes part in each round of the job
    parties: Mapping[str, PartyTrace]  # what each did, the active one first
    leaves: Mapping[str, NDArray[np.int32]]


def dry_run(
    job: Job, params: TreeModel, data: TrainingData, engine: Engine, policies: Sequence[Policy], *, seed: int
) -> DryRun:
    """Run the first rounds of a job.

    Args:
        policies: of the active party; they must be new.

    Raises:
        LabelwardError: as training would: the labels do not fit the objective, a policy cannot act, or the data cannot
            be used.
    """
    trees = len(data.labels.classes) if params.multi_strategy == "one_output_per_tree" else 1
    rounds = max(_ROUNDS, min(_MAX_ROUNDS, _CELLS // (data.width * data.rows * trees)))
    if params.mode == "mixed":
        rounds = max(len(data.columns), rounds)  # each party in its turn
    rounds = min(params.trees, rounds)
    params = replace(params, early_stopping_rounds=0, eval_metric="auto")
    if params.kind not in _loaded:  # compiled code is loaded at its first use in a process, which is not to be timed
        _loaded.add(params.kind)
        with contextlib.suppress(LabelwardError):
            _run(job, params, (data, data.sample(_FEW_ROWS, seed)), engine, _FirstRounds((), 1, 0), seed)
    sample = data.sample(max(_LEAST_ROWS, _CELLS // (data.width * rounds * trees)), seed)
    return _run(job, params, (data, sample), engine, _FirstRounds(policies, rounds, sample.rows), seed)


def _run(
    job: Job, params: TreeModel, rows: tuple[TrainingData, TrainingData], engine: Engine, chain: _FirstRounds, seed: int
) -> DryRun:
    """Run the programs of all parties; ``rows`` are those of the job, and the sample."""
    data, sample = rows
    scale, parties = data.rows / sample.rows, data.parties
    total = sample.rows + sample.validation + sample.test
    sides = RowMasks.in_order(sample.rows, sample.validation, sample.test)
    session = job_session(job, [str(row) for row in range(total)], engine, seed=seed)
    offer = replace(session.proposal(job.active.name), parties=parties, bits=0)
    bits = engine.key_bits(job.encryption.bits)
    price, baton = _Price(engine, bits, scale), threading.Lock()
    traces = {name: PartyTrace(engine=CountingEngine(engine, bits, scale)) for name in parties}
    at_once = params.trees_at_once if params.kind == "forest" else 1

    def context(name: str, end: Transport) -> Context:
        own = chain if name == parties[0] else PolicyChain()
        return _TracedContext(end, traces[name], parties, own, price, baton, at_once=at_once, seed=seed)

    def program(name: str, ctx: Context) -> tuple[int, int]:
        held, labels = sample.inputs(name)
        with baton, ctx.phase("other"):
            with ctx.phase("handshake"):
                agreed = handshake_active(ctx, offer, sides) if name == parties[0] else handshake_passive(ctx, offer)
            task = TrainingTask(params=params, agreed=replace(agreed, insecure=True))
            if name == parties[0]:
                active = run_active(ctx, task, held, labels, traces[name].engine)
                return len(active.share.trees), active.counts.encryptions
            return run_passive(ctx, task, held, traces[name].engine).share.grown, 0

    ended = run_parties({name: (partial(context, name), partial(program, name)) for name in parties})
    trees, encrypted = ended[parties[0]]
    return DryRun(
        sample=sample,
        scale=scale,
        trees=trees,
        encrypted=encrypted,
        schedule=chain.run,
        whole=chain.whole,
        parties=traces,
        leaves=chain.leaves,
    )


class _Price:
    """The job's engine, by the names and sizes of what it sends.

    Args:
        bits: of its keys; 0 if it has none.
        scale: training rows of the job per row of the sample, by which the slots of sums are wider.
    """

    def __init__(self, engine: Engine, bits: int, scale: float) -> None:
        self._engine, self._bits, self._scale = engine, bits, scale
        self._formats: dict[Layout, CiphertextFormat] = {}

    def block(self, plain: CipherBlock) -> tuple[CipherBlock, int, float]:
        """Return a block as the engine would send it, without its ciphertexts, and the size and effort of these."""
        layout = self._widened(plain.layout)
        if layout not in self._formats:
            self._formats[layout] = self._engine.ciphertext_format(layout, self._bits)
        form = self._formats[layout]
        rows = plain.kind == "rows"
        count = plain.count * form.parts if rows else form.sealed(plain.count)
        size = form.row_bytes(plain.count) if rows else form.sum_bytes(plain.count)
        changed = {"engine": self._engine.name, "layout": layout, "count": count, "data": b""}
        effort = count * (form.row_effort if rows else form.sum_effort)
        return msgspec.structs.replace(plain, **changed), size, effort

    def prepared_row(self, layout: Layout) -> int:
        """Return the bytes of a row in memory where rows are summed."""
        return self._engine.prepared_row_bytes(self._widened(layout), self._bits)

    def key(self) -> PublicMaterial:
        """Return a key of the engine's length."""
        return PublicMaterial(self._engine.name, self._bits, bytes(self._engine.key_bytes(self._bits)))

    def _widened(self, layout: Layout) -> Layout:
        """Return a layout as for all rows of the job."""
        return msgspec.structs.replace(layout, rows=round(layout.rows * self._scale))


class _Unrecorded(Transcript):
    """A transcript that keeps nothing."""

    def append(
        self, kind: Any, peer: str, name: str, step: tuple[int, ...], payload: bytes, frame: bytes = b""
    ) -> None:
        """Forget the record."""


class _TracedContext(Context):
    """A context that traces what its party sends and how long it takes; it holds the baton unless it receives."""

    def __init__(
        self,
        end: Transport,
        trace: PartyTrace,
        parties: tuple[str, ...],
        policies: PolicyChain,
        price: _Price,
        baton: threading.Lock,
        *,
        at_once: int,
        seed: int,
    ) -> None:
        topology, header = Topology.star(*parties), _Unrecorded(None)
        super().__init__(end, topology=topology, transcript=header, seed=seed, private=ANY_SEED, policies=policies)
        self._trace, self._price, self._baton, self._at_once = trace, price, baton, at_once
        self._phase, self._since, self._last = "wait", time.perf_counter(), object()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of a phase, and not toward the one around it."""
        outer = self._switch(name)
        try:
            yield
        finally:
            self._switch(outer)

    def recv(self, peer: str, kind: Any, step: tuple[int, ...]) -> Any:
        """Let others go on until the message is there."""
        with self.phase("wait"):
            self._baton.release()
            try:
                return super().recv(peer, kind, step)
            finally:
                self._baton.acquire()

    def send(self, peer: str, message: Message, step: tuple[int, ...]) -> None:
        """Send and trace a message."""
        super().send(peer, message, step)
        name, trace = wire_name(type(message)), self._trace
        once = name in _ONCE or self._phase == "predict"
        trace.sent.append(self._traced(peer, message, step, once))
        if name in ("Hello", "Ready", "LevelSums", "SplitRows", "PredictAnswers"):
            trace.turns.add((once, name, step[0] // self._at_once, step[1:2]))
        if isinstance(message, LevelHistograms) and message.depth == 0:
            trace.widest = max(trace.widest, (len(message.columns), max(message.sizes)))

    def _traced(self, peer: str, message: Message, step: tuple[int, ...], once: bool) -> SentMessage:
        """Return a message as the job's engine would have it sent."""
        per_row, entries, ciphertexts, size, effort = tuple(_row_fields(message)), 0, 0, 0, 0.0
        priced = message
        for name in message.__struct_fields__:
            value = getattr(message, name)
            if isinstance(value, CipherBlock):
                entries, (block, size, effort) = value.count, self._price.block(value)
                ciphertexts, priced = block.count, msgspec.structs.replace(priced, **{name: block})
                self._trace.layout = msgspec.structs.replace(block.layout, spacing=1)
            elif isinstance(value, PublicMaterial):
                priced = msgspec.structs.replace(priced, **{name: self._price.key()})
        fixed = len(encode(priced, step)) - sum(map(_binary_size, per_row))
        sent = SentMessage(
            receiver=peer,
            type=wire_name(type(message)),
            once=once,
            fixed=fixed + _binary_size(size),
            per_row=per_row,
            entries=entries,
            ciphertexts=ciphertexts,
            effort=effort,
        )
        if not isinstance(message, EncryptedTreeRows | EncryptedForestRows | EncryptedLevelRows):
            return sent
        rows = message.gradients.layout.rows
        if isinstance(message, EncryptedLevelRows):
            rows = entries * message.parts * message.gradients.layout.spacing
            if message.gradients is not self._last:  # the same block may go to several peers
                of_all, work = self._trace.again
                self._trace.again = of_all + entries, work + entries * effort / ciphertexts
            self._last = message.gradients
            self._trace.levels[peer, step[0], step[1]] += entries * self._price.prepared_row(message.gradients.layout)
        return replace(sent, fixed=fixed, per_row=(*per_row, size), rows=rows, parts=message.parts)

    def _switch(self, phase: str) -> str:
        now = time.perf_counter()
        self._trace.seconds[self._phase] += now - self._since
        before, self._phase, self._since = self._phase, phase, now
        return before


def _row_fields(value: Any) -> Iterator[int]:
    """Yield the sizes of the binary fields of a message that grow with the rows, encrypted rows excepted."""
    if isinstance(value, RowMask):
        yield len(value.data)
    elif isinstance(value, PredictAnswers):
        yield len(value.bits)
    elif isinstance(value, tuple):
        for each in value:
            yield from _row_fields(each)
    elif isinstance(value, msgspec.Struct):
        if isinstance(value, TreeStart):
            yield len(value.repeats)
        for each in msgspec.structs.astuple(value):
            yield from _row_fields(each)


class _FirstRounds(PolicyChain):
    """Policies whose schedule ends after some rounds; those without a passive party are then left out.

    Attributes:
        run: who takes part in each round that is left.
        whole: who takes part in each round of the job.
        leaves: by party what the leakage meter would read, if there is one.
    """

    run: tuple[frozenset[str], ...] = ()
    whole: tuple[frozenset[str], ...] = ()

    def __init__(self, policies: Sequence[Policy], rounds: int, rows: int) -> None:
        self._rounds, self.leaves = rounds, dict[str, NDArray[np.int32]]()
        super().__init__(
            _recorder(each, rows, self.leaves) if isinstance(each, LeakageMeter) else each for each in policies
        )

    def schedule(self, schedule: Schedule) -> Schedule:
        """Return the first rounds of the schedule that the policies leave."""
        self.whole = self.run = super().schedule(schedule).participants
        if len(self.whole) > self._rounds:
            self.run = tuple([each for each in self.whole if each] or self.whole)[: self._rounds]
        return Schedule(participants=self.run)


def _recorder(meter: LeakageMeter, rows: int, leaves: dict[str, NDArray[np.int32]]) -> Policy:
    """Return what stands in for a meter or a budget: it keeps what it hears of last; of bins only the number counts."""
    some = None if meter.bins is None else np.resize(meter.bins, rows)

    class Recorder(Policy):
        kind: ClassVar[str] = meter.kind
        purities: ClassVar[bool] = meter.purities

        @property
        def bins(self) -> NDArray[np.int64] | None:
            return some

        def after_rows(self, rows: KnownInstanceSpaces) -> None:
            leaves[rows.party] = rows.leaves

    return Recorder()
