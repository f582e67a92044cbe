"""Labels on several parties: PIVODL beside SecureBoost on the same rows, and its growth with parties and trees.

Usage: python benchmarks/holders.py [compare | parties | trees | memory] [--json FILE]; without a choice all

``compare``: credit_default, 24,000 training rows, 4 parties, depth 3, 5 trees, a key of 2,048 bits; processor and wall
seconds of interleaved runs, encryptions beside what the layout predicts, and bytes. Limits: 10 s, 10 MB, less time than
SecureBoost.
``parties``: encryptions and processor seconds over 2 to 10 parties, with R² of a line (limit .99).
``trees``: bytes over 1 to 9 trees, with R² of a line (limit .99).
``memory``: peak of processes that train on 24,000 to 192,000 rows (credit's, repeated), with R² of a line.
What FILE has of other parts is kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from _machine import peak
from _wiring import even_slices, interleaved, median, report

from labelward.data import VerticalDataset, load_dataset, loading
from labelward.federation.components import make_engine, with_defaults
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.he.paillier.packing import Packing
from labelward.job import Job, Variant, parse_job
from labelward.messages.pivodl import OpenedSums, OwnSums
from labelward.party.context import no_progress
from labelward.rng import PrivateSeed

BITS = 2048
HOLDERS = 'kind = "pivodl"\nopened_sums = "allow"'
TREE = "trees = 5\ndepth = 3"
ROWS = (24_000, 48_000, 96_000, 192_000)
"""Training rows of ``memory``, of four fifths of a table."""


def job_of(parties: int, model: str, *, holders: bool = True, bits: int = BITS, table: str = "") -> Job:
    """Return a job on credit_default, or on a file like it, with equal shares of columns and of labels."""
    names = ["active", *(f"party{number}" for number in range(1, parties))]
    shares = ", ".join(f"{name} = {1 / parties!r}" for name in names)
    source = f'table = "{table}"\nlabel = "label"' if table else 'table = "credit_default"'
    lines = ["[data]", source, f"labels = {{{shares}}}" if holders else "", "[parties]"]
    lines += [f"{name} = {1 / parties!r}" for name in names]
    lines += ["[model]", model, "[encryption]", f"bits = {bits}", f"insecure = {str(bits < BITS).lower()}"]
    return with_defaults(parse_job("\n".join(lines)))


def run(job: Job, data: VerticalDataset) -> SimulationResult:
    """Train and predict the test rows, all parties in this process."""
    engine = make_engine(job.encryption)
    try:
        return simulate_job(job, data, Variant(), engine, None, seed=1, progress=no_progress)
    finally:
        engine.close()


def rows_of(job: Job) -> VerticalDataset:
    """Return the data of a job, with the same draws in every run."""
    fixed = PrivateSeed(bytes(PrivateSeed.SIZE))
    return load_dataset(job, 1, private={party.name: fixed for party in job.parties})


def predicted_encryptions(ended: SimulationResult, holders: int, bits: int) -> int:
    """Return holders times the ciphertexts that hold the cells which each split client opens, and the roots."""
    views = list(ended.views.values())
    layout = next(each.message.sums.layout for view in views for each in view.received(OwnSums))
    (part,) = Packing.of(layout, bits).parts
    opened = [each for view in views for each in view.observed(OpenedSums)]
    trees = len({each.tree for each in opened})
    cells = [int(np.prod(each.sums.shape[:2])) for each in opened]
    return holders * (trees + sum(-(-count // part.fit) for count in cells))


def compare() -> dict[str, Any]:
    """Return seconds beside those of SecureBoost, encryptions and bytes."""
    jobs = {
        "paillier": job_of(4, f"{HOLDERS}\n{TREE}"),
        "masks": job_of(4, f'{HOLDERS}\naggregation = "masks"\n{TREE}'),
        "secureboost": job_of(4, TREE, holders=False),
    }
    data = {name: rows_of(job) for name, job in jobs.items()}
    last: dict[str, SimulationResult] = {}
    wall: dict[str, list[float]] = {name: [] for name in jobs}

    def seconds(name: str) -> float:
        before = time.process_time()
        last[name] = run(jobs[name], data[name])
        wall[name].append(last[name].cost.seconds)
        return time.process_time() - before

    found = interleaved(3, **{name: lambda name=name: seconds(name) for name in jobs})
    costs = {name: ended.cost for name, ended in last.items()}
    ratios = [ours / theirs for ours, theirs in zip(found["paillier"], found["secureboost"], strict=True)]
    return {
        "training rows": len(data["paillier"].train_values),
        "processor seconds": {name: even_slices(values) for name, values in found.items()},
        "seconds": {name: even_slices(values[1:]) for name, values in wall.items()},
        "ratio to secureboost": [round(each, 3) for each in (median(ratios), min(ratios), max(ratios))],
        "encryptions": {name: cost.encryptions for name, cost in costs.items()},
        "predicted encryptions": predicted_encryptions(last["paillier"], 4, BITS),
        "megabytes": {name: round(cost.bytes / 1e6, 2) for name, cost in costs.items()},
    }


def parties() -> dict[str, Any]:
    """Return R² of lines through encryptions and processor seconds by parties."""
    jobs = {count: job_of(count, f"{HOLDERS}\ntrees = 2\ndepth = 3", bits=1024) for count in (2, 4, 6, 8, 10)}
    data = {count: rows_of(job) for count, job in jobs.items()}
    encryptions: dict[int, float] = {}

    def seconds(count: int) -> float:
        before = time.process_time()
        ended = run(jobs[count], data[count])
        taken = time.process_time() - before
        encryptions[count] = ended.cost.encryptions
        assert encryptions[count] == predicted_encryptions(ended, count, 1024)
        return taken

    found = interleaved(3, **{str(count): lambda count=count: seconds(count) for count in jobs})
    medians = {int(count): round(median(values), 2) for count, values in found.items()}
    return {"encryptions": straight(encryptions), "processor seconds": straight(medians)}


def trees() -> dict[str, Any]:
    """Return R² of a line through bytes by trees."""
    jobs = {count: job_of(4, f"{HOLDERS}\ntrees = {count}\ndepth = 3", bits=1024) for count in (1, 3, 5, 7, 9)}
    return {"bytes": straight({count: run(job, rows_of(job)).cost.bytes for count, job in jobs.items()})}


def memory() -> dict[str, Any]:
    """Return the peaks of processes that train on more and more rows, and R² of lines through them."""
    peaks: dict[str, dict[int, float]] = {"masks": {}, "paillier": {}}
    with tempfile.TemporaryDirectory() as folder:
        (whole,) = loading.load_tables(job_of(2, TREE)).tables
        for rows in ROWS:
            path = Path(folder) / f"{rows}.parquet"
            at = np.arange(rows * 5 // 4) % whole.num_rows
            pa.parquet.write_table(whole.take(pa.array(at)), path)
            for aggregation, of_rows in peaks.items():
                command = [sys.executable, __file__, "once", "--table", str(path), "--aggregation", aggregation]
                told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                of_rows[rows] = float(told)
    return {f"megabytes, {aggregation}": straight(of_rows) for aggregation, of_rows in peaks.items()}


def once(table: str, aggregation: str) -> None:
    """Train on a table, and print the peak of this process in megabytes."""
    job = job_of(4, f'{HOLDERS}\naggregation = "{aggregation}"\n{TREE}', table=table)
    run(job, rows_of(job))
    print(round(peak() / 1e6, 1))


def straight(series: Mapping[int, float]) -> dict[str, float]:
    """Return a series with R² of the best line."""
    r2 = float(np.corrcoef(list(series), list(series.values()))[0, 1] ** 2)
    return {**{str(x): y for x, y in series.items()}, "R2": round(r2, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"compare": compare, "parties": parties, "trees": trees, "memory": memory}
    parser.add_argument("what", nargs="?", choices=[*parts, "once"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", help=argparse.SUPPRESS)
    parser.add_argument("--aggregation", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.what == "once":
        once(chosen.table, chosen.aggregation)
        return
    known = json.loads(chosen.json.read_text()) if chosen.json and chosen.json.exists() else {}
    found = {name: known[name] for name in parts if name in known}
    found |= {what: parts[what]() for what in ([chosen.what] if chosen.what else parts)}
    report("holders", {name: found[name] for name in parts if name in found}, chosen.json)


if __name__ == "__main__":
    main()
