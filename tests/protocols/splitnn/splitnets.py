"""Whole runs of split networks with all parties in one process, and the same network in plain torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from labelward.federation.session import FederationSession, Participant, run_session
from labelward.messages.codec import decode, encode
from labelward.party.context import Context
from labelward.party.handshake import Agreement, RowMasks
from labelward.party.view import View
from labelward.policy.base import Policy
from labelward.protocols.splitnn.behavior import Behavior
from labelward.protocols.splitnn.family import SplitNetFamily
from labelward.protocols.splitnn.inputs import NetInputs, NetLabels
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.session import (
    ActiveNetResult,
    NetTask,
    PassiveNetResult,
    run_active_net,
    run_passive_net,
)
from labelward.transport.base import Failure, Transport
from released import rewrapped, unwrapped

torch.set_num_threads(1)  # two parties already take both cores of a small machine

Rows = NDArray[Any]


@dataclass
class Net:
    """A run to be made; ``parts`` are all rows of each party, the active party's first: training, then validation."""

    parts: Mapping[str, Rows]
    labels: NDArray[Any]
    params: SplitNet
    classes: tuple[str, ...] = ("0", "1")
    weights: NDArray[np.float64] | None = None
    validation: int = 0
    test: Mapping[str, Rows] | None = None
    categories: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    bottoms: Mapping[str, torch.nn.Module] = field(default_factory=dict)
    top: torch.nn.Module | None = None
    behaviors: Mapping[str, Behavior] = field(default_factory=dict)
    policies: Mapping[str, Policy | tuple[Policy, ...]] = field(default_factory=dict)
    seed: int = 1
    folder: Path | None = None
    change: Callable[[str, Any], Any] | None = None

    @property
    def active(self) -> str:
        return next(iter(self.parts))

    @property
    def rows(self) -> int:
        return len(self.labels) - self.validation

    def held(self, party: str) -> NetInputs:
        return NetInputs(
            train=self.parts[party],
            test=(self.test or self.parts)[party],
            validation=self.validation,
            categories=self.categories.get(party, {}),
            bottom=self.bottoms.get(party),
            top=self.top if party == self.active else None,
        )

    def targets(self) -> NetLabels:
        weights = np.ones(len(self.labels)) if self.weights is None else self.weights
        return NetLabels(values=self.labels.astype(np.float64), weights=weights, classes=self.classes)

    def run(self, **changes: Any) -> Run:
        return _run(replace(self, **changes) if changes else self)


@dataclass
class Run:
    """What a run left behind."""

    active: ActiveNetResult
    passive: dict[str, PassiveNetResult]
    views: dict[str, View]

    def state(self, party: str, part: str = "bottom") -> dict[str, Rows]:
        """Return the weights of a party's model by name."""
        share = self.passive[party].share if party in self.passive else self.active.share
        return {name: array.unpack() for name, array in getattr(share, part).state.items()}


class Lying(Transport):
    """A party's end that changes what its party says."""

    def __init__(self, inner: Transport, change: Callable[[str, Any], Any]) -> None:
        self.inner, self.party, self.change = inner, inner.party, change

    def send(self, peer: str, frame: bytes) -> None:
        message, step = decode(frame)
        self.inner.send(peer, encode(rewrapped(self.change(self.party, unwrapped(message))), step))

    def receive(self, timeout: float) -> tuple[str, bytes] | None:
        return self.inner.receive(timeout)

    def fail(self, failure: Failure) -> None:
        self.inner.fail(failure)

    def close(self) -> None:
        self.inner.close()


def session(net: Net, *, compared: bool = False) -> FederationSession:
    """Return what the parties agree on, without a handshake unless it is asked for."""
    return FederationSession(
        topology=SplitNetFamily().topology(tuple(net.parts), tuple(net.parts)[:1]),
        ids=[str(row) for row in range(len(net.labels))],
        masks=RowMasks.in_order(net.rows, net.validation, 0),
        precision=30,
        insecure=True,
        reasons=("test",),
        seed=net.seed,
        compared=compared,
    )


def policies_of(net: Net, party: str) -> tuple[Policy, ...]:
    given = net.policies.get(party, ())
    return given if isinstance(given, tuple) else (given,)


def participant(net: Net, party: str, program: Callable[[Context, Agreement], Any]) -> Participant[Any]:
    change = net.change
    return Participant(
        program=program,
        policies=policies_of(net, party),
        folder=None if net.folder is None else net.folder / party,
        timeout=120.0,
        wrap=lambda end: end if change is None else Lying(end, change),
    )


def train(net: Net) -> Callable[[Context, Agreement], Any]:
    """Return the program of any of the parties."""

    def program(ctx: Context, agreed: Agreement) -> Any:
        task = NetTask(params=net.params, agreed=agreed)
        if ctx.party == net.active:
            return run_active_net(ctx, task, net.held(ctx.party), net.targets())
        return run_passive_net(ctx, task, net.held(ctx.party), behavior=net.behaviors.get(ctx.party))

    return program


def _run(net: Net) -> Run:
    out = run_session(session(net), {party: participant(net, party, train(net)) for party in net.parts})
    if net.folder is None:
        views = {party: each.view for party, each in out.items()}
    else:
        views = {party: View.load(net.folder / party) for party in out}
    active, *passive = net.parts
    return Run(out[active].result, {party: out[party].result for party in passive}, views)


def blobs(
    seed: int, rows: int, widths: Mapping[str, int], classes: int = 2
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.int64]]:
    """Draw rows of classes with centers of their own; every party's columns tell something."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    labels[:classes] = np.arange(classes)
    parts = {}
    for party, width in widths.items():
        centers = rng.normal(size=(classes, width))
        parts[party] = centers[labels] + rng.normal(size=(rows, width))
    return parts, labels
