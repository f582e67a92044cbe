"""The figures of ``labelward study pivodl`` and of every party's attacks: writes docs/ref-pivodl.md from stored rows.

Runs what FOLDER lacks: the study's tables and Figures 6 to 8 on all its data sets with five seeds; Figures 10 to 16,
whose point is time and traffic, on credit_default with one seed; the attacks of all four parties, with five seeds; and
what the joined model reaches on the rows of energy that it learned. A run that was stopped goes on; with ``--only
PART`` one part runs, and the others stay as they are stored.

    LABELWARD_DATA=DIR python benchmarks/holder_study.py FOLDER [--only study|costs|attacks|energy] \\
        --json benchmarks/results/holder-study.json --page docs/ref-pivodl.md
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _holder_study_page import page_of

from labelward.auditing.audit import audit
from labelward.data import load_dataset
from labelward.federation.components import with_defaults
from labelward.job import parse_job
from labelward.protocols.pivodl.joined import JoinedModel, train_joined
from labelward.protocols.pivodl.params import Pivodl
from labelward.studies.pivodl import PIVODL
from labelward.studies.results import study_figures
from labelward.studies.run import run_study

SEEDS = 5
COSTS = tuple(f"figure {number}" for number in range(10, 17))
TREES = (5, 50, 100, 200, 300)
"""Numbers of trees of ``energy``; the paper has 5."""
PRINTED_TRAINING_RMSE = 66.6
"""Section V-C of the paper, with four parties and without noise."""

Figures = dict[str, Any]


def tables(folder: Path) -> Figures:
    """Return the figures of the parts that are no costs; the point that their axes share is one training."""
    _stored(folder, ["table 3", "table 4", "figure 6"], (), SEEDS)
    for path in sorted((folder / "study" / "parties-4").glob("*/masked/*")):
        for setting in ("depth-3", "trees-5"):
            place = folder / "study" / setting / path.relative_to(folder / "study" / "parties-4")
            if not place.exists():
                shutil.copytree(path, place)
    return _stored(folder, [part.name for part in PIVODL.parts if part.name not in COSTS], (), SEEDS)


def costs(folder: Path) -> Figures:
    """Return those of Figures 10 to 16."""
    return _stored(folder, list(COSTS), ("credit_default",), 1)


def _stored(folder: Path, parts: list[str], datasets: tuple[str, ...], seeds: int) -> Figures:
    """Run what is missing; return figures by setting, data set, model, defense, column and seed."""
    ended = run_study(PIVODL, folder / "study", parts=parts, datasets=datasets, seeds=seeds)
    assert not ended.failed, ended.failed
    found: Figures = {}
    for (setting, key), by_seed in study_figures(ended, folder / "study").items():
        place = found
        for name in (setting, key.dataset, key.model, key.defense):
            place = place.setdefault(name, {})
        place[key.column] = {str(seed): round(value, 4) for seed, value in sorted(by_seed.items())}
    return found


def attacks(folder: Path) -> Figures:
    """Return AUC and balanced accuracy of each attack, by data set and defense; the mean over parties of each seed."""
    shares = dict.fromkeys(("active", "a", "b", "c"), 0.25)
    found: Figures = {}
    for table in ("credit_default", "bank_marketing"):
        spec = {
            "data": {"table": table, "split": "reference", "labels": shares},
            "parties": shares,
            "model": {"kind": "pivodl", "aggregation": "masks"},
            "encryption": {"engine": "plain", "insecure": True},
            "defense": [{"kind": kind, "epsilon": 8.0, "delta": 1e-5} for kind in ("partial-dp", "label-dp-sums")],
            "attack": [{"kind": kind} for kind in ("node-sums", "split-gains", "leaf-weights")],
            "leakage": {"privacy": False},
            "run": {"seeds": list(range(1, SEEDS + 1))},
        }
        values: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in audit(parse_job(spec), folder / "attacks" / table):
            if row.attack and row.leakage:
                defense = row.defense[0]["kind"] if row.defense else "none"
                for metric in ("auc", "balanced_accuracy"):
                    values[defense, row.attack["kind"], metric][str(row.seed)].append(row.leakage[metric])
        for (defense, attack, metric), by_seed in values.items():
            place = found.setdefault(table, {}).setdefault(defense, {}).setdefault(attack, {})
            place[metric] = {seed: round(float(np.mean(of)), 4) for seed, of in sorted(by_seed.items())}
    return found


def energy(folder: Path) -> Figures:
    """Return RMSE of the joined model on training and test rows, which is that of PIVODL, by number of trees."""
    found: Figures = defaultdict(dict)
    shares = dict.fromkeys(("active", "a", "b", "c"), 0.25)
    spec = {"data": {"table": "appliances_energy", "split": "reference"}, "parties": shares}
    spec["data"]["task"] = "regression"  # type: ignore[assignment]
    for seed in range(1, SEEDS + 1):
        data = load_dataset(with_defaults(parse_job(spec)), seed)
        whole = train_joined(Pivodl(trees=max(TREES)), data.parties, data.train_values, precision=30, quantities=True)
        for trees in TREES:
            model = replace(whole, trees=whole.trees[:trees])
            told = found[str(trees)]
            told.setdefault("training", {})[str(seed)] = _rmse(
                model, [each.train for each in data.parties], data.train_values
            )
            told.setdefault("test", {})[str(seed)] = _rmse(
                model, [each.test for each in data.parties], data.test_values
            )
    return {"printed training": PRINTED_TRAINING_RMSE, "by trees": dict(found)}


def _rmse(model: JoinedModel, x: list[Any], values: Any) -> float:
    return round(float(np.sqrt(((model.margins(x)[:, 0] - values) ** 2).mean())), 3)


def printed() -> Figures:
    """Return the paper's figures by part, data set, model, defense and column."""
    found: Figures = {}
    for (part, key), figure in PIVODL.printed.items():
        place = found
        for name in (part, key.dataset, key.model, key.defense):
            place = place.setdefault(name, {})
        place[key.column] = figure.mean
    return found


PARTS: Mapping[str, Callable[[Path], Figures]] = {
    "study": tables,
    "costs": costs,
    "attacks": attacks,
    "energy": energy,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--page", type=Path, required=True)
    chosen = parser.parse_args()
    known = json.loads(chosen.json.read_text()) if chosen.json.exists() else {}
    known["format"], known["printed"] = 1, printed()
    for part, run in PARTS.items():
        if chosen.only in (None, part):
            known[part] = run(chosen.folder)
            chosen.json.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    chosen.page.write_text(page_of(known))


if __name__ == "__main__":
    main()
