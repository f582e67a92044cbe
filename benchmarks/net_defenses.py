"""Overhead of defenses of split networks: processor seconds of an epoch, beside the undefended epoch in the same run.

Usage: python benchmarks/net_defenses.py [--json FILE] [--part PART]

Seven parties, MLP bottoms, 12,000 x (6 x 4) rows, batches of 1,024; without a top model and with one output (``coae``:
one output for each class), and with a top model over embeddings of ten numbers, the default; views in memory. Epochs
after the first count, so that what is decided before (``lpsc``) does not. Rounds are interleaved, and processor seconds
of all threads are taken. Other work on the machine only adds to them, so the ratio is that of the least of all rounds;
beside it stand the least and the largest ratio of a round.
Limits: ``lpsc`` 1.1 (nothing happens in an epoch, the rest is spread), others 1.5. Besides: seconds of Marvell's search
for one batch (limit 2 ms), and of the Criteo sample with seven parties, DeepFM and 5 epochs (limit 60 s) where
``LABELWARD_DATA`` has it.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _wiring import interleaved, report

from labelward.defenses import DEFENSES
from labelward.defenses.marvell import ClassSpread, least_divergence
from labelward.federation.session import FederationSession, Participant, run_session
from labelward.party.context import Context, no_progress
from labelward.party.handshake import Agreement, RowMasks
from labelward.party.roles import Topology
from labelward.protocols.splitnn.inputs import NetInputs, NetLabels
from labelward.protocols.splitnn.params import SplitNet
from labelward.protocols.splitnn.session import NetTask, run_active_net, run_passive_net
from labelward.rng import PrivateSeed

PARTIES = ("bank", *(f"p{number}" for number in range(2, 8)))
ROWS, WIDTH, ROUNDS = 12_000, 4, 7
CHAINS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "none": [],
    "lpsc": [("lpsc", {"folds": 2})],
    "adversarial": [("adversarial", {})],
    "lpsc, adversarial": [("lpsc", {"folds": 2}), ("adversarial", {})],
    "marvell": [("marvell", {"s": 4.0})],
    "distance-correlation": [("distance-correlation", {"weight": 1.0})],
    "mid": [("mid", {"weight": 0.1})],
    "randomized-response": [("randomized-response", {"epsilon": 1.0})],
    "none, two outputs": [],
    "coae": [("coae", {"weight": 0.5})],
}
TOP_MODEL = ("none", "adversarial", "marvell", "distance-correlation", "mid", "randomized-response")
"""What is measured with a top model, too."""
PARTS = ("epochs", "top", "search", "criteo")


class Clock:
    """Takes processor seconds at the ends of epochs."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self, what: str, done: int, total: int) -> None:
        if what == "epochs":
            self.at.append(time.process_time())


def seconds(name: str, parts: dict[str, Any], labels: NetLabels, top: bool) -> float:
    """Train, and return the processor seconds of the epochs after the first."""
    params = SplitNet(
        epochs=4,
        batch_size=1024,
        learning_rate=0.005,
        optimizer="adam",
        bottom="mlp",
        width=32,
        top=top,
        active_bottom=False,
        loss="cross_entropy" if name in ("coae", "none, two outputs") else "logistic",
    )
    session = FederationSession(
        topology=Topology.star(*PARTIES), masks=RowMasks.in_order(ROWS, 0, 1), seed=1, compared=False
    )
    held = {party: NetInputs(train=x, test=x[:1]) for party, x in parts.items()}
    clock = Clock()

    def program(ctx: Context, agreed: Agreement) -> Any:
        task = NetTask(params=params, agreed=agreed)
        if ctx.party == PARTIES[0]:
            return run_active_net(ctx, task, held[ctx.party], labels)
        return run_passive_net(ctx, task, held[ctx.party])

    policies = tuple(DEFENSES.make(kind, given) for kind, given in CHAINS[name])
    run_session(
        session,
        {
            party: Participant(
                program=program,
                policies=policies if party == PARTIES[0] else (),
                private=PrivateSeed(bytes(PrivateSeed.SIZE)),
                progress=clock if party == PARTIES[0] else no_progress,
            )
            for party in PARTIES
        },
    )
    return clock.at[-1] - clock.at[1]


def overheads(top: bool) -> dict[str, Any]:
    """Return for each chain the ratio to the undefended epoch of the same round."""
    rng = np.random.default_rng(0)
    y = (rng.random(ROWS) < 0.25).astype(np.float64)
    parts = {party: rng.normal(size=(ROWS, WIDTH)) + 0.3 * y[:, None] for party in PARTIES}
    labels = NetLabels(values=y, weights=np.ones(ROWS), classes=("0", "1"))
    chains = TOP_MODEL if top else tuple(CHAINS)
    found = interleaved(ROUNDS, **{name: (lambda name=name: seconds(name, parts, labels, top)) for name in chains})
    ratios = {}
    for name, values in found.items():
        bases = found["none, two outputs" if name == "coae" else "none"]
        if not name.startswith("none"):
            each = sorted(value / base for value, base in zip(values, bases, strict=True))
            ratios[name] = {
                "ratio": round(min(values) / min(bases), 2),
                "from": round(each[0], 2),
                "to": round(each[-1], 2),
                "limit": 1.1 if name == "lpsc" else 1.5,
            }
    return {"undefended": f"{min(found['none']) / 3:.3f} s of processor an epoch", **ratios}


def search() -> dict[str, Any]:
    """Return the time of Marvell's search, of embeddings of one number and of 32."""
    found = {}
    for dimensions in (1, 32):
        across = np.repeat([[0.5], [0.8]], dimensions - 1, axis=1)
        spread = ClassSpread(share=0.25, along=(0.5, 0.8), across=across, distance=0.3, power=1.2)
        least_divergence(spread)
        begun = time.process_time()
        for _ in range(200):
            least_divergence(spread)
        found[f"{dimensions} numbers"] = f"{1e3 * (time.process_time() - begun) / 200:.2f} ms"
    return {**found, "limit": "2 ms"}


def criteo() -> dict[str, Any]:
    """Return the time of the Criteo sample; processor time is an upper bound on an idle machine."""
    from source_coding import criteo as job_of

    import labelward
    from labelward.job import parse_job

    job = parse_job({**job_of(1), "attack": [], "defense": []})
    wall, own = time.perf_counter(), time.process_time()
    labelward.simulate(job)
    figures = time.process_time() - own, time.perf_counter() - wall
    return {"processor": f"{figures[0]:.1f} s", "wall": f"{figures[1]:.1f} s", "limit": "60 s on two idle cores"}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", action="append", default=[], choices=PARTS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    if not chosen.part or "epochs" in chosen.part:
        results["epochs"] = overheads(False)
    if not chosen.part or "top" in chosen.part:
        results["epochs with a top model"] = overheads(True)
    if not chosen.part or "search" in chosen.part:
        results["search"] = search()
    if "LABELWARD_DATA" in os.environ and (not chosen.part or "criteo" in chosen.part):
        results["criteo"] = criteo()
    report("net-defenses", results, chosen.json)
