"""Leakage of trees under every attack and defense: what ``docs/ref-studies.md`` says of all attacks on trees.

The trainings are those of Table 2 of the ID2Graph paper, with the defenses named here. What is stored is not measured
again, so a run that was stopped goes on.

    LABELWARD_DATA=DIR python benchmarks/tree_leakage.py --work DIR --json benchmarks/results/tree-leakage.json
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelward.auditing.audit import audit
from labelward.job import ComponentSpec, EncryptionSection, Job, Variant
from labelward.runs.schema import read_rows
from labelward.studies import find_study
from labelward.studies.spec import StudyTask

DATA = ("breast_cancer", "obesity", "phishing")
MODELS = ("secureboost", "forest")
ATTACKS = (
    "clustering",
    "id2graph",
    "instance-clustering",
    "leaf-smoothing",
    "spectral-clustering",
    "latent-classes",
    "split-evidence",
    "split-replay",
    "consensus",
)
METRICS = ("v_measure", "matched_accuracy")
_LMID = tuple(ComponentSpec("id-lmid", {"xi": xi}) for xi in (0.1, 0.5, 1.0))
_NOISE = ComponentSpec("lp-mst", {"epsilon": 1.0})
DEFENSES = {
    "secureboost": (*_LMID, ComponentSpec("local-trees", {"count": 1}), _NOISE),
    "forest": (*(replace(each, params={**each.params, "sampled": True}) for each in _LMID), _NOISE),
}


def job_of(data: str, model: str, seed: int, attacks: tuple[str, ...]) -> Job:
    """Return the training of Table 2, its defenses and the attacks."""
    study = find_study("id2graph")
    dataset = next(each for each in study.datasets if each.name == data)
    setting = next(each for each in study.settings if each.name == "default")
    made = study.job(StudyTask(setting=setting, dataset=dataset, model=model, seed=seed), data)
    printed = {"id2graph": {"alpha": 3.0}}
    return replace(
        made,
        encryption=EncryptionSection(engine="plain", insecure=True),
        defenses=tuple(Variant((each,)) for each in DEFENSES[model]),
        attacks=tuple(ComponentSpec(kind, printed.get(kind, {})) for kind in attacks),
    )


def described(defense: tuple[dict[str, Any], ...]) -> str:
    """Return a defense in one word and its parameter."""
    if not defense:
        return "none"
    return f"{defense[0]['kind']} {next(iter(value for key, value in defense[0].items() if key != 'kind'))}"


def summary(key: tuple[str, ...], figures: NDArray[np.float64]) -> dict[str, Any]:
    """Return mean and standard deviation over the seeds."""
    made: dict[str, Any] = dict(zip(("data", "model", "defense", "attack"), key, strict=True))
    made["seeds"] = len(figures)
    for name, values in zip(METRICS, figures.T, strict=True):
        made |= {name: round(values.mean(), 3), f"{name}_spread": round(values.std(ddof=1), 3)}
    return made


def main() -> None:
    """Run what is missing, and print what all trainings gave."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--data", nargs="*", default=DATA)
    parser.add_argument("--model", nargs="*", default=MODELS)
    parser.add_argument("--attack", nargs="*", default=ATTACKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[tuple[str, ...], list[list[float]]] = defaultdict(list)
    for data, model, seed in product(given.data, given.model, range(1, given.seeds + 1)):
        folder = given.work / "-".join((data, model, str(seed), *given.attack))
        audit(job_of(data, model, seed, tuple(given.attack)), folder, explained=False)
        for row in read_rows(folder):
            if row.attack and row.leakage:
                figures: list[Any] = [row.leakage[name] for name in METRICS]
                found[data, model, described(row.defense), row.attack["kind"]].append(figures)
    rows = [summary(key, np.array(figures)) for key, figures in found.items()]
    print("\n".join(map(json.dumps, rows)))
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
