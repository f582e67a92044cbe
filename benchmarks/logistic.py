"""Logistic regression under Paillier: seconds, bytes, and how far the weights are from those of the joined training.

Usage: python benchmarks/logistic.py [--rows 30000] [--epochs 5] [--times 3] [--json FILE]

The columns are those of job A (12 at the active party, 11 at the other one), 2048 bits, both parties in this process.
At most 60 s on two cores, and weights within a millionth.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from _wiring import median, report
from sklearn.datasets import make_classification

from labelward.data import RawTables, as_table, load_dataset
from labelward.federation.components import make_engine, model_family, with_defaults
from labelward.federation.simulation import simulate_job
from labelward.job import parse_job
from labelward.party.context import no_progress
from labelward.protocols.logistic.columns import encoded_columns, scales_of_party
from labelward.protocols.logistic.descent import train_together

ACTIVE, PASSIVE = 12, 11
LIMIT = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    width, total = ACTIVE + PASSIVE, chosen.rows * 10 // 9
    x, y = make_classification(
        total, width, n_informative=10, n_redundant=4, class_sep=0.8, flip_y=0.05, random_state=0
    )
    names = [f"c{column}" for column in range(width)]
    sections: dict[str, Any] = {
        "data": {"table": "made.csv", "label": "label", "test_size": 0.1},
        "parties": {"active": names[:ACTIVE], "telco": names[ACTIVE:]},
        "model": {"kind": "logistic", "epochs": chosen.epochs},
    }
    job = with_defaults(parse_job(sections))
    table = as_table({**{name: x[:, at] for at, name in enumerate(names)}, "label": y})
    data = load_dataset(job, 1, RawTables(name="made", tables=(table,)))
    engine, walls, processor = make_engine(job.encryption), [], []
    for _ in range(chosen.times):
        start, spent = time.perf_counter(), time.process_time()
        ended = simulate_job(job, data, job.variants()[-1], engine, None, seed=1, progress=no_progress)
        walls.append(time.perf_counter() - start)
        processor.append(time.process_time() - spent)
    engine.close()
    params = model_family(job.model).params
    codes = [encoded_columns(scales_of_party(params, party), party.train) for party in data.parties]
    joined = train_together(params, codes, data.train_values, 1)
    apart = max(
        float(np.abs(np.array(ended.shares[party.name].weights) - weights).max())
        for party, weights in zip(data.parties, joined.weights, strict=True)
    )
    told = {
        "rows": len(data.train_values),
        "columns": [ACTIVE, PASSIVE],
        "epochs": chosen.epochs,
        "seconds": {"median": round(median(walls), 1), "from": round(min(walls), 1), "to": round(max(walls), 1)},
        "seconds of processor": round(median(processor), 1),
        "limit": LIMIT,
        "MB": round(ended.cost.bytes / 1e6, 1),
        "encryptions": ended.cost.encryptions,
        "decryptions": ended.cost.decryptions,
        "largest difference of a weight": apart,
    }
    report("logistic", told, chosen.json)


if __name__ == "__main__":
    main()
