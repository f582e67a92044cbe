"""A party's run as a sequence of attempts: each resumes from the last checkpoint that all parties have."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from labelward.errors import (
    JobError,
    LabelwardError,
    OutputError,
    PeerError,
    PeerRestartedError,
    unknown_name,
    whole_interrupts,
)
from labelward.federation.components import model_family
from labelward.federation.session import FederationSession
from labelward.federation.simulation import (
    CHECKPOINT,
    MODEL,
    VIEW,
    cost_of,
    job_session,
    key_info,
)
from labelward.he import Engine
from labelward.job import Job
from labelward.party.checkpoint import NOISE_FILE, Checkpoints
from labelward.party.context import Context, Progress
from labelward.party.evidence import compare_exchanges, with_evidence
from labelward.party.handshake import RowMasks
from labelward.party.public_reason import public_reason
from labelward.party.transcript import Transcript, ids_digest
from labelward.policy.chain import PolicyChain
from labelward.protocols.family import RoleResult
from labelward.rng import PrivateSeed, SecureRandom
from labelward.runs.party_record import LeakageFigures, PartyRecord, PeerRecord, write_party_record
from labelward.runs.provenance import library_versions
from labelward.runs.secure_files import flush_files, private_folder
from labelward.transport.base import Transport

if TYPE_CHECKING:
    from labelward.transport.grpc import PeerInfo

T = TypeVar("T")

_MAX_RESTARTS = 100
"""Attempts without a new checkpoint; more is a party that cannot run, or does not want to."""

PATIENCE: Final = 5.0
"""Seconds to wait for partners that are told; one that waits itself tries to connect every two seconds at least."""

Log = Callable[[str, Mapping[str, Any]], None]
"""Called with what happened and its particulars; none of them is a private value."""

Join = Callable[[Job, str, str, Log], tuple["Connection", str]]
"""Called with the job, the party, the purpose (one word, the same at all parties) and a log; returns the party's
network and the fingerprint of its certificate."""


class Connection(Protocol):
    """Network interface that a run requires; see :class:`labelward.transport.grpc.Network`."""

    def attempt(self, *, finished: bool = False) -> Transport | None:
        """Wait for all parties and begin an attempt; None if the run is finished, which a passive party concludes."""

    def conclude(self, mark: Callable[[], None]) -> None:
        """Wait until all parties have saved their shares; then call ``mark``."""

    def fail(self, reason: str) -> None:
        """Notify all parties that the run has failed here, during an attempt or not."""

    def announce(self, reason: str, patience: float) -> tuple[str, ...]:
        """Tell each party that is there within ``patience`` seconds that this one cannot begin; return those."""

    def uninformed(self) -> tuple[str, ...]:
        """Return the parties that may not know yet that the run is finished; empty at a passive party."""

    def peers(self) -> Mapping[str, PeerInfo]:
        """Return the authenticated identities of the peers."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, kw_only=True)
class AttemptResult:
    """Result of an attempt at one party.

    Attributes:
        utility: metrics on the test rows; empty at a passive party.
        leakage: to passive parties, as the active one measured it; empty at a passive party.
        dates: the party's columns with dates or times.
    """

    ended: RoleResult[Any]
    dates: tuple[str, ...]
    utility: dict[str, float] = field(default_factory=dict)
    leakage: dict[str, LeakageFigures] = field(default_factory=dict)


def require_party(job: Job, party: str) -> None:
    """Refuse a name given with ``--as`` that is no party of the job; :class:`JobError` suggests a similar one."""
    names = [each.name for each in job.parties]
    if party not in names:
        raise JobError(unknown_name("party", party, names), code="unknown", field="--as", value=party)


def run_program(ctx: Context, program: Callable[[Context], T]) -> T:
    """Run a program until it or the attempt ends; the peers are notified of its own errors."""
    try:
        with whole_interrupts():
            result = program(ctx)
        ctx.close()
        return result
    except PeerRestartedError:
        ctx.abandon()
        ctx.close()
        raise
    except BaseException as error:
        ctx.fail(error)
        ctx.close()
        raise


def run_until_complete(
    network: Connection,
    make: Callable[[Transport], Context],
    program: Callable[[Context], None],
    log: Log,
    *,
    spent: Callable[[], bool] = lambda: False,
) -> None:
    """Repeat attempts of a program without checkpoints until one finishes at all parties.

    A passive party that comes back when the others have finished has nothing more to do.

    Args:
        spent: whether an attempt has told what no further one of this start may tell again.

    Raises:
        PeerError: an attempt failed, or a party restarted again and again.
    """
    restarts = 0
    while True:
        transport = network.attempt()
        try:
            if transport is not None:
                run_program(make(transport), program)
            network.conclude(lambda: None)
            return
        except PeerRestartedError as error:
            log("restarted", _who(error))
            restarts += 1
            if spent():
                reason = "restarted when this party had answered it, and would ask anew; start again at all parties"
                raise _ended(network, error, reason, restarts) from error
            if restarts == _MAX_RESTARTS:
                raise _ended(network, error, f"restarted {restarts} times in a row", restarts) from error


def _ended(network: Connection, error: PeerRestartedError, reason: str, restarts: int) -> PeerError:
    """Tell the others that a party restarted too often, and return the error that ends the run here."""
    network.fail(f"party {(error.about or error.peer)!r} {reason}")
    return PeerError(error.peer, reason, code="peer-restarted", value=restarts, about=error.about)


def _who(error: PeerRestartedError) -> dict[str, str]:
    """Return which peer restarted, and who says so where another does."""
    return {"peer": error.about, "said_by": error.peer} if error.about else {"peer": error.peer}


@dataclass(frozen=True, kw_only=True)
class PartyProgram:
    """One party's program in each attempt.

    Attributes:
        party: its name.
        ids: ids of all its rows.
        private: seed of draws that other parties must not reproduce.
        policies: creates the party's policies, anew for each attempt.
        live: runs the handshake, begins the transcript, and trains.
        masks: validation and test rows, at the active party.
        defense: slug of the defense of this party's messages; empty at a passive party without a defense.
        common: name of the defenses that must be equal at all parties, where these are defended alike.
        columns, classes: sizes of this party's data as it states them to the others; 0: not.
        drawn: digests of this party's draws for the run, by name; checkpoints resume only with equal draws.
    """

    party: str
    ids: Sequence[str]
    private: PrivateSeed
    policies: Callable[[], PolicyChain]
    live: Callable[[PartyRun, Context], AttemptResult]
    masks: RowMasks | None = None
    defense: str = ""
    common: str = ""
    columns: int = 0
    classes: int = 0
    drawn: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PartyRun:
    """One party's run.

    Attributes:
        job: job with defaults filled in and a ``[network]`` section.
        out: the party's folder of this run.
        seed: seed of the learning draws.
        restart: whether to forget all checkpoints but what was drawn before training.
    """

    job: Job
    side: PartyProgram
    out: Path
    seed: int
    engine: Engine
    network: Connection
    log: Log
    progress: Progress
    restart: bool = False

    @property
    def folder(self) -> Path:
        """Folder of view, model and checkpoints."""
        return self.out / self.side.party

    @cached_property
    def session(self) -> FederationSession:
        """Session of the run at this party."""
        side = self.side
        agreed = job_session(self.job, side.ids, self.engine, seed=self.seed, masks=side.masks, defense=side.common)
        return replace(agreed, columns=side.columns, classes=side.classes)

    def first_record(self, fingerprint: str) -> PartyRecord:
        """Return the record of a new run; ``fingerprint``: that of the party's own certificate."""
        return PartyRecord(
            party=self.side.party,
            parties=tuple(each.name for each in self.job.parties),
            seed=self.seed,
            defense=self.side.defense,
            own=fingerprint,
            key=key_info(self.engine, self.job.encryption, ""),
            versions=library_versions(model_family(self.job.model).libraries),
        )

    def to_its_end(self, record: PartyRecord) -> PartyRecord:
        """Begin attempts until one is not interrupted and all parties know that every share is saved.

        A passive party that knows this has finished. The active party notifies the others, also after restarts, until
        all have acknowledged.

        Raises:
            PeerError: an attempt failed; a party restarted repeatedly without progress; or the active party is in
                another run that is finished and of which this party has no share.
        """
        restarts, newest = 0, self._found()
        while record.stage != "finished" or self._leads:
            transport = self.network.attempt(finished=record.stage in self._over())
            if transport is None:
                self._require_share(record)
                if not self._leads:
                    self._conclude(record)
                break
            try:
                record = self._store(record, stage="running", attempts=record.attempts + 1, peers=self._peers())
                record = self._attempt(transport, record)
                self.log("saved", {"model": record.model})
                self._conclude(record)
                break
            except PeerRestartedError as error:
                self.log("restarted", _who(error))
                restarts, before, newest = restarts + 1, newest, self._newest()
                restarts = restarts if newest == before else 0
                if restarts == _MAX_RESTARTS:
                    reason = f"restarted {restarts} times in a row without progress of the run"
                    raise _ended(self.network, error, reason, restarts) from error
            except OutputError:
                self.network.fail("it cannot write its files")
                raise
        self._checkpoints.purge()
        record = self._store(record, stage="finished" if self.network.uninformed() else "closed")
        self.log("done", {"model": record.model, "attempts": record.attempts})
        return record

    def _found(self) -> int:
        """Return the number of the newest checkpoint; where these are of another run, the others are told."""
        try:
            private_folder(self.folder)
            return self._newest()
        except LabelwardError as error:
            self.log("telling", {"seconds": PATIENCE})
            with contextlib.suppress(LabelwardError):
                if told := self.network.announce(public_reason(error), PATIENCE):
                    self.log("told", {"peers": list(told)})
            raise

    def _newest(self) -> int:
        """Return the number of the newest checkpoint; -1 for none."""
        return max(self._checkpoints.numbers(), default=-1)

    @property
    def _leads(self) -> bool:
        return self.side.party == self.job.active.name

    def _require_share(self, record: PartyRecord) -> None:
        """Refuse the end of a run that this party has not finished."""
        if record.stage == "running":
            raise PeerError(
                self.job.active.name,
                f"reports that the run is finished, but {self.folder} has no share of it: it is still in an earlier "
                "run, or this party's share was deleted; start a new run at all parties",
                code="other-run",
            )

    def _over(self) -> tuple[str, ...]:
        """Return the stages in which, to its knowledge, this party has finished."""
        return ("finished",) if self._leads else ("saved",)

    def _attempt(self, transport: Transport, record: PartyRecord) -> PartyRecord:
        """Train and save the share; return the updated record."""
        ctx = self._context(transport)
        start = time.perf_counter()

        def live(ctx: Context) -> AttemptResult:
            outcome = self.side.live(self, ctx)
            with_evidence(outcome.ended.share, compare_exchanges(ctx)).save(self.folder / MODEL)
            flush_files(self.folder / MODEL)  # the others remove their checkpoints when they hear of it
            return outcome

        outcome = run_program(ctx, live)
        ended = outcome.ended
        return self._store(
            record,
            stage="saved",
            peers=self._peers(),
            key=key_info(self.engine, self.job.encryption, ended.fingerprint.hex()),
            model=ended.share.model,
            dates=outcome.dates,
            utility={name: value if math.isfinite(value) else None for name, value in outcome.utility.items()},
            leakage=outcome.leakage or record.leakage,
            cost=cost_of(time.perf_counter() - start, [ctx.meter], [ended.counts]),
        )

    def _conclude(self, record: PartyRecord) -> None:
        """Mark the run as finished as soon as all shares are saved; only then a passive party acknowledges that."""

        def mark() -> None:
            self._store(record, stage="finished")

        self.network.conclude(mark)

    def _context(self, transport: Transport) -> Context:
        return self.session.context(
            transport,
            Transcript(None, self.folder / VIEW, resume=True, finished=True, expected=self._checkpoints.position),
            protection=SecureRandom(),
            private=self.side.private,
            policies=self.side.policies(),
            progress=self.progress,
            timeout=self.job.connection().silence,
            checkpoints=self._checkpoints,
            digests=self.job.run.record == "digests",
            observes_epochs=self.job.run.record == "epochs",
        )

    @cached_property
    def _checkpoints(self) -> Checkpoints:
        """Checkpoints of this party, read and verified once; no other process writes to its folder during the run."""
        side = self.side
        run = self.session.proposal(side.party).job | {"party": side.party, "defense": side.defense} | dict(side.drawn)
        run |= {**self.session.terms, "rows": ids_digest(self.side.ids)}
        checkpoints = Checkpoints(self.folder / CHECKPOINT, noise=self.out / NOISE_FILE, run=run)
        for sentence in checkpoints.damaged:
            self.log("damaged", {"checkpoint": sentence})
        if self.restart:
            checkpoints.restart()
        return checkpoints

    def _peers(self) -> dict[str, PeerRecord]:
        return {
            name: PeerRecord(
                identity=peer.identity,
                fingerprint=peer.fingerprint,
                address=peer.address,
                tls=f"{peer.tls}, {peer.cipher}" if peer.tls else None,
                sealed=peer.sealed,
            )
            for name, peer in self.network.peers().items()
        }

    def _store(self, record: PartyRecord, **changes: Any) -> PartyRecord:
        changed = msgspec.structs.replace(record, **changes)
        write_party_record(self.out, changed)
        return changed
