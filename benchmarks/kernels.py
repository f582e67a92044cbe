"""Times of the kernels beside the whole training of XGBoost ``hist`` on the same data, in one process.

    python benchmarks/kernels.py [--rows 100000] [--columns 30] [--json FILE]

Two threads, as two parties would: each bins and sums its half of the columns. XGBoost has two threads, and its time
includes the construction of its matrix. Runs are interleaved; medians are printed. Compilation is excluded.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import xgboost
from _wiring import report
from numpy.typing import NDArray

from labelward.kernels.binning import bin_columns, node_candidates, presort
from labelward.kernels.gain import GainRule, best_splits
from labelward.kernels.histogram import groups, level_sums
from labelward.kernels.information import node_bound
from labelward.kernels.objectives import objective
from labelward.kernels.row_layout import FixedPointScales, RowLayout, encode_rows
from labelward.kernels.split_candidates import candidates

Floats = NDArray[np.float64]

BINS, DEPTH, TREES, REPEATS = 32, 6, 5, 5
ONE = FixedPointScales(2.0**30, 2.0**30)


def xgboost_hist(x: Floats, y: Floats, matrix: type[xgboost.DMatrix]) -> None:
    """Train from arrays to model."""
    options = {"max_bin": BINS} if matrix is xgboost.QuantileDMatrix else {}
    data = matrix(x, y, nthread=2, **options)
    parameters = {"tree_method": "hist", "max_bin": BINS, "max_depth": DEPTH, "eta": 0.3, "nthread": 2}
    xgboost.train(parameters | {"objective": "binary:logistic"}, data, TREES)


def jobs(x: Floats, y: Floats) -> dict[str, Callable[[], object]]:
    """Return what is timed, by name."""
    n, columns = x.shape
    halves = [np.ascontiguousarray(x[:, : columns // 2]), np.ascontiguousarray(x[:, columns // 2 :])]
    codes = [bin_columns(half, BINS).codes for half in halves]
    rng = np.random.default_rng(0)
    slots = {nodes: np.asarray(rng.integers(0, nodes, n), dtype=np.int32) for nodes in (1, 32)}
    logistic, numbers, scales = objective("binary:logistic", classes=2), RowLayout(outputs=1, hessians=1), ONE
    values = encode_rows(numbers, *logistic.gradients(np.zeros((n, 1)), y), None, scales)
    own = level_sums(codes[0], slots[32], values, 32, BINS)
    totals = np.array([n - y.sum(), y.sum()])
    purities = np.stack([own[..., 2] // 2, own[..., 2] // 2], axis=-1)
    nodes, kinds = own[0].sum(axis=1), np.zeros(len(own), dtype=np.int8)
    orders = [presort(half) for half in halves]
    pool = ThreadPoolExecutor(2)

    def both(work: Callable[[int], object]) -> Callable[[], object]:
        return lambda: list(pool.map(work, range(2)))

    def best() -> object:
        found = candidates(own, nodes, numbers, scales, GainRule(), kinds=kinds)
        return best_splits(found, nodes, numbers, scales, GainRule(), kinds=kinds)

    return {
        "XGBoost hist, DMatrix: all": lambda: xgboost_hist(x, y, xgboost.DMatrix),
        "XGBoost hist, QuantileDMatrix: all": lambda: xgboost_hist(x, y, xgboost.QuantileDMatrix),
        "binning": both(lambda p: bin_columns(halves[p], BINS)),
        "histogram of 1 node": both(lambda p: level_sums(codes[p], slots[1], values, 1, BINS)),
        "histogram of 32 nodes": both(lambda p: level_sums(codes[p], slots[32], values, 32, BINS)),
        "groups of 32 nodes": both(lambda p: groups(codes[p], slots[32], BINS)),
        "best splits of 32 nodes": best,
        "ID-LMID bounds of 32 nodes": lambda: node_bound(purities, totals),
        "gradients and encoding": lambda: encode_rows(numbers, *logistic.gradients(np.zeros((n, 1)), y), None, scales),
        "node candidates of 32 nodes": both(lambda p: node_candidates(halves[p], slots[32], 32, BINS, orders[p])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((options.rows, options.columns))
    y = (x[:, :5].sum(axis=1) + rng.standard_normal(options.rows) > 0).astype(np.float64)
    work = jobs(x, y)
    times: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(REPEATS + 1):  # the first round compiles and is dropped
        for name, job in work.items():
            start = time.perf_counter()
            job()
            if repeat:
                times[name].append(time.perf_counter() - start)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    base = medians["XGBoost hist, DMatrix: all"]
    figures = {
        name: {"milliseconds": round(1000 * seconds, 2), "of XGBoost": round(seconds / base, 3)}
        for name, seconds in medians.items()
    }
    shape = {"rows": options.rows, "columns": options.columns, "repeats": REPEATS}
    report("kernels", {**shape, "medians": figures}, options.json)


if __name__ == "__main__":
    main()
