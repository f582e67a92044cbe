"""One training and one prediction of a split network with every party in a thread of this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.estimators._federation import run_conversation
from labelward.party.context import Context, Progress, no_progress
from labelward.party.handshake import Proposal, RowMasks, handshake_active, handshake_passive
from labelward.party.in_process import run_parties
from labelward.party.transcript import FORMAT, Header, Transcript, ids_digest
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.policy.chain import PolicyChain
from labelward.protocols.splitnn.behavior import Behavior
from labelward.protocols.splitnn.inputs import NetInputs, NetLabels, Rows
from labelward.protocols.splitnn.losses import EpochRecord
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.predict import predict_active_net, predict_passive_net
from labelward.protocols.splitnn.session import NetTask, run_active_net, run_passive_net
from labelward.protocols.splitnn.share import NetShare
from labelward.protocols.splitnn.thread_limits import share_threads
from labelward.transport.base import Transport

__all__ = ["NetTrainingPlan", "TrainedNets", "predict_nets", "train_nets"]


@dataclass(frozen=True, kw_only=True)
class NetTrainingPlan:
    """What is trained, and how it is protected.

    Attributes:
        params: of the model.
        policies: what decides what leaves the active party.
        behaviors: how passive parties train, where not as agreed.
        seed: of the learning draws.
    """

    params: SplitNet
    policies: tuple[Policy, ...]
    behaviors: Mapping[str, Behavior]
    seed: int

    def offer(self, parties: tuple[str, ...], rows: int) -> Proposal:
        """Return what a party of these brings to the greeting; no rows are predicted."""
        model = {"kind": self.params.kind, **self.params.parameters()}
        shared: dict[str, Any] = {f"model.{key}": value for key, value in model.items() if value is not None}
        shared |= {"encryption.engine": "none", "parties": parties, "run.seed": self.seed}
        told = {key: json.dumps(value, sort_keys=True) for key, value in shared.items()}
        ids = [str(row) for row in range(rows)]
        return Proposal(parties=parties, job=told, ids=ids, bits=0, precision=0, insecure=False)


@dataclass(frozen=True, kw_only=True)
class TrainedNets:
    """What a training leaves behind.

    Attributes:
        shares: each party's part of the model, the active party's first.
        views: what each party saw.
        history: how each epoch went.
    """

    shares: dict[str, NetShare]
    views: dict[str, View]
    history: tuple[EpochRecord, ...]


def train_nets(
    plan: NetTrainingPlan,
    held: Mapping[str, NetInputs],
    categories: Mapping[str, Mapping[str, tuple[str, ...]]],
    labels: NetLabels,
    progress: Progress,
) -> TrainedNets:
    """Train a model.

    Args:
        plan: parameters, protection, seed.
        held: what each party holds, the active party first; no prediction rows.
        categories: by party, for each categorical column its categories, by code.
        labels: the active party's.
        progress: hears of epochs.

    Raises:
        LabelwardError: the first error of a party.
    """
    parties, active = tuple(held), next(iter(held))
    rows, validation = len(labels.values), held[active].validation
    offer, sides = plan.offer(parties, rows), RowMasks.in_order(rows - validation, validation, 0)
    transcripts: dict[str, Transcript] = {}

    def make(end: Transport) -> Context:
        party = end.party
        peers = tuple(other for other in parties if other != party)
        header = Header(
            format=FORMAT,
            version=version("labelward"),
            party=party,
            role="active" if party == active else "passive",
            peers=peers,
            rows=(rows - validation, 0),
            engine="none",
            bits=0,
            insecure=(),
            job=offer.job,
            columns=held[party].names,
            ids=ids_digest(offer.ids[: rows - validation]),
            categories=dict(categories[party]),
        )
        transcripts[party] = Transcript(header)
        return Context(
            end,
            active=active,
            peers=peers,
            transcript=transcripts[party],
            seed=plan.seed,
            policies=PolicyChain(plan.policies if party == active else ()),
            progress=progress if party == active else no_progress,
        )

    def run(ctx: Context) -> Any:
        own = held[ctx.party]
        if ctx.party == active:
            return run_active_net(
                ctx, NetTask(params=plan.params, agreed=handshake_active(ctx, offer, sides)), own, labels
            )
        task = NetTask(params=plan.params, agreed=handshake_passive(ctx, offer))
        return run_passive_net(ctx, task, own, behavior=plan.behaviors.get(ctx.party))

    with share_threads(len(parties)):
        ended = run_parties(dict.fromkeys(parties, (make, run)))
    return TrainedNets(
        shares={party: ended[party].share for party in parties},
        views={party: View(transcripts[party].header, transcripts[party].entries[1:]) for party in parties},
        history=ended[active].history,
    )


def predict_nets(
    shares: Mapping[str, NetShare], blocks: Mapping[str, Rows], given: Mapping[str, Any]
) -> NDArray[np.float64]:
    """Predict rows with the shares of all parties, of which nothing is kept: float64 [rows, outputs].

    Args:
        shares: the active party's first.
        blocks: each party's rows.
        given: modules that were handed in: by party, and the top model as ``""``.

    Raises:
        LabelwardError: the shares are of different models.
    """
    active = next(iter(shares))

    def lead(ctx: Context) -> NDArray[np.float64]:
        own = shares[active]
        return predict_active_net(ctx, own, blocks[active], bottom=given.get(active), top=given.get(""))

    def follow(ctx: Context) -> None:
        predict_passive_net(ctx, shares[ctx.party], blocks[ctx.party], bottom=given.get(ctx.party))

    with share_threads(len(shares)):
        return run_conversation(tuple(shares), len(blocks[active]), lead, follow)
