"""Training speed of split networks: two parties with views on disk, beside the same network as one module in torch.

Usage: python benchmarks/nets.py [mlp | resnet-20] [--json FILE]; without a choice both

``mlp``: MLP bottoms and the four-layer top model, 2 parties, 50,000 x 40, batches of 256; limit 2.0.
``resnet-20``: ResNet-20 on halves of images of 28 x 28, 2 parties, batches of 32; limit 1.2.

Both sides train the same weights on the same batches, some epochs after a first one that is not counted (imports,
memory, start of threads); some batches in float64 must give equal losses. torch has its own number of threads; the two
parties share them. Seconds are of whole epochs; the median of 5 interleaved runs.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _wiring import even_slices, interleaved, median, report
from numpy.typing import NDArray

from labelward.federation.session import FederationSession, Participant, run_session
from labelward.party.context import Context, no_progress
from labelward.party.handshake import Agreement, RowMasks
from labelward.party.roles import Topology
from labelward.protocols.common.row_batches import batches, epoch_order
from labelward.protocols.splitnn.active import combine_outputs
from labelward.protocols.splitnn.bottom_model import make_bottom, start_key
from labelward.protocols.splitnn.inputs import NetInputs, NetLabels
from labelward.protocols.splitnn.losses import objective_of
from labelward.protocols.splitnn.models.presets import ModelSpec, build
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.session import NetTask, run_active_net, run_passive_net
from labelward.protocols.splitnn.thread_limits import share_threads
from labelward.rng import PrivateSeed, keyed

Rows = NDArray[Any]
PARTIES = ("bank", "telco")
SEED = 1
PRIVATE = PrivateSeed(bytes(PrivateSeed.SIZE))


class Clock:
    """Takes the time between the ends of the epochs, from the active party's progress."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self, what: str, done: int, total: int) -> None:
        self.at.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Of all epochs but the first."""
        return self.at[-1] - self.at[1]


def split(params: SplitNet, parts: Mapping[str, Rows], labels: NetLabels, losses: list[float]) -> float:
    """Train with two parties, views on disk; return the seconds of the epochs after the first."""
    clock, rows = Clock(), len(labels.values)
    session = FederationSession(
        topology=Topology.star(*PARTIES), masks=RowMasks.in_order(rows, 0, 1), seed=SEED, compared=False
    )
    held = {party: NetInputs(train=x, test=x[:1]) for party, x in parts.items()}

    def program(ctx: Context, agreed: Agreement) -> Any:
        task = NetTask(params=params, agreed=agreed)
        if ctx.party == PARTIES[0]:
            return run_active_net(ctx, task, held[ctx.party], labels)
        return run_passive_net(ctx, task, held[ctx.party])

    with tempfile.TemporaryDirectory() as folder, share_threads(len(PARTIES)):
        participants = {
            party: Participant(
                program=program,
                folder=Path(folder) / party,
                private=PRIVATE,
                progress=clock if party == PARTIES[0] else no_progress,
            )
            for party in PARTIES
        }
        out = run_session(session, participants)
    losses.append(out[PARTIES[0]].result.history[-1].train.loss)
    return clock.seconds


def one_module(params: SplitNet, parts: Mapping[str, Rows], labels: NetLabels, losses: list[float]) -> float:
    """Train the same network as one module; return the seconds of the epochs after the first."""
    rows, dtype = len(labels.values), getattr(torch, params.dtype)
    objective = objective_of(params, labels, rows)
    wanted = params.bottom_outputs(objective.outputs)
    held = {party: NetInputs(train=x, test=x[:1]) for party, x in parts.items()}
    starts = {party: start_key(PRIVATE, SEED, party, "bottom") for party in PARTIES}
    bottoms = [make_bottom(party, held[party], params, wanted, start=starts[party]).module for party in PARTIES]
    spec = ModelSpec(preset=f"top {params.top_model}", inputs=(2 * wanted,), outputs=objective.outputs)
    top = build(spec, keyed(start_key(PRIVATE, SEED, PARTIES[0], "top")), dtype)
    weights = [weight for module in (*bottoms, top) for weight in module.parameters()]
    optimizer = torch.optim.SGD(weights, lr=params.learning_rate, momentum=params.momentum)
    xs = [torch.from_numpy(x.astype(params.dtype)) for x in parts.values()]
    y = torch.from_numpy(labels.values.astype(np.int64))
    start, total = 0.0, 0.0
    for epoch in range(params.epochs):
        if epoch == 1:
            start = time.perf_counter()
        order, total = torch.from_numpy(epoch_order(SEED, epoch, rows)).long(), 0.0
        for piece in batches(rows, params.batch_size):
            places = order[piece]
            out = combine_outputs([m(x.index_select(0, places)) for m, x in zip(bottoms, xs, strict=True)], top)
            loss = torch.nn.functional.cross_entropy(out, y[places])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item() * len(places)
    losses.append(total / rows)
    return time.perf_counter() - start


def check(params: SplitNet, parts: Mapping[str, Rows], labels: NetLabels) -> None:
    """Require equal losses of some batches in float64; in float32 sums in another order drift apart in a ResNet."""
    rows = 8 * params.batch_size
    first = NetLabels(values=labels.values[:rows], weights=labels.weights[:rows], classes=labels.classes)
    exact, some = replace(params, dtype="float64", epochs=2), {party: x[:rows] for party, x in parts.items()}
    ours: list[float] = []
    theirs: list[float] = []
    split(exact, some, first, ours)
    one_module(exact, some, first, theirs)
    if not math.isclose(ours[-1], theirs[-1], rel_tol=1e-9):
        raise SystemExit(f"not the same network: losses {ours[-1]} and {theirs[-1]}")


def compare(params: SplitNet, parts: Mapping[str, Rows], labels: NetLabels, limit: float) -> dict[str, Any]:
    """Time both sides in turn, once they are known to be the same network."""
    check(params, parts, labels)
    ours: list[float] = []
    theirs: list[float] = []
    found = interleaved(
        5,
        ours=lambda: split(params, parts, labels, ours),
        torch=lambda: one_module(params, parts, labels, theirs),
    )
    ratio = median(found["ours"]) / median(found["torch"])
    texts = {name: even_slices(values) for name, values in found.items()}
    return {**texts, "ratio": round(ratio, 2), "limit": limit, "losses": [round(ours[-1], 4), round(theirs[-1], 4)]}


def mlp() -> dict[str, Any]:
    """Compare on generated tables."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 50_000)
    x = rng.normal(size=(50_000, 40)) + 0.3 * y[:, None]
    labels = NetLabels(values=y.astype(np.float64), weights=np.ones(len(y)), classes=("0", "1"))
    params = SplitNet(epochs=4, batch_size=256, learning_rate=0.01)
    parts = {"bank": np.ascontiguousarray(x[:, :20]), "telco": np.ascontiguousarray(x[:, 20:])}
    return {"shape": "50,000 x (20 + 20), batch 256, 3 epochs", **compare(params, parts, labels, 2.0)}


def resnet() -> dict[str, Any]:
    """Compare on generated images of the shape of Fashion-MNIST's."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 1_600)
    x = rng.normal(size=(1_600, 1, 28, 28)) + 0.1 * y[:, None, None, None]
    labels = NetLabels(values=y.astype(np.float64), weights=np.ones(len(y)), classes=tuple("0123456789"))
    params = SplitNet(epochs=2, batch_size=32, bottom="resnet-20", learning_rate=0.01)
    parts = {"bank": np.ascontiguousarray(x[..., :14]), "telco": np.ascontiguousarray(x[..., 14:])}
    return {"shape": "1,600 x 28 x (14 + 14), batch 32, 1 epoch", **compare(params, parts, labels, 1.2)}


if __name__ == "__main__":
    jobs = {"mlp": mlp, "resnet-20": resnet}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=sorted(jobs))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, help="of torch, within one operation (default: torch's own)")
    chosen = parser.parse_args()
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    wanted = [chosen.what] if chosen.what else list(jobs)
    threads = {"torch threads": torch.get_num_threads()}
    report("nets", threads | {what: jobs[what]() for what in wanted}, chosen.json)
