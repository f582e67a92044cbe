"""Active against passive completion: a malicious optimizer at several rates, on image halves and halves of texts.

Usage: LABELWARD_DATA=DIR python benchmarks/active_completion.py [--work DIR] [--data digits] [--seeds N] [--json FILE]

Models, columns and known labels are those of the study ``label-inference``, on samples that fit some minutes
(``SIZES``); only the head is trained, with 512 steps. The passive attacker and each rate of the active one attack
trainings of their own. A row is one seed of one set: accuracies on training rows whose labels the attacker does not
know, and the model's on test rows. What is stored is not measured again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _rows import StoredRows

from labelward.auditing.audit import audit
from labelward.data.catalog import load_catalog_table
from labelward.job import ComponentSpec, Job
from labelward.runs.schema import read_rows
from labelward.studies import datasets as tables
from labelward.studies import find_study
from labelward.studies.spec import Study, StudyTask

RATES = {"digits": (0.05, 0.2, 0.5), "fashion_mnist": (0.05, 0.2, 0.5), "cifar10": (0.1, 0.4), "ag_news": (5e-4, 2e-3)}
"""Of the malicious optimizer: that of the job, and larger ones."""
MODELS: Mapping[str, Mapping[str, Any]] = {"cifar10": {"height": 8, "epochs": 5}, "ag_news": {"epochs": 3}}
"""What differs from the study's models."""
COMPLETION = {"auxiliary": 40, "steps": 512, "unlabeled_weight": 50.0}


def sampled(table: pa.Table, seed: int, rows: int) -> pa.Table:
    """Return rows drawn without regard to their class, in the order of the table."""
    drawn = np.random.default_rng(seed).choice(table.num_rows, rows, replace=False)
    return table.take(pa.array(np.sort(drawn)))


SIZES: Mapping[str, Callable[[int], pa.Table]] = {
    "digits": lambda seed: load_catalog_table("digits"),
    "fashion_mnist": lambda seed: tables.fashion_mnist(seed, rows=2_000),
    "cifar10": lambda seed: sampled(tables.cifar10(seed, width=8), seed, 2_000),
    "ag_news": lambda seed: tables.texts(seed, name="ag_news_7600", rows=2_000),
}
"""Rows of a set: all 1,797 of digits, 2,000 of the others (CIFAR-10: of 8 x 8 pixels); a fifth are test rows."""


def study_job(study: Study, data: str, table: pa.Table, file: Path, seed: int, **changes: Any) -> Job:
    """Store a table, whose last column is the label, and return the job of its set, which ``changes`` change."""
    pq.write_table(table, file)
    dataset = replace(next(each for each in study.datasets if each.name == data), **changes)
    setting = next(each for each in study.settings if each.name == "default")
    task = StudyTask(setting=setting, dataset=dataset, model=next(iter(study.models)), seed=seed)
    return study.job(task, str(file), table.column_names[:-1])


def measure(data: str, seed: int, work: Path) -> dict[str, Any]:
    """Return the figures of one seed."""
    begin, used = time.perf_counter(), time.process_time()
    table = SIZES[data](seed)
    work.mkdir(parents=True, exist_ok=True)
    file = work / f"{data}-{seed}.parquet"
    width = {"image_width": MODELS[data]["height"]} if "height" in MODELS.get(data, {}) else {}
    job = study_job(find_study("label-inference"), data, table, file, seed, test_size=0.2, **width)
    base = {"base": "adam"} if data == "ag_news" else {}
    attacks = [ComponentSpec("passive-completion", COMPLETION)]
    attacks += [ComponentSpec("active-completion", {**COMPLETION, **base, "rate": rate}) for rate in RATES[data]]
    job = replace(
        job, attacks=tuple(attacks), model=replace(job.model, params={**job.model.params, **MODELS.get(data, {})})
    )
    audit(job, work / f"audit-{data}-{seed}", explained=False)
    found: dict[str, Any] = {"data": data, "seed": seed, "rows": table.num_rows}
    for row in read_rows(work / f"audit-{data}-{seed}"):
        if row.attack and row.attack["kind"] in ("passive-completion", "active-completion") and row.leakage:
            name = f"active {row.attack['rate']:g}" if row.attack["kind"] == "active-completion" else "passive"
            attacked: Any = row.leakage["accuracy"]
            learned: Any = row.utility["accuracy"] if row.utility else float("nan")
            found[name], found[f"{name}, model"] = round(attacked, 4), round(learned, 4)
    seconds = {"seconds": time.perf_counter() - begin, "processor": time.process_time() - used}
    return found | {name: round(value, 1) for name, value in seconds.items()}


def main() -> None:
    """Run what is missing; store and print each seed, and in the end means and spreads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, default=Path("runs/active-completion"))
    parser.add_argument("--data", nargs="*", choices=[*SIZES], default=[*SIZES])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = StoredRows(given.json)
    for data, seed in product(given.data, range(1, given.seeds + 1)):
        if (data, seed) in {(row["data"], row["seed"]) for row in rows}:
            continue
        rows.add(measure(data, seed, given.work))
    for data in given.data:
        mine = [row for row in rows if row["data"] == data]
        for name in mine[0] if mine else ():
            if name not in ("data", "seed", "rows"):
                values = np.array([row[name] for row in mine])
                print(f"{data:15} {name:20} {values.mean():.3f} ± {values.std(ddof=1) if len(values) > 1 else 0:.3f}")


if __name__ == "__main__":
    main()
