"""One training and one prediction with every party in a thread of this process, as the role programs are run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from labelward.he import Engine
from labelward.he import engine as make_engine
from labelward.job import EncryptionSection
from labelward.party.context import Context, Progress, no_progress
from labelward.party.handshake import Proposal, RowMasks, continued_model, handshake_active, handshake_passive
from labelward.party.in_process import run_parties
from labelward.party.transcript import FORMAT, Header, Transcript, ids_digest
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.policy.chain import PolicyChain
from labelward.protocols.secureboost.inputs import LabelVector, PartyInputs, TrainingTask
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.predict import predict_active, predict_leaves, predict_passive
from labelward.protocols.secureboost.session import run_active, run_passive
from labelward.protocols.secureboost.share import ModelShare
from labelward.transport.base import Transport

__all__ = ["TrainedTrees", "TreeTrainingPlan", "predict_trees", "run_conversation", "train_trees"]

Floats = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class TreeTrainingPlan:
    """What is trained, and how it is protected.

    Attributes:
        params: of the model.
        encryption: engine and key.
        policies: what decides what leaves the active party.
        seed: of the learning draws.
    """

    params: TreeModel
    encryption: EncryptionSection
    policies: tuple[Policy, ...]
    seed: int

    def offer(self, parties: tuple[str, ...], rows: int, share: ModelShare | None, engine: Engine) -> Proposal:
        """Return what a party of these brings to the greeting; no rows are predicted."""
        model = {"kind": self.params.kind, **self.params.parameters()}
        shared: dict[str, Any] = {f"model.{key}": value for key, value in model.items() if value is not None}
        shared |= self.encryption.shared() | {"parties": parties, "run.seed": self.seed}
        told = {key: json.dumps(value, sort_keys=True) for key, value in shared.items()}
        return Proposal(
            parties=parties,
            job=told | continued_model(None if share is None else share.model),
            ids=[str(row) for row in range(rows)],
            bits=engine.key_bits(self.encryption.bits),
            precision=self.encryption.precision,
            insecure=self.encryption.insecure,
        )


@dataclass(frozen=True, kw_only=True)
class TrainedTrees:
    """What a training leaves behind.

    Attributes:
        shares: each party's part of the model, the active party's first.
        views: what each party saw.
        history: of the metric on the validation rows, by round.
    """

    shares: dict[str, ModelShare]
    views: dict[str, View]
    history: tuple[float, ...]


def train_trees(
    plan: TreeTrainingPlan,
    held: Mapping[str, PartyInputs],
    labels: LabelVector,
    progress: Progress,
    before: Mapping[str, ModelShare] | None = None,
) -> TrainedTrees:
    """Train a model.

    Args:
        plan: parameters, protection, seed.
        held: what each party holds, the active party first; no prediction rows.
        labels: the active party's.
        progress: hears of trees.
        before: shares of a model that goes on.

    Raises:
        LabelwardError: the first error of a party.
    """
    parties, active = tuple(held), next(iter(held))
    rows, validation = len(labels.values), held[active].validation
    sides = RowMasks.in_order(rows - validation, validation, 0)
    transcripts: dict[str, Transcript] = {}
    section = plan.encryption
    workers = section.workers or len(os.sched_getaffinity(0))
    engine = make_engine(section.engine, parameters=section.engine_parameters, workers=workers)
    shares = dict.fromkeys(parties) if before is None else before
    offers = {party: plan.offer(parties, rows, shares[party], engine) for party in parties}

    def make(end: Transport) -> Context:
        party = end.party
        transcripts[party] = Transcript(_header(party, held[party], offers[party], engine))
        return Context(
            end,
            active=active,
            peers=tuple(other for other in parties if other != party),
            transcript=transcripts[party],
            seed=plan.seed,
            policies=PolicyChain(plan.policies if party == active else ()),
            progress=progress if party == active else no_progress,
        )

    def run(ctx: Context) -> Any:
        share = None if before is None else before[ctx.party]
        if ctx.party == active:
            task = TrainingTask(params=plan.params, agreed=handshake_active(ctx, offers[active], sides))
            return run_active(ctx, task, held[active], labels, engine, share=share)
        task = TrainingTask(params=plan.params, agreed=handshake_passive(ctx, offers[ctx.party]))
        return run_passive(ctx, task, held[ctx.party], engine, share=share)

    try:
        ended = run_parties(dict.fromkeys(parties, (make, run)))
    finally:
        engine.close()
    return TrainedTrees(
        shares={party: ended[party].share for party in parties},
        views={party: View(transcripts[party].header, transcripts[party].entries[1:]) for party in parties},
        history=tuple(ended[active].history),
    )


def predict_trees(
    shares: Mapping[str, ModelShare], blocks: Mapping[str, Floats], what: str = "margins"
) -> NDArray[Any]:
    """Predict rows with the shares of all parties: one round, of which nothing is kept.

    Args:
        shares: the active party's first.
        blocks: each party's columns, float64 [rows, columns].
        what: ``"margins"``: float64 [rows, outputs]; ``"leaves"``: int32 [rows, trees], positions among the leaves.

    Raises:
        LabelwardError: the shares are of different models.
    """
    active = next(iter(shares))
    rows = len(blocks[active])
    predict: Callable[..., NDArray[Any]] = predict_leaves if what == "leaves" else predict_active

    def lead(ctx: Context) -> NDArray[Any]:
        return predict(ctx, shares[active], {active: (shares[active].own, blocks[active])}, rows)

    return run_conversation(
        tuple(shares), rows, lead, lambda ctx: predict_passive(ctx, shares[ctx.party], blocks[ctx.party])
    )


def run_conversation(
    parties: tuple[str, ...], rows: int, lead: Callable[[Context], T], follow: Callable[[Context], None]
) -> T:
    """Run the parties' programs, and return what the active party's returned; nothing else is kept.

    Args:
        parties: the active one first.
        rows: how many they talk of.
        lead: the active party's program.
        follow: that of each passive party.

    Raises:
        LabelwardError: the first error of a party.
    """
    active = parties[0]

    def make(end: Transport) -> Context:
        peers = tuple(other for other in parties if other != end.party)
        role = "active" if end.party == active else "passive"
        header = Header(FORMAT, version("labelward"), end.party, role, peers, (0, rows), "none", 0, (), {})  # type: ignore[arg-type]
        return Context(end, active=active, peers=peers, transcript=Transcript(header), seed=0)

    def run(ctx: Context) -> T | None:
        if ctx.party == active:
            return lead(ctx)
        follow(ctx)
        return None

    return cast("T", run_parties(dict.fromkeys(parties, (make, run)))[active])


def _header(party: str, held: PartyInputs, offer: Proposal, engine: Engine) -> Header:
    reason, rows = engine.insecure_reason(offer.bits), len(offer.ids) - held.validation
    return Header(
        format=FORMAT,
        version=version("labelward"),
        party=party,
        role="active" if party == offer.parties[0] else "passive",
        peers=tuple(name for name in offer.parties if name != party),
        rows=(rows, 0),
        engine=engine.name,
        bits=offer.bits,
        insecure=(reason,) if reason else (),
        job=offer.job,
        columns=held.train.names,
        ids=ids_digest(offer.ids[:rows]),
        categories=held.train.category_names(),
    )
