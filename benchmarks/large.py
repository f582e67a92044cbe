"""Ten million rows under the lattice engine, end to end: one tree, two parties of ten columns in one process.

    python benchmarks/large.py [--rows 10000000] [--workers 2] [--json PATH]

The tables are normal numbers, each held once, as by companies. Wall time begins with the handshake and ends with the
predictions; the peak of memory is the whole process's, tables and both parties included. Loops are compiled before.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from _machine import gigabytes, load
from _wiring import columns_of, labels_of, megabytes, phases, report, train
from numpy.typing import NDArray

from labelward.he import engine
from labelward.he.base import Engine
from labelward.protocols.secureboost.params import SecureBoost

COLUMNS, DEPTH, TEST, BITS = 10, 4, 1_000, 4096
SECONDS, GIGABYTES = 90.0, 8.0

Floats = NDArray[np.float64]


def tables(rows: int) -> tuple[dict[str, Floats], NDArray[np.int64]]:
    """Return both parties' columns, and labels that follow from twelve of them and noise."""
    rng = np.random.default_rng(0)
    parts, score = {name: np.empty((rows, COLUMNS)) for name in ("bank", "telco")}, 3 * rng.standard_normal(rows)
    for part in parts.values():
        for column in range(COLUMNS):
            part[:, column] = rng.standard_normal(rows)
            score += part[:, column] * (column % 3)
    return parts, (score > 0).astype(np.int64)


def measure(rows: int, depth: int, used: Engine) -> dict[str, object]:
    """Train one tree."""
    parts, labels = tables(rows)
    test = {name: part[:TEST].copy() for name, part in parts.items()}
    started, processor = time.monotonic(), time.process_time()
    run = train(SecureBoost(trees=1, depth=depth), columns_of(parts), test, labels_of(labels), used, BITS)
    return {
        "rows": rows,
        "wall seconds": round(time.monotonic() - started, 1),
        "processor seconds": round(time.process_time() - processor, 1),
        "peak GB": gigabytes(),
        "megabytes": round(megabytes(run), 1),
        "phases": phases(run),
        "limits": {"wall seconds": SECONDS, "peak GB": GIGABYTES},
        "load": load(),
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    used = engine("lattice", workers=asked.workers)
    measure(20_000, 3, used)
    result = {"workers": asked.workers, **measure(asked.rows, DEPTH, used)}
    used.close()
    report("large", result, asked.json)


if __name__ == "__main__":
    main()
