"""Instance clustering on 10,000 to 1,000,000 rows beside scikit-learn: seconds, memory, and whether labels agree.

Usage: python benchmarks/instance_clustering.py [--json FILE]

Trees and views are those of ``benchmarks/tree_attacks.py``. Each size runs in a process of its own, so that peaks do
not mix. Of 30,000 rows, samples of 2,000 (their leaves, as the attacker would see a smaller table) are clustered by
scikit-learn on the whole matrix, too: its spectral embedding, with rows scaled to length 1, and k-means. Limits: 60 s
and 3 GB at 1,000,000 rows; adjusted Rand index of .99 with scikit-learn in each sample.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _machine import peak
from _wiring import report
from numpy.typing import NDArray
from tree_attacks import planted

from labelward.attacks.base import AttackerData, AuxiliaryKnowledge, LabelGuess
from labelward.attacks.instance_clustering import InstanceClustering
from labelward.metrics.leakage import score_clusters
from labelward.testing.attacks import planted_view

SIZES = (10_000, 30_000, 100_000, 1_000_000)
SECONDS, BYTES, AGREEMENT = 60.0, 3e9, 0.99
SAMPLED, SAMPLE, SAMPLES, CLASSES = 30_000, 2_000, 3, (2, 3)


def attack(leaves: NDArray[np.int32], classes: int) -> LabelGuess:
    """Cluster rows by their leaves."""
    own = AttackerData(features=np.empty((leaves.shape[1], 0)), columns=[])
    return InstanceClustering()(
        planted_view(leaves), own, AuxiliaryKnowledge(classes=classes), rng=np.random.default_rng(1)
    )


def measure(rows: int, model: str) -> dict[str, Any]:
    """Return what one attack, compiled before, takes and reaches."""
    _, leaves, labels = planted(rows, model)
    attack(leaves[:, :1000], 2)
    before = peak()
    begin, used = time.perf_counter(), time.process_time()
    guess = attack(leaves, 2)
    took = {"seconds": time.perf_counter() - begin, "processor": time.process_time() - used}
    highest = peak()
    found = score_clusters(guess.values, labels, known_per_cluster=1)
    rounded = {name: round(value, 4) for name, value in (took | found).items()}
    return {"rows": rows, "groups": int(guess.notes["groups"]), "before": before, "peak": highest, **rounded}


def agreement(model: str) -> dict[str, Any]:
    """Return the adjusted Rand index with scikit-learn in samples of rows, and its mean seconds on one."""
    from sklearn.cluster import KMeans
    from sklearn.manifold import spectral_embedding

    _, leaves, _ = planted(SAMPLED, model)
    rng = np.random.default_rng(2)
    found, seconds = [], 0.0
    for _ in range(SAMPLES):
        few = leaves[:, rng.choice(SAMPLED, SAMPLE, replace=False)]
        shares = np.mean([(leaf[:, None] == leaf[None, :]) & (leaf >= 0) for leaf in few], axis=0)
        for classes in CLASSES:
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # rows in no leaf are not connected
                points = spectral_embedding(shares, n_components=classes, drop_first=False, random_state=0)
            points /= np.linalg.norm(points, axis=1, keepdims=True)
            labels = KMeans(classes, n_init=10, random_state=0).fit_predict(points)
            seconds += time.perf_counter() - begin
            found.append(round(score_clusters(attack(few, classes).values, labels)["ari"], 4))
    return {"rows": SAMPLE, "adjusted_rand": found, "seconds": round(seconds / len(found), 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    figures: dict[str, Any] = {}
    failed = False
    for model in ("forest", "secureboost"):
        sizes = []
        for rows in SIZES:
            command = [sys.executable, __file__, str(rows), model]
            sizes.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        beside = agreement(model)
        figures[model] = {"sizes": sizes, "scikit-learn": beside}
        failed |= any(each["seconds"] > SECONDS or each["peak"] > BYTES for each in sizes)
        failed |= min(beside["adjusted_rand"]) < AGREEMENT
    report("instance clustering", {**figures, "within": not failed}, chosen.json)
    sys.exit(int(failed))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].isdecimal():
        print(json.dumps(measure(int(sys.argv[1]), sys.argv[2])))
    else:
        main()
