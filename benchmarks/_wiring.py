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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.federation.session import FederationSession, Participant, run_session
from labelward.he.base import Engine
from labelward.he.paillier.backends.base import select_backend
from labelward.party.context import Context, Meter
from labelward.party.handshake import Agreement, RowMasks
from labelward.protocols.common import LabelVector
from labelward.protocols.secureboost.family import TreeFamily
from labelward.protocols.secureboost.inputs import Columns, TrainingTask, TreeInputs
from labelward.protocols.secureboost.params import TreeModel
from labelward.protocols.secureboost.session import ActiveOutcome, PassiveOutcome, run_active, run_passive

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
    names, rows = tuple(train_columns), (len(labels.values), len(next(iter(test_columns.values()))))
    insecure = not engine.secure
    session = FederationSession(
        topology=TreeFamily().topology(names, names[:1]),
        ids=[str(i) for i in range(sum(rows))],
        masks=RowMasks.in_order(rows[0], 0, rows[1]),
        engine=engine.name,
        bits=bits,
        precision=precision,
        insecure=insecure,
        reasons=("plain engine",) if insecure else (),
        seed=1,
    )
    held = {name: TreeInputs(train=columns, test=test_columns[name]) for name, columns in train_columns.items()}

    def program(ctx: Context, agreed: Agreement) -> ActiveOutcome | PassiveOutcome:
        task = TrainingTask(params=params, agreed=agreed)
        if ctx.party == session.coordinator:
            return run_active(ctx, task, held[ctx.party], labels, engine)
        return run_passive(ctx, task, held[ctx.party], engine)

    start = time.perf_counter()
    outcomes = run_session(session, {name: Participant(program=program) for name in names})
    seconds = time.perf_counter() - start
    first = outcomes[session.coordinator].result
    assert isinstance(first, ActiveOutcome)
    passive = {name: each.result for name, each in outcomes.items() if isinstance(each.result, PassiveOutcome)}
    return Run(seconds, first, passive, {name: each.meter for name, each in outcomes.items()})


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


def megabytes(run: Run) -> float:
    """Return what all parties sent."""
    return sum(sum(meter.bytes.values()) for meter in run.meters.values()) / 1e6


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
