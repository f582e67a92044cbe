"""Completion of unbalanced classes with the weight of unlabeled rows chosen, and with the published one of 50.

Usage: LABELWARD_DATA=DIR python benchmarks/completion_weights.py [--work DIR] [--seeds N] [--json FILE]

Of three made tables, in which one row of four, seven and twelve is of the second class, and 4,000 rows of credit
default; two parties with half of the columns each, 20 known labels. A row is one seed of one table: balanced accuracy
(the headline), AUC, and whether the guesses are constant, on the rows that the attacker does not know. What is
stored is not measured again. Where the AUC is .6 or more, the chosen weight's guesses may not be constant.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from _rows import StoredRows, halves
from sklearn.datasets import make_classification

from labelward.auditing.audit import audit
from labelward.data.catalog import load_catalog_table
from labelward.federation.components import with_defaults
from labelward.job import parse_job
from labelward.runs.schema import read_rows

MADE = {"one of 4": 1 / 4, "one of 7": 1 / 7, "one of 12": 1 / 12}
TABLES = (*MADE, "credit_default")
WEIGHTS: dict[str, dict[str, float]] = {"chosen": {}, "50": {"unlabeled_weight": 50.0}}
_ROWS, _TOLD = 4_000, 0.6


def table_of(name: str, seed: int) -> pa.Table:
    """Return 4,000 rows, drawn or made with a seed."""
    if name in MADE:
        x, y = make_classification(_ROWS, 16, n_informative=8, weights=[1 - MADE[name]], random_state=seed)
        return pa.table({**{f"x{at}": column for at, column in enumerate(x.T)}, "label": y})
    table = load_catalog_table(name)
    return table.take(pa.array(np.sort(np.random.default_rng(seed).choice(table.num_rows, _ROWS, replace=False))))


def measure(name: str, seed: int, work: Path) -> dict[str, Any]:
    """Return the figures of one seed of a table."""
    file = work / f"{name.replace(' ', '-')}-{seed}.parquet"
    job = parse_job(
        {
            "data": {"table": str(file), "label": "label", "test_size": 0.2, "categories": "dummies"},
            "parties": halves(table_of(name, seed), file, seed),
            "model": {"kind": "splitnn", "epochs": 10},
            "attack": [{"kind": "passive-completion", "auxiliary": 20, **each} for each in WEIGHTS.values()],
            "run": {"seeds": [seed]},
        }
    )
    folder = work / file.stem
    audit(with_defaults(job), folder, explained=False)
    found: dict[str, Any] = {"table": name, "seed": seed}
    for row in read_rows(folder):
        if row.attack and row.attack["kind"] == "passive-completion" and row.leakage:
            weight = "chosen" if row.attack["unlabeled_weight"] is None else "50"
            for metric in ("balanced_accuracy", "auc"):
                value: Any = row.leakage[metric]
                found[f"{weight}, {metric}"] = round(value, 4)
            found[f"{weight}, constant"] = bool(row.leakage["balanced_accuracy"] == 1 / 2)
    return found


def main() -> None:
    """Run what is missing; store and print each seed, and in the end means and how often guesses were constant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/completion-weights"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = StoredRows(given.json)
    for name, seed in product(TABLES, range(1, given.seeds + 1)):
        if (name, seed) not in {(row["table"], row["seed"]) for row in rows}:
            rows.add(measure(name, seed, given.work))
    for name, weight in product(TABLES, WEIGHTS):
        mine = [row for row in rows if row["table"] == name]
        balanced, area = (np.array([row[f"{weight}, {each}"] for row in mine]) for each in ("balanced_accuracy", "auc"))
        constant = sum(row[f"{weight}, constant"] for row in mine)
        print(f"{name:15} {weight:7} balanced {balanced.mean():.3f} AUC {area.mean():.3f} constant {constant}")
    sys.exit(int(any(row["chosen, constant"] and row["chosen, auc"] >= _TOLD for row in rows)))


if __name__ == "__main__":
    main()
