"""What the precision of encrypted numbers does to trees: 16 to 30 binary digits, beside 30.

Usage: python benchmarks/precision.py [--json FILE]

Boosted trees on job a's table. Trees do not depend on the engine, so that the one without encryption serves. For each
precision: which share of the splits is that of 30 digits (tree by tree, node by node), how far margins of 10,000 new
rows move, the AUC, and how many sums a plaintext of 2048 bits holds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from _wiring import Run, columns_of, labels_of, report, train
from jobs import BITS, JOBS, TEST
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from labelward.he import Layout, engine
from labelward.he.paillier.packing import Packing
from labelward.protocols.secureboost.params import SecureBoost

Floats = NDArray[np.float64]
PRECISIONS = (16, 18, 20, 22, 24, 26, 28, 30)
SHAPES = {"depth 3, 5 trees": (3, 5), "depth 6, 20 trees": (6, 20), "depth 10, 50 trees": (10, 50)}


def fit(x: Floats, y: NDArray[np.int64], shape: tuple[int, int], precision: int) -> Run:
    """Train without encryption."""
    n, job = len(x) - TEST, JOBS["a"]
    parts = {"bank": np.ascontiguousarray(x[:, : job.active]), "telco": np.ascontiguousarray(x[:, job.active :])}
    first, test = ({name: part[chosen] for name, part in parts.items()} for chosen in (slice(n), slice(n, None)))
    params = SecureBoost(trees=shape[1], depth=shape[0])
    return train(params, columns_of(first), test, labels_of(y[:n]), engine("plain"), 0, precision=precision)


def same_splits(one: Run, other: Run) -> float:
    """Return the share of the splits of ``one`` that the other has at the same node, with the same gain to 1%."""
    equal = total = 0
    for mine, theirs in zip(one.active.share.trees, other.active.share.trees, strict=True):
        known = dict(zip(theirs.nodes, zip(theirs.owners, theirs.gains, strict=True), strict=True))
        for node, owner, gain in zip(mine.nodes, mine.owners, mine.gains, strict=True):
            total += 1
            equal += node in known and known[node][0] == owner and abs(known[node][1] - gain) <= 0.01 * abs(gain)
    return equal / total


def main() -> None:
    """Measure, print, and store if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    (x, y), rows, found = JOBS["a"].table(), JOBS["a"].rows, dict[str, Any]()
    for name, shape in SHAPES.items():
        runs = {precision: fit(x, y, shape, precision) for precision in PRECISIONS}
        best = runs[max(PRECISIONS)]
        for precision, run in runs.items():
            auc = float(roc_auc_score(y[len(x) - TEST :], run.active.margins))
            moved = float(np.abs(np.subtract(run.active.margins, best.active.margins)).max())
            found.setdefault(name, {})[precision] = {
                "same splits": round(same_splits(best, run), 4),
                "margins move by at most": float(f"{moved:.2g}"),
                "auc": round(auc, 5),
            }
    fits = {}
    for precision in PRECISIONS:
        layout = Layout((1 << precision, 1 << max(0, precision - 2), 1), rows, 2)
        fits[precision] = Packing.of(layout, BITS).parts[0].fit
    report("precision", {**found, "sums in a plaintext": fits}, asked.json)


if __name__ == "__main__":
    main()
