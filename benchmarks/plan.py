"""Estimates of ``labelward plan`` for jobs A and B, compared with runs in the same process.

Usage: python benchmarks/plan.py [a] [b] [c] [d] [--engine lattice] [--kernel NAME] [--processor] [--json FILE]
       Without a choice job a.

The jobs are those of ``benchmarks/jobs.py``, run as ``labelward train`` runs them: leakage meter, views and shares
included. The machine should do nothing else: what is measured for a second stands for all of the run. Where it does,
``--processor`` takes processor time over cores for all seconds, both expected and measured; not with gmpy2, whose
processes are others.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet
from _wiring import report
from jobs import BITS, JOBS, TEST, WORKERS
from jobs import Job as Shape

from labelward.federation.train import train_variant
from labelward.he.paillier.backends.base import VARIABLE
from labelward.job import Job, parse_job
from labelward.planning.cost_estimate import estimate_cost
from labelward.planning.cost_model import forecast
from labelward.runs.training_record import read_record

LIMIT = 0.25
ENGINES: dict[str, dict[str, Any]] = {"paillier": {"bits": BITS}, "lattice": {"engine": "lattice"}}


def job_of(shape: Shape, folder: Path, encryption: dict[str, Any]) -> Job:
    """Write a job's table, and return the job."""
    x, y = shape.table()
    names = [f"c{number}" for number in range(x.shape[1])]
    columns = {name: x[:, number] for number, name in enumerate(names)}
    pa.parquet.write_table(pa.table({**columns, "label": y}), folder / "table.parquet")
    return parse_job(
        {
            "data": {"table": str(folder / "table.parquet"), "label": "label", "test_size": TEST / len(x)},
            "parties": {"active": names[: shape.active], "telco": names[shape.active :]},
            "model": {"trees": shape.trees, "depth": shape.depth},
            "encryption": {"workers": WORKERS, **encryption},
        }
    )


def compare(shape: Shape, encryption: dict[str, Any]) -> dict[str, Any]:
    """Plan a job, then run it; return both."""
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(shape, Path(folder), encryption)
        start = time.perf_counter()
        found = estimate_cost(job)
        planned = time.perf_counter() - start
        train_variant(job, Path(folder) / "out", seed=1, forecast=forecast)
        record = read_record(Path(folder) / "out")
    told, phases = found.estimate, {}
    for party, expected in told.phases.items():
        for phase in dict.fromkeys([*expected, *record.phases[party]]):
            both = (expected.get(phase, 0.0), record.phases[party].get(phase, 0.0))
            phases[f"{party}: {phase}"] = [round(each, 3) for each in both]
    ratio = record.cost.seconds / told.seconds
    counted = {
        name: [getattr(told, name), getattr(record.cost, name)]
        for name in ("encryptions", "additions", "decryptions", "ciphertexts", "messages")
    }
    return {
        "kernel": told.kernel,
        "seconds expected": round(told.seconds, 2),
        "seconds measured": round(record.cost.seconds, 2),
        "measured / expected": round(ratio, 3),
        "within 25%": abs(ratio - 1) <= LIMIT,
        "seconds of planning": round(planned, 2),
        "load before and after": [round(each, 1) for each in os.getloadavg()[:2]],
        "phases, expected and measured": phases,
        "bytes, expected and measured": [sum(told.bytes.values()), record.cost.bytes],
        "operations, expected and measured": counted,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    parser.add_argument("--kernel")
    parser.add_argument("--engine", choices=("paillier", "lattice"), default="paillier")
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    unknown = [name for name in chosen.jobs if name not in JOBS]
    if unknown:
        parser.error(f"no such job: {', '.join(unknown)}; known: {', '.join(JOBS)}")
    if chosen.kernel:
        os.environ[VARIABLE] = chosen.kernel
    clock = patch("time.perf_counter", lambda: time.process_time() / WORKERS) if chosen.processor else nullcontext()
    with clock:
        found: dict[str, Any] = {name: compare(JOBS[name], ENGINES[chosen.engine]) for name in chosen.jobs or ["a"]}
    report("plan", {"seconds": "processor time over cores" if chosen.processor else "wall time", **found}, chosen.json)
