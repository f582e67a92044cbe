"""Train from arrays in memory, all parties in this process: what the benchmarks time."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.he.base import Engine
from labelward.he.paillier.backends.base import select_backend
from labelward.party.context import Context, Meter
from labelward.party.handshake import Proposal, RowMasks, handshake_active, handshake_passive
from labelward.party.in_process import run_parties
from labelward.party.transcript import FORMAT, Header, Transcript
from labelward.protocols.secureboost.inputs import Columns, LabelVector, PartyInputs, TrainingTask
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.session import ActiveOutcome, PassiveOutcome, run_active, run_passive
from labelward.transport.base import Transport

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """What one training took and left."""

    seconds: float
    active: ActiveOutcome
    passive: dict[str, PassiveOutcome]
    meters: dict[str, Meter]


def train(
    params: TreeModel,
    train_columns: Mapping[str, Columns],
    test_columns: Mapping[str, Floats],
    labels: LabelVector,
    engine: Engine,
    bits: int,
    *,
    precision: int = 30,
) -> Run:
    """Train and predict; the first party is the active one."""
    names = tuple(train_columns)
    active, n = names[0], len(labels.values)
    rows = (n, len(test_columns[active]))
    insecure = not engine.secure
    offer = Proposal(
        parties=names,
        job={},
        ids=[str(i) for i in range(sum(rows))],
        bits=bits,
        precision=precision,
        insecure=insecure,
    )
    sides = RowMasks.in_order(n, 0, rows[1])
    meters: dict[str, Meter] = {}

    def context(name: str) -> Callable[[Transport], Context]:
        def make(end: Transport) -> Context:
            peers = tuple(other for other in names if other != name)
            role: Any = "active" if name == active else "passive"
            reasons = ("plain engine",) if insecure else ()
            header = Header(FORMAT, version("labelward"), name, role, peers, rows, engine.name, bits, reasons, {})
            ctx = Context(end, active=active, peers=peers, transcript=Transcript(header), seed=1)
            meters[name] = ctx.meter
            return ctx

        return make

    held = {name: PartyInputs(train=columns, test=test_columns[name]) for name, columns in train_columns.items()}

    def program(ctx: Context) -> ActiveOutcome | PassiveOutcome:
        if ctx.party == active:
            task = TrainingTask(params=params, agreed=handshake_active(ctx, offer, sides))
            return run_active(ctx, task, held[active], labels, engine)
        return run_passive(
            ctx, TrainingTask(params=params, agreed=handshake_passive(ctx, offer)), held[ctx.party], engine
        )

    start = time.perf_counter()
    outcomes = run_parties({name: (context(name), program) for name in names})
    seconds = time.perf_counter() - start
    first = outcomes[active]
    assert isinstance(first, ActiveOutcome)
    passive = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, PassiveOutcome)}
    return Run(seconds, first, passive, meters)


def columns_of(parts: Mapping[str, Floats]) -> dict[str, Columns]:
    """Return matrices as columns of numbers with made-up names."""
    return {name: Columns(tuple(f"{name}{i}" for i in range(x.shape[1])), x) for name, x in parts.items()}


def labels_of(y: NDArray[np.generic], classes: int = 2) -> LabelVector:
    """Return labels without weights; quantities where there are no classes."""
    names = tuple(str(number) for number in range(classes))
    return LabelVector(values=y.astype(np.float64), weights=np.ones(len(y)), classes=names)


def phases(run: Run) -> dict[str, dict[str, float]]:
    """Return seconds by party and phase."""
    return {
        name: {phase: round(seconds, 2) for phase, seconds in meter.seconds.items()}
        for name, meter in run.meters.items()
    }


def interleaved(rounds: int, **jobs: Callable[[], float]) -> dict[str, list[float]]:
    """Run the jobs in turn, ``rounds`` times after one warm-up, and return the seconds of each."""
    for job in jobs.values():
        job()
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            found[name].append(job())
    return found


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def even_slices(values: list[float]) -> str:
    """Return median and range as text."""
    return f"{median(values):.3f} s ({min(values):.3f} to {max(values):.3f})"


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str:
    """Return the commit that is checked out, marked where files differ from it; empty outside a clone."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(asked, check=False, stdout=subprocess.PIPE, text=True).stdout.strip()


def report(name: str, figures: dict[str, Any], path: Path | None) -> None:
    """Print the figures, and store them as JSON where a path is given."""
    about = {
        "benchmark": name,
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": select_backend().name,
        "commit": commit(),
        "python": platform.python_version(),
    }
    figures = about | figures
    print(json.dumps(figures, indent=2))
    if path is not None:
        path.write_text(json.dumps(figures, indent=2) + "\n")
