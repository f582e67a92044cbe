"""What complete trees cost: several classes under Paillier, forests, prediction, wide tables.

Usage: python benchmarks/trees.py [classes | forest | predict | wide] [--json FILE]; without a choice all four

``classes``: 100,000 × 60, depth 5, 5 rounds, Paillier 2048: 11 classes in one tree a round beside 2 classes.
``forest``: 50 trees of depth 6 on 100,000 × 30, plain, beside scikit-learn's forest on both cores.
``predict``: 100,000 rows × 100 trees of depth 6 in one round, two parties in this process.
``wide``: 20,000 × 5,000, 2 trees of depth 5, plain, with the peak of memory (the table itself is 0.8 GB).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from _machine import gigabytes
from _wiring import columns_of, even_slices, interleaved, labels_of, median, phases, report, train
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from training import halves, make

from labelward.he import engine
from labelward.protocols.secureboost.params import FederatedForest, SecureBoost, TreeModel

Floats = NDArray[np.float64]


def many(rows: int, columns: int, classes: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return generated rows of several classes."""
    x, y = make_classification(
        rows, columns, n_informative=20, n_redundant=10, n_classes=classes, n_clusters_per_class=1, random_state=0
    )
    return x, y.astype(np.int64)


def encrypted(x: Floats, y: NDArray[np.int64], classes: int) -> dict[str, Any]:
    """Train under Paillier 2048; seconds by phase."""
    parts = halves(x, x.shape[1] // 2)
    paillier = engine("paillier", workers=2)
    test = {name: part[:1] for name, part in parts.items()}
    try:
        run = train(SecureBoost(trees=5, depth=5), columns_of(parts), test, labels_of(y, classes), paillier, 2048)
    finally:
        paillier.close()
    return {"seconds": round(run.seconds, 1), "phases": phases(run)}


def classes() -> dict[str, Any]:
    """Compare 11 classes with 2 on the same rows."""
    x, y = many(100_000, 60, 11)
    two, eleven = encrypted(x, (y > 5).astype(np.int64), 2), encrypted(x, y, 11)
    return {"2 classes": two, "11 classes": eleven, "ratio": round(eleven["seconds"] / two["seconds"], 2), "limit": 3.0}


def plainly(params: TreeModel, x: Floats, y: NDArray[np.int64]) -> float:
    """Return seconds under the plain engine, two parties."""
    parts = halves(x, x.shape[1] // 2)
    test = {name: part[:1] for name, part in parts.items()}
    return train(params, columns_of(parts), test, labels_of(y), engine("plain"), 0).seconds


def forest() -> dict[str, Any]:
    """Compare with scikit-learn's forest on both cores: the median of 3 interleaved runs.

    It looks at the root of the number of columns at each split, its default; with all of them, as ours does, it takes
    several times as long.
    """
    x, y = make(100_000, 30)
    params = FederatedForest(trees=50, depth=6, replace=True)

    def theirs() -> float:
        start = time.perf_counter()
        RandomForestClassifier(50, max_depth=6, n_jobs=2, random_state=0).fit(x, y)
        return time.perf_counter() - start

    found = interleaved(3, ours=lambda: plainly(params, x, y), scikit_learn=theirs)
    ratio = median(found["ours"]) / median(found["scikit_learn"])
    texts = {name: even_slices(values) for name, values in found.items()}
    return {**texts, "ratio": round(ratio, 2), "limit": 3.0, "peak GB": gigabytes()}


def predict() -> dict[str, Any]:
    """Time the prediction alone, of 5 runs."""
    x, y = make(100_000, 30)
    parts = halves(x, 15)
    params = SecureBoost(trees=100, depth=6)
    seconds = []
    for _ in range(3):
        run = train(
            params,
            columns_of({name: part[:5_000] for name, part in parts.items()}),
            parts,
            labels_of(y[:5_000]),
            engine("plain"),
            0,
        )
        seconds.append(run.meters["bank"].seconds["predict"])
    splits = sum(len(tree.nodes) for tree in run.active.share.trees)
    return {"prediction": even_slices(seconds), "splits": splits, "limit": 5.0, "peak GB": gigabytes()}


def wide() -> dict[str, Any]:
    """Train on a wide table once."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 5_000))
    y = (x[:, ::100].sum(axis=1) > 0).astype(np.int64)
    seconds = plainly(SecureBoost(trees=2, depth=5), x, y)
    return {"seconds": round(seconds, 1), "limit GB": 3.0, "peak GB": gigabytes()}


if __name__ == "__main__":
    jobs = {"classes": classes, "forest": forest, "predict": predict, "wide": wide}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=sorted(jobs))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    wanted = [chosen.what] if chosen.what else list(jobs)
    report("trees", {what: jobs[what]() for what in wanted}, chosen.json)
