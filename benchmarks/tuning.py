"""Strategies of search compared on one data set: hypervolume after each training, start by start.

Each start is a ``labelward tune`` in a folder of its own, so that a comparison that was stopped goes on. The rows are
what ``docs/ref-tuning.md`` is made of.

    python benchmarks/tuning.py --dataset synthetic1 --starts 3 --work DIR --json benchmarks/results/tuning.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from labelward.job import (
    ComponentSpec,
    DataSection,
    EncryptionSection,
    Job,
    LeakageSection,
    PartySection,
    RunSection,
    TuneSection,
)
from labelward.studies import find_study
from labelward.tuning.constraints import feasible
from labelward.tuning.pareto import hypervolume, hypervolumes, pooled_bounds
from labelward.tuning.tune import TuneResult, tune

UNITS = {"encrypt": 0.0087, "decrypt": 0.0024, "add": 0.000037}
"""Seconds of a textbook Paillier of 2048 bits; nothing packed, as in the paper."""
LIMITS = {"cost": 100.0, "leakage": 0.6}

STRATEGIES: dict[str, dict[str, Any]] = {
    "empirical": {"search": "empirical", "prefixes": False},
    "grid": {"search": "grid", "prefixes": False},
    "random": {"search": "random", "prefixes": False},
    "MOSB": {"search": "nsga2", "prefixes": False},
    "CMOSB, penalty": {"search": "nsga2", "prefixes": False, "handling": "penalty", "constraints": LIMITS},
    "CMOSB, feasible first": {"search": "nsga2", "prefixes": False, "constraints": LIMITS},
    "random with prefixes": {"search": "random"},
    "tpe with prefixes": {"search": "tpe"},
    "tpe with prefixes, limits": {"search": "tpe", "constraints": LIMITS},
}


def job_of(dataset: str, work: Path, start: int, evaluations: int, chosen: dict[str, Any]) -> Job:
    """Return the search of one strategy and start; a generated table is written first."""
    import pyarrow.parquet as pq

    found = next(each for each in find_study("ica").datasets if each.name == dataset)
    table = found.catalogue_name or dataset
    if found.generate is not None:
        table = str(work.resolve() / f"{dataset}-{start}.parquet")
        if not Path(table).exists():
            pq.write_table(found.generate(start), table)
    section = TuneSection(
        evaluations=evaluations, cost="unpacked", units=UNITS, leakage="ica", validation=1 / 3, confirm=0, **chosen
    )
    return Job(
        data=DataSection(table=table, label="label", test_size=1 / 3, split="reference"),
        parties=(
            PartySection(name="active", share=found.active_share),
            PartySection(name="telco", share=1 - found.active_share),
        ),
        model=ComponentSpec("secureboost", {"bins": 32, "candidates": "node"}),
        encryption=EncryptionSection(engine="plain", insecure=True),
        attacks=(ComponentSpec("instance-clustering"),),
        leakage=LeakageSection(privacy=False),
        run=RunSection(seeds=(start,)),
        tune=section,
    )


def row_of(dataset: str, strategy: str, start: int, result: TuneResult) -> dict[str, Any]:
    """Return what one search gave: all points of each training, and the hypervolume after it, between fixed bounds."""
    points = [[list(point.values) for point in each.points] for each in result.evaluations if each.share == 1.0]
    return {"dataset": dataset, "strategy": strategy, "start": start, "bounds": result.record.bounds, "points": points}


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the hypervolume of each search: by training between fixed bounds, and at the end between pooled ones."""
    limited = dataclasses.replace(TuneSection(), constraints=LIMITS)
    found = []
    for row in rows:
        flat = np.array([point for each in row["points"] for point in each]).reshape(-1, 3)
        beside = [each for each in rows if (each["dataset"], each["start"]) == (row["dataset"], row["start"])]
        pool = pooled_bounds([np.array([p for one in each["points"] for p in one]).reshape(-1, 3) for each in beside])
        history = hypervolumes(flat, np.array(row["bounds"]))
        ends = np.cumsum([len(each) for each in row["points"]], dtype=np.int64)
        kept = flat[feasible(limited, flat)]
        found.append(
            {
                **{name: row[name] for name in ("dataset", "strategy", "start")},
                "trainings": len(row["points"]),
                "fixed": [round(history[end - 1], 4) if end else 0.0 for end in ends],
                "pooled": round(hypervolume(flat, pool), 4),
                "feasible": round(hypervolume(kept, np.array(row["bounds"])), 4) if len(kept) else 0.0,
            }
        )
    return found


def main() -> None:
    """Run what is asked for and missing, and write the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", default="synthetic1")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--few", type=int, default=20, help="trainings of strategies with prefixes")
    parser.add_argument("--strategies", nargs="*", default=list(STRATEGIES))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for start in range(given.starts):
        for strategy in given.strategies:
            chosen = STRATEGIES[strategy]
            count = given.few if chosen.get("prefixes", True) else given.evaluations
            job = job_of(given.dataset, given.work, start, count, chosen)
            folder = given.work / f"{given.dataset}-{start}-{strategy.replace(' ', '-').replace(',', '')}-{count}"
            rows.append(row_of(given.dataset, strategy, start, tune(job, out=folder, jobs=given.jobs)))
            print(json.dumps({**summary(rows)[-1], "fixed": summary(rows)[-1]["fixed"][-1]}), flush=True)
            if given.json is not None:
                given.json.write_text(json.dumps(summary(rows), indent=1) + "\n")


if __name__ == "__main__":
    main()
