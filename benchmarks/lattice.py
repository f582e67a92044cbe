"""The lattice engine's operations on one core, beside the figures that it was designed for.

    python benchmarks/lattice.py [--runs 10] [--json FILE]

Processor time of this process, with one worker: microseconds of a row, of the rows of a cell in one block of 4,096, of
a shifted row, of a sealed and of a decrypted sum, as ``labelward doctor`` measures them; the root of job A from
encryption to decrypted sums (30,000 rows, 11 columns of 32 bins, five digits a row); and a sum of its level 5, where 16
nodes of 937 rows are summed from rows encrypted again. Medians, with the least and the most of the runs; a first one is
not counted. The code is that of the processor, or of ``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from _machine import load
from _wiring import report

from labelward.he.base import Layout, LevelWork
from labelward.he.lattice.benchmark import benchmark_lattice
from labelward.he.lattice.engine import LatticeEngine
from labelward.he.lattice.kernel import kernel_name
from labelward.he.lattice.ring import SECURE_DEGREE
from labelward.rng import SecureRandom

ROWS, COLUMNS, BINS, NODES = 30_000, 11, 32, 16
LAYOUT = Layout((1 << 30, 1 << 30, 1), ROWS, 2)
Figures = Mapping[str, float]
LIMITS: Figures = {
    "encrypt": 0.5, "add": 10.0, "shift": 0.85, "seal": 80.0, "decrypt": 6.0,
    "root of job A, ms": 75.0, "level 5 of job A, a sum": 45.0,
}  # fmt: skip
OTHER_LIMITS: dict[str, Figures] = {"avx2": {"add": 13.0}}


class Keys:
    """Both sides of the engine, with one worker."""

    def __init__(self) -> None:
        self.engine, protection = LatticeEngine(), SecureRandom()
        self.private = self.engine.generate(SECURE_DEGREE, protection=protection)
        self.public = self.engine.public(self.private.public.material(), protection=SecureRandom())

    def summed(self, values: np.ndarray, layout: Layout, groups: np.ndarray, n_groups: int) -> np.ndarray:
        """Return what the owner decrypts of sums of rows that it encrypted."""
        block = self.private.encrypt(values, layout).block()
        return self.private.decrypt(self.public.rows(block).group_sums(groups, n_groups).rerandomize())


def root(keys: Keys, rng: np.random.Generator) -> float:
    """Return the milliseconds of the sums of all rows."""
    values = rng.integers(-1, 2, (ROWS, 3)).astype(np.int64)
    groups = rng.integers(0, BINS, (ROWS, COLUMNS)).astype(np.int32)
    start = time.process_time()
    sums = keys.summed(values, LAYOUT, groups, BINS)
    seconds = time.process_time() - start
    assert sums[0].sum() == values[:, 0].sum() + values[:, 1].sum() + values[:, 2].sum()
    return seconds * 1e3


def level(keys: Keys, rng: np.random.Generator) -> float:
    """Return the microseconds of a sum of nodes whose rows are sent again, in their order."""
    rows = ROWS // (2 * NODES)
    work = LevelWork(ROWS, (rows,) * NODES, (BINS,) * COLUMNS)
    spacing = keys.private.level_spacing(LAYOUT, work)
    values = rng.integers(-1, 2, (rows * NODES, 3)).astype(np.int64)
    node = np.repeat(np.arange(NODES, dtype=np.int32), rows)[:, None]
    groups = (node * BINS + rng.integers(0, BINS, (rows * NODES, COLUMNS))).astype(np.int32)
    start = time.process_time()
    keys.summed(values, msgspec.structs.replace(LAYOUT, spacing=spacing), groups, NODES * BINS)
    return (time.process_time() - start) / (NODES * BINS * COLUMNS) * 1e6


def main() -> None:
    """Measure, and report medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    keys, rng, found = Keys(), np.random.default_rng(0), list[Figures]()
    for _ in range(asked.runs + 1):
        own: Figures = next(each for each in benchmark_lattice(keys.engine) if each.chosen).microseconds
        found.append({**own, "root of job A, ms": root(keys, rng), "level 5 of job A, a sum": level(keys, rng)})
    figures: dict[str, Any] = {"code": kernel_name(), "load": load()}
    limits = {**LIMITS, **OTHER_LIMITS.get(kernel_name(), {})}
    for name in found[0]:
        runs, limit = sorted(each[name] for each in found[1:]), limits.get(name)
        figures[name] = {
            "median": round(statistics.median(runs), 2),
            "least and most": [round(runs[0], 2), round(runs[-1], 2)],
            "limit": limit,
            "within": None if limit is None else statistics.median(runs) <= limit,
        }
    report("lattice", figures, asked.json)


if __name__ == "__main__":
    main()
