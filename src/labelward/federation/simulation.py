"""One training on one machine: every party in its own thread, its view and share on disk, what it spent counted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.data import PartyDataset, VerticalDataset
from labelward.federation.adapter import PartyShare, RoleResult, ValidationHistory
from labelward.federation.components import model_adapter
from labelward.federation.leakage_monitor import with_monitor
from labelward.he import Counts, Engine
from labelward.job import EncryptionSection, Job
from labelward.party.context import Context, Meter, Progress, no_progress
from labelward.party.handshake import Proposal, RowMasks, continued_model, handshake_active, handshake_passive
from labelward.party.in_process import run_parties
from labelward.party.transcript import FORMAT, Header, Transcript, ids_digest
from labelward.policy.base import Policy
from labelward.policy.chain import PolicyChain
from labelward.rng import SecureRandom
from labelward.runs.malicious_runs import MaliciousRun
from labelward.runs.schema import Cost, KeyInfo
from labelward.runs.secure_files import private_folder
from labelward.transport.base import Transport

__all__ = [
    "CHECKPOINT",
    "MODEL",
    "VIEW",
    "Protections",
    "SimulationResult",
    "cost_of",
    "insecure_reasons",
    "key_bits",
    "key_info",
    "make_header",
    "make_proposal",
    "simulate",
]

VIEW, MODEL, CHECKPOINT = "view", "model", "checkpoint"
"""A party's folders: what it saw, its part of the model, and what it needs to go on with a run over a network."""

Protections = Callable[[], SecureRandom]
"""Makes each party its own source of protection draws."""


@dataclass(frozen=True, kw_only=True)
class SimulationResult:
    """What is known of a training beside views and shares.

    Attributes:
        margins: float64 [test rows, outputs].
        meters: what each party spent and sent.
        fingerprint: of the public key, as hex.
        watched: how the validation rows fared, where there are any.
    """

    margins: NDArray[np.float64]
    cost: Cost
    meters: dict[str, Meter]
    fingerprint: str
    watched: ValidationHistory | None = None


def key_bits(engine: Engine, section: EncryptionSection) -> int:
    """Return the size of the keys that an engine makes for a job; 0 where it has none."""
    return engine.key_bits(section.bits)


def insecure_reasons(
    engine: Engine, section: EncryptionSection, protections: Protections = SecureRandom
) -> tuple[str, ...]:
    """Return why a run does not protect what it should; empty where it does, and where nothing is encrypted."""
    reasons = [engine.insecure_reason(section.bits), "seeded protection" if protections().seeded else ""]
    return tuple(filter(None, reasons))


def key_info(engine: Engine, section: EncryptionSection, fingerprint: str) -> KeyInfo:
    """Return the key of a run as reports print it; ``fingerprint`` is that of the public key, as hex."""
    bits = key_bits(engine, section)
    return KeyInfo(
        engine=engine.name,
        bits=bits,
        security_level=engine.security_level(bits),
        fingerprint=fingerprint,
        insecure=insecure_reasons(engine, section),
        kernel=str(engine.describe().get("kernel", "")),
    )


def make_proposal(
    job: Job, ids: Sequence[str], engine: Engine, *, seed: int, share: PartyShare | None = None
) -> Proposal:
    """Return what a party brings to the greeting.

    Args:
        job: completed, since its shared part is what the parties compare.
        ids: of all its rows, in the order that all parties agree on.
        engine: of the keys.
        seed: of the run; compared as well.
        share: of an earlier training that is gone on with.
    """
    shared = {**job.shared(), "run.seed": seed}
    told = {key: json.dumps(value, sort_keys=True) for key, value in shared.items()}
    return Proposal(
        parties=tuple(party.name for party in job.parties),
        job=told | continued_model(None if share is None else share.model),
        ids=ids,
        bits=key_bits(engine, job.encryption),
        precision=job.encryption.precision,
        insecure=job.encryption.insecure,
    )


def make_header(
    held: PartyDataset, offer: Proposal, sides: RowMasks, engine: Engine, reasons: tuple[str, ...]
) -> Header:
    """Return what stands at the head of a party's view.

    Args:
        held: its columns.
        offer: as it brought it to the greeting.
        sides: of the rows.
        engine: of the keys.
        reasons: why the run protects nothing; empty where it does.
    """
    train: list[int] = np.flatnonzero(sides.train).tolist()
    return Header(
        format=FORMAT,
        version=version("labelward"),
        party=held.name,
        role="active" if held.name == offer.parties[0] else "passive",
        peers=tuple(name for name in offer.parties if name != held.name),
        rows=(len(train), int(sides.test.sum())),
        engine=engine.name,
        bits=offer.bits,
        insecure=reasons,
        job=offer.job,
        columns=held.columns,
        ids=ids_digest(offer.ids[row] for row in train),
        categories={held.columns[position]: names for position, names in held.categories.items()},
    )


def simulate(
    job: Job,
    data: VerticalDataset,
    policies: Sequence[Policy],
    engine: Engine,
    folder: Path,
    *,
    seed: int,
    progress: Progress,
    protections: Protections = SecureRandom,
    shares: Mapping[str, PartyShare] | None = None,
    deviation: MaliciousRun | None = None,
) -> SimulationResult:
    """Train and predict the test rows; leave ``folder/<party>/view`` and ``folder/<party>/model``.

    Args:
        job: completed, since its shared part is what the parties compare.
        data: of this seed.
        policies: what defends the run, at the active party, beside the leakage meter.
        engine: makes the keys; its worker processes outlive the run.
        folder: is made; its parent must exist.
        progress: hears of trees and of the leakage meter, from the active party's thread.
        shares: by party, of an earlier training that is gone on with.
        deviation: of a party that does not train as agreed.

    Raises:
        LabelwardError: the first error of a party.
    """
    programs, names = model_adapter(job.model), [party.name for party in data.parties]
    active = names[0]
    earlier: Mapping[str, Any] = {} if shares is None else shares
    validation, test = data.split.masks()
    sides, ids = RowMasks(validation=validation, test=test), data.ids.tolist()
    offers = {name: make_proposal(job, ids, engine, seed=seed, share=earlier.get(name)) for name in names}
    reasons = insecure_reasons(engine, job.encryption, protections)
    private_folder(folder)
    contexts: dict[str, Context] = {}
    chain = with_monitor(job, data, policies, seed=seed, progress=progress)

    def context(held: PartyDataset, transport: Transport) -> Context:
        party = held.name
        header = make_header(held, offers[party], sides, engine, reasons)
        private_folder(folder / party)
        contexts[party] = Context(
            transport,
            active=active,
            peers=header.peers,
            transcript=Transcript(header, folder / party / VIEW),
            seed=seed,
            protection=protections(),
            private=held.private,
            policies=PolicyChain(chain if party == active else ()),
            progress=progress if party == active else no_progress,
            digests=job.run.record == "digests",
        )
        return contexts[party]

    def run(held: PartyDataset, ctx: Context) -> RoleResult[Any]:
        share = earlier.get(held.name)
        if held.name == active:
            return programs.active(ctx, handshake_active(ctx, offers[active], sides), data, engine, share=share)
        behavior = deviation.behavior.as_dict() if deviation is not None and deviation.party == held.name else None
        agreed = handshake_passive(ctx, offers[held.name])
        return programs.passive(ctx, agreed, held, engine, share=share, behavior=behavior)

    start = time.perf_counter()
    with programs.together(len(names)):
        ended = run_parties({party.name: (partial(context, party), partial(run, party)) for party in data.parties})
    seconds = time.perf_counter() - start
    for party, end in ended.items():
        end.share.save(folder / party / MODEL)
    meters = {party: contexts[party].meter for party in ended}
    cost, last = cost_of(seconds, meters.values(), [end.counts for end in ended.values()]), ended[active]
    return SimulationResult(
        margins=last.margins, cost=cost, meters=meters, fingerprint=last.fingerprint.hex(), watched=last.watched
    )


def cost_of(seconds: float, meters: Iterable[Meter], counts: Iterable[Counts]) -> Cost:
    """Return what some parties spent, all together."""
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
    )
