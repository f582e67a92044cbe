"""Passive and active completion of CIFAR-10 with the paper's network, on an accelerator.

Usage: LABELWARD_DATA=DIR python benchmarks/accelerated_completion.py [--seeds 1 2] [--epochs N] [--steps N] [--json F]
       python benchmarks/accelerated_completion.py --device cpu --rows 300 --bottom resnet-20 --epochs 1 --steps 5

The study ``label-inference --budget paper`` trains 100 epochs and completes in 25,600 steps, which takes hours; here
are fewer of both, and nothing else that an audit runs. For each seed a training with an honest party and one with the
malicious optimizer; each bottom model is completed with its weights frozen and with all weights free, the honest one
untrained as well. What is stored is not measured again; where there is no accelerator, nothing is.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from _rows import StoredRows
from active_completion import COMPLETION, study_job

from labelward.auditing.measure import attackers_of, directed_parties, run_training
from labelward.data import load_dataset
from labelward.federation.components import make_attack, make_engine, model_family, with_defaults
from labelward.job import ComponentSpec, Job
from labelward.leakage.run_attack import attack_and_score
from labelward.metrics.utility import utility_scores
from labelward.runs.malicious_runs import malicious_runs
from labelward.studies import datasets as tables
from labelward.studies import find_study

KINDS = ("passive", "active")


def job_of(kind: str, seed: int, folder: Path, given: argparse.Namespace) -> Job:
    """Return the study's job with one kind of attack, head only and fine-tuned."""
    table = tables.cifar10(seed)
    study = find_study("label-inference").full
    assert study is not None
    file = folder / f"cifar10-{seed}.parquet"
    job = study_job(study, "cifar10", table.slice(0, given.rows or table.num_rows), file, seed)
    changed = {
        "device": given.device,
        "epochs": given.epochs,
        "bottom": given.bottom,
        "step_epochs": max(1, round(0.4 * given.epochs)),
    }
    recipe = {**COMPLETION, "steps": given.steps}
    attacks = tuple(ComponentSpec(f"{kind}-completion", {**recipe, "fine_tune": tuned}) for tuned in (False, True))
    return with_defaults(
        replace(
            job,
            attacks=attacks,
            defenses=(),
            model=replace(job.model, params={**job.model.params, **changed}),
            leakage=replace(job.leakage, meter=False),
        )
    )


def measure(kind: str, seed: int, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for each attack on one training."""
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(kind, seed, Path(folder), given)
        data = load_dataset(job, seed)
    pairs = attackers_of(job, job.attacks, directed=directed_parties(data))
    deviation = next(iter(malicious_runs((party, make_attack(attack)) for party, attack in pairs)), None)
    engine, began = make_engine(job.encryption), time.perf_counter()
    training = run_training(job, data, job.variants()[-1], engine, None, seed=seed, deviation=deviation)
    engine.close()
    trained = time.perf_counter() - began
    utility = utility_scores(model_family(job.model), training.ended.margins, data)
    for party, spec in pairs:
        attack = make_attack(spec)
        own = training.attacker(party, attack)
        bottoms = {"trained": own, "untrained": replace(own, bottom=own.untrained)}
        for name in bottoms if kind == "passive" else ("trained",):
            began = time.perf_counter()
            found = attack_and_score(attack, training.view(party), data, seed=seed, own=bottoms[name], by_chance=False)
            yield {
                "kind": kind,
                "seed": seed,
                "bottom": name,
                "fine-tuned": attack.parameters()["fine_tune"],
                "epochs": given.epochs,
                "steps": given.steps,
                "accuracy": round(float(found.leakage["accuracy"]), 4),  # type: ignore[arg-type]
                "test rows": round(float(found.leakage["outside_accuracy"]), 4),  # type: ignore[arg-type]
                "model, test rows": round(utility["accuracy"], 4),
                "training seconds": round(trained, 1),
                "attack seconds": round(time.perf_counter() - began, 1),
            }


def main() -> None:
    """Run what is missing; store and print each attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=4096)
    parser.add_argument("--bottom", default="resnet-18")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=0, help="of the table; 0: all")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.device != "cpu" and not torch.cuda.is_available():
        print("no accelerator is here, and nothing is measured; --device cpu takes very long")
        return
    rows = StoredRows(given.json)
    for seed in given.seeds:
        for kind in KINDS:
            if any((row["kind"], row["seed"]) == (kind, seed) for row in rows):
                continue
            for row in measure(kind, seed, given):
                rows.add(row)


if __name__ == "__main__":
    main()
