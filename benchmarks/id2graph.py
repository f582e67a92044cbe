"""Attacks on 10,000 to 1,000,000 rows: seconds, linearity in the rows, and peak memory.

Usage: python benchmarks/id2graph.py [--json FILE]

Five trees of depth 6 are fitted to noisy labels (a forest on 80% of the rows,
or boosted on residuals). The attacker holds half of the columns and knows the splits that the protocol shows it. Each
size runs in a process of its own, so that peaks do not mix; an attack uses one thread, so that its processor seconds
are what it takes on an idle machine.
Limit at 1,000,000 rows: 30 s and 2 GB for ID2Graph with 5 starts, 60 s and 3 GB for any other attack.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from _wiring import report
from numpy.typing import NDArray

SIZES = (10_000, 100_000, 1_000_000)
KINDS = (
    "id2graph",
    "leaf-smoothing",
    "spectral-clustering",
    "latent-classes",
    "consensus",
    "instance-clustering",
    "union",
    "union-clustering",
)
SECONDS, BYTES = {"id2graph": 30.0}, {"id2graph": 2e9}
OTHER_SECONDS, OTHER_BYTES = 60.0, 3e9
COLUMNS, TREES, DEPTH = 30, 5, 6


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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = attack(rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begin = time.perf_counter()
    signatures = merge_identical_rows(leaves)
    weights = np.power(1.0 if model == "forest" else 0.6, np.arange(TREES, dtype=np.float64))
    louvain(signatures, weights, rng=np.random.default_rng(1), starts=1)
    graph = time.perf_counter() - begin
    return {"groups": len(signatures.size), "graph": graph, "before": before, "peak": peak} | found


def main() -> None:
    """Measure each size in a process of its own, print, and store if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("ROWS", "MODEL", "KIND"), help=argparse.SUPPRESS)
    parser.add_argument("--attack", action="append", choices=KINDS, help="default: all")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(int(asked.one[0]), *asked.one[1:])))
        return
    failed, result = False, dict[str, dict[str, dict[int, dict[str, float]]]]()
    for kind, model in product(asked.attack or KINDS, ("forest", "secureboost")):
        last = None
        for rows in SIZES:
            command = [sys.executable, __file__, "--one", str(rows), model, kind]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            result.setdefault(kind, {}).setdefault(model, {})[rows] = found
            growth = "" if last is None else f", {found['processor'] / last:4.1f} times the last size's"
            last = found["processor"]
            notes = {name: value for name, value in found.items() if name in ("communities", "modularity")}
            print(
                f"{kind:20} {model:11} {rows:9,} rows {found['groups']:8,.0f} groups {found['seconds']:6.2f} s"
                f" ({found['processor']:5.2f} s of a processor;"
                f" merging and one start {found['graph']:5.2f} s), peak {found['peak'] / 1e9:.2f} GB"
                f" (data {found['before'] / 1e9:.2f} GB), V {found['v_measure']:.3f}, {notes}{growth}",
                file=sys.stderr,
            )
            failed |= found["seconds"] > SECONDS.get(kind, OTHER_SECONDS)
            failed |= found["peak"] > BYTES.get(kind, OTHER_BYTES)
    report("id2graph", {"limits": {"seconds": OTHER_SECONDS, "bytes": OTHER_BYTES}, **result}, asked.json)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
