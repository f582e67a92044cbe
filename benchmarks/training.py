"""Training speed without encryption: the plain engine beside XGBoost, and growth with the rows.

Usage: python benchmarks/training.py [plain | linear] [--json FILE]; without a choice both

``plain``: 100,000 × 30, 5 trees of depth 6, from arrays in memory to model, beside XGBoost ``hist`` with its matrix
construction.
``linear``: the same shape from 10,000 to 1,000,000 rows, with the exponent of seconds in rows and the peak of memory.
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from _machine import gigabytes
from _wiring import columns_of, even_slices, interleaved, labels_of, median, report, train
from numpy.typing import NDArray
from sklearn.datasets import make_classification

from labelward.he import engine
from labelward.protocols.secureboost.params import SecureBoost

Floats = NDArray[np.float64]


def halves(x: Floats, active: int) -> dict[str, Floats]:
    """Return the first columns for the active party, the others for the passive one."""
    return {"bank": np.ascontiguousarray(x[:, :active]), "telco": np.ascontiguousarray(x[:, active:])}


def make(rows: int, columns: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return generated rows of two classes, of the hardness of job A."""
    x, y = make_classification(
        rows, columns, n_informative=10, n_redundant=4, class_sep=0.8, flip_y=0.05, random_state=0
    )
    return x, y.astype(np.int64)


def boosted(x: Floats, y: NDArray[np.int64], params: SecureBoost) -> xgboost.Booster:
    """Train XGBoost ``hist`` with the same parameters, matrix construction included."""
    same = {
        "tree_method": "hist",
        "max_bin": params.bins,
        "max_depth": params.depth,
        "eta": params.learning_rate,
        "lambda": params.reg_lambda,
        "gamma": params.gamma,
        "min_child_weight": params.min_child_weight,
        "objective": "binary:logistic",
        "base_score": 0.5,
        "nthread": 2,
    }
    return xgboost.train(same, xgboost.QuantileDMatrix(x, y, max_bin=params.bins), params.trees)


def ours(x: Floats, y: NDArray[np.int64], params: SecureBoost) -> float:
    """Return seconds from arrays to model under the plain engine, two parties."""
    parts = halves(x, x.shape[1] // 2)
    test = {name: part[:1] for name, part in parts.items()}
    return train(params, columns_of(parts), test, labels_of(y), engine("plain"), 0).seconds


def theirs(x: Floats, y: NDArray[np.int64], params: SecureBoost) -> float:
    """Return seconds of XGBoost."""
    start = time.perf_counter()
    boosted(x, y, params)
    return time.perf_counter() - start


def plain() -> dict[str, Any]:
    """Compare with XGBoost: the median of 5 interleaved runs."""
    x, y = make(100_000, 30)
    params = SecureBoost(trees=5, depth=6)
    found = interleaved(5, ours=lambda: ours(x, y, params), xgboost=lambda: theirs(x, y, params))
    ratio = median(found["ours"]) / median(found["xgboost"])
    texts = {name: even_slices(values) for name, values in found.items()}
    shape = "100,000 x 30, 5 trees of depth 6"
    return {"shape": shape, **texts, "ratio": round(ratio, 2), "limit": 3.0, "peak GB": gigabytes()}


def linear() -> dict[str, Any]:
    """Measure the growth of seconds with the rows."""
    params = SecureBoost(trees=5, depth=6)
    sizes = (10_000, 30_000, 100_000, 300_000, 1_000_000)
    x, y = make(max(sizes), 30)
    seconds = {}
    for n in sizes:
        job = functools.partial(ours, x[:n], y[:n], params)
        seconds[n] = median(interleaved(3, ours=job)["ours"])
    large = [n for n in sizes if n >= 30_000]
    slope = np.polyfit(np.log(large), np.log([seconds[n] for n in large]), 1)[0]
    rounded = {str(n): round(value, 3) for n, value in seconds.items()}
    return {"seconds": rounded, "exponent from 30,000 rows on": round(float(slope), 3), "peak GB": gigabytes()}


if __name__ == "__main__":
    jobs = {"plain": plain, "linear": linear}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=sorted(jobs))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    wanted = [chosen.what] if chosen.what else list(jobs)
    report("training", {what: jobs[what]() for what in wanted}, chosen.json)
