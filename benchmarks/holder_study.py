"""The figures of ``labelward study pivodl`` and of every party's attacks: writes docs/ref-pivodl.md from stored rows.

Runs what FOLDER lacks: the study's tables and Figures 6 to 8 on all its data sets with five seeds; Figures 10 to 16,
whose point is time and traffic, on credit_default with one seed; the attacks of all four parties, with five seeds; and
what the joined model reaches on the rows of energy that it learned. A run that was stopped goes on; with ``--only
PART`` one part runs, and the others stay as they are stored.

    LABELWARD_DATA=DIR python benchmarks/holder_study.py FOLDER [--only study|curves|costs|attacks|energy] \\
        [--seeds 5] --json benchmarks/results/holder-study.json --page docs/ref-pivodl.md
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _holder_study_page import page_of

from labelward.auditing.audit import audit
from labelward.data import load_dataset
from labelward.federation.components import with_defaults
from labelward.job import parse_job
from labelward.metrics.registry import READ
from labelward.protocols.pivodl.joined import JoinedModel, train_joined
from labelward.protocols.pivodl.params import Pivodl
from labelward.studies.pivodl import PIVODL
from labelward.studies.results import study_figures
from labelward.studies.run import plan_study, run_study

SEEDS = 5
COSTS = tuple(f"figure {number}" for number in range(10, 17))
TREES = {3: (5, 50, 100, 200, 300), 6: (6,)}
"""Numbers of trees of ``energy`` by depth; the paper has 5 of depth 3, and at most 6 of depth 6 in its figures."""
PRINTED_TRAINING_RMSE = 66.6
"""Section V-C of the paper, with four parties and without noise."""

Figures = dict[str, Any]


class Wanted(NamedTuple):
    """What is wanted of a part: where its runs are, over how many seeds; ``run``: whether what is missing is run."""

    folder: Path
    seeds: int
    run: bool


def tables(wanted: Wanted) -> Figures:
    """Return the figures of Tables III and IV and of Figure 6."""
    return _figures(wanted, ["table 3", "table 4", "figure 6"], (), jobs=2)


def curves(wanted: Wanted) -> Figures:
    """Return those of Figures 7 and 8; the point that they share with Figure 6 is one training."""
    common = wanted.folder / "study" / "parties-4"
    for path in sorted(common.glob("*/masked/*")):
        for setting in ("depth-3", "trees-5"):
            place = wanted.folder / "study" / setting / path.relative_to(common)
            if not place.exists():
                shutil.copytree(path, place)
    return _figures(wanted, ["figure 7", "figure 8"], (), jobs=2)


def costs(wanted: Wanted) -> Figures:
    """Return those of Figures 10 to 16; one training at a time, since they are timed."""
    return _figures(wanted._replace(seeds=1), list(COSTS), ("credit_default",), jobs=1)


def _figures(wanted: Wanted, parts: list[str], datasets: tuple[str, ...], *, jobs: int) -> Figures:
    """Return the figures of parts of the study, by setting, data set, model, defense, column and seed."""
    folder, seeds = wanted.folder / "study", wanted.seeds
    if wanted.run:
        ended = run_study(PIVODL, folder, parts=parts, datasets=datasets, seeds=seeds, jobs=jobs)
        assert not ended.failed, ended.failed
    else:
        ended = plan_study(PIVODL, folder, parts=parts, datasets=datasets, seeds=seeds)
    found: Figures = {}
    for (setting, key), by_seed in study_figures(ended, folder).items():
        place = found
        for name in (setting, key.dataset, key.model, key.defense):
            place = place.setdefault(name, {})
        place[key.column] = {str(seed): round(value, 4) for seed, value in sorted(by_seed.items())}
    return found


def attacks(wanted: Wanted) -> Figures:
    """Return AUC, balanced accuracy and labels read of each attack, by data set and defense.

    The figure of a seed is the mean over the parties.
    """
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
            "run": {"seeds": list(range(1, wanted.seeds + 1))},
        }
        values: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in audit(parse_job(spec), wanted.folder / "attacks" / table):
            if row.attack and row.leakage:
                defense = row.defense[0]["kind"] if row.defense else "none"
                leakage: Mapping[str, Any] = row.leakage
                for metric in (each for each in ("auc", "balanced_accuracy", READ) if each in leakage):
                    values[defense, row.attack["kind"], metric][str(row.seed)].append(leakage[metric])
        for (defense, attack, metric), by_seed in values.items():
            place = found.setdefault(table, {}).setdefault(defense, {}).setdefault(attack, {})
            place[metric] = {seed: round(float(np.mean(of)), 4) for seed, of in sorted(by_seed.items())}
    return found


def energy(wanted: Wanted) -> Figures:
    """Return RMSE of the joined model, which is that of PIVODL, on training and test rows, by number and depth."""
    found: Figures = {}
    spec = {
        "data": {"table": "appliances_energy", "split": "reference", "task": "regression"},
        "parties": dict.fromkeys(("active", "a", "b", "c"), 0.25),
    }
    for seed in range(1, wanted.seeds + 1):
        data = load_dataset(with_defaults(parse_job(spec)), seed)
        rows = {
            "training": ([each.train for each in data.parties], data.train_values),
            "test": ([each.test for each in data.parties], data.test_values),
        }
        for depth, numbers in TREES.items():
            params = Pivodl(trees=max(numbers), depth=depth)
            whole = train_joined(params, data.parties, data.train_values, precision=30, quantities=True)
            for trees in numbers:
                model = replace(whole, trees=whole.trees[:trees])
                told = found.setdefault(f"{trees} of depth {depth}", {})
                for name, (x, values) in rows.items():
                    told.setdefault(name, {})[str(seed)] = _rmse(model, x, values)
    return {"printed training": PRINTED_TRAINING_RMSE, "by trees": found}


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


PARTS: Mapping[str, Callable[[Wanted], Figures]] = {
    "study": tables,
    "curves": curves,
    "costs": costs,
    "attacks": attacks,
    "energy": energy,
}

STUDIED = ("study", "curves", "costs")
"""Parts that ``labelward study`` has."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("holder-study"))
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--stored", action="store_true", help="run nothing: the study's figures so far")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    chosen = parser.parse_args()
    known = json.loads(chosen.json.read_text()) if chosen.json.exists() else {}
    known["format"], known["printed"] = 1, printed()
    for part, run in PARTS.items():
        if chosen.only in (None, part) and (part in STUDIED or not chosen.stored):
            known[part] = run(Wanted(chosen.folder, chosen.seeds, run=not chosen.stored))
            chosen.json.write_text(json.dumps(known, indent=1) + "\n")
    if chosen.page:
        chosen.page.write_text(page_of(known))


if __name__ == "__main__":
    main()
