"""Split networks trained in one process, and what one passive party then has to attack with.

One passive party attacks: ``trained(...)`` gives its view and its ``AttackerData`` with bottom models,
``completed(...)`` the scores of an attack with known rows drawn by seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from labelward import rng
from labelward.attacks.base import Attack, AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.federation.session import FederationSession, Participant, run_session
from labelward.party.context import Context
from labelward.party.handshake import Agreement, RowMasks
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.protocols.splitnn.behavior import Behavior
from labelward.protocols.splitnn.bottom_model import torch_generator
from labelward.protocols.splitnn.family import SplitNetFamily
from labelward.protocols.splitnn.inputs import NetInputs, NetLabels
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.session import NetTask, run_active_net, run_passive_net

torch.set_num_threads(1)

Rows = NDArray[Any]


@dataclass
class Trained:
    """A run as the attacker, the second party, has it; ``accuracy`` is the joined model's on the rows outside."""

    view: View
    own: AttackerData
    labels: NDArray[np.int64]
    outside_labels: NDArray[np.int64]
    accuracy: float


def trained(
    parts: Mapping[str, Rows],
    labels: NDArray[np.int64],
    params: SplitNet,
    *,
    train: NDArray[np.int64],
    seed: int,
    modules: Mapping[str, torch.nn.Module] | None = None,
    behavior: Behavior | None = None,
    policies: Sequence[Policy] = (),
) -> Trained:
    """Train on some of the rows; parts are all rows of each party, the active one's first."""
    outside = np.setdiff1d(np.arange(len(labels)), train)
    classes = tuple(map(str, range(int(labels.max()) + 1)))
    held = {
        party: NetInputs(
            train=x[train], test=x[outside], bottom=(modules or {}).get(party), top=(modules or {}).get("top")
        )
        for party, x in parts.items()
    }
    active, attacker, *_ = parts
    told = NetLabels(values=labels[train].astype(np.float64), weights=np.ones(len(train)), classes=classes)
    session = FederationSession(
        topology=SplitNetFamily().topology(tuple(parts), tuple(parts)[:1]),
        job={f"model.{name}": json.dumps(value) for name, value in params.parameters().items()},
        ids=[str(row) for row in range(len(labels))],
        masks=RowMasks.in_order(len(train), 0, len(outside)),
        precision=30,
        insecure=True,
        reasons=("test",),
        seed=seed,
        compared=False,
    )

    def program(ctx: Context, agreed: Agreement) -> Any:
        task = NetTask(params=params, agreed=agreed)
        if ctx.party == active:
            return run_active_net(ctx, task, held[ctx.party], told)
        return run_passive_net(ctx, task, held[ctx.party], behavior=behavior if ctx.party == attacker else None)

    participants = {
        party: Participant(program=program, policies=policies if party == active else (), timeout=600.0)
        for party in parts
    }
    outcomes = run_session(session, participants)
    ended = {party: each.result for party, each in outcomes.items()}
    share, mine = ended[attacker].share, held[attacker]
    own = AttackerData(
        features=mine.train,
        columns=[f"c{column}" for column in range(mine.shape[0])] if len(mine.shape) == 1 else [],
        bottom=lambda: share.bottom.module(params, mine.bottom),
        untrained=lambda: share.bottom.untrained(params, torch_generator(seed, attacker, "bottom"), mine.bottom),
        outside=mine.test,
    )
    right = ended[active].outputs.argmax(1) == labels[outside] if len(outside) else np.array([np.nan])
    return Trained(outcomes[attacker].view, own, labels[train], labels[outside], float(right.mean()))


def known_of(labels: NDArray[np.int64], count: int, seed: int) -> AuxiliaryKnowledge:
    """Return what an attacker knows: equally many labels of each class."""
    from labelward.leakage.known_rows import sample_known_rows

    classes = int(labels.max()) + 1
    rows = sample_known_rows(labels, count, seed=seed)
    return AuxiliaryKnowledge(classes=classes, known_rows=rows, known_labels=labels[rows])


def attacked(run: Trained, attack: Attack, seed: int, view: View | None = None) -> LabelGuess:
    """Return the guess of an attack on the run's view, or on another."""
    aux = known_of(run.labels, attack.labels_needed, seed)
    return attack(view or run.view, run.own, aux, rng=rng.learning(seed, "attacker", 0, "attack"))
