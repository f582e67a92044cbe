"""Attacks on trees of 10,000 to 1,000,000 rows: seconds, linearity in the rows, and peak memory.

Usage: python benchmarks/tree_attacks.py [--attack KIND]... [--rows ROWS]... [--json FILE]

Five trees of depth 6 are fitted to noisy labels (a forest on 80% of the rows,
or boosted on residuals). The attacker holds half of the columns and knows the splits that the protocol shows it. The
attacks of RECORDED read messages that this does not make: for each of them a training is recorded in another process,
of eight columns and without encryption (``pivodl``: with masks, half of the labels at either party), and the stored
view is attacked, its loading included. Each size runs in a process of its own, so that peaks do not mix, and with one
thread (``OMP_NUM_THREADS=1``), so that its processor seconds are what it takes on an idle machine.
Limit at 1,000,000 rows: 30 s of a processor and 2 GB for ID2Graph with 5 starts, 60 s and 3 GB for any other attack.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _machine import peak
from _wiring import report
from numpy.typing import NDArray

SIZES = (10_000, 100_000, 1_000_000)
SHARED = ("node-sums", "split-gains", "leaf-weights", "differential", "bin-bounds")
RECORDED = ("split-posterior", "split-replay", "bin-reconstruction", "lying-sums", *SHARED)
KINDS = (
    "clustering",
    "id2graph",
    "pure-leaves",
    "leaf-smoothing",
    "split-evidence",
    "spectral-clustering",
    "latent-classes",
    "consensus",
    "instance-clustering",
    "union",
    "union-clustering",
    *RECORDED,
)
HONEST = ("forest", "secureboost")
MODELS = {"lying-sums": ("secureboost",)} | dict.fromkeys(SHARED, ("pivodl",))
"""Of attacks that do not read views of every model."""
PARAMETERS = {"differential": {"form": "parent-child"}}
SECONDS, BYTES = {"id2graph": 30.0}, {"id2graph": 2e9}
OTHER_SECONDS, OTHER_BYTES = 60.0, 3e9
COLUMNS, TREES, DEPTH = 30, 5, 6
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def planted(rows: int, model: str) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int64]]:
    """Return the attacker's columns, the visible leaves [trees, rows] and the labels."""
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(1)
    features = rng.normal(size=(rows, COLUMNS))
    margin = features @ rng.normal(size=COLUMNS) + 2 * np.sin(3 * features[:, 0]) * features[:, 1]
    labels = (margin + rng.normal(size=rows) > 0).astype(np.int64)
    leaves, score = np.full((TREES, rows), -1, np.int32), np.zeros(rows)
    for tree in range(TREES):
        bag = np.flatnonzero(rng.random(rows) < 0.8) if model == "forest" else np.arange(rows)
        target = labels - (0.5 if model == "forest" else 1 / (1 + np.exp(-score)))
        fitted = DecisionTreeRegressor(max_depth=DEPTH, max_features=0.8, random_state=tree)
        fitted.fit(features[bag[:20_000]], target[bag[:20_000]])
        score += 0.3 * 4 * fitted.predict(features)
        leaves[tree, bag] = _visible(fitted.tree_, features[bag])
    return np.ascontiguousarray(features[:, : COLUMNS // 2]), leaves, labels


def _visible(tree: Any, features: NDArray[np.float64]) -> NDArray[np.int32]:
    """Route rows through splits; a split of the active party whose children are both leaves was not told."""
    node = np.zeros(len(features), np.int32)
    for _ in range(DEPTH):
        inner = tree.children_left[node] >= 0
        grand = tree.children_left[tree.children_left[node]] >= 0
        grand |= tree.children_left[tree.children_right[node]] >= 0
        told = inner & (grand | (tree.feature[node] < COLUMNS // 2))
        left = features[np.arange(len(node)), tree.feature[node]] <= tree.threshold[node]
        node = np.where(told, np.where(left, tree.children_left[node], tree.children_right[node]), node).astype(
            np.int32
        )
    return node


def measure(rows: int, model: str, kind: str) -> dict[str, Any]:
    """Return seconds and peak of one attack, compiled before."""
    from labelward.attacks import ATTACKS
    from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
    from labelward.kernels.leaf_signatures import merge_identical_rows
    from labelward.kernels.louvain import louvain
    from labelward.testing.attacks import planted_view

    def attack(count: int) -> dict[str, float]:
        view = planted_view(leaves[:, :count], model=model)
        own = AttackerData(features=features[:count], columns=[str(column) for column in range(features.shape[1])])
        begin, used = time.perf_counter(), time.process_time()
        guess = ATTACKS.make(kind, {})(view, own, AuxiliaryKnowledge(classes=2), rng=np.random.default_rng(1))
        seconds = {"seconds": time.perf_counter() - begin, "processor": time.process_time() - used}
        found: dict[str, float] = guess.notes | seconds
        return found | {"v_measure": float(v_measure_score(labels[:count], guess.values))}

    from sklearn.metrics import v_measure_score

    features, leaves, labels = planted(rows, model)
    attack(1000)
    before = peak()
    found = attack(rows)
    highest = peak()
    begin = time.perf_counter()
    signatures = merge_identical_rows(leaves)
    weights = np.power(1.0 if model == "forest" else 0.6, np.arange(TREES, dtype=np.float64))
    louvain(signatures, weights, rng=np.random.default_rng(1), starts=1)
    graph = time.perf_counter() - begin
    return {"groups": len(signatures.size), "graph": graph, "before": before, "peak": highest} | found


def record(rows: int, model: str, kind: str, folder: Path) -> None:
    """Train as the attack requires, and store each party's view, columns, and labels of the training rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from labelward.data import load_dataset
    from labelward.federation.components import make_attack, make_engine, with_defaults
    from labelward.federation.simulation import simulate_job
    from labelward.job import ComponentSpec, Variant, parse_job
    from labelward.party.context import no_progress
    from labelward.runs.malicious_runs import MaliciousRun, malicious_behavior

    columns, _, labels = planted(rows, model)
    table = pa.table({f"column {at}": column for at, column in enumerate(columns[:, :8].T)} | {"label": labels})
    names = table.column_names
    pq.write_table(table, folder / "all.parquet")
    masked = {"aggregation": "masks"} if model == "pivodl" else {}
    asked = {
        "data": {
            "table": str(folder / "all.parquet"),
            "label": "label",
            "labels": {"active": 0.5, "telco": 0.5} if model == "pivodl" else {},
        },
        "parties": {"active": names[:4], "telco": names[4:8]},
        "model": {"kind": model, "trees": TREES, "depth": DEPTH, **masked},
        "encryption": {"engine": "plain", "insecure": True},
        "leakage": {"meter": False},
    }
    job = with_defaults(parse_job(asked))
    data, behavior = load_dataset(job, 1), malicious_behavior(make_attack(ComponentSpec(kind), ""))
    lies = None if behavior is None else MaliciousRun("telco", behavior)
    engine = make_engine(job.encryption)
    simulate_job(job, data, Variant(), engine, folder / "run", seed=1, progress=no_progress, deviation=lies)
    for party in data.parties:
        pq.write_table(pa.table(dict(zip(party.columns, party.train.T, strict=True))), folder / f"{party.name}.parquet")
    pq.write_table(pa.table({"label": data.train_labels}), folder / "labels.parquet")
    np.save(folder / "held.npy", data.holds("telco")[: len(data.train_labels)])
    (folder / "counts.json").write_text(json.dumps(np.bincount(labels).tolist()))


def measure_recorded(rows: int, model: str, kind: str) -> dict[str, Any]:
    """Return seconds and peak of one attack on a stored view, its loading included; compiled before."""
    found: dict[str, Any] = {}
    for count in (1000, rows):
        found = {"before": peak()}
        with tempfile.TemporaryDirectory() as name:
            subprocess.run([sys.executable, __file__, "--record", str(count), model, kind, name], check=True)
            begin, used = time.perf_counter(), time.process_time()
            found |= attack_recorded(Path(name), kind, shared=model == "pivodl")
            found |= {"seconds": time.perf_counter() - begin, "processor": time.process_time() - used}
    return found | {"peak": peak()}


def attack_recorded(folder: Path, kind: str, *, shared: bool) -> dict[str, float]:
    """Attack a recorded view; return the notes of the guess."""
    import pyarrow.parquet as pq

    from labelward.attacks import ATTACKS
    from labelward.attacks.base import AttackerData, AuxiliaryKnowledge
    from labelward.leakage.stored_views import AttackerKnowledge, attack_view, load_models
    from labelward.party.view import View

    party = "active" if kind == "bin-reconstruction" else "telco"
    table, labels, parameters = folder / f"{party}.parquet", folder / "labels.parquet", PARAMETERS.get(kind, {})
    if shared:  # the party labels half of the rows, which `labelward attack` does not take yet
        own = pq.read_table(table)
        known = np.where(np.load(folder / "held.npy"), pq.read_table(labels)["label"].to_numpy(), np.nan)
        values = np.stack([column.to_numpy() for column in own.columns], axis=1)
        attacker = AttackerData(features=values, columns=own.column_names, labels=known)
        view, aux = View.load(folder / "run" / party / "view"), AuxiliaryKnowledge(classes=2)
        guess = ATTACKS.make(kind, parameters)(view, attacker, aux, rng=np.random.default_rng(1))
    else:
        if kind == "split-posterior":
            parameters = {"class_counts": json.loads((folder / "counts.json").read_text())}
        view_dir = folder / "run" / party / "view"
        knowledge = AttackerKnowledge(labels=labels if party == "active" else None, models=load_models(view_dir))
        _, guess = attack_view(view_dir, table, kind, parameters, classes=2, seed=1, knowledge=knowledge)
    notes: dict[str, float] = guess.notes
    return notes


def main() -> None:
    """Measure each size in a process of its own, print, and store if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("ROWS", "MODEL", "KIND"), help=argparse.SUPPRESS)
    parser.add_argument("--record", nargs=4, metavar=("ROWS", "MODEL", "KIND", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--attack", action="append", choices=KINDS, help="default: all")
    parser.add_argument("--rows", action="append", type=int, help=f"default: {', '.join(map(str, SIZES))}")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.one:
        run = measure_recorded if asked.one[2] in RECORDED else measure
        print(json.dumps(run(int(asked.one[0]), *asked.one[1:])))
        return
    if asked.record:
        count, model, kind, folder = asked.record
        record(int(count), model, kind, Path(folder))
        return
    failed, result = False, dict[str, dict[str, dict[int, dict[str, float]]]]()
    runs = [(kind, model) for kind in asked.attack or KINDS for model in MODELS.get(kind, HONEST)]
    for kind, model in runs:
        last = None
        for rows in asked.rows or SIZES:
            command = [sys.executable, __file__, "--one", str(rows), model, kind]
            ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=ONE_THREAD)
            found = json.loads(ended.stdout)
            result.setdefault(kind, {}).setdefault(model, {})[rows] = found
            growth = "" if last is None else f", {found['processor'] / last:4.1f} times the last size's"
            last = found["processor"]
            notes = {name: round(found[name], 3) for name in ("groups", "graph", "v_measure") if name in found}
            print(
                f"{kind:20} {model:11} {rows:9,} rows {found['processor']:6.2f} s of a processor"
                f" ({found['seconds']:6.2f} s), peak {found['peak'] / 1e9:.2f} GB"
                f" ({found['before'] / 1e9:.2f} GB before), {notes}{growth}",
                file=sys.stderr,
            )
            failed |= found["processor"] > SECONDS.get(kind, OTHER_SECONDS)
            failed |= found["peak"] > BYTES.get(kind, OTHER_BYTES)
    report("tree attacks", {"limits": {"seconds": OTHER_SECONDS, "bytes": OTHER_BYTES}, **result}, asked.json)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
