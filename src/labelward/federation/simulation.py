"""Training in one process: every party in a thread of its own, views and shares on disk or in memory, costs counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset, VerticalDataset
from labelward.federation.components import common_defense, model_family
from labelward.federation.engine_choice import choose_engine
from labelward.federation.leakage_monitor import monitored_chains
from labelward.federation.session import FederationSession, Participant, PartyOutcome, encode_shared, run_session
from labelward.he import Counts, Engine
from labelward.job import EncryptionSection, Job, Variant
from labelward.party.checkpoint import Checkpoints
from labelward.party.context import Meter, Progress, no_progress
from labelward.party.evidence import evidence, with_evidence
from labelward.party.handshake import RowMasks
from labelward.party.roles import Topology
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.protocols.common import LabelVector, PartyInputs
from labelward.protocols.family import (
    ModelFamily,
    PartyShare,
    RoleResult,
    ValidationHistory,
    label_vector,
)
from labelward.rng import SecureRandom
from labelward.runs.malicious_runs import MaliciousRun
from labelward.runs.schema import Cost, KeyInfo
from labelward.runs.secure_files import private_folder

VIEW, MODEL, CHECKPOINT = "view", "model", "checkpoint"
"""Folders of a party: its view, its share of the model, and its checkpoints in a run over a network."""

Protections = Callable[[], SecureRandom]
"""Makes each party its own source of protection draws."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationResult:
    """Result of a training in one process.

    Attributes:
        outcomes: by party, the coordinator first: share, meter, transcript.
        cost: of all parties together.
    """

    outcomes: Mapping[str, PartyOutcome[RoleResult[Any]]]
    cost: Cost

    @property
    def margins(self) -> NDArray[np.float64]:
        """float64 [test rows, outputs]."""
        return self._coordinator.margins

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the public key, as hex."""
        return self._coordinator.fingerprint.hex()

    @property
    def watched(self) -> ValidationHistory | None:
        """The metric of the validation rows by round; None without such rows."""
        return self._coordinator.watched

    @property
    def shares(self) -> dict[str, Any]:
        """By party its part of the model."""
        return {party: outcome.result.share for party, outcome in self.outcomes.items()}

    @property
    def views(self) -> dict[str, View]:
        """By party its view, of a simulation in memory; one on disk is opened with :meth:`View.load`."""
        return {party: outcome.view for party, outcome in self.outcomes.items()}

    @property
    def meters(self) -> dict[str, Meter]:
        """Resources used, by party."""
        return {party: outcome.meter for party, outcome in self.outcomes.items()}

    @property
    def _coordinator(self) -> RoleResult[Any]:
        return next(iter(self.outcomes.values())).result


def insecure_reasons(
    engine: Engine, section: EncryptionSection, protections: Protections = SecureRandom
) -> tuple[str, ...]:
    """Return why a run is insecure; empty if it is secure, or if the model does not encrypt."""
    reasons = [engine.insecure_reason(section.bits), "seeded protection" if protections().seeded else ""]
    return tuple(filter(None, reasons))


def key_info(engine: Engine, section: EncryptionSection, fingerprint: str, *, beside: str = "") -> KeyInfo:
    """Return the key of a run as reports print it.

    Args:
        fingerprint: of the public key, as hex.
        beside: what other engines would cost, where ``auto`` chose this one.
    """
    bits = engine.key_bits(section.bits)
    return KeyInfo(
        engine=engine.name,
        bits=bits,
        security_level=engine.security_level(bits),
        fingerprint=fingerprint,
        insecure=insecure_reasons(engine, section),
        kernel=str(engine.describe().get("kernel", "")),
        chosen="; ".join(filter(None, (choose_engine().reason, beside))) if section.automatic else "",
    )


def job_session(
    job: Job,
    ids: Sequence[str],
    engine: Engine,
    *,
    seed: int,
    masks: RowMasks | None = None,
    defense: str = "",
    shares: Mapping[str, PartyShare] | None = None,
    protections: Protections = SecureRandom,
) -> FederationSession:
    """Return the session of a job's training.

    Args:
        job: job with defaults filled in, since the parties compare its shared part.
        ids: of all rows, in the order that all parties agree on.
        engine: makes the keys.
        seed: of the run; compared as well.
        masks: which rows are validation and test rows; None at a passive party that runs alone.
        defense: what defends the run at every party (:func:`~labelward.federation.components.common_defense`).
        shares: by party, of an earlier training that is continued.
    """
    return make_session(
        model_family(job.model).topology([party.name for party in job.parties], job.holders),
        job.shared() | ({"defense": defense} if defense else {}),
        job.encryption,
        ids,
        engine,
        seed=seed,
        masks=masks,
        shares=shares,
        protections=protections,
        terms=model_family(job.model).terms,
    )


def make_session(
    topology: Topology,
    shared: Mapping[str, Any],
    encryption: EncryptionSection,
    ids: Sequence[str],
    engine: Engine,
    *,
    seed: int,
    masks: RowMasks | None = None,
    shares: Mapping[str, PartyShare] | None = None,
    protections: Protections = SecureRandom,
    terms: Mapping[str, str] | None = None,
) -> FederationSession:
    """Return the session of a training.

    Args:
        topology: parties and their roles.
        shared: values that must be equal at all parties, as JSON values under flat names such as ``model.depth``.
        encryption: engine and key.
        terms: whatever else must be equal at all parties.
        ids, engine, seed, masks, shares: as for :func:`job_session`.
    """
    return FederationSession(
        topology=topology,
        job=encode_shared(shared, seed),
        ids=ids,
        masks=masks,
        engine=engine.name,
        bits=engine.key_bits(encryption.bits),
        precision=encryption.precision,
        insecure=encryption.insecure,
        reasons=insecure_reasons(engine, encryption, protections),
        seed=seed,
        shares=shares or {},
        terms=terms or {},
    )


def simulate_job(
    job: Job,
    data: VerticalDataset,
    variant: Variant,
    engine: Engine,
    folder: Path | None,
    *,
    seed: int,
    progress: Progress,
    protections: Protections = SecureRandom,
    shares: Mapping[str, PartyShare] | None = None,
    deviation: MaliciousRun | None = None,
    checkpoints: Mapping[str, Checkpoints] | None = None,
) -> SimulationResult:
    """Train and predict the test rows; leave ``folder/<party>/view`` and ``folder/<party>/model``.

    Args:
        job: job with defaults filled in, since the parties compare its shared part.
        data: of this seed.
        variant: what defends the run, at every party; the leakage meter is added.
        engine: makes the keys; its worker processes outlive the run.
        folder: is made; its parent must exist. None: views and shares stay in memory.
        progress: hears of trees and of the leakage meter, from the active party's thread.
        shares: by party, of an earlier training that is continued.
        deviation: of a party that does not train as agreed.
        checkpoints: by party, get its states between rounds.

    Raises:
        LabelwardError: the first error of a party.
    """
    validation, test = data.split.masks()
    masks = RowMasks(validation=validation, test=test)
    session = job_session(
        job,
        data.ids.tolist(),
        engine,
        seed=seed,
        masks=masks,
        defense=common_defense(job, variant),
        shares=shares,
        protections=protections,
    )
    return run_simulation(
        session,
        model_family(job.model),
        party_inputs(
            data.parties,
            {party: label_vector(data, party) for party in data.holders},
            shares=shares,
            behaviors={} if deviation is None else {deviation.party: deviation.behavior.as_dict()},
        ),
        engine,
        folder=folder,
        policies=monitored_chains(job, data, variant, seed=seed, progress=progress),
        progress=progress,
        protections=protections,
        record=job.run.record,
        checkpoints=checkpoints,
    )


def party_inputs(
    parties: Sequence[PartyDataset],
    labels: Mapping[str, LabelVector],
    *,
    shares: Mapping[str, PartyShare] | None = None,
    behaviors: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, PartyInputs]:
    """Return each party's inputs to a training.

    Args:
        parties: the coordinator first.
        labels: those that each label holder has.
        shares: by party, of an earlier training that is continued.
        behaviors: by passive party, how it trains where not as agreed.
    """
    return {
        party.name: PartyInputs(
            data=party,
            labels=labels.get(party.name),
            share=(shares or {}).get(party.name),
            behavior=(behaviors or {}).get(party.name),
        )
        for party in parties
    }


def run_simulation(
    session: FederationSession,
    programs: ModelFamily[Any],
    inputs: Mapping[str, PartyInputs],
    engine: Engine,
    *,
    folder: Path | None = None,
    policies: Mapping[str, Sequence[Policy]] | None = None,
    progress: Progress = no_progress,
    protections: Protections = SecureRandom,
    record: str = "full",
    checkpoints: Mapping[str, Checkpoints] | None = None,
) -> SimulationResult:
    """Train and predict the test rows, with every party in a thread of this process.

    Args:
        session: with row masks.
        programs: family of the model.
        inputs: by party, the coordinator first.
        engine: makes the keys.
        folder: is made, and gets ``<party>/view`` and ``<party>/model``; None: views and shares stay in memory.
        policies: by party, what decides what leaves it.
        progress: hears of the coordinator's progress.
        protections: makes each party's source of protection draws.
        record: what views of networks store, as ``[run] record`` of a job.
        checkpoints: by party, get its states between rounds.

    Raises:
        LabelwardError: the first error of a party.
    """

    def participant(party: str) -> Participant[RoleResult[Any]]:
        own = inputs[party]
        return Participant(
            program=lambda ctx, agreed: programs.program(ctx, agreed, own, engine),
            columns=own.data.columns,
            categories=own.categories,
            monotone=own.data.directions,
            policies=(policies or {}).get(party, ()),
            folder=None if folder is None else private_folder(folder / party) / VIEW,
            private=own.data.private,
            protection=protections(),
            progress=progress if party == session.coordinator else no_progress,
            digests=record == "digests",
            checkpoints=(checkpoints or {}).get(party),
            observes_epochs=record == "epochs",
        )

    if folder is not None:
        private_folder(folder)
    participants = {party: participant(party) for party in inputs}
    start = time.perf_counter()
    with programs.together(len(inputs)):
        outcomes = run_session(session, participants)
    seconds = time.perf_counter() - start
    if folder is not None:
        for party, outcome in outcomes.items():
            told = evidence(outcome.transcript, outcome.exchanges)
            with_evidence(outcome.result.share, told).save(folder / party / MODEL)
    counts = [outcome.result.counts for outcome in outcomes.values()]
    cost = cost_of(seconds, [outcome.meter for outcome in outcomes.values()], counts)
    return SimulationResult(outcomes=outcomes, cost=cost)


def cost_of(seconds: float, meters: Iterable[Meter], counts: Iterable[Counts]) -> Cost:
    """Return the total cost of some parties."""
    spent = list(meters)
    total = Counts()
    for each in counts:
        total.add(each.as_dict())
    return Cost(
        seconds=seconds,
        bytes=sum(sum(meter.bytes.values()) for meter in spent),
        messages=sum(sum(meter.messages.values()) for meter in spent),
        encryptions=total.encryptions,
        additions=total.additions,
        decryptions=total.decryptions,
        ciphertexts=sum(sum(meter.ciphertexts.values()) for meter in spent),
        logical_sums=total.logical_sums,
        logical_rows=total.logical_rows,
    )
