"""Labels on several parties: PIVODL beside SecureBoost on the same rows, and its growth with parties and trees.

Usage: python benchmarks/holders.py [compare | growth] [--json FILE]; without a choice both

``compare``: credit_default, 24,000 training rows, 4 parties, depth 3, 5 trees, a key of 2,048 bits; seconds of
interleaved runs, encryptions beside what the layout predicts, and bytes.
``growth``: encryptions and seconds over 2 to 10 parties, bytes over 1 to 9 trees, each with R² of a line.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from _wiring import even_slices, interleaved, report

from labelward.data import VerticalDataset, load_dataset
from labelward.federation.components import make_engine, with_defaults
from labelward.federation.simulation import SimulationResult, simulate_job
from labelward.he.paillier.packing import Packing
from labelward.job import Job, Variant, parse_job
from labelward.messages.pivodl import OpenedSums, OwnSums
from labelward.party.context import no_progress
from labelward.rng import PrivateSeed

BITS = 2048


def job_of(parties: int, model: str, *, holders: bool = True, bits: int = BITS) -> Job:
    """Return a job on credit_default with equal shares of columns, and of labels where they are spread."""
    names = ["active", *(f"party{number}" for number in range(1, parties))]
    shares = ", ".join(f"{name} = {1 / parties!r}" for name in names)
    lines = ["[data]", 'table = "credit_default"', f"labels = {{{shares}}}" if holders else "", "[parties]"]
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
    tree = "trees = 5\ndepth = 3"
    jobs = {
        "paillier": job_of(4, f'kind = "pivodl"\n{tree}'),
        "masks": job_of(4, f'kind = "pivodl"\naggregation = "masks"\n{tree}'),
        "secureboost": job_of(4, tree, holders=False),
    }
    data = {name: rows_of(job) for name, job in jobs.items()}
    last: dict[str, SimulationResult] = {}

    def seconds(name: str) -> float:
        last[name] = run(jobs[name], data[name])
        return last[name].cost.seconds

    found = interleaved(3, **{name: lambda name=name: seconds(name) for name in jobs})
    costs = {name: ended.cost for name, ended in last.items()}
    return {
        "training rows": len(data["paillier"].train_values),
        "seconds": {name: even_slices(values) for name, values in found.items()},
        "ratio to secureboost": round(
            statistics.median(found["paillier"]) / statistics.median(found["secureboost"]), 3
        ),
        "encryptions": {name: cost.encryptions for name, cost in costs.items()},
        "predicted encryptions": predicted_encryptions(last["paillier"], 4, BITS),
        "megabytes": {name: round(cost.bytes / 1e6, 2) for name, cost in costs.items()},
    }


def growth() -> dict[str, Any]:
    """Return R² of lines through encryptions and seconds by parties, and bytes by trees."""
    parties, trees = (2, 4, 6, 8, 10), (1, 3, 5, 7, 9)
    by_parties = {}
    for count in parties:
        job = job_of(count, 'kind = "pivodl"\ntrees = 2\ndepth = 3', bits=1024)
        by_parties[count] = run(job, rows_of(job)).cost
    by_trees = {}
    for count in trees:
        job = job_of(4, f'kind = "pivodl"\ntrees = {count}\ndepth = 3', bits=1024)
        by_trees[count] = run(job, rows_of(job)).cost
    series: dict[str, dict[int, float]] = {
        "encryptions by parties": {count: cost.encryptions for count, cost in by_parties.items()},
        "seconds by parties": {count: round(cost.seconds, 2) for count, cost in by_parties.items()},
        "bytes by trees": {count: cost.bytes for count, cost in by_trees.items()},
    }
    return {name: {**{str(x): y for x, y in of.items()}, "R2": straightness(of)} for name, of in series.items()}


def straightness(series: dict[int, float]) -> float:
    """Return R² of the best line."""
    return round(float(np.corrcoef(list(series), list(series.values()))[0, 1] ** 2), 4)


if __name__ == "__main__":
    jobs = {"compare": compare, "growth": growth}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=sorted(jobs))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    wanted = [chosen.what] if chosen.what else list(jobs)
    report("holders", {what: jobs[what]() for what in wanted}, chosen.json)
