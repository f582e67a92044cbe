"""Session: participants of a run, their agreement, and the context of each party's program.

Every run is assembled here: trainings and predictions, in one process (:func:`run_session`) or as one party over a
network (:mod:`labelward.federation.party_run`), from jobs, estimators, tests and benchmarks. So proposals, view headers
and contexts are the same wherever the parties are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from labelward.installation import version
from labelward.party.checkpoint import Checkpoints
from labelward.party.context import Context, Meter, Progress, no_progress
from labelward.party.handshake import (
    Agreement,
    Proposal,
    RowMasks,
    continued_model,
    handshake_active,
    handshake_passive,
)
from labelward.party.in_process import run_parties
from labelward.party.roles import Topology
from labelward.party.transcript import FORMAT, Header, Transcript, ids_digest
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.policy.chain import PolicyChain
from labelward.rng import PrivateSeed, SecureRandom
from labelward.transport.base import Transport

T = TypeVar("T")


class StoredShare(Protocol):
    """A share of an earlier model, as far as a session reads it."""

    @property
    def model(self) -> str:
        """Identifier of the model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FederationSession:
    """One run, as all its parties know it.

    Attributes:
        topology: parties and their roles.
        job: the shared part of the job, as JSON text by key (:func:`encode_shared`); compared in the handshake.
        ids: of all rows, in the order that the parties agree on.
        masks: which rows are validation and test rows; others than the coordinator learn them in the handshake.
        engine: name of the encryption engine; ``"none"`` where nothing is encrypted.
        bits: of the key; 0 for an engine without keys.
        precision: bits behind the binary point of encrypted values.
        insecure: whether the job allows a run that protects nothing.
        reasons: why this run protects nothing; empty where it does.
        seed: of the learning draws.
        shares: by party, of an earlier model that is trained further.
        terms: whatever else must be equal at all parties for equal results, such as versions of libraries.
        columns, classes: what this party says of its data, in a run over a network (:class:`Proposal`).
        compared: whether the parties compare job and rows before they begin; not where one user holds all of them.
    """

    topology: Topology
    job: Mapping[str, str] = field(default_factory=dict)
    ids: Sequence[str] = ()
    masks: RowMasks | None = None
    engine: str = "none"
    bits: int = 0
    precision: int = 0
    insecure: bool = False
    reasons: tuple[str, ...] = ()
    seed: int = 0
    shares: Mapping[str, StoredShare] = field(default_factory=dict)
    terms: Mapping[str, str] = field(default_factory=dict)
    columns: int = 0
    classes: int = 0
    compared: bool = True

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties; the first one coordinates."""
        return tuple(self.topology.assigned)

    @property
    def coordinator(self) -> str:
        """The party that greets the others and asks for predictions; with one label holder, the active party."""
        return self.topology.coordinator

    def proposal(self, party: str) -> Proposal:
        """Return a party's proposal in the handshake."""
        share = self.shares.get(party)
        return Proposal(
            parties=self.parties,
            job=dict(self.job) | continued_model(None if share is None else share.model),
            ids=self.ids,
            bits=self.bits,
            precision=self.precision,
            insecure=self.insecure,
            terms=self.terms,
            columns=self.columns,
            classes=self.classes,
        )

    def handshake(self, ctx: Context) -> Agreement:
        """Agree with all other parties on job, rows and checkpoint.

        Raises:
            HandshakeError: versions, keys of the job, row counts or row ids differ.
            PeerError: a peer failed.
        """
        proposal = self.proposal(ctx.party)
        if self.compared and ctx.party != self.coordinator:
            return handshake_passive(ctx, proposal)
        if self.masks is None:
            raise ValueError("the coordinator of a session must know the row masks")
        if self.compared:
            return handshake_active(ctx, proposal, self.masks)
        return Agreement.of(proposal, self.masks, resume=None)

    def header(
        self,
        party: str,
        *,
        columns: tuple[str, ...] = (),
        categories: Mapping[str, tuple[str, ...]] | None = None,
        monotone: Mapping[str, int] | None = None,
        masks: RowMasks | None = None,
    ) -> Header:
        """Return the header of a party's view.

        Args:
            columns: the party's own encoded columns.
            categories: for each of its categorical columns the categories, by code.
            monotone: 1 or -1 by name of each of its columns with a monotone constraint.
            masks: as agreed in the handshake, where the session itself does not have them.
        """
        masks = self.masks if masks is None else masks
        if masks is None:
            raise ValueError("the header of a view needs the row masks")
        train: list[int] = np.flatnonzero(masks.train).tolist()
        return Header(
            format=FORMAT,
            version=version("labelward"),
            party=party,
            role=self.topology.assigned[party],
            peers=self.topology.peers(party),
            rows=(len(train), int(masks.test.sum())),
            engine=self.engine,
            bits=self.bits,
            insecure=self.reasons,
            job=self.proposal(party).job,
            columns=columns,
            ids=ids_digest(map(self.ids.__getitem__, train)) if self.ids else "",
            categories=dict(categories or {}),
            monotone=dict(monotone or {}),
        )

    def context(self, transport: Transport, transcript: Transcript, **options: Any) -> Context:
        """Return the context of the party whose end of the transport this is.

        Args:
            transcript: where the party records; with :meth:`header`, or begun after the handshake.
            options: further arguments of :class:`~labelward.party.context.Context`.
        """
        return Context(transport, topology=self.topology, transcript=transcript, seed=self.seed, **options)


@dataclass(frozen=True, kw_only=True, eq=False)
class Participant(Generic[T]):
    """One party of a session that runs in this process.

    Attributes:
        program: called with context and agreement.
        columns: the party's own encoded columns, for its view.
        categories: for each of its categorical columns the categories, by code.
        monotone: 1 or -1 by name of each of its columns with a monotone constraint.
        policies: what decides what leaves this party, in order.
        folder: of its view; None: the view stays in memory.
        private: seed of draws that other parties must not reproduce; None: a new one.
        protection: source of its protection draws; None: the system's.
        progress: hears of this party's progress.
        timeout: seconds to wait for one message; None: for ever.
        digests: whether its view keeps digests of large arrays only.
        observes_epochs: whether it observes its own embeddings after each epoch, as a passive party of a network.
        wrap: wraps its end of the transport.
        checkpoints: get its states; None: they are not stored.
    """

    program: Callable[[Context, Agreement], T]
    columns: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    monotone: Mapping[str, int] = field(default_factory=dict)
    policies: Sequence[Policy] = ()
    folder: Path | None = None
    private: PrivateSeed | None = None
    protection: SecureRandom | None = None
    progress: Progress = no_progress
    timeout: float | None = None
    digests: bool = False
    observes_epochs: bool = False
    wrap: Callable[[Transport], Transport] = lambda end: end
    checkpoints: Checkpoints | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class PartyOutcome(Generic[T]):
    """Result of a session at one party.

    Attributes:
        result: what its program returned.
        meter: resources used by the party.
        transcript: its record; in memory where the participant had no folder.
        exchanges: digest of the exchange with each peer; empty where the parties did not compare.
    """

    result: T
    meter: Meter
    transcript: Transcript
    exchanges: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def view(self) -> View:
        """The view of a transcript in memory."""
        return View(self.transcript.header, self.transcript.entries[1:])


def run_session(session: FederationSession, participants: Mapping[str, Participant[T]]) -> dict[str, PartyOutcome[T]]:
    """Run all parties in threads of this process, from the handshake to the end of their programs.

    Args:
        participants: by party, the coordinator first.

    Raises:
        LabelwardError: the first error of a party.
    """
    contexts: dict[str, Context] = {}

    def make(party: str, end: Transport) -> Context:
        side = participants[party]
        header = session.header(party, columns=side.columns, categories=side.categories, monotone=side.monotone)
        contexts[party] = session.context(
            side.wrap(end),
            Transcript(header, side.folder),
            protection=side.protection,
            private=side.private,
            policies=PolicyChain(side.policies),
            progress=side.progress,
            timeout=side.timeout,
            digests=side.digests,
            checkpoints=side.checkpoints,
            observes_epochs=side.observes_epochs,
        )
        return contexts[party]

    def run(ctx: Context) -> T:
        return participants[ctx.party].program(ctx, session.handshake(ctx))

    results = run_parties({party: (partial(make, party), run) for party in participants})
    return {
        party: PartyOutcome(
            result=results[party],
            meter=ctx.meter,
            transcript=ctx.transcript,
            exchanges={peer: exchange.digest for peer, exchange in ctx.exchanges.items()},
        )
        for party, ctx in contexts.items()
    }


def encode_shared(shared: Mapping[str, Any], seed: int) -> dict[str, str]:
    """Return the values compared in the handshake: each value of the shared job, and the seed, as JSON text."""
    return {key: json.dumps(value, sort_keys=True) for key, value in {**shared, "run.seed": seed}.items()}
