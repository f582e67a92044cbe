"""A party's run as a row of attempts: where one is cut short, the next goes on from the last common checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from labelward.errors import PeerRestarted
from labelward.evaluate.audit import library_versions
from labelward.evaluate.party_record import PartyRecord, PeerRecord, write_party_record
from labelward.evaluate.private import private_folder
from labelward.evaluate.programs import Ended
from labelward.evaluate.rehearse import CHECKPOINT, MODEL, VIEW, cost_of, insecurities, key_info, make_offer
from labelward.he import Engine
from labelward.job import Job
from labelward.party.chain import PolicyChain
from labelward.party.checkpoint import Checkpoints
from labelward.party.context import Context, Progress
from labelward.party.handshake import Offer
from labelward.party.transcript import Transcript, ids_digest
from labelward.rng import Protection
from labelward.transport.base import Transport

if TYPE_CHECKING:
    from labelward.transport.grpc import PeerInfo

__all__ = ["Live", "Log", "Network", "Run", "Side"]

Log = Callable[[str, Mapping[str, Any]], None]
"""Called with what happened and its particulars; none of them is a private value."""

Live = tuple[Ended[Any], dict[str, float]]
"""What an attempt leaves, and the metrics on the test rows (at the active party)."""


class Network(Protocol):
    """What a run needs of the network; see :class:`labelward.transport.grpc.Network`."""

    def attempt(self, *, finished: bool = False) -> Transport | None:
        """Wait for all parties and begin; None where the run turns out to be finished."""

    def conclude(self, mark: Callable[[], None]) -> None:
        """Wait until all parties have saved what is theirs; ``mark`` is called once that is certain."""

    def peers(self) -> Mapping[str, PeerInfo]:
        """Return who the others proved to be."""

    def close(self) -> None:
        """Leave."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one party does in an attempt.

    Attributes:
        party: its name.
        ids: of all its rows.
        policies: of the party, made anew for each attempt.
        live: greets, begins the transcript, and trains.
        defense: slug of the variant; empty at a passive party.
    """

    party: str
    ids: Sequence[str]
    policies: Callable[[], PolicyChain]
    live: Callable[[Run, Context], Live]
    defense: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One party's run.

    Attributes:
        job: completed, with a ``[network]`` section.
        out: the party's folder of this run.
        seed: of the learning draws.
    """

    job: Job
    side: Side
    out: Path
    seed: int
    engine: Engine
    network: Network
    log: Log
    progress: Progress

    @property
    def folder(self) -> Path:
        """Of view, model and checkpoints."""
        return self.out / self.side.party

    def offer(self) -> Offer:
        """Return what this party brings to the greeting."""
        return make_offer(self.job, self.side.ids, self.engine, seed=self.seed)

    def insecure(self) -> tuple[str, ...]:
        """Return why the run protects nothing; empty where it does."""
        return insecurities(self.engine, self.job.encryption)

    def first_record(self, fingerprint: str) -> PartyRecord:
        """Return the record of a run of which nothing is done; ``fingerprint`` is of the party's own certificate."""
        return PartyRecord(
            party=self.side.party,
            parties=tuple(each.name for each in self.job.parties),
            seed=self.seed,
            defense=self.side.defense,
            own=fingerprint,
            key=key_info(self.engine, self.job.encryption, ""),
            versions=library_versions(),
        )

    def to_its_end(self, record: PartyRecord) -> PartyRecord:
        """Begin attempts until none is cut short and all parties know that all have their shares."""
        private_folder(self.folder)
        while True:
            transport = self.network.attempt(finished=record.stage in self._over())
            if transport is None:
                break
            record = self._store(record, stage="running", attempts=record.attempts + 1, peers=self._peers())
            self.log("attempt", {"number": record.attempts})
            try:
                record = self._attempt(transport, record)
                self._conclude(record)
                break
            except PeerRestarted as error:
                self.log("restarted", {"peer": error.peer})
        self._checkpoints().purge()
        record = self._store(record, stage="closed")
        self.log("finished", {"model": record.model, "attempts": record.attempts})
        return record

    def _over(self) -> tuple[str, ...]:
        """Return the stages in which this party has nothing more to do, for all that it knows."""
        return ("finished",) if self.side.party == self.job.active.name else ("saved", "finished")

    def _attempt(self, transport: Transport, record: PartyRecord) -> PartyRecord:
        """Train; return the record of a share that is on disk."""
        ctx = self._context(transport)
        start = time.perf_counter()
        try:
            ended, utility = self.side.live(self, ctx)
            ended.share.save(self.folder / MODEL)
            ctx.close()
        except PeerRestarted:
            ctx.abandon()
            ctx.close()
            raise
        except BaseException as error:
            ctx.fail(error)
            ctx.close()
            raise
        return self._store(
            record,
            stage="saved",
            key=key_info(self.engine, self.job.encryption, ended.fingerprint.hex()),
            model=ended.share.model,
            utility={name: value if math.isfinite(value) else None for name, value in utility.items()},
            cost=cost_of(time.perf_counter() - start, [ctx.meter], [ended.counts]),
        )

    def _conclude(self, record: PartyRecord) -> None:
        self.log("saved", {"model": record.model})

        def mark() -> None:
            self._store(record, stage="finished")

        self.network.conclude(mark)

    def _context(self, transport: Transport) -> Context:
        network = self.job.network
        assert network is not None
        parties = tuple(each.name for each in self.job.parties)
        return Context(
            transport,
            active=parties[0],
            peers=tuple(name for name in parties if name != self.side.party),
            transcript=Transcript(None, self.folder / VIEW, resume=True),
            seed=self.seed,
            protection=Protection(),
            policies=self.side.policies(),
            progress=self.progress,
            timeout=network.silence,
            checkpoints=self._checkpoints(),
        )

    def _checkpoints(self) -> Checkpoints:
        run = self.offer().job | {"party": self.side.party, "defense": self.side.defense}
        checkpoints = Checkpoints(self.folder / CHECKPOINT, run=run | {"rows": ids_digest(self.side.ids)})
        for sentence in checkpoints.damaged:
            self.log("damaged", {"checkpoint": sentence})
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
